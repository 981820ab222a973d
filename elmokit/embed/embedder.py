"""Give every token of a sentence its vectors, from all layers of a biLM.

Shapes: L layers of vectors (the token layer, then the LSTMs'), T tokens, D width.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor

from elmokit.embed.encoding import EncodeOptions, EncodeSettings, encode_texts
from elmokit.embed.engine import Engine, find_device
from elmokit.embed.options import EmbedderOptions
from elmokit.embed.picking import Layer, Vectors, check_layer
from elmokit.embed.pickling import Origin, PickledEmbedder, describe_reading, find_origin, hash_tensors, pack, unpack
from elmokit.embed.reading import Reader
from elmokit.embed.sentences import EmbeddedSentence, Sentence
from elmokit.embed.state import StartStates, State
from elmokit.embed.worker_pool import EmbedderPool
from elmokit.kernels.stack import Precision
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.text.checks import check_sentences, check_tokens
from elmokit.text.spelling import Dictionary
from elmokit.text.tokens import tokenize, tokenize_with_offsets
from elmokit.weights.bundled import EN_SMALL
from elmokit.weights.folder import save_folder
from elmokit.weights.hub import fetch, push_saved
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import Source, build_bilm, load_saved
from elmokit.weights.start_state import stored_state, to_tensors


class Embedder:
    """A biLM that turns sentences into arrays.

    A sentence is a list of tokens, taken as they are, or a string, which is tokenized. Under ``state="warm"`` (the
    default) and ``"reset"`` a token's vectors depend on its sentence alone.

    Call `embed` for tokens, offsets and all layers; `embed_layers` for the arrays alone; `embed_tokens` for one vector
    per token; `encode` for one vector per text. An Embedder can be pickled, copied and used in forked and spawned
    processes. A model from disk is pickled as its path and a hash of its weights.

    Args:
        bilm: the model. Its weights are shared, not copied, and must not be trained any more.
        state: where the LSTMs start a sentence. ``"warm"``: in the state that they reach on running text;
            ``"reset"``: at zero; ``"carry"``: where the sentence before ended, as bilm-tf and AllenNLP do.
        precision: ``"fp32"``, or ``"int8"`` to round the LSTMs' weights to eight bits: faster on a CPU with compiled
            kernels, and nearly the same vectors. ``"bf16"`` is for CPUs with AVX512_BF16 alone.
        language: the language of raw strings, which are tokenized by its rules, such as ``"en"`` or ``"de"``.
        warm: the start state for ``state="warm"``, each tensor (layers, 1, width); computed at first use if None.
        dictionary: the characters and words of a model that does not read bytes.
        device: the torch device to run on.
    """

    def __init__(
        self,
        bilm: BiLM,
        *,
        state: State = "warm",
        precision: Precision = "fp32",
        language: str = "en",
        warm: BiLMState | None = None,
        dictionary: Dictionary | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = find_device(device)
        self.language = language
        self._engine = Engine(bilm.to(self.device), precision=precision, dictionary=dictionary)
        self.bilm = self._engine.bilm
        self._states = StartStates(state, warm=warm, dictionary=dictionary)
        self._reader = Reader(self._engine, self._states)
        self._given_start = warm
        self._origin: Origin | None = None
        self._published_options: dict[str, Any] | None = None

    @classmethod
    def from_pretrained(
        cls, source: Source | None = None, *, revision: str | None = None, **options: Unpack[EmbedderOptions]
    ) -> "Embedder":
        """Load a saved biLM.

        Args:
            source: a folder or an archive with a model in any format that elmokit reads, a pair of paths (options,
                weights) of a published model, the name of an installed model, or ``org/name`` on a hub. None loads
                ``en-small``, the English model in the package.
            revision: branch, tag or commit of a model on a hub.
            options: ``state``, ``precision``, ``language`` and ``device``, as for `Embedder`.
        """
        source = fetch(EN_SMALL if source is None else source, revision=revision)
        embedder = cls.from_saved(load_saved(source), **options)
        embedder._origin = find_origin(source)
        return embedder

    @classmethod
    def from_saved(cls, saved: SavedBiLM, **options: Unpack[EmbedderOptions]) -> "Embedder":
        """Build an Embedder around a saved biLM that is already in memory (`elmokit.weights.source.load_saved`).

        Args:
            saved: config, tensors and, where there is one, the start state. The tensors are shared, not copied.
            options: ``state``, ``precision``, ``language`` and ``device``, as for `Embedder`.
        """
        embedder = cls(build_bilm(saved), warm=stored_state(saved), dictionary=saved.dictionary, **options)
        embedder._published_options = saved.options
        return embedder

    def save_pretrained(self, folder: str | Path, *, description: str | None = None, half: bool = False) -> None:
        """Save the biLM as a folder that `from_pretrained` loads; a model of ours that is there is replaced.

        The output layer, which scoring and fine-tuning need, is not part of an Embedder and not saved.

        Args:
            folder: the folder to write.
            description: a text for the model card.
            half: store weights as float16: half the size, with about three digits.
        """
        save_folder(self.saved(), folder, description=description, half=half)

    def push_to_hub(self, name: str, *, private: bool = False, description: str | None = None) -> str:
        """Upload the biLM to a hub as ``org/name``; return the URL of the commit. Needs the extra ``hub``."""
        return push_saved(self.saved(), name, private=private, description=description)

    def __repr__(self) -> str:
        return (
            f"Embedder({self.name or 'in memory'!r}, num_layers={self.num_layers}, width={self.width}, "
            f"precision={self.precision!r}, state={self.state!r}, language={self.language!r}, "
            f"device={str(self.device)!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self.pack())

    def __deepcopy__(self, _: Any) -> "Embedder":
        copied = self.unpack(self.pack(with_weights=True))
        copied._origin = self._origin
        return copied

    def pack(self, *, with_weights: bool = False, with_start: bool = False) -> PickledEmbedder:
        """Return bytes that `unpack` builds the same Embedder from.

        Args:
            with_weights: also store the weights of a model from disk.
            with_start: also store the start state of ``state="warm"``, which is otherwise computed again.
        """
        states = {"carried": self.carried_state}
        if with_start and self.state == "warm":
            states["warm"] = self._states.begin(self.bilm, 1)
        origin = None if with_weights else self._origin
        return pack(self.saved(), origin, states=states, options=self._options())

    @classmethod
    def unpack(cls, pickled: PickledEmbedder, *, device: str | None = None) -> "Embedder":
        """Build an Embedder from what `pack` returned, on another device if one is given."""
        found = unpack(pickled)
        options = found.options if device is None else found.options | {"device": device}
        embedder = cls.from_saved(found.saved, **options)
        embedder._origin = found.origin
        embedder._states.carried = found.states.get("carried")
        embedder._states.warm = found.states.get("warm", embedder._states.warm)
        return embedder

    def _options(self) -> EmbedderOptions:
        return {
            "state": self.state,
            "precision": self.precision,
            "language": self.language,
            "device": str(self.device),
        }

    def saved(self) -> SavedBiLM:
        """Return the biLM as it is saved; the tensors are the Embedder's own, not copies."""
        start = None if self._given_start is None else to_tensors(self._given_start)
        tensors, dictionary = dict(self.bilm.state_dict()), self._engine.spelling.dictionary
        return SavedBiLM(self.bilm.config, tensors, self._published_options, start, dictionary)

    @property
    def name(self) -> str | None:
        """Name or path of the model; None if it was built in memory."""
        return None if self._origin is None else self._origin.name

    @property
    def precision(self) -> Precision:
        """Precision of the LSTMs' weights."""
        return self._engine.precision

    @property
    def num_layers(self) -> int:
        """Number of layers, the token layer included."""
        return self.bilm.config.num_layers

    @property
    def width(self) -> int:
        """Width of a vector."""
        return self.bilm.config.width

    @property
    def state(self) -> State:
        """Policy for the state in which a sentence starts."""
        return self._states.policy

    @property
    def num_cut_words(self) -> int:
        """Number of words so far that were cut, because they are longer than the model reads."""
        return self._engine.cut_words.num_cut

    @property
    def carried_state(self) -> BiLMState | None:
        """State that ``state="carry"`` has reached, to resume from later; None at the start."""
        return self._states.carried

    @carried_state.setter
    def carried_state(self, state: BiLMState | None) -> None:
        self._states.carried = state

    def fingerprint(self) -> str:
        """Return a hash of all that vectors depend on besides their sentence: config, weights and start state."""
        settings = f"{describe_reading(self.saved())} {self.state} {self.precision}"
        start = self._states.begin(self.bilm, 1).parts() if self.state == "warm" else {}
        return hash_tensors(settings, {**self.bilm.state_dict(), **start})

    def tokenize(self, sentence: str) -> list[str]:
        """Return the tokens that a raw sentence is embedded as; the sentence is not split further."""
        return tokenize(sentence, language=self.language)

    def forget_words(self) -> None:
        """Empty the cache of token vectors; they are computed again when they are needed."""
        self._engine.cache.clear()

    def reset_state(self) -> None:
        """Reset the state carried from batch to batch; without effect unless ``state="carry"``."""
        self._states.reset()

    def embed(self, sentences: Iterable[Sentence], *, batch_size: int = 64) -> list[EmbeddedSentence]:
        """Return the tokens of every sentence with their place in the text and their vectors.

        Args:
            sentences: strings, each tokenized as one sentence, or lists of tokens.
            batch_size: sentences that are run together at most.

        Returns:
            One `EmbeddedSentence` per sentence: ``.tokens``, ``.offsets`` (None for lists of tokens) and ``.layers``,
            (L, T, D).
        """
        read = [self._locate_tokens(sentence) for sentence in check_sentences(sentences)]
        found = self.iter_layers([tokens for tokens, _ in read], batch_size=batch_size)
        return [
            EmbeddedSentence(list(tokens), offsets, layers_LTD)
            for (tokens, offsets), layers_LTD in zip(read, found, strict=True)
        ]

    def embed_layers(self, sentences: Iterable[Sentence], *, batch_size: int = 64) -> list[Vectors]:
        """Return every layer of every token.

        Args:
            sentences: strings, each tokenized as one sentence, or lists of tokens.
            batch_size: sentences that are run together at most.

        Returns:
            One float32 array (L, T, D) per sentence, unpadded, without boundary tokens. Layer 0 is the token layer.
        """
        return list(self.iter_layers(sentences, batch_size=batch_size))

    def iter_layers(self, sentences: Iterable[Sentence], *, batch_size: int = 64) -> Iterator[Vectors]:
        """Yield the arrays of `embed_layers` one by one, in order; the sentences may be a generator without end."""
        return self._reader.iter_layers(map(self._as_tokens, check_sentences(sentences)), batch_size=batch_size)

    def iter_unordered(self, sentences: Sequence[Sentence], *, batch_size: int = 64) -> Iterator[tuple[int, Vectors]]:
        """Yield (index of a sentence, its layers) as they are computed: batches of similar length, longest first.

        Args:
            sentences: strings or lists of tokens.
            batch_size: sentences that are run together at most.
        """
        tokenized = [self._as_tokens(sentence) for sentence in check_sentences(sentences)]
        for index, layers_LTD in self._reader.iter_unordered(tokenized, batch_size=batch_size):
            yield index, layers_LTD.copy()  # so that one sentence does not keep its whole batch in memory

    def run_batch(self, batch: Sequence[Sequence[str]]) -> list[Vectors]:
        """Run tokenized sentences as one batch; return their layers, (L, T, D) each, as views of one array."""
        return self._reader.run_batch(batch)

    def iter_tokens(
        self, sentences: Iterable[Sentence], *, layer: Layer, batch_size: int, pool: EmbedderPool | None = None
    ) -> Iterator[Vectors]:
        """Yield the arrays of `embed_tokens` one by one, computed by a pool's processes if there is one."""
        check_layer(layer, self.num_layers)
        tokenized = map(self._as_tokens, check_sentences(sentences))
        return self._reader.iter_tokens(tokenized, layer=layer, batch_size=batch_size, pool=pool)

    def embed_tokens(
        self, sentences: Iterable[Sentence], *, layer: Layer = "mean", batch_size: int = 64
    ) -> list[Vectors]:
        """Return one vector per token.

        Args:
            sentences: strings, which are tokenized, or lists of tokens.
            layer: a layer's number (0 is the token layer, -1 the top), or ``"mean"`` of all.
            batch_size: sentences that are run together at most.

        Returns:
            One float32 array (T, D) per sentence.
        """
        return list(self.iter_tokens(sentences, layer=layer, batch_size=batch_size))

    @overload
    def encode(
        self,
        sentences: str | Iterable[Sentence],
        *,
        convert_to_numpy: Literal[True] = True,
        convert_to_tensor: Literal[False] = False,
        **options: Unpack[EncodeOptions],
    ) -> Vectors: ...
    @overload
    def encode(
        self,
        sentences: str | Iterable[Sentence],
        *,
        convert_to_numpy: bool = True,
        convert_to_tensor: Literal[True],
        **options: Unpack[EncodeOptions],
    ) -> Tensor: ...
    @overload
    def encode(
        self,
        sentences: Iterable[Sentence],
        *,
        convert_to_numpy: Literal[False],
        convert_to_tensor: Literal[False] = False,
        **options: Unpack[EncodeOptions],
    ) -> list[Tensor]: ...

    def encode(
        self,
        sentences: str | Iterable[Sentence],
        *,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        **options: Unpack[EncodeOptions],
    ) -> Vectors | Tensor | list[Tensor]:
        """Return one vector per text, with the arguments of sentence-transformers' ``encode``.

        A string may hold several sentences: each is run by itself, and all their tokens are pooled. A text without
        tokens gives zeros.

        Args:
            sentences: N texts, each a string or a list of tokens; or one string.
            convert_to_numpy: return an array; if this and ``convert_to_tensor`` are false, a list of tensors.
            convert_to_tensor: return a tensor instead of an array.
            prompt: a text to put before every string. ``prompt_name`` is rejected: a biLM has no named prompts.
            batch_size: sentences that are run together at most; 64 by default.
            show_progress_bar: draw a progress bar on stderr.
            normalize_embeddings: scale every vector to length 1.
            truncate_dim: keep the first so many values of a vector.
            pooling: ``"mean"`` (the default) or ``"max"`` over a text's tokens, or a fitted `SentencePooling`.
            layer: a layer's number (0 is the token layer, -1 the top), or ``"mean"`` of all, the default.
            device: None, the Embedder's own device, or a list of devices, one per process to start for this call.
            pool: processes from `start_multi_process_pool`; the vectors are the same as without. ``chunk_size`` is
                accepted without effect: a process gets one batch at a time.
            output_value: only ``"sentence_embedding"``; see `embed_tokens` for one vector per token.
            precision: only ``"float32"``; see `from_pretrained` for eight-bit weights.

        Returns:
            float32 of shape (N, D); (D,) for one string.
        """
        texts = [sentences] if isinstance(sentences, str) else sentences
        vectors_ND = encode_texts(self, texts, EncodeSettings(**options))
        vectors: Vectors = vectors_ND[0] if isinstance(sentences, str) else vectors_ND
        if convert_to_tensor:
            return torch.from_numpy(vectors)
        return vectors if convert_to_numpy else list(torch.from_numpy(vectors))

    def start_multi_process_pool(self, target_devices: Sequence[str] | None = None) -> EmbedderPool:
        """Start processes for ``encode(pool=…)``; end them with `stop_multi_process_pool`, or use a ``with`` block.

        The processes are spawned, so a script needs ``if __name__ == "__main__":``.

        Args:
            target_devices: the device of each process, such as ``["cpu", "cpu"]``; by default one process per core.
        """
        return EmbedderPool(self, target_devices)

    @staticmethod
    def stop_multi_process_pool(pool: EmbedderPool) -> None:
        """End the processes of a pool that `start_multi_process_pool` returned."""
        pool.close()

    def _as_tokens(self, sentence: Sentence) -> Sequence[str]:
        return self.tokenize(sentence) if isinstance(sentence, str) else check_tokens(sentence)

    def _locate_tokens(self, sentence: Sentence) -> tuple[Sequence[str], list[tuple[int, int]] | None]:
        if not isinstance(sentence, str):
            return check_tokens(sentence), None
        located = tokenize_with_offsets(sentence, language=self.language)
        return located.tokens, located.offsets


def _unpickle(kind: type[Embedder], pickled: PickledEmbedder) -> Embedder:
    return kind.unpack(pickled)

"""ELMo as a module of sentence-transformers.

`load` makes a ``SentenceTransformer`` from any model of elmokit. One that was saved is loaded with
``SentenceTransformer(folder, trust_remote_code=True)``: the library imports modules outside its own package only then.

Shapes: B texts, S sentences, T tokens, C characters per word, D width.
"""

from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from elmokit.embed.elmo import Elmo
from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Pooling, check_pooling
from elmokit.embed.state import State
from elmokit.errors import InputError
from elmokit.extras import require
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import tokenize
from elmokit.weights.source import Source

library = require("sentence_transformers", extra="sentence-transformers")
modules = require("sentence_transformers.base.modules", extra="sentence-transformers")

BILM, MIX = "bilm", "mix.safetensors"


class ElmoModule(modules.InputModule):  # type: ignore[name-defined, misc]
    """The first module of a ``SentenceTransformer``: token vectors as a mix of the biLM's layers.

    Without gradients it runs on the same engine as `elmokit.Embedder`. The mix starts as the mean of all layers.

    Args:
        elmo: the biLM and one mix, without dropout.
        language: the language of the texts, for the tokenizer.
        state: where the LSTMs start a sentence, as ``elmo`` was built with.
        train_bilm: whether a loss trains the biLM too.
    """

    config_keys: list[str] = ["language", "state", "train_bilm"]  # noqa: RUF012
    save_in_root: bool = False

    def __init__(self, elmo: Elmo, *, language: str = "en", state: State = "warm", train_bilm: bool = False) -> None:
        super().__init__()
        self.elmo = elmo
        self.language, self.state, self.train_bilm = language, state, train_bilm
        self._engine: Embedder | None = None

    @classmethod
    def from_pretrained(
        cls, source: Source | None = None, *, language: str = "en", state: State = "warm", train_bilm: bool = False
    ) -> Self:
        """Load a model.

        Args:
            source: a model, as `elmokit.Embedder.from_pretrained` takes it.
            language: the language of the texts, for the tokenizer.
            state: where the LSTMs start a sentence, ``"warm"`` or ``"reset"``.
            train_bilm: let a loss train the biLM too, not only the mix.
        """
        if state == "carry":
            raise InputError("state is 'carry', under which a vector depends on its batch; use 'reset' or 'warm'")
        elmo = Elmo.from_pretrained(source, dropout=0.0, requires_grad=train_bilm, state=state)
        return cls(elmo, language=language, state=state, train_bilm=train_bilm)

    def preprocess(self, inputs: list[str], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Split texts into sentences and tokens.

        Args:
            inputs: B texts.
            prompt: put before every text.
        """
        texts = [split_sentences((prompt or "") + text, language=self.language) for text in inputs]
        sentences = [[tokenize(sentence, language=self.language) for sentence in text] for text in texts]
        lengths = [sum(map(len, text)) for text in sentences]
        mask_BT = torch.arange(max(1, *lengths)) < torch.tensor(lengths)[:, None]
        # The trainer recognizes the features of a text by this name.
        return {"input_ids": mask_BT.long(), "attention_mask": mask_BT.long(), "sentences": sentences}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Set ``token_embeddings``, (B, T, D), for a pooling module.

        Args:
            features: as `preprocess` returns them.
        """
        sentences = [sentence for text in features["sentences"] for sentence in text]
        vectors = self._run(sentences) if torch.is_grad_enabled() else self._run_engine(sentences)
        parts = iter(vectors)
        like = next(self.elmo.parameters())
        texts = [
            torch.cat([like.new_zeros(0, self.elmo.width), *(next(parts) for _ in t)]) for t in features["sentences"]
        ]
        padded_BTD = pad_sequence(texts, batch_first=True)
        missing = features["attention_mask"].shape[1] - padded_BTD.shape[1]
        features["token_embeddings"] = torch.nn.functional.pad(padded_BTD, (0, 0, 0, missing))
        return features

    def _run(self, sentences: list[list[str]]) -> list[Tensor]:
        """Return one tensor (T, D) per sentence, through which gradients flow."""
        if not sentences:
            return []
        self._engine = None  # a step will change the weights
        [mixed_STD] = self.elmo(self.elmo.char_ids(sentences)).mixes
        return [mixed_TD[: len(tokens)] for mixed_TD, tokens in zip(mixed_STD, sentences, strict=True)]

    def _run_engine(self, sentences: list[list[str]]) -> list[Tensor]:
        if not sentences:
            return []
        if self._engine is None:
            device = next(self.elmo.parameters()).device
            start = None if self.train_bilm else self.elmo.stored_start
            self._engine = Embedder(self.elmo.bilm, state=self.state, warm=start, device=device)
        layers = [torch.from_numpy(layers_LTD) for layers_LTD in self._engine.iter_layers(sentences)]
        joined_LTD = torch.cat(layers, dim=1).to(self._engine.device)
        mask_BT = torch.ones(1, joined_LTD.shape[1], dtype=torch.bool, device=joined_LTD.device)
        [mixed_TD] = self.elmo.mixes[0](joined_LTD[None], mask_BT)
        return list(mixed_TD.split([len(tokens) for tokens in sentences]))

    def get_embedding_dimension(self) -> int:
        """Return the width of a vector."""
        return self.elmo.width

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Save the biLM as a folder of elmokit, the mix and the settings.

        Args:
            output_path: the folder to write.
        """
        self.elmo.save_pretrained(Path(output_path) / BILM)
        self.save_config(output_path)
        save_file(self.elmo.mixes.state_dict(), Path(output_path) / MIX)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> Self:
        """Load what `save` saved.

        Args:
            model_name_or_path: folder of the ``SentenceTransformer``.
            subfolder: folder of the module in it.
            options: how the library finds files of a hub.
        """
        hub = {
            name: options[name] for name in ("token", "cache_folder", "revision", "local_files_only") if name in options
        }
        config = cls.load_config(model_name_or_path, subfolder, **hub)
        folder = Path(cls.load_dir_path(model_name_or_path, subfolder, **hub))
        loaded = cls.from_pretrained(folder / BILM, **config)
        loaded.elmo.mixes.load_state_dict(load_file(folder / MIX))
        return loaded


def load(
    source: Source | None = None,
    *,
    pooling: Pooling = "mean",
    language: str = "en",
    state: State = "warm",
    train_bilm: bool = False,
) -> Any:
    """Return a ``SentenceTransformer`` with the vectors of `elmokit.Embedder.encode`.

    Args:
        source: a model, as `elmokit.Embedder.from_pretrained` takes it, or a folder that a ``SentenceTransformer`` made
            here was saved to.
        pooling: ``"mean"`` or ``"max"`` over the tokens of a text.
        language: the language of the texts, for the tokenizer.
        state: where the LSTMs start a sentence, ``"warm"`` or ``"reset"``.
        train_bilm: let a loss train the biLM too, not only the mix.
    """
    check_pooling(pooling)
    if isinstance(source, str | Path) and (Path(source) / "modules.json").is_file():
        return library.SentenceTransformer(str(source), trust_remote_code=True)
    module = ElmoModule.from_pretrained(source, language=language, state=state, train_bilm=train_bilm)
    pooled = require("sentence_transformers.sentence_transformer.modules", extra="sentence-transformers").Pooling(
        module.get_embedding_dimension(), pooling_mode=pooling
    )
    return library.SentenceTransformer(modules=[module, pooled], device="cpu")

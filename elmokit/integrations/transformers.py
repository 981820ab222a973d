"""ELMo in Hugging Face transformers: config, model and tokenizer, registered with the Auto classes.

After ``import elmokit.integrations.transformers``, ``AutoModel.from_pretrained(folder)`` loads a folder that
``ElmoModel.save_pretrained`` wrote. ``ElmoModel.from_elmokit`` makes one from any model of elmokit.

Shapes: B sentences, T tokens, C characters per word, L layers, D width.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from elmokit.config import BiLMConfig
from elmokit.embed.elmo import drop_boundaries, read_layers
from elmokit.embed.sentences import Sentence
from elmokit.embed.state import StartStates
from elmokit.errors import InputError
from elmokit.extras import require
from elmokit.model.bilm import BiLM
from elmokit.model.scalar_mix import ScalarMix
from elmokit.text.chars import pad_sentences
from elmokit.text.tokens import tokenize
from elmokit.weights.bundled import EN_SMALL
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.source import Source, load_saved
from elmokit.weights.start_state import from_tensors, to_tensors, warm_state

library = require("transformers", extra="transformers", having="PreTrainedConfig")
outputs = require("transformers.modeling_outputs", extra="transformers")
tokenizers = require("transformers.tokenization_utils_base", extra="transformers")

MODEL_TYPE = "elmokit"
TOKENIZER_FILE = "tokenizer_config.json"
NO_LABEL = -100


class ElmoConfig(library.PreTrainedConfig):  # type: ignore[name-defined, misc]
    """Settings of a biLM as transformers saves them.

    Args:
        bilm: sizes of the biLM, as `elmokit.config.BiLMConfig` names them; None for the defaults of that class.
        warm: start every sentence from a settled state instead of zeros.
        classifier_dropout: dropout before the classifier of `ElmoForTokenClassification`.
        options: settings of every transformers model, such as ``id2label``.
    """

    model_type = MODEL_TYPE

    def __init__(
        self,
        bilm: dict[str, Any] | None = None,
        *,
        warm: bool = True,
        classifier_dropout: float = 0.1,
        **options: Any,
    ) -> None:
        self.bilm = bilm or BiLMConfig().model_dump(mode="json")
        self.warm = warm
        self.classifier_dropout = classifier_dropout
        super().__init__(**options)

    @property
    def hidden_size(self) -> int:
        """Width of a vector."""
        return self.sizes.width

    @property
    def num_hidden_layers(self) -> int:
        """Number of LSTM layers."""
        return self.sizes.num_layers - 1

    @property
    def sizes(self) -> BiLMConfig:
        """Validated sizes of the biLM."""
        return BiLMConfig.model_validate(self.bilm)


class _ElmoPreTrained(library.PreTrainedModel):  # type: ignore[name-defined, misc]
    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize a new classifier; the biLM initializes itself."""
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(std=0.02)
            if module.bias is not None:
                module.bias.data.zero_()


class ElmoModel(_ElmoPreTrained):
    """A biLM whose ``hidden_states`` are its layers, the token layer first.

    Args:
        config: the settings.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.bilm = BiLM(config.sizes)
        for name, part in to_tensors(self.bilm.zero_state(1)).items():
            self.register_buffer(_buffer(name), part)
        self.post_init()

    @classmethod
    def from_elmokit(cls, source: Source | None = None, *, warm: bool = True) -> Self:
        """Make a model from one of elmokit's.

        Args:
            source: a model, as `elmokit.Embedder.from_pretrained` takes it; None is ``en-small``.
            warm: start every sentence from a settled state, as `elmokit.Embedder` does by default.
        """
        saved: SavedBiLM = load_saved(EN_SMALL if source is None else source)
        model = cls(ElmoConfig(saved.config.model_dump(mode="json"), warm=warm))
        model.bilm.load_state_dict(saved.tensors)
        model.eval()
        start = saved.start_state or to_tensors(warm_state(model.bilm))
        for name, part in start.items():
            getattr(model, _buffer(name)).copy_(part)
        return model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **_: Any,
    ) -> Any:
        """Return ``last_hidden_state``, the top layer (B, T, D), and on request ``hidden_states``, L such tensors.

        Args:
            input_ids: character ids (B, T, C), zero on padding, as `ElmoTokenizer` makes them.
            attention_mask: 1 for real tokens, (B, T); tokens that it masks are read as padding.
            output_hidden_states: return all layers.
            return_dict: False returns a tuple.
        """
        if attention_mask is not None:
            input_ids = input_ids * attention_mask[:, :, None].to(input_ids.dtype)
        padded = read_layers(self.bilm, input_ids, self._states())
        layers = [drop_boundaries(layer_BTD, padded.mask_BT) for layer_BTD in padded.layers_BLTD.unbind(1)]
        wants_all = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        result = outputs.BaseModelOutput(
            last_hidden_state=layers[-1], hidden_states=tuple(layers) if wants_all else None
        )
        wants_dict = self.config.return_dict if return_dict is None else return_dict
        return result if wants_dict else result.to_tuple()

    def _states(self) -> StartStates:
        if not self.config.warm:
            return StartStates("reset", warm=None)
        names = to_tensors(self.bilm.zero_state(1))
        return StartStates("warm", warm=from_tensors({name: getattr(self, _buffer(name)) for name in names}))


class ElmoForTokenClassification(_ElmoPreTrained):
    """A trained mix of the biLM's layers and a linear classifier per token.

    Args:
        config: the settings; ``num_labels`` or ``id2label`` decide the number of classes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.elmo = ElmoModel(config)
        self.mix = ScalarMix(config.sizes.num_layers)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **_: Any
    ) -> Any:
        """Return ``logits`` (B, T, classes), and with ``labels`` (B, T) the loss; the label -100 is ignored.

        Args:
            input_ids: character ids (B, T, C).
            attention_mask: 1 for real tokens, (B, T).
            labels: the class of each token.
        """
        found = self.elmo(input_ids, attention_mask, output_hidden_states=True, return_dict=True)
        layers_BLTD = torch.stack(found.hidden_states, dim=1)
        mask_BT = input_ids.ne(0).any(dim=-1)
        logits_BTK = self.classifier(self.dropout(self.mix(layers_BLTD, mask_BT)))
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits_BTK.flatten(0, 1), labels.flatten(), ignore_index=NO_LABEL)
        return outputs.TokenClassifierOutput(loss=loss, logits=logits_BTK)


class ElmoTokenizer(tokenizers.PreTrainedTokenizerBase):  # type: ignore[name-defined, misc]
    """A tokenizer that spells words: strings are tokenized, lists of tokens are taken as they are.

    Args:
        max_chars: characters per word, boundaries included.
        language: the language of strings.
        options: settings of every transformers tokenizer.
    """

    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012
    vocab_files_names: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, max_chars: int = 50, language: str = "en", **options: Any) -> None:
        self.max_chars, self.language = max_chars, language
        super().__init__(max_chars=max_chars, language=language, **options)

    def __call__(
        self,
        text: str | Sequence[Sentence],
        *,
        is_split_into_words: bool = False,
        return_tensors: str | None = None,
        **_: Any,
    ) -> Any:
        """Return ``input_ids`` (B, T, C) and ``attention_mask`` (B, T), padded to the longest sentence.

        Args:
            text: one string or several, or lists of tokens.
            is_split_into_words: ``text`` is one sentence given as tokens, or several.
            return_tensors: ``"pt"`` for tensors, ``"np"`` for arrays, None for lists.
        """
        if isinstance(text, str):
            sentences: list[Sentence] = [text]
        elif is_split_into_words and text and isinstance(text[0], str):
            sentences = [[str(token) for token in text]]
        else:
            sentences = list(text)
        words = [tokenize(one, language=self.language) if isinstance(one, str) else list(one) for one in sentences]
        char_ids = torch.from_numpy(pad_sentences(words, max_chars=self.max_chars))
        lengths = torch.tensor([len(one) for one in words])
        mask_BT = (torch.arange(char_ids.shape[1]) < lengths[:, None]).long()
        one_only = return_tensors is None and (isinstance(text, str) or (is_split_into_words and len(words) == 1))
        content = {"input_ids": char_ids, "attention_mask": mask_BT}
        if return_tensors is None:
            lists = {name: tensor.tolist() for name, tensor in content.items()}
            return tokenizers.BatchEncoding({name: rows[0] for name, rows in lists.items()} if one_only else lists)
        if return_tensors == "np":
            return tokenizers.BatchEncoding({name: tensor.numpy() for name, tensor in content.items()})
        if return_tensors != "pt":
            raise InputError(f"return_tensors {return_tensors!r}; expected 'pt', 'np' or None")
        return tokenizers.BatchEncoding(content)

    def pad(self, encoded: Any, **_: Any) -> Any:
        """Pad sentences that were encoded one by one, with their ``labels`` if they have some.

        Args:
            encoded: a list of encodings, or lists by name.
        """
        rows = (
            encoded
            if isinstance(encoded, list)
            else [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]
        )
        longest = max(len(row["input_ids"]) for row in rows)
        padded: dict[str, list[Tensor]] = {}
        for row in rows:
            for name, fill in (("input_ids", 0), ("attention_mask", 0), ("labels", NO_LABEL)):
                if name in row:
                    value = torch.as_tensor(row[name])
                    size = (longest - len(value), *value.shape[1:])
                    padded.setdefault(name, []).append(torch.cat([value, value.new_full(size, fill)]))
        return tokenizers.BatchEncoding({name: torch.stack(values) for name, values in padded.items()})

    def save_pretrained(self, save_directory: str | Path, **_: Any) -> tuple[str, ...]:
        """Write ``tokenizer_config.json``.

        Args:
            save_directory: the folder.
        """
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"max_chars": self.max_chars, "language": self.language, "tokenizer_class": type(self).__name__}
        (folder / TOKENIZER_FILE).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        return (str(folder / TOKENIZER_FILE),)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **_: Any) -> Self:
        """Load from a folder.

        Args:
            pretrained_model_name_or_path: the folder.
        """
        path = Path(pretrained_model_name_or_path) / TOKENIZER_FILE
        if not path.is_file():
            raise InputError(f"{path}: no such file; save an ElmoTokenizer into this folder")
        settings = json.loads(path.read_bytes())
        return cls(settings["max_chars"], settings["language"])

    def __len__(self) -> int:
        return 263  # character ids


def _buffer(name: str) -> str:
    return f"start_{name.replace('.', '_').replace('/', '_')}"


library.AutoConfig.register(MODEL_TYPE, ElmoConfig, exist_ok=True)
library.AutoModel.register(ElmoConfig, ElmoModel, exist_ok=True)
library.AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification, exist_ok=True)
library.AutoTokenizer.register(ElmoConfig, slow_tokenizer_class=ElmoTokenizer, exist_ok=True)

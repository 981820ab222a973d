"""ELMo as flair's TokenEmbeddings.

Shapes: L layers, T tokens, D width.
"""

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from elmokit.embed.embedder import Embedder
from elmokit.embed.picking import Vectors
from elmokit.embed.state import State
from elmokit.errors import InputError
from elmokit.extras import require

flair = require("flair", extra="flair")
flair_embeddings = require("flair.embeddings.token", extra="flair")
register_embeddings = require("flair.embeddings.base", extra="flair").register_embeddings

Mode = Literal["all", "top", "average"]


@register_embeddings
class ElmoEmbeddings(flair_embeddings.TokenEmbeddings):  # type: ignore[name-defined, misc]
    """Frozen vectors of every token.

    Args:
        model: a model, as `elmokit.Embedder.from_pretrained` takes it.
        embedding_mode: ``"all"`` layers side by side, (L * D) wide; the ``"top"`` layer; or the ``"average"`` of all.
        state: where the LSTMs start a sentence, ``"warm"`` or ``"reset"``.
        name: name of the embeddings; unique per model and mode by default.
    """

    def __init__(
        self,
        model: str = "en-small",
        embedding_mode: Mode = "all",
        *,
        state: State = "warm",
        name: str | None = None,
    ) -> None:
        super().__init__()
        if embedding_mode not in get_args(Mode):
            raise InputError(f"embedding_mode {embedding_mode!r}; expected 'all', 'top' or 'average'")
        if state == "carry":
            raise InputError("state is 'carry', under which a vector depends on its batch; use 'reset' or 'warm'")
        self.model, self.embedding_mode, self.state = str(model), embedding_mode, state
        self.embedder = Embedder.from_pretrained(model, state=state)
        self.name = name or f"elmokit-{Path(self.model).name}-{self.embedder.fingerprint()[:8]}-{embedding_mode}"
        self.static_embeddings = True
        self.eval()

    @property
    def embedding_length(self) -> int:
        """Width of a token's vector."""
        return self.embedder.width * (self.embedder.num_layers if self.embedding_mode == "all" else 1)

    @property
    def embedding_type(self) -> str:
        """Kind of embeddings, in flair's words."""
        return "word-level"

    def _add_embeddings_internal(self, sentences: list[Any]) -> list[Any]:
        words = [[token.text for token in sentence] for sentence in sentences]
        for sentence, layers_LTD in zip(sentences, self.embedder.iter_layers(words), strict=True):
            vectors_TD = torch.from_numpy(np.ascontiguousarray(self._pick(layers_LTD))).to(flair.device)
            for token, vector_D in zip(sentence, vectors_TD, strict=True):
                token.set_embedding(self.name, vector_D)
        return sentences

    def _pick(self, layers_LTD: Vectors) -> Vectors:
        if self.embedding_mode == "top":
            top_TD: Vectors = layers_LTD[-1]
            return top_TD
        if self.embedding_mode == "average":
            mean_TD: Vectors = layers_LTD.mean(axis=0)
            return mean_TD
        joined_TD: Vectors = np.concatenate(list(layers_LTD), axis=1)
        return joined_TD

    def to_params(self) -> dict[str, Any]:
        """Return the settings that `from_params` takes; the model is stored by its name or path."""
        return {
            "model": self.model,
            "embedding_mode": self.embedding_mode,
            "state": self.state,
            "name": self.name,
        }

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> "ElmoEmbeddings":
        """Build embeddings from the settings that `to_params` returned.

        Args:
            params: the settings.
        """
        return cls(**params)

"""Arms of the paper's comparisons: how each one differs from the recipe of its row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Source = Literal["none", "bilm", "untrained", "tuned", "cove", "shared", "taglm", "forward", "words"]
"""Source of an arm's layers. ``untrained``: a biLM of the same shape. ``tuned``: the biLM after tuning on the row's
training text. ``cove``: the encoder of a translation model. The last four are of one size and trained on the same 20
million tokens: a biLM, two language models that share nothing, the forward one alone, and a biLM that reads word
ids."""


@dataclass(frozen=True)
class Arm:
    """Values in place of the recipe's, by dotted keys, and the source of the layers."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: Source = "bilm"


BASELINE, ELMO, UNTRAINED, TUNED = "baseline", "elmo", "untrained", "tuned"
# Not normalized, as in the original program: gamma makes up for the scale of the layer.
LAST = {"elmo.layers": "last", "elmo.penalty": 0.0, "elmo.layer_norm": "none"}

ARMS = {
    BASELINE: Arm("baseline", {"elmo.place": "none"}, "none"),
    ELMO: Arm("+ ELMo"),
    UNTRAINED: Arm("+ untrained", {"elmo.untrained": True}, "untrained"),
    TUNED: Arm("+ ELMo, tuned", {}, "tuned"),
    "last": Arm("last layer only", LAST),
    "lambda-1": Arm("all layers, lambda = 1", {"elmo.penalty": 1.0}),
    "lambda-0.001": Arm("all layers, lambda = 0.001", {"elmo.penalty": 0.001}),
    "last-no-gamma": Arm("last layer only, gamma = 1", {**LAST, "elmo.learn_gamma": False}),
    "input": Arm("input only", {"elmo.place": "input"}),
    "both": Arm("input and output", {"elmo.place": "both"}),
    "output": Arm("output only", {"elmo.place": "output"}),
    "type": Arm(
        "ELMo's token layer only",
        {"elmo.layers": "type", "elmo.penalty": 0.0, "elmo.place": "input", "words.file": "none"},
    ),
    "elmo-alone": Arm("ELMo without GloVe", {"words.file": "none"}),
    "cove-last": Arm("+ CoVe, last layer", LAST, "cove"),
    "cove": Arm("+ CoVe, mixed layers", {}, "cove"),
    "dimension": Arm("weights per dimension", {"elmo.mix": "dimension"}),
    "gated": Arm("weights per token", {"elmo.mix": "gated"}),
    "gate": Arm("trained gate between the places", {"elmo.place": "both", "elmo.gate_places": True}),
    "trained": Arm("+ ELMo, trained with the task", {"elmo.train": True, "elmo.learning_rate": 1e-4}),
    "shared": Arm("biLM, 20 M tokens", {}, "shared"),
    "taglm": Arm("TagLM, 20 M tokens", {}, "taglm"),
    "forward": Arm("forward language model, 20 M tokens", {}, "forward"),
    "words": Arm("biLM of word ids, 20 M tokens", {}, "words"),
}

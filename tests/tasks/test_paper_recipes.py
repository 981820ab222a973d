"""The paper's six task recipes, value by value. What the code decides, the tests of the models look at."""

from typing import Any

import pytest

from elmokit.config import find_recipe, read_recipe
from elmokit.tasks.recipe import TaskRecipe

# What the paper, its supplement and the authors' code say, or AllenNLP where these are silent.
PAPER: dict[str, dict[str, Any]] = {
    "ner": {
        "words": {"trained": True, "lower": "always", "unit_length": False},
        "chars": {"char_dim": 16, "filters": ((3, 128),), "dropout": 0.0, "max_chars": 50, "min_count": 1},
        "elmo": {"place": "input", "penalty": 0.1, "layer_norm": "none", "dropout": 0.0},
        "model": {"hidden_dims": [200, 100], "dropout": 0.5},
        "training": {"batch_size": 64, "epochs": 75, "patience": 25, "learning_rate": 1e-3, "clip_norm": 5.0},
    },
    "sst": {
        "words": {"trained": False, "lower": "fallback", "unit_length": False},
        "chars": None,
        "elmo": {"place": "both", "penalty": 0.001, "layer_norm": "none", "dropout": 0.5},
        "model": {
            "hidden_dim": 300,
            "input_dropout": 0.25,
            "projection_dropout": 0.25,
            "pooling_dropout": 0.1,
            "head_dims": [1200, 600],
            "head_dropouts": [0.2, 0.3],
        },
        "training": {"batch_size": 100, "epochs": 40, "patience": 5, "learning_rate": 1e-4, "clip_norm": 5.0},
    },
    "snli": {
        "words": {"trained": False, "lower": "fallback", "unit_length": False},
        "chars": None,
        "elmo": {"place": "both", "penalty": 0.001, "layer_norm": "token", "dropout": 0.0},
        "model": {"hidden_dim": 300, "dropout": 0.5, "attention_dropout": 0.5},
        "training": {
            "batch_size": 32,
            "epochs": 75,
            "patience": 5,
            "learning_rate": 4e-4,
            "schedule": "halve",
            "clip_norm": 5.0,
            "weight_decay": 1e-4,
        },
    },
    "squad": {
        "words": {"trained": False, "lower": "fallback", "unit_length": False},
        "chars": {"char_dim": 20, "filters": ((5, 100),), "dropout": 0.2, "max_chars": 14, "min_count": 49},
        "elmo": {"place": "both", "penalty": 0.0, "layer_norm": "none", "dropout": 0.5},
        "model": {"hidden_dim": 90, "dropout": 0.2},
        "training": {
            "batch_size": 45,
            "epochs": 24,
            "evaluate_every": 1200,
            "optimizer": "adadelta",
            "adadelta_epsilon": 1e-8,
            "learning_rate": 1.0,
            "ema": 0.999,
        },
    },
    "srl": {
        "words": {"trained": True, "lower": "always", "unit_length": False},
        "chars": None,
        "elmo": {"place": "input", "penalty": 0.001, "layer_norm": "none", "dropout": 0.1},
        "model": {"predicate_dim": 100, "hidden_dim": 300, "num_layers": 8, "dropout": 0.1},
        "training": {
            "batch_size": 80,
            "epochs": 500,
            "patience": 200,
            "optimizer": "adadelta",
            "adadelta_epsilon": 1e-6,
            "learning_rate": 1.0,
            "clip_value": 1.0,
        },
    },
    "coref": {
        "words": {"trained": False, "lower": "never", "unit_length": False},
        "chars": {
            "char_dim": 8,
            "filters": ((3, 50), (4, 50), (5, 50)),
            "dropout": 0.0,
            "max_chars": 50,
            "min_count": 1,
        },
        "elmo": {"place": "input", "penalty": 0.0, "layer_norm": "none", "dropout": 0.0},
        "model": {
            "hidden_dim": 200,
            "scorer_dims": [150, 150],
            "feature_dim": 20,
            "max_span_width": 10,
            "spans_per_token": 0.4,
            "max_antecedents": 250,
            "speakers": True,
            "genres": True,
            "input_dropout": 0.5,
            "dropout": 0.2,
        },
        "training": {
            "batch_size": 1,
            "epochs": 150,
            "evaluate_every": 1000,
            "learning_rate": 1e-3,
            "schedule": "exponential",
            "clip_norm": 5.0,
        },
    },
}
NOT_TOLD = {
    "words": {"file": None},
    "elmo": {
        "model": None,
        "untrained": False,
        "layers": "all",
        "mix": "scalar",
        "gate_places": False,
        "learn_gamma": True,
        "train": False,
        "learning_rate": None,
    },
    "training": {
        "optimizer": "adam",
        "adadelta_epsilon": 1e-6,
        "schedule": "constant",
        "patience": None,
        "evaluate_every": None,
        "clip_norm": None,
        "clip_value": None,
        "weight_decay": 0.0,
        "ema": None,
        "seed": 0,
        "max_examples": None,
        "max_tokens": None,
    },
}


@pytest.mark.parametrize("task", PAPER)
def test_a_recipe_has_the_papers_values_and_no_others(task: str) -> None:
    found = read_recipe(TaskRecipe, find_recipe(f"{task}-paper", folder="tasks"), []).model_dump()
    expected = {part: values and NOT_TOLD.get(part, {}) | values for part, values in PAPER[task].items()}
    assert found == {"task": task, **expected}

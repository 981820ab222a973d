"""ELMo on PyTorch: contextual word vectors from every layer of a character biLM (Peters et al. 2018).

A name is imported when it is first used. So ``import elmokit`` is quick, and
``elmokit --help`` answers without loading torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
    from elmokit.embed.elmo import Elmo, ElmoOutput
    from elmokit.embed.embedder import Embedder
    from elmokit.embed.sentence_pooling import SentencePooling
    from elmokit.embed.sentences import EmbeddedSentence
    from elmokit.errors import (
        ConfigError,
        ElmokitError,
        ElmokitWarning,
        InputError,
        MissingExtraError,
        OutputError,
        WeightsError,
    )
    from elmokit.model.bilm import BiLM
    from elmokit.model.scalar_mix import ScalarMix
    from elmokit.score.scoring import Scorer
    from elmokit.tasks.saved import load_task
    from elmokit.tasks.task_model import TaskModel, TaskPrediction
    from elmokit.tasks.training import train_task

__version__ = "0.1.0"

__all__ = [
    "BiLM",
    "BiLMConfig",
    "CharEncoderConfig",
    "ConfigError",
    "Elmo",
    "ElmoOutput",
    "ElmokitError",
    "ElmokitWarning",
    "EmbeddedSentence",
    "Embedder",
    "InputError",
    "LSTMConfig",
    "MissingExtraError",
    "OutputError",
    "ScalarMix",
    "Scorer",
    "SentencePooling",
    "TaskModel",
    "TaskPrediction",
    "WeightsError",
    "__version__",
    "load_task",
    "train_task",
]

# Modules below the package whose names users may import; everything else may change without notice.
PUBLIC_MODULES = (
    "elmokit.analysis.index",
    "elmokit.analysis.index_building",
    "elmokit.analysis.neighbors",
    "elmokit.analysis.occurrences",
    "elmokit.embed.sources",
    "elmokit.integrations.allennlp",
    "elmokit.integrations.atlas",
    "elmokit.integrations.bilm_tf",
    "elmokit.integrations.elmoformanylangs",
    "elmokit.integrations.flair",
    "elmokit.integrations.gensim",
    "elmokit.integrations.langchain",
    "elmokit.integrations.onnx",
    "elmokit.integrations.ray",
    "elmokit.integrations.sentence_transformers",
    "elmokit.integrations.seqvec",
    "elmokit.integrations.simple_elmo",
    "elmokit.integrations.sklearn",
    "elmokit.integrations.spacy",
    "elmokit.integrations.tf_hub",
    "elmokit.integrations.transformers",
    "elmokit.pretrain.finetune",
    "elmokit.pretrain.recipe",
    "elmokit.score.perplexity",
    "elmokit.score.saved_lm",
    "elmokit.text.chars",
    "elmokit.text.lines",
    "elmokit.text.preparation",
    "elmokit.text.rules",
    "elmokit.weights.signing",
)

_HOMES = {
    "BiLM": "elmokit.model.bilm",
    "BiLMConfig": "elmokit.config",
    "CharEncoderConfig": "elmokit.config",
    "ConfigError": "elmokit.errors",
    "Elmo": "elmokit.embed.elmo",
    "ElmoOutput": "elmokit.embed.elmo",
    "ElmokitError": "elmokit.errors",
    "ElmokitWarning": "elmokit.errors",
    "EmbeddedSentence": "elmokit.embed.sentences",
    "Embedder": "elmokit.embed.embedder",
    "InputError": "elmokit.errors",
    "LSTMConfig": "elmokit.config",
    "MissingExtraError": "elmokit.errors",
    "OutputError": "elmokit.errors",
    "ScalarMix": "elmokit.model.scalar_mix",
    "Scorer": "elmokit.score.scoring",
    "SentencePooling": "elmokit.embed.sentence_pooling",
    "TaskModel": "elmokit.tasks.task_model",
    "TaskPrediction": "elmokit.tasks.task_model",
    "WeightsError": "elmokit.errors",
    "load_task": "elmokit.tasks.saved",
    "train_task": "elmokit.tasks.training",
}

# Hidden from the type checker, which would otherwise take every misspelt name for an export.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'elmokit' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

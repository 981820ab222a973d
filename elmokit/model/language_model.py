"""A biLM with its output layer, as pretraining trains it and scoring uses it."""

from torch import nn

from elmokit.config import BiLMConfig
from elmokit.model.bilm import BiLM
from elmokit.model.softmax import Softmax


class LanguageModel(nn.Module):
    """A biLM and the softmax that its two directions share."""

    def __init__(self, bilm: BiLM, softmax: Softmax) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax

    @classmethod
    def untrained(cls, config: BiLMConfig, num_words: int) -> "LanguageModel":
        """Return a model as training starts; its weights follow from torch's seed."""
        return cls(BiLM(config), Softmax(num_words, config.lstm.proj_dim))

"""context2vec: a vector of a token's context, without the token itself (Melamud et al. 2016).

One LSTM reads the words left of the target, another those right of it, from the end. Their outputs go through a
two-layer network into the space of the target words. It is trained by negative sampling.

Shapes: B sentences of one length T, E width of a word vector, H width of an LSTM, C width of a context vector,
K negatives, V words.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Context2Vec(nn.Module):
    """Vectors of contexts and of the words that fill them.

    Args:
        num_words: Vocabulary, with the two boundary words.
        boundary_ids: Ids of the words before the first and after the last token.
        word_dim: Width of the words that the LSTMs read; 300 in the paper.
        hidden_dim: Width of each LSTM; 600 in the paper.
        context_dim: Width of a context vector and of a target word; 600 in the paper.
    """

    def __init__(
        self,
        num_words: int,
        boundary_ids: tuple[int, int],
        *,
        word_dim: int = 300,
        hidden_dim: int = 600,
        context_dim: int = 600,
    ) -> None:
        super().__init__()
        self.boundary_ids = boundary_ids
        self.left_words = nn.Embedding(num_words, word_dim, sparse=True)
        self.right_words = nn.Embedding(num_words, word_dim, sparse=True)
        self.left = nn.LSTM(word_dim, hidden_dim, batch_first=True)
        self.right = nn.LSTM(word_dim, hidden_dim, batch_first=True)
        self.hidden = nn.Linear(2 * hidden_dim, 2 * hidden_dim)
        self.output = nn.Linear(2 * hidden_dim, context_dim)
        self.targets = nn.Embedding(num_words, context_dim, sparse=True)
        nn.init.zeros_(self.targets.weight)

    def forward(self, words_BT: Tensor) -> Tensor:
        """Return the vector of each token's context, (B, T, C). Sentences of a batch have one length: no padding."""
        num_sentences = len(words_BT)
        begin_B1, end_B1 = (words_BT.new_full((num_sentences, 1), index) for index in self.boundary_ids)
        left_BTH, _ = self.left(self.left_words(torch.cat([begin_B1, words_BT[:, :-1]], dim=1)))
        from_right_BT = torch.cat([end_B1, words_BT[:, 1:].flip(1)], dim=1)
        right_BTH, _ = self.right(self.right_words(from_right_BT))
        both_BTH = torch.cat([left_BTH, right_BTH.flip(1)], dim=2)
        contexts_BTC: Tensor = self.output(self.hidden(both_BTH).relu())
        return contexts_BTC

    def loss(self, words_BT: Tensor, negatives_BTK: Tensor) -> Tensor:
        """Return the mean over tokens of the negative-sampling loss.

        -log sigmoid(c . t) - sum over k of log sigmoid(-c . n_k), for a context c, its word t and the negatives n_k.
        """
        contexts_BTC = self(words_BT)
        right_BT = (contexts_BTC * self.targets(words_BT)).sum(dim=2)
        wrong_BTK = torch.einsum("btc,btkc->btk", contexts_BTC, self.targets(negatives_BTK)).to(right_BT.dtype)
        return -(functional.logsigmoid(right_BT) + functional.logsigmoid(-wrong_BTK).sum(dim=2)).mean()

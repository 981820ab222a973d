"""Cache the token layer of a vocabulary and give words by their numbers."""

import sys

import torch
from allennlp.modules.elmo import Elmo, batch_to_ids

words = ["@@PADDING@@", "@@UNKNOWN@@", "the", "bank"]
elmo = Elmo(sys.argv[1], sys.argv[2], 1, dropout=0.0, vocab_to_cache=words)
word_ids = torch.tensor([[2, 3], [3, 0]])
cached = elmo(torch.zeros(2, 2, 50, dtype=torch.long), word_ids)
elmo._elmo_lstm._elmo_lstm.reset_states()
spelled = elmo(batch_to_ids([["the", "bank"], ["bank"]]))
print(torch.equal(cached["elmo_representations"][0], spelled["elmo_representations"][0]), bool(cached["mask"].any()))

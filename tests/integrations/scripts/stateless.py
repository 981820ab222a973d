"""Turn the carried state off from outside, as libraries did that wanted the same vectors every time."""

import sys

import torch
from allennlp.modules.elmo import Elmo, batch_to_ids

elmo = Elmo(options_file=sys.argv[1], weight_file=sys.argv[2], num_output_representations=1, dropout=0.0)
elmo._elmo_lstm._elmo_lstm.stateful = False
elmo._elmo_lstm.requires_grad_(False)
ids = batch_to_ids([["The", "bank"], ["play"]])
first, second = (elmo(ids)["elmo_representations"][0] for _ in range(2))
elmo._elmo_lstm._elmo_lstm.reset_states()
print(torch.equal(first, second))

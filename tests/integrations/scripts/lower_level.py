"""Use the biLM below the layer, and cut the boundaries by hand."""

import sys

import torch
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids
from allennlp.nn.util import remove_sentence_boundaries

bilm = _ElmoBiLm(sys.argv[1], sys.argv[2]).eval()
ids = batch_to_ids([["The", "bank", "closed"], ["play"]])
with torch.no_grad():
    output = bilm(ids)
layers = [remove_sentence_boundaries(layer, output["mask"])[0] for layer in output["activations"]]
print(bilm.num_layers, tuple(torch.stack(layers).shape), bilm._elmo_lstm.hidden_size)

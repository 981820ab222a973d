"""Average ELMo vectors per sentence, as sentence-similarity scripts do."""

import sys

import numpy as np
from allennlp.commands.elmo import ElmoEmbedder

elmo = ElmoEmbedder(options_file=sys.argv[1], weight_file=sys.argv[2], cuda_device=-1)
tokens = "The bank closed .".split()
layers = elmo.embed_sentence(tokens)
print(np.mean(layers, axis=(0, 1)).shape)

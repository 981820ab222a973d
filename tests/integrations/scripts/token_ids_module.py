"""Use the layer in a model, as the AllenNLP tutorial does."""

import sys

from allennlp.modules.elmo import Elmo, batch_to_ids

elmo = Elmo(sys.argv[1], sys.argv[2], 2, dropout=0)
character_ids = batch_to_ids([["First", "sentence", "."], ["Another", "."]])
embeddings = elmo(character_ids)
inverse = 1 - embeddings["mask"]
print(len(embeddings["elmo_representations"]), tuple(embeddings["elmo_representations"][0].size()), int(inverse.sum()))

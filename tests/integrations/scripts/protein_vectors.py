"""One vector per protein from single amino acids, as SeqVec's script does."""

import sys
from pathlib import Path

from allennlp.commands.elmo import ElmoEmbedder

folder = Path(sys.argv[1]).parent
embedder = ElmoEmbedder(options_file=folder / "options.json", weight_file=folder / "weights.hdf5", cuda_device=-1)
for embedding in embedder.embed_sentences([list("SEQWENCE"), list("PROTEIN")]):
    print(tuple(embedding.sum(axis=0).mean(axis=0).shape))

"""Write the layers of a tokenized file to HDF5 and read them again."""

import json
import sys

import h5py
from allennlp.commands.elmo import ElmoEmbedder

with open(sys.argv[3], "w") as file:
    file.write("The bank closed .\nChildren play\n")
with open(sys.argv[3]) as file:
    ElmoEmbedder(sys.argv[1], sys.argv[2]).embed_file(file, sys.argv[3] + ".hdf5", output_format="average")
with h5py.File(sys.argv[3] + ".hdf5") as found:
    print(found["1"].shape, sorted(json.loads(found["sentence_to_index"][0]).items()))

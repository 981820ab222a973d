"""Build the embedder from AllenNLP's default addresses, as flair's ELMoEmbeddings does."""

import pickle

import allennlp.commands.elmo

options_file = allennlp.commands.elmo.DEFAULT_OPTIONS_FILE
weight_file = allennlp.commands.elmo.DEFAULT_WEIGHT_FILE
ee = allennlp.commands.elmo.ElmoEmbedder(options_file=options_file, weight_file=weight_file, cuda_device=-1)
ee.embed_batch([["hello", "world"]])
ee = pickle.loads(pickle.dumps(ee))
ee.elmo_bilm.to(device="cpu")
ee.elmo_bilm._elmo_lstm._states = tuple(state.to("cpu") for state in ee.elmo_bilm._elmo_lstm._states)
print([layers.shape[0] for layers in ee.embed_batch([["hello"], ["a", "b"]])])

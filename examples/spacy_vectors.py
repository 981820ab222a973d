"""Add ELMo vectors to a spaCy pipeline: pip install 'elmokit[spacy]'."""

import spacy

nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")
nlp.add_pipe("elmo", config={"model": "en-small", "layers": "mean"})
doc = nlp("The bank closed. We sat on the bank.")
print(doc.tensor.shape, doc._.elmo_layers.shape)
print(doc[1].similarity(doc[8]))

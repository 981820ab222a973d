"""Use ELMo with sentence-transformers: pip install 'elmokit[sentence-transformers]'."""

from elmokit.integrations.sentence_transformers import load

model = load("en-small")
vectors = model.encode(["The bank lends money.", "The bank gives loans.", "Reeds grow here."])
print(model.similarity(vectors, vectors))

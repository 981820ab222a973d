"""Search ELMo's word vectors with gensim: pip install 'elmokit[gensim]'."""

from elmokit import Embedder
from elmokit.integrations.gensim import keyed_vectors

embedder = Embedder.from_pretrained()
vectors = keyed_vectors(embedder, ["play", "playing", "player", "river", "rivers"])
print(vectors.most_similar("river", topn=1))

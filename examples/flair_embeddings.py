"""Use ELMo with flair: pip install 'elmokit[flair]'."""

from flair.data import Sentence

from elmokit.integrations.flair import ElmoEmbeddings

sentence = Sentence("The bank closed .")
ElmoEmbeddings("en-small", embedding_mode="all").embed(sentence)
print(sentence[1].embedding.shape)

"""Project ELMo to a smaller width, with the indexer that a dataset reader has."""

import sys

import torch
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper, ELMoTokenCharactersIndexer
from allennlp.data.tokenizers.token import Token
from allennlp.modules.token_embedders import ElmoTokenEmbedder

indexer = ELMoTokenCharactersIndexer()
ids = indexer.tokens_to_indices([Token("The"), Token("bank")], None, "elmo")["elmo"]
embedder = ElmoTokenEmbedder(sys.argv[1], sys.argv[2], dropout=0.0, projection_dim=5)
print(tuple(embedder(torch.tensor([ids])).shape), ELMoCharacterMapper.padding_character)

"""Drop-in replacements for AllenNLP's ELMo classes: same names, arguments and results.

Change ``from allennlp.modules.elmo import Elmo, batch_to_ids`` to ``from elmokit.integrations.allennlp import …``, or
leave the script as it is: call `install` first, or run it with ``python -m elmokit.integrations.allennlp SCRIPT``.

As in AllenNLP, the LSTMs carry their state from batch to batch by default, so a sentence's vectors depend on earlier
batches. Pass ``state="reset"`` to any class here to make them independent.
"""

from elmokit.integrations.allennlp_bilm import _ElmoBiLm, _ElmoCharacterEncoder
from elmokit.integrations.allennlp_elmo import Elmo, ElmoRepresentations, ElmoTokenEmbedder
from elmokit.integrations.allennlp_embedder import ElmoEmbedder
from elmokit.integrations.allennlp_files import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE, cached_path
from elmokit.integrations.allennlp_indexer import ELMoCharacterMapper, ELMoTokenCharactersIndexer, Token, batch_to_ids
from elmokit.integrations.allennlp_install import install
from elmokit.integrations.allennlp_mask import add_sentence_boundary_token_ids, remove_sentence_boundaries
from elmokit.integrations.allennlp_mix import ScalarMix
from elmokit.integrations.allennlp_params import Params

__all__ = [
    "DEFAULT_OPTIONS_FILE",
    "DEFAULT_WEIGHT_FILE",
    "ELMoCharacterMapper",
    "ELMoTokenCharactersIndexer",
    "Elmo",
    "ElmoEmbedder",
    "ElmoRepresentations",
    "ElmoTokenEmbedder",
    "Params",
    "ScalarMix",
    "Token",
    "_ElmoBiLm",
    "_ElmoCharacterEncoder",
    "add_sentence_boundary_token_ids",
    "batch_to_ids",
    "cached_path",
    "install",
    "remove_sentence_boundaries",
]

if __name__ == "__main__":
    import sys

    from elmokit.integrations.allennlp_command import main

    sys.exit(main())

"""Register our drop-ins under AllenNLP's module names, so that old scripts run unchanged."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from elmokit.integrations import allennlp_elmo, allennlp_embedder, allennlp_files, allennlp_indexer, allennlp_mask
from elmokit.integrations.allennlp_bilm import _ElmoBiLm, _ElmoCharacterEncoder
from elmokit.integrations.allennlp_mix import ScalarMix
from elmokit.integrations.allennlp_params import Params

_INDEXERS = {
    "ELMoTokenCharactersIndexer": allennlp_indexer.ELMoTokenCharactersIndexer,
    "ELMoCharacterMapper": allennlp_indexer.ELMoCharacterMapper,
}
_ELMO = {
    "Elmo": allennlp_elmo.Elmo,
    "_ElmoBiLm": _ElmoBiLm,
    "_ElmoCharacterEncoder": _ElmoCharacterEncoder,
    "batch_to_ids": allennlp_indexer.batch_to_ids,
}
_UTIL = {
    "remove_sentence_boundaries": allennlp_mask.remove_sentence_boundaries,
    "add_sentence_boundary_token_ids": allennlp_mask.add_sentence_boundary_token_ids,
}
_EMBEDDER = {
    "ElmoEmbedder": allennlp_embedder.ElmoEmbedder,
    "DEFAULT_OPTIONS_FILE": allennlp_files.DEFAULT_OPTIONS_FILE,
    "DEFAULT_WEIGHT_FILE": allennlp_files.DEFAULT_WEIGHT_FILE,
    "batch_to_ids": allennlp_indexer.batch_to_ids,
}
_TOKEN_EMBEDDER = {"ElmoTokenEmbedder": allennlp_elmo.ElmoTokenEmbedder}
_TOKEN = {"Token": allennlp_indexer.Token}

# Names that scripts import, by module.
MODULES: dict[str, dict[str, Any]] = {
    "allennlp": {},
    "allennlp.commands": {},
    "allennlp.commands.elmo": _EMBEDDER,
    "allennlp.common": {"Params": Params},
    "allennlp.common.params": {"Params": Params},
    "allennlp.common.file_utils": {"cached_path": allennlp_files.cached_path},
    "allennlp.data": _TOKEN,
    "allennlp.data.token_indexers": _INDEXERS,
    "allennlp.data.token_indexers.elmo_indexer": _INDEXERS,
    "allennlp.data.tokenizers": _TOKEN,
    "allennlp.data.tokenizers.token": _TOKEN,
    "allennlp.modules": {"Elmo": allennlp_elmo.Elmo, "ScalarMix": ScalarMix},
    "allennlp.modules.elmo": _ELMO,
    "allennlp.modules.scalar_mix": {"ScalarMix": ScalarMix},
    "allennlp.modules.token_embedders": _TOKEN_EMBEDDER,
    "allennlp.modules.token_embedders.elmo_token_embedder": _TOKEN_EMBEDDER,
    "allennlp.nn": {},
    "allennlp.nn.util": _UTIL,
}
MARK = "__elmokit__"


def install(models: str | Path | None = None) -> bool:
    """Make ``import allennlp.modules.elmo`` and the like import our drop-ins, unless AllenNLP itself is installed.

    Args:
        models: Folder in which files that a script names by their address on the web are looked for.

    Returns:
        True if our drop-ins are there now; False if AllenNLP is installed, and nothing was changed.
    """
    allennlp_files.set_models_folder(models)
    present = sys.modules.get("allennlp")
    if present is not None or find_spec("allennlp") is not None:
        return hasattr(present, MARK)
    for name, content in MODULES.items():
        module = ModuleType(name, "Part of AllenNLP's interface, provided by elmokit.")
        module.__path__ = []  # a package, so that parts of it can be imported
        vars(module).update(content, **{MARK: True})
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    return True

"""State dicts that others have pickled, read without running code that they may hold."""

import pickle
import warnings
from pathlib import Path

import torch
from torch import Tensor

from elmokit.errors import WeightsError


def load_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Load tensors by name from a file of torch."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about pickles that it then rejects
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path}: is not a plain state dict, so it could run code when it is opened, and was not opened "
            f"({_first_line(error)}); download the model again from its publisher"
        ) from error
    except Exception as error:  # torch raises whatever its reader stumbles over
        raise WeightsError(
            f"{path}: not a file of torch, or a damaged one ({_first_line(error)}); download it again"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(part, Tensor) for part in found.values()):
        raise WeightsError(f"{path}: holds a {type(found).__name__}; expected a state dict, tensors by name")
    return found


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]

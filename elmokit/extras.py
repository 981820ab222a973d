"""Optional dependencies: imported where they are needed, and named with the line that installs them."""

from importlib import import_module
from types import ModuleType

from elmokit.errors import MissingExtraError


def require(module: str, *, extra: str) -> ModuleType:
    """Import a module that comes with one of elmokit's extras."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name not in (module, package):  # it is installed, but one of its own imports is missing
            raise
        raise MissingExtraError(
            f"{package} is not installed; install it with: pip install 'elmokit[{extra}]'"
        ) from None

"""Optional dependencies: imported where they are needed, and named with the line that installs them."""

from importlib import import_module
from types import ModuleType

from elmokit.errors import MissingExtraError


def require(module: str, *, extra: str, having: str | None = None) -> ModuleType:
    """Import a module that comes with one of elmokit's extras.

    Args:
        module: The module's name.
        extra: The extra that installs it.
        having: A name that older versions of the module lack.
    """
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name not in (module, package):  # it is installed, but one of its own imports is missing
            raise
        raise MissingExtraError(
            f"{package} is not installed; install it with: pip install 'elmokit[{extra}]'"
        ) from None
    if having is not None and not hasattr(found, having):
        version = getattr(found, "__version__", "of this version")
        raise MissingExtraError(f"{module} {version} is too old; install a newer one: pip install 'elmokit[{extra}]'")
    return found

"""Every error that elmokit raises on purpose.

    ElmokitError
    ├── InputError         text, ids or arguments that cannot be used
    ├── ConfigError        options or a recipe with an impossible or unknown value
    ├── WeightsError       a saved model that is missing, damaged, hostile or of another shape
    ├── OutputError        a result that cannot be written
    └── MissingExtraError  an optional dependency that is not installed

    ElmokitWarning         said once by `warnings`: words cut, parts of a file not used

A message says what was found, what was expected, and what to do. On the command line
every one of them is a single line on stderr and exit code 1.
"""


class ElmokitError(Exception):
    """Base of every error below; catch this one to catch them all."""


class InputError(ElmokitError, ValueError):
    """Text, ids or arguments given to elmokit cannot be used."""


class ConfigError(ElmokitError, ValueError):
    """A model's options or a recipe hold a value that cannot be."""


class WeightsError(ElmokitError, ValueError):
    """A saved model is missing, damaged, unsafe to open, or of another shape than its options say."""


class OutputError(ElmokitError, OSError):
    """A result cannot be written where it was asked for."""


class MissingExtraError(ElmokitError, ImportError):
    """A feature needs an optional dependency that is not installed."""


class ElmokitWarning(UserWarning):
    """Something was passed over, and the result may not be what was meant."""

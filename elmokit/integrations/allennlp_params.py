"""``Params`` of AllenNLP: a dict of settings whose values are taken out one by one."""

import inspect
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from elmokit.errors import ConfigError

_MISSING = object()
# Keys of AllenNLP's configurations that name the class itself.
IGNORED = {"type"}


class Params(MutableMapping[str, Any]):
    """Settings by name; a value that is a dict is returned as `Params`."""

    def __init__(self, params: Mapping[str, Any], history: str = "") -> None:
        self.params = dict(params)
        self.history = history

    def __getitem__(self, key: str) -> Any:
        return self._wrap(self.params[key], key)

    def __setitem__(self, key: str, value: Any) -> None:
        self.params[key] = value

    def __delitem__(self, key: str) -> None:
        del self.params[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.params)

    def __len__(self) -> int:
        return len(self.params)

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """Take a value out; without a default, a missing one is an error."""
        if key not in self.params and default is _MISSING:
            raise ConfigError(f"{self.history + key} is missing; known are {', '.join(self.params) or 'none'}")
        return self._wrap(self.params.pop(key, default), key)

    def pop_int(self, key: str, default: Any = _MISSING) -> int | None:
        """Take a value out as an integer."""
        value = self.pop(key, default)
        return None if value is None else int(value)

    def pop_float(self, key: str, default: Any = _MISSING) -> float | None:
        """Take a value out as a float."""
        value = self.pop(key, default)
        return None if value is None else float(value)

    def pop_bool(self, key: str, default: Any = _MISSING) -> bool | None:
        """Take a value out as a Boolean; the texts ``true`` and ``false`` are two."""
        value = self.pop(key, default)
        if value in (None, True, False):
            return value  # type: ignore[no-any-return]
        if value not in ("true", "false"):
            raise ConfigError(f"{self.history + key} is {value!r}; expected true or false")
        return bool(value == "true")

    def as_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the values that are left."""
        return self.params

    def assert_empty(self, class_name: str) -> None:
        """Raise ConfigError if values are left."""
        if self.params:
            raise ConfigError(f"{class_name} has no setting {', '.join(self.params)}; check the configuration")

    def _wrap(self, value: Any, key: str) -> Any:
        return Params(value, f"{self.history}{key}.") if isinstance(value, dict) else value


def read_params(params: Any, kind: type) -> dict[str, Any]:
    """Return the arguments of a class, from a dict or from ``Params``, which is emptied as AllenNLP does it."""
    values = dict(params.as_dict() if hasattr(params, "as_dict") else params)
    known = list(inspect.signature(kind).parameters)
    if unknown := [name for name in values if name not in known and name not in IGNORED]:
        raise ConfigError(f"{kind.__name__} has no setting {', '.join(unknown)}; known are {', '.join(known)}")
    for name in values:
        params.pop(name)
    return {name: value for name, value in values.items() if name not in IGNORED}

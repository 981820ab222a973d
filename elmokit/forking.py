"""Locks and threads in forked processes.

A forked child has a copy of its parent's memory and one of its threads. A lock that another thread held stays locked
forever, and work given to a thread pool is never done. Objects that own either replace them in the child.
"""

import os
import weakref
from collections.abc import Callable
from typing import Protocol


class Renewable(Protocol):
    """An object with a part that does not survive a fork."""

    def renew_after_fork(self) -> None:
        """Replace what did not survive; called in the child, which has one thread."""


_renewables: "weakref.WeakSet[Renewable]" = weakref.WeakSet()


def renew_in_children(renewable: Renewable) -> None:
    """Call ``renewable.renew_after_fork`` in every child that is forked while the object exists."""
    _renewables.add(renewable)


def call_in_children(function: Callable[[], None]) -> None:
    """Call a function in every child that is forked from now on; does nothing on systems without fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def _renew() -> None:
    for renewable in list(_renewables):
        renewable.renew_after_fork()


call_in_children(_renew)

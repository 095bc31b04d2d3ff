"""What a command holds open until it ends, however it ends."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

T = TypeVar("T")

_held = ExitStack()


def held(resource: AbstractContextManager[T]) -> T:
    """Close this ledger or run when the command ends."""
    return _held.enter_context(resource)


def let_go() -> None:
    """Close all that this command held."""
    _held.close()


__all__ = ["held", "let_go"]

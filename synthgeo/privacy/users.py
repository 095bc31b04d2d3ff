"""User keys as fixed-size ids: what tells one user from another when contributions are bounded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.errors import ContributionError

U64 = NDArray[np.uint64]
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, eq=False)
class UserIds:
    """User keys as 128-bit numbers: whole numbers as they are, other text as its BLAKE2b hash.

    The text ``"7"`` and the number 7 are one user (a CSV file has no types), ``"007"`` is another. Two texts
    share an id with probability below users² · 2^-129. The ids are as private as the keys: anybody who can
    guess a key can check it.
    """

    kind: str | None  # of the keys they were made from: "int", "str", or None without rows
    high: U64
    low: U64

    @classmethod
    def empty(cls) -> UserIds:
        """Nobody."""
        return cls(None, np.empty(0, np.uint64), np.empty(0, np.uint64))

    @classmethod
    def of(
        cls, users: Any, *, column: str = "user", where: Callable[[int], str] = "row {}".format
    ) -> UserIds:
        """Ids of user keys, all whole numbers or all text; anything else is refused with its row.

        ``where`` names a row in an error.
        """
        if isinstance(users, UserIds):
            return users
        values = _plain(users, column)
        if len(values) == 0:
            return cls.empty()
        if values.dtype.kind in "iu":
            return cls._of_numbers(values)
        _refuse_unusable(values, column, where)
        codes, distinct = pd.factorize(values)
        if isinstance(distinct[0], str):
            return cls._of_texts(distinct.tolist()).take(codes)
        try:
            return cls._of_numbers(np.array([int(value) for value in distinct], dtype=np.int64)).take(codes)
        except OverflowError:
            raise ContributionError(
                f"column {column!r} holds whole numbers beyond 64 bits; give text"
            ) from None

    @classmethod
    def _of_numbers(cls, values: NDArray[Any]) -> UserIds:
        negative = values < 0
        return cls("int", negative.astype(np.uint64), values.astype(np.uint64))

    @classmethod
    def _of_texts(cls, texts: list[str]) -> UserIds:
        pairs = np.empty((len(texts), 2), dtype="<u8")
        digests = b"".join(
            hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts
        )
        pairs[:] = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
        numbers = [(at, int(text)) for at, text in enumerate(texts) if _is_plain_number(text)]
        if numbers:
            at, value = (np.array(part, dtype=np.int64) for part in zip(*numbers, strict=True))
            pairs[at, 0], pairs[at, 1] = value < 0, value.astype(np.uint64)
        return cls("str", pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64))

    @classmethod
    def concatenate(cls, parts: list[UserIds]) -> UserIds:
        """Ids of several parts of the data, one after the other."""
        kinds = {part.kind for part in parts} - {None}
        if len(kinds) > 1:
            raise ContributionError("user keys are whole numbers in one part of the data and text in another")
        high, low = (np.concatenate([getattr(part, name) for part in parts]) for name in ("high", "low"))
        return cls(kinds.pop() if kinds else None, high, low)

    def take(self, index: NDArray[Any] | slice) -> UserIds:
        """The ids at some positions, or where a mask is True."""
        return UserIds(self.kind, self.high[index], self.low[index])

    def __len__(self) -> int:
        return len(self.low)


def _is_plain_number(text: str) -> bool:
    """Whether a text is how a 64-bit whole number is written: no sign +, no leading zeros, ASCII digits."""
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19) or (
        digits[0] == "0" and text != "0"
    ):
        return False
    return bool(_INT64.min <= int(text) <= _INT64.max)


def _plain(users: Any, column: str) -> NDArray[Any]:
    if isinstance(users, pd.Series | pd.Index):
        if isinstance(users.dtype, np.dtype):
            return np.asarray(users.to_numpy())
        if users.dtype.kind in "iu" and not users.isna().any():
            return np.asarray(users.to_numpy(np.int64 if users.dtype.kind == "i" else np.uint64))
        return np.asarray(users.to_numpy(object))
    values = users if isinstance(users, np.ndarray) else np.array(list(users), dtype=object)
    if values.ndim != 1:
        raise ContributionError(f"user keys must be one column, column {column!r} has shape {values.shape}")
    return values.astype(object) if values.dtype.kind == "U" else values


def _refuse_unusable(values: NDArray[Any], column: str, where: Callable[[int], str]) -> None:
    """Everything but all text or all whole numbers: say which row."""
    missing = np.asarray(pd.isna(values))
    if missing.any():
        raise ContributionError(
            f"column {column!r}, {where(int(np.argmax(missing)))}: the user key is missing"
        )
    if pd.api.types.infer_dtype(values, skipna=False) in ("string", "integer"):
        return
    if values.dtype != object:
        raise ContributionError(
            f"column {column!r} holds {values.dtype}; a user key must be a whole number or text"
        )
    before = type(values[0])
    for row, value in enumerate(values):
        kind = type(value)
        if issubclass(kind, bool) or not issubclass(kind, str | int | np.integer):
            raise ContributionError(
                f"column {column!r}, {where(row)}: a user key is a whole number or text, not {kind.__name__}"
            )
        if issubclass(kind, str) != issubclass(before, str):
            raise ContributionError(
                f"column {column!r}, {where(row)}: user keys of mixed types, {before.__name__} before and "
                f"{kind.__name__} here"
            )

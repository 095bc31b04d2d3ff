"""User keys as fixed-size ids: what tells one user from another when contributions are bounded."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.canonical import id_of, is_missing, is_unicode, word_of
from synthgeo.errors import ContributionError

U64 = NDArray[np.uint64]
Bools = NDArray[np.bool_]
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, eq=False)
class UserIds:
    """User keys as 128-bit numbers: 64-bit whole numbers as they are, other text as its BLAKE2b hash.

    A key counts in its canonical form: 7, 7.0, ``"7"`` and ``" 7 "`` are one user, ``"007"`` is another,
    wherever they come from. Two texts share an id with probability below users² · 2^-129; who looks for such
    a pair needs about 2^64 hashes. The ids are as private as the keys: anybody who can guess a key can
    check it.
    """

    high: U64
    low: U64

    @classmethod
    def empty(cls) -> UserIds:
        """Nobody."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.uint64))

    @classmethod
    def of(
        cls, users: Any, *, column: str = "user", where: Callable[[int], str] = "row {}".format
    ) -> UserIds:
        """Ids of user keys, numbers or text; a missing key or anything else is refused with its row.

        ``where`` names a row in an error.
        """
        if isinstance(users, UserIds):
            return users
        found, missing, bad = read_ids(_plain(users, column))
        for wrong, problem in ((missing, "the id is missing"), (bad, "an id is a number or text")):
            if wrong.any():
                row = int(np.argmax(wrong))
                raise ContributionError(problem, column=column, row=row, where=where(row))
        return found

    @classmethod
    def of_integers(cls, values: NDArray[Any]) -> UserIds:
        """Ids of whole numbers; those beyond 64 bits with a sign count as their text."""
        if values.dtype == np.uint64:
            beyond = np.flatnonzero(values > np.uint64(_INT64.max))
            found = cls(np.zeros(len(values), np.uint64), values)
            return found.with_texts(beyond, [str(value) for value in values[beyond].tolist()])
        return cls((values < 0).astype(np.uint64), values.astype(np.int64).view(np.uint64))

    def with_texts(self, rows: NDArray[np.int64], texts: Sequence[str]) -> UserIds:
        """The same ids, but those of some rows are made of these texts in canonical form."""
        if not len(rows):
            return self
        codes, distinct = pd.factorize(np.array(texts, dtype=object))
        made = _hashed(distinct.tolist())
        high, low = self.high.copy(), self.low.copy()
        high[rows], low[rows] = made.high[codes], made.low[codes]
        return UserIds(high, low)

    @classmethod
    def concatenate(cls, parts: list[UserIds]) -> UserIds:
        """Ids of several parts of the data, one after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("high", "low")))

    def take(self, index: NDArray[Any] | slice) -> UserIds:
        """The ids at some positions, or where a mask is True."""
        return UserIds(self.high[index], self.low[index])

    def codes(self) -> NDArray[np.int64]:
        """A number for each distinct id, in order of first appearance."""
        if not self.high.any():
            return np.asarray(pd.factorize(self.low)[0], dtype=np.int64)
        pairs = pd.MultiIndex.from_arrays([self.high, self.low])
        return np.asarray(pd.factorize(pairs)[0], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.low)


def read_ids(
    values: NDArray[Any], alike: Collection[str] = ("space",), none: Collection[str] = ("",)
) -> tuple[UserIds, Bools, Bools]:
    """Ids of keys as an array holds them, which of them are missing, and which can be no ids.

    ``alike`` says what does not tell texts apart (``id_of``); ``none`` are the texts that mean "no value".
    """
    good = np.zeros(len(values), dtype=bool)
    kind = values.dtype.kind
    if kind in "iu":
        return UserIds.of_integers(np.ma.getdata(values)), np.ma.getmaskarray(values), good
    if kind == "f":
        plain = np.where(np.isfinite(values), values, 0.0)
        whole = (np.floor(plain) == plain) & (np.abs(plain) < 2.0**63)
        found = UserIds.of_integers(np.where(whole, plain, 0.0).astype(np.int64))
        rest = np.flatnonzero(~whole)
        texts = [word_of(value) for value in plain[rest].tolist()]
        return found.with_texts(rest, texts), np.isnan(values), np.isinf(values)
    if kind != "O":
        return UserIds.of_integers(np.zeros(len(values), np.int64)), good, ~good
    texts = ["0"] * len(values)
    missing, bad = good, good.copy()
    for row, value in enumerate(values):
        if is_missing(value):
            missing[row] = True
            continue
        text = _id_of_object(value, alike)
        if text is None:
            bad[row] = True
        elif isinstance(value, str) and text in none:
            missing[row] = True
        else:
            texts[row] = text
    blank = UserIds.of_integers(np.zeros(len(values), np.int64))
    return blank.with_texts(np.arange(len(values)), texts), missing, bad


def _id_of_object(value: Any, alike: Collection[str]) -> str | None:
    """The canonical text of one key, None where it can be none."""
    if isinstance(value, str):
        return id_of(value, alike) if is_unicode(value) else None
    if isinstance(value, float | np.floating | Decimal):
        finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
        return word_of(value) if finite else None
    if not isinstance(value, int | np.integer) or isinstance(value, bool | np.timedelta64):
        return None
    try:
        return word_of(value)
    except ValueError:  # a whole number of too many digits
        return None


def _hashed(texts: list[str]) -> UserIds:
    """Ids of canonical texts: a text that is how a 64-bit whole number is written is that number."""
    pairs = np.empty((len(texts), 2), dtype="<u8")
    digests = b"".join(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts
    )
    pairs[:] = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    whole = [(at, int(text)) for at, text in enumerate(texts) if _is_plain_number(text)]
    if whole:
        at, value = (np.array(part, dtype=np.int64) for part in zip(*whole, strict=True))
        pairs[at, 0], pairs[at, 1] = value < 0, value.view(np.uint64)
    return UserIds(pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64))


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

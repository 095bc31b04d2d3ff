"""The kinds of columns a table can have, each with the public facts that turn its values into codes.

A column becomes one or more *attributes*: whole numbers 0, 1, ..., size - 1. What a code stands for (a
category, an interval, a part of a time, a cell of a map) is public and fixed before any data is read.
Where values may be missing, the last code says so."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo import validate
from synthgeo.arrays import Bools, Floats
from synthgeo.canonical import is_missing, word_of
from synthgeo.errors import ConfigError, InputError
from synthgeo.sources.chunk import refuse
from synthgeo.sources.values import looked_up

_WHOLE = re.compile(r"[+-]?[0-9]{1,15}")

Codes = NDArray[np.int64]
Chunk = Mapping[str, NDArray[Any]]
#: Values that a condition names one by one.
SEVERAL = (list, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class Attribute:
    """One coded dimension of a table.

    ``ordered`` says that neighbouring codes are alike, ``numbered`` that they may be: the values are whole
    numbers, as codes of a codebook are. Codes that are ``apart`` are like no other: a missing value, zero.
    """

    name: str
    size: int
    ordered: bool = False
    numbered: bool = False
    apart: tuple[int, ...] = ()


@dataclass(frozen=True)
class Condition:
    """What a condition on one column accepts.

    ``factors`` holds, by attributes, the share of each code (or combination of codes) that is accepted: 1 for
    all of it, 0 for nothing. ``within`` says which values inside those codes, for columns whose codes hold
    several."""

    factors: Mapping[tuple[str, ...], Floats]
    within: Any = field(default=None)


class Column(ABC):
    """What a schema needs to know about one column."""

    kind: ClassVar[str]

    def inputs(self, name: str) -> tuple[str, ...]:
        """The columns of the data that this column reads, and writes when synthetic data is made."""
        return (name,)

    reads: ClassVar[str] = "word"  # what it asks of each of its inputs (``values.KINDS``)

    @abstractmethod
    def attributes(self, name: str) -> tuple[Attribute, ...]:
        """The coded dimensions, in the order of ``encode``'s columns."""

    @abstractmethod
    def encode(self, name: str, chunk: Chunk) -> Codes:
        """Codes of a chunk, one row per row and one column per attribute; ``InputError`` names a bad row."""

    @abstractmethod
    def decode(self, name: str, codes: Codes, rng: np.random.Generator, within: Any = None) -> dict[str, Any]:
        """Values for codes, by output column; ``within`` is what a ``Condition`` says."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain values from which ``column_from_json`` rebuilds the column."""

    def allowed(self, name: str) -> NDArray[np.bool_] | None:  # noqa: ARG002
        """Which combinations of this column's own attributes can exist, where not all can."""
        return None

    @property
    def takes_others(self) -> bool:
        """Whether values outside of what is declared stand for one that is inside, instead of an error."""
        return False

    def declared(self, name: str, chunk: Chunk) -> tuple[Bools, Bools]:  # noqa: ARG002
        """Which rows have a value at all, and which of them one that is declared, where not all must
        (``takes_others``).
        """
        raise TypeError(f"column {name!r} takes declared values only")

    def matching(self, name: str, wanted: Any, masses: Floats | None = None) -> Condition:  # noqa: ARG002
        """What a condition accepts: a value, a list of values, or None for a missing one.

        ``masses`` are released counts of the column's codes, where they help to tell what part of a code is
        accepted."""
        attribute = self.attributes(name)[0]
        accepted = np.zeros(attribute.size)
        for value in wanted_values(name, wanted):
            accepted[self._code_of(name, value)] = 1.0
        return Condition({(attribute.name,): accepted})

    def _code_of(self, name: str, value: Any) -> int:
        values = np.empty(1, dtype=object)
        values[0] = value
        try:
            return int(self.encode(name, {name: values})[0, 0])
        except InputError:
            raise ConfigError(f"given: {value!r} is not a value of column {name!r}") from None


def wanted_values(name: str, wanted: Any) -> list[Any]:
    """The values that a condition lists."""
    values = list(wanted) if isinstance(wanted, SEVERAL) else [wanted]
    if not values:
        raise ConfigError(f"given: no value for column {name!r}")
    return values


def no_value(value: Any) -> bool:
    """Whether a condition asks for missing values."""
    return bool(is_missing(value) or (isinstance(value, np.datetime64) and np.isnat(value)))


@dataclass(frozen=True)
class Categorical(Column):
    """One of a list of values.

    The list is public, or ``"private"``: then ``TabularSynthesizer`` finds the frequent values with a share
    of ε and δ, and all others become ``other`` (by default "other"). ``candidates`` is a public list of what
    can be found; with it a pure ε is enough. ``missing=True`` makes missing values a category of their own.
    ``other`` names a public category of the list (or one more) that takes every value outside the list;
    without it such a value is an error.

    >>> Categorical(["F", "M"]).encode("sex", {"sex": np.array(["M", "F"], dtype=object)}).ravel().tolist()
    [1, 0]
    """

    values: tuple[Any, ...]
    missing: bool = False
    other: Any = None
    candidates: tuple[Any, ...] | None = None
    pending: bool = False
    kind: ClassVar[str] = "categorical"
    ordered: ClassVar[bool] = False

    def __init__(
        self,
        values: Sequence[Any],
        *,
        missing: bool = False,
        other: Any = None,
        candidates: Sequence[Any] | None = None,
    ) -> None:
        pending = isinstance(values, str) and values == "private"
        if candidates is not None:
            if not pending:
                raise ConfigError("candidates= is for values='private'")
            object.__setattr__(self, "candidates", type(self)(candidates).values)
        object.__setattr__(self, "pending", pending)
        if pending:
            other = "other" if other is None else other
            values = [other]
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray | pd.Index | range):
            raise ConfigError(f"categories must be a list of values, got {values!r}")
        plain = [value.item() if isinstance(value, np.generic) else value for value in values]
        if other is not None and word_of(other) not in map(word_of, plain):
            plain.append(other)
        if not plain:
            raise ConfigError("a categorical column needs at least one category")
        if any(not isinstance(value, str | int | float | bool) or value != value for value in plain):
            raise ConfigError(f"categories must be text, numbers or booleans, got {plain!r}")
        if len(set(map(word_of, plain))) != len(plain):
            raise ConfigError(
                f"categories must differ from each other (4, 4.0 and '4' are one), got {plain!r}"
            )
        object.__setattr__(self, "values", tuple(plain))
        object.__setattr__(self, "missing", bool(missing))
        object.__setattr__(self, "other", other)

    def with_values(self, values: Sequence[Any]) -> Categorical:
        """The same column with these values."""
        return type(self)(values, missing=self.missing, other=self.other)

    def attributes(self, name: str) -> tuple[Attribute, ...]:
        size = len(self.values) + self.missing
        absent = (size - 1,) * self.missing
        if self.ordered:
            return (Attribute(name, size, ordered=True, apart=absent),)
        others = tuple(code for code, whole in enumerate(self._whole) if not whole)
        numbered = 2 * len(others) < len(self.values)
        return (Attribute(name, size, numbered=numbered, apart=(*(others if numbered else ()), *absent)),)

    @cached_property
    def _whole(self) -> list[bool]:
        """Which values are whole numbers that continue a rising sequence of such numbers."""
        out, last = [], -math.inf
        for value in self.values:
            word = word_of(value)
            number = float(word) if _WHOLE.fullmatch(word) else -math.inf
            out.append(number > last)
            last = max(last, number)
        return out

    @cached_property
    def _codes(self) -> dict[str, int]:
        """Codes by canonical text; booleans also by the texts that files have for them."""
        codes = {word_of(value): code for code, value in enumerate(self.values)}
        for truth, texts in (("true", ("True", "TRUE", "1")), ("false", ("False", "FALSE", "0"))):
            known = next((codes[text] for text in (truth, *texts) if text in codes), None)
            usual = texts if any(isinstance(value, bool) for value in self.values) else ()
            for text in (truth, *usual):
                if known is not None:
                    codes.setdefault(text, known)
        return codes

    def encode(self, name: str, chunk: Chunk) -> Codes:
        unknown = len(self.values) + 1
        codes = looked_up(chunk, name, self._codes, unknown)
        if codes.size and codes.min() >= 0 and codes.max() < len(self.values):  # every value is a listed one
            return codes.astype(np.int64, copy=False)[:, None]
        absent = codes < 0
        if not self.missing:
            refuse(absent, name, "is missing; the schema does not say missing=True")
        codes = np.where(absent, len(self.values) if self.missing else 0, codes)
        if self.other is None:
            problem = (
                f"is not one of the {len(self.values)} categories (other= names one that takes unseen values)"
            )
            refuse(codes == unknown, name, problem)
        stand_in = 0 if self.other is None else self._codes[word_of(self.other)]
        return np.where(codes == unknown, stand_in, codes).astype(np.int64)[:, None]

    @property
    def takes_others(self) -> bool:
        return self.other is not None

    def declared(self, name: str, chunk: Chunk) -> tuple[Bools, Bools]:
        unknown = len(self.values) + 1
        codes = looked_up(chunk, name, self._codes, unknown)
        return codes >= 0, (codes >= 0) & (codes != unknown)

    def decode(
        self,
        name: str,
        codes: Codes,
        rng: np.random.Generator,  # noqa: ARG002
        within: Any = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        flat = codes[:, 0]
        values = pd.Series(list(self.values))
        if not self.missing:
            return {name: values.take(flat).reset_index(drop=True)}
        if values.dtype.kind in "ib":  # numpy's own have no missing value
            values = values.astype("boolean" if values.dtype.kind == "b" else "Int64")
        absent = flat == len(self.values)
        return {name: values.take(np.where(absent, 0, flat)).reset_index(drop=True).mask(absent)}

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": self.kind, "values": "private" if self.pending else list(self.values)}
        if self.candidates is not None:
            out["candidates"] = list(self.candidates)
        if self.missing:
            out["missing"] = True
        if self.other is not None:
            out["other"] = self.other
        return out


class Ordinal(Categorical):
    """A ``Categorical`` whose values are listed in their natural order. Conditions and rules may name a range
    of them, (first, last).
    """

    kind: ClassVar[str] = "ordinal"
    ordered: ClassVar[bool] = True

    def matching(self, name: str, wanted: Any, masses: Floats | None = None) -> Condition:
        if not (isinstance(wanted, tuple) and len(wanted) == 2):
            return super().matching(name, wanted, masses)
        first, last = (self._code_of(name, value) for value in wanted)
        if first > last:
            raise ConfigError(f"given: the range of column {name!r} ends before it begins")
        codes = np.arange(self.attributes(name)[0].size)
        return Condition({(name,): ((codes >= first) & (codes <= last)).astype(np.float64)})


@dataclass(frozen=True)
class Identifier(Column):
    """A column of fresh ids: 1, 2, 3, ... with a public prefix. The private ids are not even read.

    Names, account numbers and free text identify people; no amount of noise makes them safe to model. A
    table that needs such a column gets new values that say nothing.

    >>> Identifier(prefix="P-", digits=4).decode("id", np.zeros((2, 0), dtype=np.int64), None)["id"].tolist()
    ['P-0001', 'P-0002']
    """

    prefix: str = ""
    digits: int = 0
    kind: ClassVar[str] = "identifier"

    def __post_init__(self) -> None:
        if not isinstance(self.prefix, str):
            raise ConfigError(f"the prefix of an identifier must be text, got {self.prefix!r}")
        validate.whole(self.digits, "digits", low=0, high=18)

    def inputs(self, name: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def attributes(self, name: str) -> tuple[Attribute, ...]:  # noqa: ARG002
        return ()

    def encode(self, name: str, chunk: Chunk) -> Codes:  # noqa: ARG002
        raise ConfigError(f"column {name!r} is an identifier: its values are not read")

    def decode(
        self,
        name: str,
        codes: Codes,
        rng: np.random.Generator | None,  # noqa: ARG002
        within: Any = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        numbers = pd.Series(np.arange(1, len(codes) + 1))
        if not self.prefix and not self.digits:
            return {name: numbers}
        return {name: self.prefix + numbers.astype(str).str.zfill(self.digits)}

    def matching(self, name: str, wanted: Any, masses: Floats | None = None) -> Condition:  # noqa: ARG002
        raise ConfigError(f"given: column {name!r} is an identifier: its values mean nothing")

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, "prefix": self.prefix, "digits": self.digits}

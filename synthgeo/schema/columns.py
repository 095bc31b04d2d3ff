"""The kinds of columns a table can have, each with the public facts that turn its values into codes.

A column becomes one or more *attributes*: whole numbers 0, 1, ..., size - 1. What a code stands for (a
category, an interval, a part of a time, a cell of a map) is public and fixed before any data is read.
Where values may be missing, the last code says so."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.arrays import Keys
from synthgeo.canonical import word_of
from synthgeo.domain.coordinates import WGS84, CoordinateReader, find_coordinates, transform
from synthgeo.domain.crs import domain_from_state
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError, DomainError, InputError
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.sources.chunk import refuse
from synthgeo.sources.values import numbers, words

Codes = NDArray[np.int64]
Chunk = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Attribute:
    """One coded dimension of a table; ``ordered`` says that neighbouring codes are alike."""

    name: str
    size: int
    ordered: bool = False


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
    def decode(self, name: str, codes: Codes, rng: np.random.Generator) -> dict[str, Any]:
        """Values for codes, by output column."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain values from which ``column_from_json`` rebuilds the column."""

    def allowed(self, name: str) -> NDArray[np.bool_] | None:  # noqa: ARG002
        """Which combinations of this column's own attributes can exist, where not all can."""
        return None

    def matching(self, name: str, wanted: Any) -> dict[str, NDArray[np.bool_]]:
        """Which codes of each attribute a condition accepts."""
        attribute = self.attributes(name)[0]
        accepted = np.zeros(attribute.size, dtype=bool)
        values = list(wanted) if isinstance(wanted, list | set | frozenset | np.ndarray) else [wanted]
        if not values:
            raise ConfigError(f"given: no value for column {name!r}")
        for value in values:
            accepted[self._code_of(name, value)] = True
        return {attribute.name: accepted}

    def _code_of(self, name: str, value: Any) -> int:
        values = np.empty(1, dtype=object)
        values[0] = value
        try:
            return int(self.encode(name, {name: values})[0, 0])
        except InputError:
            raise ConfigError(f"given: {value!r} is not a value of column {name!r}") from None


@dataclass(frozen=True)
class Categorical(Column):
    """One of a public list of values.

    ``missing=True`` makes missing values a category of their own. ``other`` names a public category of
    the list (or one more) that takes every value outside the list; without it such a value is an error.

    >>> Categorical(["F", "M"]).encode("sex", {"sex": np.array(["M", "F"], dtype=object)}).ravel().tolist()
    [1, 0]
    """

    values: tuple[Any, ...]
    missing: bool = False
    other: Any = None
    kind: ClassVar[str] = "categorical"
    ordered: ClassVar[bool] = False

    def __init__(self, values: Sequence[Any], *, missing: bool = False, other: Any = None) -> None:
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

    def attributes(self, name: str) -> tuple[Attribute, ...]:
        return (Attribute(name, len(self.values) + self.missing, self.ordered),)

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
        codes = words(chunk, name).lookup(self._codes, unknown)
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

    def decode(self, name: str, codes: Codes, rng: np.random.Generator) -> dict[str, Any]:  # noqa: ARG002
        flat = codes[:, 0]
        values = pd.Series(list(self.values))
        if not self.missing:
            return {name: values.take(flat).reset_index(drop=True)}
        if values.dtype.kind in "ib":  # numpy's own have no missing value
            values = values.astype("boolean" if values.dtype.kind == "b" else "Int64")
        absent = flat == len(self.values)
        return {name: values.take(np.where(absent, 0, flat)).reset_index(drop=True).mask(absent)}

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": self.kind, "values": list(self.values)}
        if self.missing:
            out["missing"] = True
        if self.other is not None:
            out["other"] = self.other
        return out


class Ordinal(Categorical):
    """A ``Categorical`` whose values are listed in their natural order."""

    kind: ClassVar[str] = "ordinal"
    ordered: ClassVar[bool] = True


@dataclass(frozen=True)
class Numeric(Column):
    """A number between public bounds, cut into public bins.

    ``bins`` is how many equal ones, the list of their edges, or ``"auto"``: then ``TabularSynthesizer``
    finds them with a share of the budget. Bins are closed on the left, the last one on both sides.
    ``outside="clip"`` moves values beyond the bounds to the nearest bin, ``"error"`` refuses them.
    ``integer=True`` synthesises whole numbers.

    >>> Numeric(0, 100, bins=4).encode("age", {"age": np.array([0, 24.9, 25, 100])}).ravel().tolist()
    [0, 0, 1, 3]
    """

    low: float
    high: float
    edges: tuple[float, ...] | None
    integer: bool = False
    missing: bool = False
    outside: str = "error"
    kind: ClassVar[str] = "numeric"
    reads: ClassVar[str] = "number"

    def __init__(
        self,
        low: float,
        high: float,
        *,
        bins: int | str | Sequence[float] = 20,
        integer: bool = False,
        missing: bool = False,
        outside: str = "error",
    ) -> None:
        low, high = _finite(low, "low"), _finite(high, "high")
        if not low < high:
            raise ConfigError(f"a numeric column needs low < high, got {low!r} and {high!r}")
        if outside not in ("error", "clip"):
            raise ConfigError(f"outside must be 'error' or 'clip', got {outside!r}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        object.__setattr__(self, "edges", _edges(low, high, bins))
        object.__setattr__(self, "integer", bool(integer))
        object.__setattr__(self, "missing", bool(missing))
        object.__setattr__(self, "outside", outside)

    @property
    def bins(self) -> int:
        """How many bins there are; bins that are still to be found count as an error."""
        if self.edges is None:
            raise ConfigError(
                "this numeric column has bins='auto', which are found by TabularSynthesizer.fit"
            )
        return len(self.edges) - 1

    def with_edges(self, edges: Sequence[float]) -> Numeric:
        """The same column with these bins."""
        return Numeric(
            self.low,
            self.high,
            bins=list(edges),
            integer=self.integer,
            missing=self.missing,
            outside=self.outside,
        )

    def attributes(self, name: str) -> tuple[Attribute, ...]:
        return (Attribute(name, self.bins + self.missing, True),)

    def numbers(self, name: str, chunk: Chunk) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The values within bounds (the lower one where missing), and which are missing."""
        found = numbers(chunk, name)
        absent = np.isnan(found)
        if not self.missing:
            refuse(absent, name, "is missing; the schema does not say missing=True")
        if self.outside == "error":
            beyond = ~absent & ((found < self.low) | (found > self.high))
            problem = (
                f"is outside the bounds [{self.low:g}, {self.high:g}]; outside='clip' would move it there"
            )
            refuse(beyond, name, problem)
        return np.clip(np.where(absent, self.low, found), self.low, self.high), absent

    def encode(self, name: str, chunk: Chunk) -> Codes:
        found, absent = self.numbers(name, chunk)
        codes = np.searchsorted(np.asarray(self.edges)[1:-1], found, side="right").astype(np.int64)
        codes[absent] = self.bins
        return codes[:, None]

    def decode(self, name: str, codes: Codes, rng: np.random.Generator) -> dict[str, Any]:
        edges = np.asarray(self.edges)
        flat = codes[:, 0]
        absent = flat == self.bins if self.missing else np.zeros(len(flat), dtype=bool)
        at = np.where(absent, 0, flat)
        low, high = edges[at], edges[at + 1]
        if self.integer:
            least = np.ceil(low)
            # whole numbers below the upper edge; the last bin holds its upper edge too
            most = np.where(at + 1 == self.bins, np.floor(high), np.ceil(high) - 1)
            numbers = least + np.floor(rng.random(len(flat)) * (np.maximum(most, least) - least + 1))
            if not self.missing:
                return {name: pd.Series(numbers.astype(np.int64))}
            return {name: pd.Series(numbers.astype(np.int64)).astype("Int64").mask(absent)}
        numbers = low + rng.random(len(flat)) * (high - low)
        return {name: pd.Series(np.where(absent, np.nan, numbers))}

    def matching(self, name: str, wanted: Any) -> dict[str, NDArray[np.bool_]]:
        if not (isinstance(wanted, tuple) and len(wanted) == 2):
            return super().matching(name, wanted)
        low, high = (_finite(bound, f"given: bound of {name!r}") for bound in wanted)
        edges = np.asarray(self.edges)
        accepted = np.zeros(self.bins + self.missing, dtype=bool)
        accepted[: self.bins] = (edges[1:] > low) & (edges[:-1] < high)
        if not accepted.any():
            raise ConfigError(f"given: no bin of column {name!r} meets [{low:g}, {high:g}]")
        return {name: accepted}

    def to_json(self) -> dict[str, Any]:
        bins: Any = "auto" if self.edges is None else list(self.edges)
        if self.edges is not None and self.edges == _edges(self.low, self.high, self.bins):
            bins = self.bins
        out: dict[str, Any] = {"type": self.kind, "low": self.low, "high": self.high, "bins": bins}
        out.update({key: True for key in ("integer", "missing") if getattr(self, key)})
        return out if self.outside == "error" else {**out, "outside": self.outside}


@dataclass(frozen=True, eq=False)
class Location(Column):
    """A place: a cell of a public grid over a spatial domain.

    ``cells`` (a power of two) is how many Morton cells the frame of the domain is cut into; cells that
    hold nothing of the domain are left out. The coordinates come from the columns ``columns``, by default
    ``<name>_lon`` and ``<name>_lat`` in degrees when the domain has a CRS, else ``<name>_x`` and
    ``<name>_y``. Places outside the domain are an error, or a category of their own with
    ``outside="category"``."""

    domain: SpatialDomain
    cells: int = 64
    columns: tuple[str, str] | None = None
    missing: bool = False
    outside: str = "error"
    prefix: Keys = field(init=False, repr=False)
    kind: ClassVar[str] = "location"
    reads: ClassVar[str] = "number"

    def __init__(
        self,
        domain: SpatialDomain,
        *,
        cells: int = 64,
        columns: tuple[str, str] | None = None,
        missing: bool = False,
        outside: str = "error",
    ) -> None:
        if (
            isinstance(cells, bool)
            or not isinstance(cells, int)
            or cells < 2
            or cells & (cells - 1)
            or cells > 2**20
        ):
            raise ConfigError(f"cells must be a power of two from 2 to 2^20, got {cells!r}")
        if outside not in ("error", "category"):
            raise ConfigError(f"outside must be 'error' or 'category', got {outside!r}")
        if not isinstance(domain, SpatialDomain):
            raise ConfigError(f"a location needs a spatial domain, got {domain!r}")
        grid = np.arange(cells, dtype=np.uint64)
        kept = grid[hierarchy_of(domain).measure(grid, cells.bit_length() - 1) > 0]
        if kept.size == 0:
            raise ConfigError("the domain of a location is empty")
        for name, value in (
            ("domain", domain), ("cells", cells), ("columns", None if columns is None else tuple(columns)),
            ("missing", bool(missing)), ("outside", outside), ("prefix", kept),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def bits(self) -> int:
        """How often the frame is halved."""
        return self.cells.bit_length() - 1

    def geometry(self) -> NDArray[Any]:
        """The shape of each cell, in the domain's CRS."""
        return hierarchy_of(self.domain).geometry(self.prefix, self.bits)

    def inputs(self, name: str) -> tuple[str, ...]:
        if self.columns is not None:
            return self.columns
        return (f"{name}_lon", f"{name}_lat") if self.domain.crs is not None else (f"{name}_x", f"{name}_y")

    def attributes(self, name: str) -> tuple[Attribute, ...]:
        return (Attribute(name, self.prefix.size + (self.outside == "category") + self.missing),)

    def encode(self, name: str, chunk: Chunk) -> Codes:
        x, y = self.inputs(name)
        reader = find_coordinates([x, y], self.domain, x=x, y=y)
        given = {x: numbers(chunk, x), y: numbers(chunk, y)}
        absent = np.isnan(given[x]) | np.isnan(given[y])
        if not self.missing:
            refuse(absent, x, "is missing; the schema does not say missing=True", DomainError)
        # A missing place is read as any point of the domain's frame, so that row numbers stay right.
        stand_in = dict(zip((x, y), self._anywhere(reader), strict=True))
        xy = reader({key: np.where(absent, stand_in[key], values) for key, values in given.items()})
        keys, inside = hierarchy_of(self.domain).locate(xy, self.bits)
        at = np.minimum(np.searchsorted(self.prefix, keys), self.prefix.size - 1)
        inside &= self.prefix[at] == keys
        if self.outside == "error":
            refuse(~inside & ~absent, x, f"the place lies outside the {self.domain.kind} domain", DomainError)
        codes = np.where(inside, at, self.prefix.size if self.outside == "category" else 0)
        codes[absent] = self.prefix.size + (self.outside == "category") if self.missing else 0
        return codes.astype(np.int64)[:, None]

    def _anywhere(self, reader: CoordinateReader) -> tuple[float, float]:
        """One point of the domain's frame, in the coordinates of the data."""
        minx, miny, maxx, maxy = self.domain.bounds
        middle = np.array([[(minx + maxx) / 2, (miny + maxy) / 2]])
        if reader.source is not None and reader.source != reader.target:
            middle = transform(middle, reader.target, reader.source)
        return float(middle[0, 0]), float(middle[0, 1])

    def decode(self, name: str, codes: Codes, rng: np.random.Generator) -> dict[str, Any]:
        flat = codes[:, 0]
        xy = np.full((len(flat), 2), np.nan)
        order = np.argsort(flat, kind="stable")
        counts = np.bincount(flat, minlength=self.prefix.size)[: self.prefix.size].astype(np.int64)
        points = hierarchy_of(self.domain).sample(self.prefix, self.bits, counts, rng)
        # neighbours in memory are neighbours in space (roads): shuffle within a cell
        shuffled = np.lexsort((rng.random(len(points)), np.repeat(np.arange(counts.size), counts)))
        xy[order[: len(points)]] = points[shuffled]
        x, y = self.inputs(name)
        reader = find_coordinates([x, y], self.domain, x=x, y=y)
        if reader.source is not None and reader.source != reader.target:
            xy = transform(xy, reader.target, reader.source if reader.source != "EPSG:4326" else WGS84)
        xy[~np.isfinite(xy).all(axis=1)] = np.nan
        return {x: pd.Series(xy[:, 0]), y: pd.Series(xy[:, 1])}

    def matching(self, name: str, wanted: Any) -> dict[str, NDArray[np.bool_]]:
        """A condition on a place is one point (x, y) in the domain's CRS: its cell."""
        try:
            point = np.asarray(wanted, dtype=np.float64).reshape(1, 2)
        except (TypeError, ValueError):
            raise ConfigError(f"given: column {name!r} takes a point (x, y), got {wanted!r}") from None
        keys, inside = hierarchy_of(self.domain).locate(point, self.bits)
        accepted = np.zeros(self.attributes(name)[0].size, dtype=bool)
        accepted[: self.prefix.size] = self.prefix == keys[0]
        if not inside[0] or not accepted.any():
            raise ConfigError(f"given: the point for column {name!r} lies outside the domain")
        return {name: accepted}

    def to_json(self) -> dict[str, Any]:
        values, arrays = self.domain.to_state()
        plain = {
            key: {"dtype": a.dtype.str, "shape": list(a.shape), "data": a.ravel().tolist()}
            for key, a in arrays.items()
        }
        out: dict[str, Any] = {
            "type": self.kind,
            "cells": self.cells,
            "domain": {"values": values, "arrays": plain},
        }
        if self.columns is not None:
            out["columns"] = list(self.columns)
        if self.missing:
            out["missing"] = True
        return out if self.outside == "error" else {**out, "outside": self.outside}


def _finite(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be a number, got {value!r}") from None
    if isinstance(value, bool) or not math.isfinite(number):
        raise ConfigError(f"{name} must be a finite number, got {value!r}")
    return number


def _edges(low: float, high: float, bins: Any) -> tuple[float, ...] | None:
    if isinstance(bins, str):
        if bins != "auto":
            raise ConfigError(f"bins must be a whole number, a list of edges or 'auto', got {bins!r}")
        return None
    if isinstance(bins, int | np.integer) and not isinstance(bins, bool):
        if bins < 1:
            raise ConfigError(f"bins must be >= 1, got {bins!r}")
        return tuple(np.linspace(low, high, int(bins) + 1).tolist())
    edges = tuple(_finite(edge, "a bin edge") for edge in bins)
    if len(edges) < 2 or edges[0] != low or edges[-1] != high or any(a >= b for a, b in pairwise(edges)):
        raise ConfigError(f"bin edges must rise from low={low:g} to high={high:g}, got {list(edges)}")
    return edges


def location_from_json(value: Mapping[str, Any]) -> Location:
    """The location whose ``to_json`` gave this."""
    arrays = {
        key: np.array(a["data"], dtype=np.dtype(a["dtype"])).reshape(a["shape"])
        for key, a in value["domain"].get("arrays", {}).items()
    }
    columns = value.get("columns")
    return Location(
        domain_from_state(value["domain"]["values"], arrays),
        cells=value["cells"],
        columns=None if columns is None else (columns[0], columns[1]),
        missing=value.get("missing", False),
        outside=value.get("outside", "error"),
    )

"""What a field means: numbers, times, ids and words, made of one row at a time on every engine.

A value has one canonical form, whatever holds it: 4, 4.0 and ``"4"`` are one number, one id and one word;
``"007"`` is a word and an id of its own. The type of the column that holds it plays no part, since one other
row can change that. Times are microseconds since 1970, instants in UTC where a zone is
known. No function here looks at a second row to decide what a first one is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.canonical import id_of, is_missing, is_unicode, word_of
from synthgeo.errors import ContributionError
from synthgeo.privacy.users import UserIds, read_ids
from synthgeo.sources.chunk import refuse
from synthgeo.sources.declared import Reading
from synthgeo.sources.text_column import TextColumn

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Times = NDArray[np.datetime64]

#: What a column can be asked for.
KINDS = ("number", "time", "id", "word", "point")

_NOT_A_NUMBER = (
    "is not a number (decimal= and thousands= say how numbers are written: --decimal , --thousands .)"
)
_NOT_A_TIME = (
    "is not a time as declared (time_format= says how times are written: --time-format '%m/%d/%Y %H:%M')"
)
_HAS_OFFSET = "has a time zone, but none is declared (tz= says which zone the other times are in: --tz UTC)"
_NOT_TEXT = "is not text in the declared encoding (encoding= says which: --encoding latin-1)"
_NO_NUMBER = "is not a number"
_NOT_UNIX = (
    "is not a time as declared (time_format='unix' reads numbers as seconds since 1970: --time-format unix)"
)
_SECONDS = 253_402_300_800  # the year 10000
# Microseconds since 1970 of the first and the last time that is read: the years 1 to 9999.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_800_000_000 - 1
# What a zone may shift them by.
_SHIFT = 2 * 86_400_000_000
# What becomes of a time: a clock time, none, no time, an offset that was written, an instant by its type.
_CLOCK, _NONE, _BAD, _OFFSET, _INSTANT = 0, 1, 2, 4, 5
# Whole numbers that lie closer together than this are looked up in an array.
_CLOSE = 1 << 10


@dataclass(frozen=True, eq=False)
class Words:
    """Text, each distinct one once: row i is ``values[codes[i]]``, missing where the code is -1."""

    codes: NDArray[np.int64]
    values: list[str]

    def lookup(self, table: Mapping[str, int], unknown: int) -> NDArray[np.int64]:
        """The number that a table gives to each row; ``unknown`` for words it lacks, -1 where missing."""
        found = np.array([*(table.get(word, unknown) for word in self.values), -1], dtype=np.int64)
        return found[self.codes]


def numbers(chunk: Mapping[str, Any], column: str, *, booleans: bool = True) -> Floats:
    """A column as numbers, NaN where a value is missing; anything else is refused with its row.

    ``booleans`` says whether a column of True and False counts as one of 1 and 0.
    """
    values = _column(chunk, column)
    if isinstance(values, TextColumn):
        found, state = values.numbers()
        refuse(state > 1, column, _NOT_A_NUMBER)
        return found
    kind = values.dtype.kind
    if kind in ("iufb" if booleans else "iuf"):
        found = np.ma.filled(values.astype(np.float64), np.nan)
        return np.asarray(found, dtype=np.float64)
    if kind == "O":
        return _numbers_of_objects(values, column, _reading(chunk), booleans)
    refuse(~_nothing(values), column, _NO_NUMBER)
    return np.full(len(values), np.nan)


def finite(chunk: Mapping[str, Any], column: str) -> Floats:
    """A column as finite numbers; a missing or infinite one is refused with its row."""
    found = numbers(chunk, column)
    refuse(np.isnan(found), column, "is missing or not a number")
    refuse(np.isinf(found), column, "is infinite")
    return found


def operations(chunk: Mapping[str, Any], column: str, *, deletions: bool = True) -> NDArray[np.int64]:
    """+1 (insert) or -1 (delete) for each row; where every row names its own columns, none means insert."""
    found = numbers(chunk, column)
    if getattr(chunk, "open_schema", False):
        found = np.where(np.isnan(found), 1.0, found)
    refuse(~((found == 1) | (found == -1)), column, "must be +1 (insert) or -1 (delete)")
    if not deletions:
        refuse(found == -1, column, "is a delete, but the stream was made with deletions=False")
    return np.where(found == -1, -1, 1).astype(np.int64)


def times(chunk: Mapping[str, Any], column: str, *, seconds: bool = False) -> Times:
    """A column as times (UTC where a zone is known), NaT where missing; the rest is refused with its row.

    Numbers are seconds since 1970 where ``time_format="unix"`` is declared, or ``seconds`` says so.
    """
    values, reading = _column(chunk, column), _reading(chunk)
    counted = seconds or reading.time_format == "unix"
    if isinstance(values, TextColumn):
        micros, state = values.times()
    elif values.dtype.kind == "O":
        micros, state = _times_of_objects(values, reading, counted)
    elif values.dtype.kind == "M":
        known = _INSTANT if column in getattr(chunk, "zoned", ()) else _CLOCK
        micros = np.asarray(values, dtype="datetime64[us]").astype(np.int64)
        state = np.where(np.isnat(values), _NONE, known).astype(np.uint8)
    elif values.dtype.kind in "iuf" and counted:
        micros, state = _times_of_seconds(numbers(chunk, column), reading)
    else:
        refuse(~_nothing(values), column, _NOT_UNIX)
        return np.full(len(values), np.datetime64("NaT", "us"))
    return _checked_times(micros, state, column, reading.tz)


def known_times(chunk: Mapping[str, Any], column: str) -> Times:
    """A column of times of which none may be missing."""
    found = times(chunk, column)
    refuse(np.isnat(found), column, "the time is missing")
    return found


def ids(chunk: Mapping[str, Any], column: str, *, alike: Collection[str] | None = None) -> UserIds:
    """A column as ids in their canonical form; a missing one is refused with its row.

    ``alike`` says what does not tell ids apart, where that is not what is declared.
    """
    values, reading = _column(chunk, column), _reading(chunk)
    alike = reading.ids if alike is None else alike
    if isinstance(values, TextColumn):
        found, missing, bad = _ids_of_text(values, alike)
        problem = _NOT_TEXT
    else:
        found, missing, bad = read_ids(values, alike, reading.missing)
        problem = "an id is a number or text"
    refuse(missing, column, "the id is missing", ContributionError)
    refuse(bad, column, problem, ContributionError)
    return found


def words(chunk: Mapping[str, Any], column: str) -> Words:
    """A column as text in its canonical form."""
    values, reading = _column(chunk, column), _reading(chunk)
    if isinstance(values, TextColumn):
        texts, bad = values.strings()
        refuse(bad, column, _NOT_TEXT)
        return _words_of(texts, values.missing())
    kind = values.dtype.kind
    if kind == "O":
        missing, bad, texts = _texts_of_objects(values, reading)
        refuse(bad, column, "is neither text nor a number")
        return _words_of(texts, missing | bad)
    missing, plain = _nothing(values), np.ma.getdata(values)
    if kind == "M":
        far = ~missing & ~_readable(plain.astype(np.int64))
        refuse(far, column, _NOT_A_TIME)
        missing |= far
    codes, distinct = pd.factorize(plain)
    codes = np.where(missing, -1, codes).astype(np.int64)
    if kind == "M":
        return _canonical(codes, [str(value) for value in distinct])
    return _canonical(codes, [word_of(value) for value in distinct.tolist()])


def looked_up(
    chunk: Mapping[str, Any], column: str, table: Mapping[str, int], unknown: int
) -> NDArray[np.int64]:
    """The number that a table of canonical texts gives to each row; ``unknown`` for texts that it lacks, -1
    where a value is missing.

    Whole numbers close to each other need not be told apart for it.
    """
    values = _column(chunk, column)
    if isinstance(values, TextColumn) or values.dtype.kind not in "bui" or not len(values):
        return words(chunk, column).lookup(table, unknown)
    plain, mask = np.ma.getdata(values), np.ma.getmask(values)
    low, high = int(plain.min()), int(plain.max())
    if high - low >= _CLOSE:
        return words(chunk, column).lookup(table, unknown)
    kind = bool if plain.dtype.kind == "b" else int
    meant = [table.get(word_of(kind(value)), unknown) for value in range(low, high + 1)]
    steps = plain.astype(np.int64) - plain.min().astype(np.int64)  # unsigned ones wrap, both alike
    found = np.array(meant, dtype=np.int64)[steps]
    return found if mask is np.ma.nomask else np.where(mask, -1, found)


def as_words(chunk: Mapping[str, Any], column: str) -> NDArray[Any]:
    """A column as an array of canonical texts, None where missing."""
    found = words(chunk, column)
    return np.array([*found.values, None], dtype=object)[found.codes]


def as_frame(source: Any, kinds: Mapping[str, str]) -> pd.DataFrame:
    """The private rows as a frame in memory, for the curator: only the columns named, by what they mean."""
    chunk = source.read(list(kinds))
    read: dict[str, Callable[[Any, str], Any]] = {
        "number": numbers,
        "time": times,
        "word": as_words,
        "id": as_words,
    }
    return pd.DataFrame({name: read[kind](chunk, name) for name, kind in kinds.items()})


def points(chunk: Mapping[str, Any], column: str) -> Floats:
    """A column of point geometries as coordinates (n, 2)."""
    import shapely

    values = _column(chunk, column)
    shapes = np.full(len(values), None, dtype=object)
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        known = shapely.is_geometry(values)
        shapes[known] = values[known]
        rest = np.flatnonzero(~known)
        wkb = [row for row in rest if isinstance(values[row], bytes | bytearray)]
        if wkb:
            from synthgeo.sources.geometry import points_of_wkb

            shapes[wkb] = points_of_wkb(bytes(values[row]) for row in wkb)
    wrong = (shapely.get_type_id(shapes) != shapely.GeometryType.POINT) | shapely.is_empty(shapes)
    refuse(wrong, column, "is not a point, or nothing")
    return np.column_stack([shapely.get_x(shapes), shapely.get_y(shapes)])


def record_hash(chunk: Mapping[str, Any], column: str, kind: str) -> list[NDArray[np.uint64]]:
    """Whole numbers that tell a column's canonical values apart, the same on every engine."""
    if kind == "number":
        found = numbers(chunk, column)
        return [np.where(np.isnan(found), np.nan, found + 0.0).view(np.uint64)]
    if kind == "time":
        return [times(chunk, column, seconds=True).astype("datetime64[us]").astype(np.int64).view(np.uint64)]
    if kind == "id":
        found_ids = ids(chunk, column)
        return [found_ids.high, found_ids.low]
    if kind == "point":
        return [np.ascontiguousarray(axis + 0.0).view(np.uint64) for axis in points(chunk, column).T]
    found_words = words(chunk, column)
    table = [
        hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for word in found_words.values
    ]
    pairs = np.frombuffer(b"".join([*table, b"\0" * 16]), dtype="<u8").reshape(-1, 2)
    return [pairs[found_words.codes, side].astype(np.uint64) for side in (0, 1)]


def _column(chunk: Mapping[str, Any], column: str) -> Any:
    values = chunk[column]
    if isinstance(values, TextColumn | np.ndarray):
        return (
            values.astype(object) if isinstance(values, np.ndarray) and values.dtype.kind in "US" else values
        )
    from synthgeo.sources.frames import column_of

    return column_of(values, column)


def _reading(chunk: Mapping[str, Any]) -> Reading:
    return getattr(chunk, "reading", None) or _USUAL


_USUAL = Reading()


def _nothing(values: NDArray[Any]) -> Bools:
    """Which rows of a typed column hold no value."""
    return np.asarray(np.ma.getmaskarray(values) | pd.isna(np.ma.getdata(values)), dtype=bool)


def _split(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of an object array that hold text, and those that hold something else."""
    text = np.fromiter((isinstance(value, str) for value in values), dtype=bool, count=len(values))
    return np.flatnonzero(text), np.flatnonzero(~text)


def _each(
    values: NDArray[Any], rows: NDArray[np.int64], convert: Callable[[Any], Any], out: NDArray[Any]
) -> NDArray[np.int64]:
    """Convert some objects one by one; the rows where that failed."""
    bad = []
    for row in rows:
        value = values[row]
        if is_missing(value):
            continue
        try:
            out[row] = convert(value)
        except (TypeError, ValueError, OverflowError):
            bad.append(row)
    return np.array(bad, dtype=np.int64)


def _mask(rows: NDArray[np.int64], size: int) -> Bools:
    mask = np.zeros(size, dtype=bool)
    mask[rows] = True
    return mask


def _numbers_of_objects(values: NDArray[Any], column: str, reading: Reading, booleans: bool) -> Floats:
    text, other = _split(values)
    found = np.full(len(values), np.nan)
    bad = _each(values, other, _as_number if booleans else _as_plain_number, found)
    refuse(_mask(bad, len(values)), column, _NO_NUMBER)
    if len(text):
        found[text], state = TextColumn.of(values[text], reading).numbers()
        refuse(_mask(text[state > 1], len(values)), column, _NOT_A_NUMBER)
    return found


def _as_number(value: Any) -> float:
    number = isinstance(value, int | float | np.integer | np.floating | np.bool_ | Decimal | Fraction)
    if number and not isinstance(value, np.timedelta64):
        return float(value)
    raise TypeError


def _as_plain_number(value: Any) -> float:
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return _as_number(value)


def _readable(micros: NDArray[np.int64], margin: int = 0) -> Bools:
    """Which times lie in the years that are read, this far from the first and the last moment."""
    return (micros >= _FIRST + margin) & (micros <= _LAST - margin)


def _checked_times(micros: NDArray[np.int64], state: NDArray[np.uint8], column: str, tz: str | None) -> Times:
    """Clock times to instants where a zone is declared; an offset without one is refused. Where a zone plays
    a part, the first and the last days of the calendar are no times: it could shift them out.
    """
    zoned = (state == _INSTANT) | (tz is not None)
    far = (state != _NONE) & ~np.where(zoned, _readable(micros, _SHIFT), _readable(micros))
    state = np.where(far, _BAD, state)
    refuse((state == 2) | (state == 3), column, _NOT_A_TIME)
    if tz is None:
        refuse(state == _OFFSET, column, _HAS_OFFSET)
    known = (state == _CLOCK) | (state == _OFFSET) | (state == _INSTANT)
    found = np.where(known, micros, np.iinfo(np.int64).min).astype(np.int64).view("datetime64[us]")
    return found if tz is None else np.where(state == _CLOCK, _localised(found, tz), found)


def _times_of_seconds(number: Floats, reading: Reading) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Numbers as seconds since 1970: instants, whatever the zone of clock times."""
    good = np.abs(number) <= _SECONDS
    micros = np.rint(np.where(good, number, 0.0) * 1e6).astype(np.int64)
    known = np.where(good, _CLOCK if reading.tz is None else _INSTANT, _BAD)
    return micros, np.where(np.isnan(number), _NONE, known).astype(np.uint8)


def _localised(clock: Times, tz: str | None) -> Times:
    """Instants of clock times in a zone: of two the first, and past the gap for one that is skipped."""
    if tz is None or len(clock) == 0:
        return clock
    stamps = pd.DatetimeIndex(clock)
    first_of_two = np.ones(len(stamps), dtype=bool)
    aware = stamps.tz_localize(tz, ambiguous=first_of_two, nonexistent="shift_forward")
    return np.asarray(aware.tz_convert("UTC").tz_localize(None).to_numpy(), dtype="datetime64[us]")


def _times_of_objects(
    values: NDArray[Any], reading: Reading, counted: bool
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    text, other = _split(values)
    micros = np.full(len(values), np.iinfo(np.int64).min, dtype=np.int64)
    state = np.full(len(values), _NONE, dtype=np.uint8)
    number = np.full(len(values), np.nan)
    seconds = []
    for row in other:
        value = values[row]
        if is_missing(value):
            continue
        micros[row], state[row] = _as_time(value)
        if counted and state[row] == _BAD:
            with suppress(TypeError, ValueError, OverflowError):
                number[row] = _as_plain_number(value)
                seconds.append(row)
    if seconds:
        micros[seconds], state[seconds] = _times_of_seconds(number[seconds], reading)
    if len(text):
        micros[text], state[text] = TextColumn.of(values[text], reading).times()
    return micros, state


def _as_time(value: Any) -> tuple[int, int]:
    """Microseconds since 1970, and what became of the time."""
    if not isinstance(value, datetime | date | np.datetime64):
        return 0, _BAD
    try:
        stamp = pd.Timestamp(value)
        if stamp is pd.NaT:
            return 0, _NONE
        if stamp.tz is None:
            return int(stamp.as_unit("us").asm8.astype(np.int64)), _CLOCK
        instant = stamp.tz_convert("UTC").tz_localize(None)
        return int(instant.as_unit("us").asm8.astype(np.int64)), _INSTANT
    except (ValueError, OverflowError, NotImplementedError):
        return 0, _BAD


def _ids_of_text(values: TextColumn, alike: Collection[str]) -> tuple[UserIds, Bools, Bools]:
    """Ids of text, which of them are missing, and which are no text."""
    if "space" in alike:
        values = values.trimmed()
    missing, bad = values.missing(), np.zeros(len(values), dtype=bool)
    whole, found = values.integers()
    known = UserIds.of_integers(np.where(found, whole, 0))
    rest = np.flatnonzero(~found & ~missing)
    if not len(rest):
        return known, missing, bad
    texts, bad[rest] = values.take(rest).strings()
    encoded = texts.dictionary_encode()
    canonical = [id_of(text, alike) for text in encoded.dictionary.to_pylist()]
    at = np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)
    none = {"", *values.reading.missing} if "space" in alike else set(values.reading.missing)
    missing[rest] = np.array([text in none for text in canonical], dtype=bool)[at] & ~bad[rest]
    return known.with_texts(rest, np.array(canonical, dtype=object)[at].tolist()), missing, bad


def _texts_of_objects(values: NDArray[Any], reading: Reading) -> tuple[Bools, Bools, NDArray[Any]]:
    """Which objects are missing, which have no canonical text, and the texts of the others."""
    texts = np.full(len(values), "", dtype=object)
    missing, bad = np.zeros(len(values), dtype=bool), np.zeros(len(values), dtype=bool)
    for row, value in enumerate(values):
        if isinstance(value, str):
            missing[row] = value in reading.missing
            bad[row] = not is_unicode(value)
            texts[row] = "" if bad[row] else value
        elif is_missing(value):
            missing[row] = True
        else:
            text = _word_of_object(value)
            bad[row] = text is None
            texts[row] = text or ""
    return missing, bad, texts


def _word_of_object(value: Any) -> str | None:
    """The canonical text of one object that is no text, None where it has none: that of a typed column."""
    if isinstance(value, np.timedelta64 | timedelta):
        return word_of(np.timedelta64(value).astype("timedelta64[us]").tolist())
    if isinstance(value, bool | np.bool_ | int | float | np.integer | np.floating | Decimal):
        try:
            return word_of(value)
        except ValueError:  # a whole number of too many digits
            return None
    micros, state = _as_time(value)
    good = state != _BAD and _readable(np.array([micros]))[0]
    return str(np.datetime64(micros, "us")) if good else None


def _words_of(texts: Any, missing: Bools) -> Words:
    import pyarrow as pa

    array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.large_string())
    encoded = array.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)
    return _canonical(
        np.where(missing, -1, codes), [word_of(text) for text in encoded.dictionary.to_pylist()]
    )


def _canonical(codes: NDArray[np.int64], texts: list[str]) -> Words:
    """Words whose texts are distinct."""
    place: dict[str, int] = {}
    to = np.array([*(place.setdefault(text, len(place)) for text in texts), -1], dtype=np.int64)
    return Words(to[codes], list(place))


__all__ = [
    "KINDS",
    "Words",
    "as_frame",
    "as_words",
    "finite",
    "ids",
    "known_times",
    "looked_up",
    "numbers",
    "operations",
    "points",
    "record_hash",
    "times",
    "words",
]

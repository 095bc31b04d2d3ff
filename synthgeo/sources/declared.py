"""What is declared about a file before a row of it is read: public options of reading.

The theorem of every product starts at records. It holds for files because a file becomes records row by row:
what a row becomes depends on that row and on what is declared here, never on another row
(docs/guarantees.md, "From file to record").
"""

from __future__ import annotations

import codecs
import logging
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any, Self
from zoneinfo import ZoneInfo

from synthgeo import validate
from synthgeo.errors import ConfigError, InputError

#: Has what private rows look like in unattended use. For the curator only, who gives it a handler: what a
#: scheduler makes of all other loggers does not get it.
CURATOR = logging.getLogger("synthgeo.curator")
CURATOR.propagate = False
#: Longer lines are refused: a file without line ends must not fill the memory.
MAX_LINE = 1 << 20
#: What may not tell two ids apart.
ALIKE = ("space", "case", "zeros")
_DIRECTIVES = "YmdHMSfybBpIjz%T"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How text is read; the same for every row.

    Attributes
    ----------
    delimiter
        One character between fields. None: whichever of comma, semicolon, tab and bar the header line has
        most of.
    quote
        The character around fields that hold a delimiter; doubled inside such a field. None: no quoting.
        A quote that is still open ends with its line.
    decimal, thousands
        The decimal mark of numbers, and the mark between groups of three digits (None: there is none).
    encoding
        UTF-8 or a single-byte encoding such as ``"latin-1"`` or ``"cp1252"``.
    time_format
        ``"iso"`` (ISO 8601), ``"unix"`` (seconds since 1970), or a format such as ``"%m/%d/%Y %H:%M"``.
    tz
        Time zone of times that carry no offset, such as ``"Europe/Berlin"``; times with an offset are
        then allowed too. None: times are clock times without a zone, and an offset is an error. A clock time
        that occurs twice when daylight saving ends is the first of the two; one that is skipped when it
        begins is moved to the end of the gap.
    missing
        Texts that mean "no value".
    columns
        Names of the columns of a file that has no header line (CSV), or the columns that rows can have where
        every row names its own (JSON lines, properties of GeoJSON). None: CSV files have a header line.
    ids
        What does not tell two ids apart: ``"space"`` (white space around them, and how accents are encoded:
        Unicode's NFC), ``"case"``, ``"zeros"`` (leading ones of whole numbers). An id of which nothing is
        left is missing. It is one rule for all columns of ids, in text and in typed columns.
    bad_rows
        ``"error"`` refuses a file with a row that cannot be read or does not fit the declarations and says
        which rows; ``"drop"`` leaves such rows out, each for itself.
    unattended
        True where nobody looks at what is refused, as in a scheduler or a watched folder: whether there is a
        release then depends on nothing private. Bad rows are dropped, and what would be refused because of
        private rows is released as an ordinary step (``remark``). See docs/attended.md.

    >>> Reading(delimiter=";", decimal=",").describe()
    "delimiter ';', decimal ','"
    """

    delimiter: str | None = None
    quote: str | None = '"'
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"
    time_format: str = "iso"
    tz: str | None = None
    missing: tuple[str, ...] = ("",)
    columns: tuple[str, ...] | None = None
    bad_rows: str = "error"
    unattended: bool = False
    ids: tuple[str, ...] = ("space",)

    def __post_init__(self) -> None:
        for name in ("missing", "columns", "ids"):
            value = getattr(self, name)
            if isinstance(value, str) or not (value is None or all(isinstance(text, str) for text in value)):
                raise ConfigError(f"{name} must be a list of texts, got {value!r}")
            object.__setattr__(self, name, None if value is None else tuple(value))
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise ConfigError(f"columns names one column twice: {list(self.columns)}")
        if not set(self.ids) <= set(ALIKE):
            raise ConfigError(f"ids must be a list of {', '.join(map(repr, ALIKE))}, got {list(self.ids)}")
        for name in ("delimiter", "quote", "decimal", "thousands"):
            _check_mark(name, getattr(self, name), optional=name != "decimal")
        if self.delimiter is not None and self.delimiter == self.quote:
            raise ConfigError(f"delimiter and quote must differ, both are {self.quote!r}")
        if self.decimal == self.thousands or self.decimal.isdigit() or (self.thousands or "x").isdigit():
            raise ConfigError(
                f"decimal {self.decimal!r} and thousands {self.thousands!r} must differ and be no digits"
            )
        object.__setattr__(self, "encoding", _encoding(self.encoding))
        _check_time_format(self.time_format)
        if self.tz is not None:
            try:
                ZoneInfo(self.tz)
            except (KeyError, ValueError, TypeError, OSError):
                raise ConfigError(f"tz={self.tz!r} is no time zone; try 'Europe/Berlin' or 'UTC'") from None
        if self.bad_rows not in ("error", "drop"):
            raise ConfigError(f"bad_rows must be 'error' or 'drop', got {self.bad_rows!r}")
        if validate.flag(self.unattended, "unattended"):
            object.__setattr__(self, "bad_rows", "drop")

    def but(self, **changes: Any) -> Self:
        """The same declarations with some of them changed."""
        return replace(self, **changes)

    def remark(self, problem: str) -> None:
        """Say that private rows do not look as they should, to the curator alone.

        Every product says so here and nowhere else. Attended use is refused with ``InputError``. Unattended
        use goes on to its release, and the logger "synthgeo.curator" has the line at level INFO, which nobody
        sees who does not ask for it. A durable run keeps it (``RunView.remarks``).
        """
        if not self.unattended:
            raise InputError(f"{problem}; nothing was released and nothing spent")
        CURATOR.info(problem)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which ``from_dict`` makes it again."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any] | None) -> Self:
        """The declarations that ``to_dict`` wrote; the defaults for None.

        A stream that began before ids had a rule goes on without one.
        """
        return cls() if values is None else cls(**({"ids": ()} | values))

    def describe(self) -> str:
        """What differs from the defaults, in words."""
        usual = Reading()
        named = {name: getattr(self, name) for name in self.to_dict()}
        changed = [f"{name} {value!r}" for name, value in named.items() if value != getattr(usual, name)]
        return ", ".join(changed) or "defaults"


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """Which columns hold what; a product refuses names of what it does not read.

    Attributes
    ----------
    x, y
        Coordinates. None: ``lon`` and ``lat``, or ``x`` and ``y``, whichever are there.
    crs
        Coordinate system of ``x`` and ``y``. None: longitude and latitude for ``lon`` and ``lat``, else the
        domain's.
    time
        Times of the points of trips. None: trips have no times.
    trip
        What tells trips apart.
    op
        +1 for an insertion and -1 for a deletion, where there is such a column.
    inserted
        When the event of a deletion was inserted: the number of its step or, in ``run``, its time.
    """

    x: str | None = None
    y: str | None = None
    crs: Any = None
    time: str | None = "time"
    trip: str = "trip_id"
    op: str = "op"
    inserted: str | None = None

    def only(self, product: str, names: tuple[str, ...]) -> Self:
        """These names, if a product reads all of them that are given."""
        usual = ColumnNames()
        for name in (field.name for field in fields(self)):
            if name not in names and getattr(self, name) != getattr(usual, name):
                raise ConfigError(f"{product} reads no column {name!r}: leave it out of columns")
        return self


def check_columns(columns: Any) -> ColumnNames:
    """The names of columns, the defaults for None; anything else is refused."""
    if columns is None:
        return ColumnNames()
    if not isinstance(columns, ColumnNames):
        raise ConfigError(f"columns must be ColumnNames(...), got {type(columns).__name__}")
    return columns


def check_reading(reading: Any) -> Reading:
    """The declarations, the defaults for None; anything else is refused."""
    if reading is None:
        return Reading()
    if not isinstance(reading, Reading):
        raise ConfigError(f"reading must be a Reading, got {type(reading).__name__}")
    return reading


def _check_mark(name: str, value: Any, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
        raise ConfigError(f"{name} must be one ASCII character, got {value!r}")


@cache
def _encoding(name: Any) -> str:
    """The codec's own name. With several bytes per character, one row could shift those after it."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, TypeError):
        raise ConfigError(f"encoding={name!r} is unknown; try 'utf-8', 'latin-1' or 'cp1252'") from None
    if found in ("utf-8", "utf-8-sig", "ascii"):
        return "utf-8"
    try:
        single = all(len(bytes([byte]).decode(found, "replace")) == 1 for byte in range(256))
        plain = bytes(range(128)).decode(found) == "".join(map(chr, range(128)))
    except (UnicodeError, LookupError):
        single = plain = False
    if not (single and plain):
        raise ConfigError(f"encoding={name!r} is not read: convert the file to UTF-8 first")
    return found


def _check_time_format(text: Any) -> None:
    if not isinstance(text, str) or not text:
        raise ConfigError(f"time_format must be 'iso', 'unix' or a format such as '%d.%m.%Y', got {text!r}")
    if text in ("iso", "unix"):
        return
    if not text.isascii():
        raise ConfigError(f"time_format {text!r} must be ASCII")
    directives = [text[i + 1 : i + 2] for i in range(len(text)) if text[i] == "%" and text[i - 1 : i] != "%"]
    wrong = [d for d in directives if d == "" or d not in _DIRECTIVES]
    if "%" not in text or wrong:
        known = ", ".join(f"%{d}" for d in _DIRECTIVES if d != "%")
        shown = f"%{wrong[0]}" if wrong else text
        raise ConfigError(f"time_format: {shown!r} is not understood; 'iso', 'unix', or made of {known}")
    has = set(directives)
    if not (has & {"Y", "y"} and (has & {"j"} or (has & {"m", "b", "B"} and "d" in has))):
        raise ConfigError(f"time_format {text!r} does not say year, month and day")


__all__ = ["ALIKE", "MAX_LINE", "ColumnNames", "Reading", "check_columns", "check_reading"]

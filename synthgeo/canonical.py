"""The one canonical text of a value, whatever holds it: 4, 4.0 and ``"4"`` are the same, ``"007"`` is not."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

_DECIMAL = re.compile(r"(-?(?:0|[1-9]\d*))\.(\d*)")
_ZEROS = re.compile(r"(-?)0+(\d+(?:\.0*)?)")
# Larger decimals count as they are written: their digits would fill the memory.
_MOST_DIGITS = 400


def word_of(value: Any) -> str:
    """The canonical text of one value.

    >>> [word_of(value) for value in (4, 4.0, "4", "4.0", 4.5, "4.50", "007", True)]
    ['4', '4', '4', '4', '4.5', '4.5', '007', 'true']
    """
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if math.isfinite(number) and number == math.floor(number) else repr(number)
    if isinstance(value, Decimal):
        plain = value.is_finite() and abs(value.adjusted()) <= _MOST_DIGITS
        return word_of(format(value, "f")) if plain else str(value)
    text = str(value)
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return text
    fraction = found[2].rstrip("0")
    return f"{found[1]}.{fraction}" if fraction else ("0" if found[1] == "-0" else found[1])


def id_of(text: str, alike: Collection[str]) -> str:
    """The canonical text of an id that is written as text. ``alike`` says what does not tell ids apart:
    ``"space"`` (white space around them, and how accents are encoded), ``"case"``, leading ``"zeros"``.

    >>> [id_of(text, ["space"]) for text in ("7", " 7 ", "7.0", "007", "Ann")]
    ['7', '7', '7', '007', 'Ann']
    >>> [id_of(text, ["space", "case", "zeros"]) for text in ("007", "Ann ")]
    ['7', 'ann']
    """
    if "space" in alike:
        text = unicodedata.normalize("NFC", text.strip())
    if "case" in alike:
        text = unicodedata.normalize("NFC", text.casefold())
    if "zeros" in alike and (found := _ZEROS.fullmatch(text)):
        text = found[1] + found[2]
    return word_of(text)


def is_unicode(text: str) -> bool:
    """Whether a text can be written down: half of a surrogate pair, as JSON may hold, cannot."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def is_missing(value: Any) -> bool:
    """Whether one value is none at all."""
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(value != value)

"""The one canonical text of a value, whatever holds it: 4, 4.0 and ``"4"`` are the same, ``"007"`` is not."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

_DECIMAL = re.compile(r"(-?(?:0|[1-9]\d*))\.(\d*)")


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
        return word_of(format(value, "f")) if value.is_finite() else str(value)
    text = str(value)
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return text
    fraction = found[2].rstrip("0")
    return f"{found[1]}.{fraction}" if fraction else ("0" if found[1] == "-0" else found[1])


def is_missing(value: Any) -> bool:
    """Whether one value is none at all."""
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)

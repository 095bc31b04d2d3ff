"""Compiled loops over the bytes of text: lines to fields, fields to numbers and whole numbers.

Every function looks at one line or one field at a time, so what it gives for one row cannot depend on
another: the privacy of reading rests on this module (docs/guarantees.md, "From file to record").
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

# What became of a field.
GOOD, MISSING, BAD, LONG, OFFSET = 0, 1, 2, 3, 4
# What became of a line, where it is not its number of fields: nothing but white space, text behind a closing
# quote, a carriage return inside, more bytes than a line may have.
EMPTY, BEHIND_QUOTE, CARRIAGE_RETURN, TOO_LONG = 0, -1, -2, -3

_SPACE, _TAB, _CR, _PLUS, _MINUS, _DOT = 32, 9, 13, 43, 45, 46
_ZERO, _NINE, _LOWER_E, _UPPER_E = 48, 57, 101, 69
# Powers of ten that a double holds exactly (Clinger 1990): with a mantissa below 2^53 one rounding remains.
_EXACT_POWERS = 10.0 ** np.arange(23)
_EXACT_MANTISSA = np.uint64(2**53)
jit: Any = numba.njit(cache=True, nogil=True)


@jit
def split_lines(
    data: Bytes,
    line_start: Ints,
    line_end: Ints,
    delimiter: int,
    quote: int,
    slot: Ints,
    longest: int,
    start: Ints,
    end: Ints,
    escaped: NDArray[np.bool_],
    fields: Ints,
) -> None:
    """Find the fields of each line; column j's bounds go to row ``slot[j]`` of ``start`` and ``end``.

    ``fields`` gets the number of fields of each line or what is wrong with it; ``escaped`` says that a field
    holds doubled quotes.
    """
    columns = len(slot)
    for i in range(len(line_start)):
        p, stop = line_start[i], line_end[i]
        if stop > p and data[stop - 1] == _CR:
            stop -= 1
        if stop - p > longest:
            fields[i] = TOO_LONG
            continue
        if stop == p:
            fields[i] = EMPTY
            continue
        count = 0
        wrong = 0
        while True:
            inside_start = p
            has_escape = False
            if quote >= 0 and p < stop and data[p] == quote:
                p += 1
                inside_start = p
                while p < stop:
                    if data[p] == quote:
                        if p + 1 < stop and data[p + 1] == quote:
                            has_escape = True
                            p += 2
                            continue
                        break
                    if data[p] == _CR:
                        wrong = CARRIAGE_RETURN
                    p += 1
                inside_end = min(p, stop)
                p += 1
                if p < stop and data[p] != delimiter:
                    wrong = BEHIND_QUOTE
                    break
            else:
                while p < stop and data[p] != delimiter:
                    if data[p] == _CR:
                        wrong = CARRIAGE_RETURN
                    p += 1
                inside_end = p
            if count < columns and slot[count] >= 0:
                at = slot[count]
                start[at, i] = inside_start
                end[at, i] = inside_end
                escaped[at, i] = has_escape
            count += 1
            if p >= stop:
                break
            p += 1
            if p == stop:  # the line ends with a delimiter: one more field, empty
                if count < columns and slot[count] >= 0:
                    at = slot[count]
                    start[at, i] = p
                    end[at, i] = p
                    escaped[at, i] = False
                count += 1
                break
        fields[i] = wrong if wrong != 0 else count


@jit
def is_one_of(data: Bytes, low: int, high: int, words: Bytes, bounds: Ints) -> bool:
    """Whether a field is one of some texts."""
    for k in range(len(bounds) - 1):
        if bounds[k + 1] - bounds[k] == high - low:
            same = True
            for j in range(high - low):
                if data[low + j] != words[bounds[k] + j]:
                    same = False
                    break
            if same:
                return True
    return False


@jit
def trim(data: Bytes, start: Ints, end: Ints) -> None:
    """Take spaces and tabs off both ends of each field, in place."""
    for i in range(len(start)):
        low, high = start[i], end[i]
        while low < high and (data[low] == _SPACE or data[low] == _TAB):
            low += 1
        while high > low and (data[high - 1] == _SPACE or data[high - 1] == _TAB):
            high -= 1
        start[i], end[i] = low, high


@jit
def find_missing(data: Bytes, start: Ints, end: Ints, words: Bytes, bounds: Ints) -> NDArray[np.bool_]:
    """Which fields hold a text that means "no value"."""
    found = np.zeros(len(start), dtype=np.bool_)
    for i in range(len(start)):
        found[i] = is_one_of(data, start[i], end[i], words, bounds)
    return found


@jit
def parse_numbers(
    data: Bytes,
    start: Ints,
    end: Ints,
    decimal: int,
    thousands: int,
    words: Bytes,
    bounds: Ints,
    out: NDArray[np.float64],
    state: NDArray[np.uint8],
) -> None:
    """Decimal numbers: an optional sign, digits with an optional decimal mark, an optional exponent.

    ``LONG`` marks numbers that need more digits than one rounding can take: another parser finishes them.
    """
    for i in range(len(start)):
        p, stop = start[i], end[i]
        out[i] = np.nan
        if is_one_of(data, p, stop, words, bounds):
            state[i] = MISSING
            continue
        state[i] = BAD
        negative = False
        if p < stop and (data[p] == _MINUS or data[p] == _PLUS):
            negative = data[p] == _MINUS
            p += 1
        mantissa = np.uint64(0)
        digits = 0  # significant ones
        seen = 0
        scale = 0
        group = -1  # digits since the last mark between thousands; -1 before the first
        good = True
        while p < stop:
            c = data[p]
            if _ZERO <= c <= _NINE:
                if digits < 19:
                    mantissa = mantissa * np.uint64(10) + np.uint64(c - _ZERO)
                    if mantissa != 0:
                        digits += 1
                else:
                    digits += 1
                    scale += 1
                seen += 1
                if group >= 0:
                    group += 1
            elif thousands >= 0 and c == thousands:
                good = good and seen > 0 and (group == 3 or (group == -1 and seen <= 3))
                group = 0
            else:
                break
            p += 1
        good = good and (group == -1 or group == 3)
        if p < stop and data[p] == decimal:
            p += 1
            while p < stop and _ZERO <= data[p] <= _NINE:
                if digits < 19:
                    mantissa = mantissa * np.uint64(10) + np.uint64(data[p] - _ZERO)
                    if mantissa != 0:
                        digits += 1
                    scale -= 1
                else:
                    digits += 1
                seen += 1
                p += 1
        if p < stop and seen > 0 and (data[p] == _LOWER_E or data[p] == _UPPER_E):
            p += 1
            down = False
            if p < stop and (data[p] == _MINUS or data[p] == _PLUS):
                down = data[p] == _MINUS
                p += 1
            exponent = 0
            found = False
            while p < stop and _ZERO <= data[p] <= _NINE:
                exponent = min(exponent * 10 + np.int64(data[p] - _ZERO), 100_000)
                found = True
                p += 1
            good = good and found
            scale += -exponent if down else exponent
        if not good or seen == 0 or p != stop:
            continue
        if mantissa == 0:
            out[i] = 0.0
            state[i] = GOOD
        elif mantissa <= _EXACT_MANTISSA and -22 <= scale <= 22 and digits <= 19:
            value = np.float64(mantissa)
            value = value * _EXACT_POWERS[scale] if scale >= 0 else value / _EXACT_POWERS[-scale]
            out[i] = -value if negative else value
            state[i] = GOOD
        else:
            state[i] = LONG


@jit
def parse_integers(data: Bytes, start: Ints, end: Ints, out: Ints) -> NDArray[np.bool_]:
    """Fields that are how a 64-bit whole number is written: no plus, no leading zeros, nothing else.

    A point and zeros behind the number are read past: 4, 4. and 4.0 are one number.
    """
    found = np.zeros(len(start), dtype=np.bool_)
    for i in range(len(start)):
        p, stop = start[i], end[i]
        negative = p < stop and data[p] == _MINUS
        if negative:
            p += 1
        first = p
        value = np.uint64(0)
        while p < stop and _ZERO <= data[p] <= _NINE and p - first < 19:
            value = value * np.uint64(10) + np.uint64(data[p] - _ZERO)
            p += 1
        size = p - first
        if size == 0 or (data[first] == _ZERO and (size > 1 or negative)):
            continue
        if p < stop and data[p] == _DOT:
            p += 1
            while p < stop and data[p] == _ZERO:
                p += 1
        if p != stop:
            continue
        if value > np.uint64(2**63 - 1) + np.uint64(negative):
            continue
        signed = np.int64(value)
        out[i] = -signed if negative else signed
        found[i] = True
    return found


@jit
def sizes_of(start: Ints, end: Ints, escaped: NDArray[np.bool_], data: Bytes, quote: int) -> Ints:
    """How many bytes each field has once doubled quotes are one."""
    size = end - start
    for i in range(len(start)):
        if escaped[i]:
            p = start[i]
            while p < end[i]:
                if data[p] == quote:
                    size[i] -= 1
                    p += 1
                p += 1
    return size


@jit
def gather(
    data: Bytes, start: Ints, end: Ints, escaped: NDArray[np.bool_], quote: int, offsets: Ints, out: Bytes
) -> None:
    """Copy fields one behind the other, doubled quotes as one."""
    for i in range(len(start)):
        at = offsets[i]
        p = start[i]
        while p < end[i]:
            out[at] = data[p]
            if escaped[i] and data[p] == quote:
                p += 1
            at += 1
            p += 1


@jit
def plain_numbers(
    data: Bytes, start: Ints, end: Ints, decimal: int, thousands: int, offsets: Ints, out: Bytes
) -> None:
    """Copy numbers as any parser takes them (no plus, no thousands, a point) and write down their offsets."""
    at = 0
    for i in range(len(start)):
        offsets[i] = at
        for p in range(start[i], end[i]):
            c = data[p]
            if c == thousands or (c == _PLUS and p == start[i]):
                continue
            out[at] = _DOT if c == decimal else c
            at += 1
    offsets[len(start)] = at

"""Compiled loops over the bytes of text: lines to fields, fields to numbers, times and whole numbers.

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

_SPACE, _TAB, _CR, _PLUS, _MINUS, _DOT, _COLON, _SLASH = 32, 9, 13, 43, 45, 46, 58, 47
_ZERO, _NINE, _LOWER_E, _UPPER_E, _UPPER_T, _UPPER_Z = 48, 57, 101, 69, 84, 90
# Powers of ten that a double holds exactly (Clinger 1990): with a mantissa below 2^53 one rounding remains.
_EXACT_POWERS = 10.0 ** np.arange(23)
_EXACT_MANTISSA = np.uint64(2**53)
_DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
_DAYS_IN = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_MONTHS = np.frombuffer(b"janfebmaraprmayjunjulaugsepoctnovdec", dtype=np.uint8).reshape(12, 3).copy()
_LONG_MONTHS = np.zeros((12, 9), dtype=np.uint8)
for _i, _name in enumerate(
    b"january february march april may june july august september october november december".split()
):
    _LONG_MONTHS[_i, : len(_name)] = np.frombuffer(_name, dtype=np.uint8)

_jit: Any = numba.njit(cache=True, nogil=True)


@_jit
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


@_jit
def _is_one_of(data: Bytes, low: int, high: int, words: Bytes, bounds: Ints) -> bool:
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


@_jit
def trim(data: Bytes, start: Ints, end: Ints) -> None:
    """Take spaces and tabs off both ends of each field, in place."""
    for i in range(len(start)):
        low, high = start[i], end[i]
        while low < high and (data[low] == _SPACE or data[low] == _TAB):
            low += 1
        while high > low and (data[high - 1] == _SPACE or data[high - 1] == _TAB):
            high -= 1
        start[i], end[i] = low, high


@_jit
def find_missing(data: Bytes, start: Ints, end: Ints, words: Bytes, bounds: Ints) -> NDArray[np.bool_]:
    """Which fields hold a text that means "no value"."""
    found = np.zeros(len(start), dtype=np.bool_)
    for i in range(len(start)):
        found[i] = _is_one_of(data, start[i], end[i], words, bounds)
    return found


@_jit
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
        if _is_one_of(data, p, stop, words, bounds):
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


@_jit
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


@_jit
def _two(data: Bytes, p: int, stop: int) -> int:
    """The number that two digits make, or -1."""
    if p + 2 > stop:
        return -1
    a, b = data[p], data[p + 1]
    if a < _ZERO or a > _NINE or b < _ZERO or b > _NINE:
        return -1
    return np.int64(a - _ZERO) * 10 + np.int64(b - _ZERO)


@_jit
def _number(data: Bytes, p: int, stop: int, least: int, most: int) -> tuple[int, int]:
    """A whole number of ``least`` to ``most`` digits, and where it ends; -1 when there is none."""
    value = 0
    size = 0
    while p < stop and size < most and _ZERO <= data[p] <= _NINE:
        value = value * 10 + np.int64(data[p] - _ZERO)
        p += 1
        size += 1
    return (value, p) if size >= least else (-1, p)


@_jit
def _micros(year: int, month: int, day: int, hour: int, minute: int, second: int, micro: int) -> int:
    """Microseconds since 1970, or the least 64-bit number for a time that does not exist."""
    none = np.iinfo(np.int64).min
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return none
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    most = 28 if month == 2 and not leap else _DAYS_IN[month - 1]
    if day > most or hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return none
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - 719_162
    days += _DAYS_BEFORE[month - 1] + day - 1 + (1 if leap and month > 2 else 0)
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micro


@_jit
def _fraction(data: Bytes, p: int, stop: int) -> tuple[int, int]:
    """Digits behind a decimal point as microseconds (further ones are cut off), and where they end."""
    value = 0
    size = 0
    while p < stop and _ZERO <= data[p] <= _NINE:
        if size < 6:
            value = value * 10 + np.int64(data[p] - _ZERO)
        size += 1
        p += 1
    if size == 0 or size > 12:
        return -1, p
    for _ in range(size, 6):
        value *= 10
    return value, p


@_jit
def _offset(data: Bytes, p: int, stop: int) -> tuple[int, int]:
    """Minutes east of Greenwich (Z, +01, +0100, +01:00), and where they end; 10,000 when there are none."""
    if p < stop and (data[p] == _UPPER_Z or data[p] == 122):
        return 0, p + 1
    if p >= stop or (data[p] != _PLUS and data[p] != _MINUS):
        return 10_000, p
    west = data[p] == _MINUS
    p += 1
    hours = _two(data, p, stop)
    p += 2
    minutes = 0
    if p < stop:
        if data[p] == _COLON:
            p += 1
        minutes = _two(data, p, stop)
        p += 2
    if hours < 0 or hours > 18 or minutes < 0 or minutes > 59:
        return 10_000, stop + 1
    total = hours * 60 + minutes
    return (-total if west else total), p


@_jit
def _instant(clock: int, shift: int) -> tuple[int, int]:
    """A clock time as it is, or with an offset the instant in UTC; and which of the two it is."""
    if shift == 10_000:
        return clock, GOOD
    return clock - shift * 60_000_000, OFFSET


@_jit
def parse_iso(
    data: Bytes, start: Ints, end: Ints, words: Bytes, bounds: Ints, out: Ints, state: NDArray[np.uint8]
) -> None:
    """ISO 8601: ``2020-01-31``, ``2020-01-31 23:59``, ``2020-01-31T23:59:59.999999+01:00``.

    With an offset ``out`` is the instant in UTC and ``state`` is ``OFFSET``.
    """
    none = np.iinfo(np.int64).min
    for i in range(len(start)):
        p, stop = start[i], end[i]
        out[i] = none
        if _is_one_of(data, p, stop, words, bounds):
            state[i] = MISSING
            continue
        state[i] = BAD
        if stop - p < 10 or data[p + 4] != _MINUS or data[p + 7] != _MINUS:
            continue
        high, low = _two(data, p, stop), _two(data, p + 2, stop)
        month, day = _two(data, p + 5, stop), _two(data, p + 8, stop)
        if high < 0 or low < 0 or month < 0 or day < 0:
            continue
        p += 10
        hour = minute = second = micro = 0
        shift = 10_000
        if p < stop:
            if data[p] != _UPPER_T and data[p] != _SPACE and data[p] != 116:
                continue
            hour, minute = _two(data, p + 1, stop), _two(data, p + 4, stop)
            if hour < 0 or minute < 0 or data[p + 3] != _COLON:
                continue
            p += 6
            if p < stop and data[p] == _COLON:
                second = _two(data, p + 1, stop)
                if second < 0:
                    continue
                p += 3
                if p < stop and (data[p] == _DOT or data[p] == 44):
                    micro, p = _fraction(data, p + 1, stop)
                    if micro < 0:
                        continue
            if p < stop and data[p] == _SPACE:
                p += 1
            if p < stop:
                shift, p = _offset(data, p, stop)
            if p != stop:
                continue
        found = _micros(high * 100 + low, month, day, hour, minute, second, micro)
        if found != none:
            out[i], state[i] = _instant(found, shift)


@_jit
def _lower(c: int) -> int:
    return c + 32 if 65 <= c <= 90 else c


@_jit
def _month_name(data: Bytes, p: int, stop: int, long: bool) -> tuple[int, int]:
    """1 to 12 for an English month, short or long, and where it ends; -1 for none."""
    for m in range(12):
        size = 3
        if long:
            size = 0
            while size < 9 and _LONG_MONTHS[m, size] != 0:
                size += 1
        if p + size > stop:
            continue
        same = True
        for j in range(size):
            letter = _LONG_MONTHS[m, j] if long else _MONTHS[m, j]
            if _lower(data[p + j]) != letter:
                same = False
                break
        if same:
            return m + 1, p + size
    return -1, p


@_jit
def parse_formatted(
    data: Bytes,
    start: Ints,
    end: Ints,
    pattern: Bytes,
    words: Bytes,
    bounds: Ints,
    out: Ints,
    state: NDArray[np.uint8],
) -> None:
    """Times in a format of strptime's directives; numbers may lack leading zeros, nothing is left over."""
    none = np.iinfo(np.int64).min
    for i in range(len(start)):
        p, stop = start[i], end[i]
        out[i] = none
        if _is_one_of(data, p, stop, words, bounds):
            state[i] = MISSING
            continue
        state[i] = BAD
        year, month, day, hour, minute, second, micro, yearday = -1, 1, 1, 0, 0, 0, 0, -1
        half = -1
        shift = 10_000
        good = True
        k = 0
        while k < len(pattern) and good:
            c = pattern[k]
            if c != 37:  # not a percent sign
                good = p < stop and data[p] == c
                p += 1
                k += 1
                continue
            d = pattern[k + 1]
            k += 2
            if d == 37:
                good = p < stop and data[p] == 37
                p += 1
            elif d == 89:  # Y
                year, p = _number(data, p, stop, 4, 4)
                good = year >= 0
            elif d == 121:  # y
                year, p = _number(data, p, stop, 2, 2)
                good = year >= 0
                year += 2000 if year < 69 else 1900
            elif d == 109:  # m
                month, p = _number(data, p, stop, 1, 2)
                good = month >= 0
            elif d == 98 or d == 66:  # b, B
                month, p = _month_name(data, p, stop, d == 66)
                good = month >= 0
            elif d == 100:  # d
                day, p = _number(data, p, stop, 1, 2)
                good = day >= 0
            elif d == 106:  # j
                yearday, p = _number(data, p, stop, 1, 3)
                good = 1 <= yearday <= 366
            elif d == 72:  # H
                hour, p = _number(data, p, stop, 1, 2)
                good = hour >= 0
            elif d == 73:  # I
                hour, p = _number(data, p, stop, 1, 2)
                good = 1 <= hour <= 12
                hour %= 12
            elif d == 77:  # M
                minute, p = _number(data, p, stop, 1, 2)
                good = minute >= 0
            elif d == 83:  # S
                second, p = _number(data, p, stop, 1, 2)
                good = second >= 0
            elif d == 84:  # T: H:M:S
                hour, p = _number(data, p, stop, 1, 2)
                good = hour >= 0 and p < stop and data[p] == _COLON
                if good:
                    minute, p = _number(data, p + 1, stop, 1, 2)
                    good = minute >= 0 and p < stop and data[p] == _COLON
                if good:
                    second, p = _number(data, p + 1, stop, 1, 2)
                    good = second >= 0
            elif d == 102:  # f
                micro, p = _fraction(data, p, stop)
                good = micro >= 0
            elif d == 112:  # p
                good = p + 2 <= stop and _lower(data[p + 1]) == 109
                if good:
                    a = _lower(data[p])
                    good = a == 97 or a == 112
                    half = 12 if a == 112 else 0
                p += 2
            elif d == 122:  # z
                shift, p = _offset(data, p, stop)
                good = shift != 10_000
            else:
                good = False
        if not good or p != stop:
            continue
        if half >= 0:
            if hour > 12:
                continue
            hour = hour % 12 + half
        if yearday > 0:
            found = _micros(year, 1, 1, hour, minute, second, micro)
            leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
            if found == none or (yearday == 366 and not leap):
                continue
            found += (yearday - 1) * 86_400_000_000
        else:
            found = _micros(year, month, day, hour, minute, second, micro)
        if found != none:
            out[i], state[i] = _instant(found, shift)


@_jit
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


@_jit
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


@_jit
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

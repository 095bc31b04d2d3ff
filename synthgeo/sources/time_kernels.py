"""Compiled loops over the bytes of text: fields to times, one at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthgeo.sources.kernels import BAD, GOOD, MISSING, OFFSET, Bytes, Ints, is_one_of, jit

_SPACE, _PLUS, _MINUS, _DOT, _COLON, _ZERO, _NINE, _UPPER_T, _UPPER_Z = 32, 43, 45, 46, 58, 48, 57, 84, 90
_DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
_DAYS_IN = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_MONTHS = np.frombuffer(b"janfebmaraprmayjunjulaugsepoctnovdec", dtype=np.uint8).reshape(12, 3).copy()
_LONG_MONTHS = np.zeros((12, 9), dtype=np.uint8)
for _i, _name in enumerate(
    b"january february march april may june july august september october november december".split()
):
    _LONG_MONTHS[_i, : len(_name)] = np.frombuffer(_name, dtype=np.uint8)


@jit
def _two(data: Bytes, p: int, stop: int) -> int:
    """The number that two digits make, or -1."""
    if p + 2 > stop:
        return -1
    a, b = data[p], data[p + 1]
    if a < _ZERO or a > _NINE or b < _ZERO or b > _NINE:
        return -1
    return np.int64(a - _ZERO) * 10 + np.int64(b - _ZERO)


@jit
def _number(data: Bytes, p: int, stop: int, least: int, most: int) -> tuple[int, int]:
    """A whole number of ``least`` to ``most`` digits, and where it ends; -1 when there is none."""
    value = 0
    size = 0
    while p < stop and size < most and _ZERO <= data[p] <= _NINE:
        value = value * 10 + np.int64(data[p] - _ZERO)
        p += 1
        size += 1
    return (value, p) if size >= least else (-1, p)


@jit
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


@jit
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


@jit
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


@jit
def _instant(clock: int, shift: int) -> tuple[int, int]:
    """A clock time as it is, or with an offset the instant in UTC; and which of the two it is."""
    if shift == 10_000:
        return clock, GOOD
    return clock - shift * 60_000_000, OFFSET


@jit
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
        if is_one_of(data, p, stop, words, bounds):
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


@jit
def _lower(c: int) -> int:
    return c + 32 if 65 <= c <= 90 else c


@jit
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


@jit
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
        if is_one_of(data, p, stop, words, bounds):
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

"""Certified bounds on e^-x in integer arithmetic: what the exact samplers fall back on.

Floating-point and arbitrary-precision libraries round, and some round where one does not look. Here
everything is a Python integer and every step rounds in a stated direction, so the bounds can be checked by
reading.
"""

from __future__ import annotations

from fractions import Fraction


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers with ``low <= e^-x * 2^bits <= high``, a few units apart, for rational x >= 0.

    *Why they hold.* With y = x / 2^h <= 1/2, e^-x = (e^-y)^(2^h). e^y is a sum of positive terms: rounding
    each down gives a lower bound; rounding each up and adding the last one once more (the terms at least
    halve, so it exceeds the rest of the series) an upper bound. Inverting swaps the two, and squaring
    non-negative bounds keeps them, rounded outwards.

    >>> exp_bounds(Fraction(1), 20), round(2**20 / 2.718281828459045, 3)
    ((385749, 385750), 385749.553)
    """
    if x < 0:
        raise ValueError(f"x must be >= 0, got {x}")
    if x == 0:
        return 1 << bits, 1 << bits
    if x >= bits:
        return 0, 1  # e^-x < 2^-x <= 2^-bits
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 2)
    work = bits + 2 * halvings + 32
    shifted = x.numerator << (work - halvings)
    y_low = shifted // x.denominator
    y_high = -(-shifted // x.denominator)
    low = (1 << 2 * work) // _exp_above(y_high, work)
    high = -(-(1 << 2 * work) // _exp_below(y_low, work))
    for _ in range(halvings):
        low = low * low >> work
        high = -(-high * high >> work)
    return low >> (work - bits), -(-high >> (work - bits))


def _exp_below(y: int, work: int) -> int:
    term = total = 1 << work
    k = 1
    while term:
        term = term * y // (k << work)
        total += term
        k += 1
    return total


def _exp_above(y: int, work: int) -> int:
    term = total = 1 << work
    k = 1
    while term > 1:
        term = -(-term * y // (k << work))
        total += term
        k += 1
    return total + term


def base256_digits(x: Fraction, count: int, *, logistic: bool) -> tuple[int, ...]:
    """The first ``count`` base-256 digits of e^-x, or of 1 / (1 + e^x) when ``logistic``, for rational x > 0.

    Both numbers are irrational (e^x is transcendental for rational x != 0), so some precision certifies any
    digit.
    """
    bits = 8 * count + 32
    while True:
        floors = set()
        for bound in exp_bounds(x, bits):
            whole = (1 << bits) + bound if logistic else 1 << bits
            floors.add((bound << 8 * count) // whole)
        if len(floors) == 1:
            return tuple(floors.pop().to_bytes(count, "big"))
        bits *= 2

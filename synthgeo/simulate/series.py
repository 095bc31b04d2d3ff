"""Series of numbers over time: those the papers on private series experiment with, and stand-ins for theirs.

All return a float array of whole numbers unless they say otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.simulate.city import generator


def random_walk(
    length: int = 1000, *, variance: float = 1e5, start: float = 20_000, least: float = 1, seed: int
) -> Floats:
    """A random walk with normal steps, never below ``least``: the *linear* series of Fan and Xiong (2014)."""
    rng = generator(seed)
    steps = rng.normal(
        0, math.sqrt(validate.non_negative(variance, "variance")), validate.whole(length, "length", low=1)
    )
    return np.maximum(float(least), np.floor(start + np.cumsum(steps)))


def logistic(length: int = 1000, *, height: float = 5000, variance: float = 1e5, seed: int) -> Floats:
    """The *logistic* series of Fan and Xiong (2014): height / (1 + e^-k), with normal noise around it."""
    k = np.arange(validate.whole(length, "length", low=1), dtype=np.float64)
    return _around(height / (1 + np.exp(-k)), variance, seed)


def sinusoid(
    length: int = 1000, *, height: float = 5000, period: float = 12, variance: float = 1e5, seed: int
) -> Floats:
    """The *sinusoidal* series of Fan and Xiong (2014), with normal noise around it. Half of it is below 0."""
    k = np.arange(validate.whole(length, "length", low=1), dtype=np.float64)
    return _around(
        height * np.sin(2 * np.pi * k / validate.positive(period, "period") + np.pi / 2), variance, seed
    )


def wave(length: int = 10_000, *, frequency: float = 1.0, variance: float = 0.0, seed: int) -> Floats:
    """*Synth* of Koga, Meehan and Chaudhuri (2022): four slow waves on a rising line.

    ``frequency`` is how often the same wave is sampled; at 1 the series is ``length`` = 10,000 steps long, at
    1/4 every fourth of them is there. ``variance`` is that of the observation noise.
    """
    f = validate.positive(frequency, "frequency")
    t = np.arange(round(validate.whole(length, "length", low=1) * f)) / f
    return _around(200 * np.sin(2 * np.pi * t / 2500) + 500 + 0.1 * t, variance, seed)


def ar1(
    length: int = 500,
    *,
    correlation: float,
    mean: float = 0.0,
    deviation: float = 1.0,
    drift: float = 0.0,
    seed: int,
) -> Floats:
    """A stationary Gaussian AR(1) process (Zhang, Khalili and Liu 2021, equation 1), as real numbers.

    ``drift`` η adds η t at step t, which ends stationarity (equation 4, with the mean and deviation of the
    process at η = 0).
    """
    rng = generator(seed)
    size = validate.whole(length, "length", low=1)
    rho = validate.finite(correlation, "correlation", low=-1, high=1)
    fresh = deviation * rng.standard_normal(size)
    fresh[1:] *= math.sqrt(1 - rho * rho)
    out = np.empty(size)
    state = 0.0
    for t in range(size):
        state = rho * state + fresh[t] + drift * t
        out[t] = state
    return mean + out


def binomial_ar1(
    length: int = 500, *, population: int = 100, share: float = 0.5, correlation: float, seed: int
) -> Floats:
    """A binomial AR(1) process (McKenzie 1985): how many of ``population`` are in a state.

    Each one in it stays with probability β + ρ, each one outside enters with β = share (1 - ρ). Binomial at
    every step, with correlation ρ^k over k steps.
    """
    rng = generator(seed)
    n, p = validate.whole(population, "population", low=1), validate.share(share, "share")
    least = max(-p / (1 - p), -(1 - p) / p)
    rho = validate.finite(correlation, "correlation", low=least, high=1)
    enter = p * (1 - rho)
    out = np.empty(validate.whole(length, "length", low=1))
    inside = rng.binomial(n, p)
    for t in range(out.size):
        if t:
            inside = rng.binomial(inside, min(1.0, enter + rho)) + rng.binomial(n - inside, enter)
        out[t] = inside
    return out


def daily_traffic(days: int = 540, *, level: float = 30_000, seed: int) -> Floats:
    """Vehicles per day on a highway: a weekly pattern around a stable level, with a restless spell.

    A stand-in for the Seattle series of Fan and Xiong (2014), which fluctuates most from day 20 to day 100.
    """
    rng = generator(seed)
    day = np.arange(validate.whole(days, "days", low=1))
    weekly = np.array([1.0, 1.02, 1.03, 1.04, 1.06, 0.95, 0.88])[day % 7]
    restless = np.where((day >= 20) & (day < 100), 0.12, 0.025)
    closed = np.where(rng.random(day.size) < 0.01, 0.6, 1.0)
    return np.floor(level * weekly * closed * np.exp(restless * rng.standard_normal(day.size)))


def unemployment(months: int = 478, *, level: float = 150_000, seed: int) -> Floats:
    """Unemployed people per month: slow business cycles, a season, and survey noise.

    A stand-in for the series of the St. Louis Federal Reserve Bank in Fan and Xiong (2014).
    """
    rng = generator(seed)
    t = np.arange(validate.whole(months, "months", low=1), dtype=np.float64)
    cycle = np.zeros(t.size)
    for period, height in ((130.0, 0.22), (71.0, 0.12)):
        cycle += height * np.sin(2 * np.pi * (t / period + rng.random()))
    season = 0.08 * np.sin(2 * np.pi * t / 12)
    return np.floor(level * np.exp(cycle + season + 0.04 * rng.standard_normal(t.size)))


def drive_cycle(seconds: int = 1372, *, seed: int) -> Floats:
    """The speed of one car in city traffic, in km/h with one decimal: stops, ramps and cruising.

    A stand-in for the Federal Test Procedure's cycle in Zhang, Khalili and Liu (2021).
    """
    rng = generator(seed)
    size = validate.whole(seconds, "seconds", low=1)
    speed = np.zeros(size)
    now, t = 0.0, 0
    while t < size:
        target = (
            0.0 if rng.random() < 0.3 else rng.choice([30.0, 45.0, 50.0, 70.0, 90.0]) * rng.uniform(0.8, 1.05)
        )
        ramp = max(3, round(abs(target - now) / rng.uniform(2.5, 5.0)))
        hold = round(rng.uniform(8, 30) if target == 0 else rng.uniform(15, 80))
        part = np.concatenate([np.linspace(now, target, ramp, endpoint=False), np.full(hold, target)])
        part = np.where(part > 0, part + rng.normal(0, 0.7, part.size), 0.0)
        end = min(size, t + part.size)
        speed[t:end] = part[: end - t]
        now, t = target, end
    return np.maximum(0.0, np.round(speed, 1))


def markov_chain(
    length: int, *, prior: Sequence[float] | Floats, transition: Sequence[Sequence[float]] | Floats, seed: int
) -> Ints:
    """A Markov chain of state numbers. ``transition`` with three axes is P(next | before last, last)."""
    rng = generator(seed)
    first, moves = np.asarray(prior, dtype=np.float64), np.asarray(transition, dtype=np.float64)
    order, k = moves.ndim - 1, moves.shape[-1]
    if order < 1 or moves.shape != (k,) * (order + 1) or first.shape not in {(k,), (k,) * order}:
        raise validate.refuse(
            "transition", "a matrix over the states of prior (or a cube for order 2)", moves
        )
    edges = np.cumsum(moves, axis=-1)
    size = validate.whole(length, "length", low=1)
    start = rng.choice(first.size, p=first.ravel() / first.sum())
    states = [int(s) for s in np.unravel_index(start, first.shape)]
    draws = rng.random(size)
    while len(states) < order:  # a prior of the first state alone: the others are drawn alike
        states.append(int(rng.choice(k, p=first / first.sum())))
    for t in range(order, size):
        row = edges[tuple(states[-order:])]
        states.append(int(np.searchsorted(row, draws[t] * row[-1])))
    return np.array(states[:size], dtype=np.int64)


def _around(level: Floats, variance: float, seed: int) -> Floats:
    """Whole numbers: a level with normal noise around it."""
    rng = generator(seed)
    deviation = math.sqrt(validate.non_negative(variance, "variance"))
    return np.asarray(np.rint(level + deviation * rng.standard_normal(level.size)))


__all__ = [
    "ar1",
    "binomial_ar1",
    "daily_traffic",
    "drive_cycle",
    "logistic",
    "markov_chain",
    "random_walk",
    "sinusoid",
    "unemployment",
    "wave",
]

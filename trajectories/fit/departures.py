"""When trips depart, and between which zones at which time: estimates from noisy counts. Post-processing.

All tables that know the hour are used at once: slow and fast trips by hour of the day, departures by four
hours of each day, trips by zones and four hours. What they leave open is settled by what days are like: an
hour is like its neighbours, and a weekend's like a working day's. How much, the released counts say
themselves: of a few strengths the one is taken under which they are likeliest; in pure noise that is none.
"""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints
from trajectories.calendar import BLOCKS, DAY_HOURS, HOURS, WEEK_BLOCKS, block, day_hour, week_block
from trajectories.measure.times import TimeCounts, ZoneCounts

MEMORY = 6.0  # hours over which hours of the day go together
OWN = 0.25  # of the variance over hours: what a kind of day does not share with the other
_DAY_MEMORY = 12.0  # hours over which a day of the week differs from its kind
_SPREADS = (0.0, 0.15, 0.3, 0.6, 1.0)  # of log departures over the hours of the day
_DAY_SPREADS = (0.0, 0.1, 0.2, 0.4, 1.0, 2.0)  # of the days of a kind: data of one day have no others
_ZONE_SPREADS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7)  # of pairs of zones, relatively
_KIND_SPREAD = 0.3  # of log departures on working days and weekends
_ROUGHNESS = 0.01  # of the log of a single number
_STEPS, _LONGEST_STEP = 40, 3.0  # of Newton's method, in log departures
_LEAST = 0.02  # of what would be expected: between no zones is there nothing at all
_ROUNDS = 30  # of iterative proportional fitting
_WORKING, _WEEKEND = 5, 2  # days of the week

KIND = day_hour(np.arange(HOURS))
_DAYS = np.repeat([_WORKING, _WEEKEND], DAY_HOURS // 2)  # of each hour of the day
_BLOCK = np.arange(DAY_HOURS) // 4


def alike(each: int = 1) -> Floats:
    """How much the hours of a working day and of a weekend day, or blocks of so many, go together."""
    hour = np.arange(0, DAY_HOURS, each)
    apart = np.abs(hour[:, None] - hour) % 24
    near = np.exp(-np.minimum(apart, 24 - apart) / MEMORY)
    alike: Floats = near * np.where(_same_kind(hour), 1.0, 1.0 - OWN)
    return alike


def day_hours(counts: TimeCounts, zones: ZoneCounts | None, total: float) -> Floats:
    """Departures of ``total`` trips by hour of a working day, then of a weekend day, all days of a kind
    together: the mode of a Gaussian process of their logarithms, given all counts that know them.
    """
    for_departures, _, for_hours = counts.variance.tolist()
    even: Floats = total * _DAYS / (24.0 * _DAYS[::24].sum())
    if total < 2 * np.sqrt(2 * DAY_HOURS * for_hours):  # all together are no more than noise
        return even
    in_block = (np.arange(BLOCKS)[:, None] == _BLOCK).astype(np.float64)
    days = np.bincount(KIND[::4] // 4, counts.departures, minlength=BLOCKS).astype(np.float64)
    tables = [
        (np.eye(DAY_HOURS), counts.by_hour.sum(axis=0), np.full(DAY_HOURS, 2 * for_hours)),
        (in_block, days, for_departures * _DAYS[::4]),
    ]
    if zones is not None:
        pairs = zones.trips[:, :, 0].size
        tables.append((in_block, zones.trips.sum(axis=(0, 1)), np.full(BLOCKS, pairs * zones.variance)))
    design, counted, variance = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    kinds = _KIND_SPREAD**2 * _same_kind(np.arange(DAY_HOURS)).astype(np.float64)
    found = _likeliest(design, counted, variance + 1e-6, even, alike(), _SPREADS, kinds)
    hours: Floats = found * (total / found.sum())
    return hours


def week_hours(counts: TimeCounts, by_hour: Floats) -> Floats:
    """Departures by hour of the week: those of the hour of the day, more or less as the day of the week has
    more or less than its kind.
    """
    expected = (by_hour / _DAYS)[KIND]
    place = week_block(np.arange(HOURS))
    together = np.bincount(place, expected, minlength=WEEK_BLOCKS).astype(np.float64)
    apart = 4.0 * np.abs(np.arange(WEEK_BLOCKS)[:, None] - np.arange(WEEK_BLOCKS))
    near = np.exp(-np.minimum(apart, HOURS - apart) / _DAY_MEMORY)
    variance = np.full(WEEK_BLOCKS, counts.variance[0] + 1e-6)
    found = _likeliest(np.eye(WEEK_BLOCKS), counts.departures, variance, together + 1e-9, near, _DAY_SPREADS)
    hours = expected * (found / (together + 1e-9))[place]
    sums = np.bincount(KIND, hours, minlength=DAY_HOURS)
    week: Floats = hours * (by_hour / np.maximum(sums, 1e-300))[KIND]
    return week


def zone_blocks(zones: ZoneCounts, flows: Floats, share: Floats) -> Floats:
    """Chances of the blocks of the week for trips from zone to zone, between which they are as ``flows``;
    ``share`` are those of all trips.

    What a pair of zones has beyond its share is a Gaussian process, with a part that all pairs of an origin
    have in common, one of a destination, and one of its own, each as strong as the others.
    """
    ending = np.arange(zones.trips.shape[1])[:, None] == zones.ending
    between = flows @ ending.T + 1e-9
    expected = between[:, :, None] * share
    total = expected.sum()
    variance = zones.variance + float(expected.mean())
    # A product of three kernels: its vectors are those of each.
    kernels = [
        (np.eye(len(weight)) + 1.0) * np.outer(weight, weight) / total
        for weight in (between.sum(axis=1), between.sum(axis=0))
    ]
    (of, origins), (to, destinations), (at, times) = map(
        np.linalg.eigh, (*kernels, alike(4) * np.outer(share, share))
    )
    power = np.maximum(of[:, None, None] * to[:, None] * at, 0.0)
    seen = np.einsum("odt,oa,db,tc->abc", zones.trips - expected, origins, destinations, times, optimize=True)
    best, kept = -np.inf, np.zeros(seen.shape)
    for spread in _ZONE_SPREADS:
        whole = spread**2 * power + variance
        likely = -0.5 * float((seen**2 / whole + np.log(whole)).sum())
        if likely > best:
            best, kept = likely, spread**2 * power / whole * seen
    more = np.einsum("abc,oa,db,tc->odt", kept, origins, destinations, times, optimize=True)
    joint = np.maximum(expected + more, _LEAST * expected)
    for _ in range(_ROUNDS):
        joint *= (between / np.maximum(joint.sum(axis=2), 1e-300))[:, :, None]
        joint *= share * total / np.maximum(joint.sum(axis=(0, 1)), 1e-300)
    blocks: Floats = (joint / np.maximum(joint.sum(axis=2, keepdims=True), 1e-300))[:, zones.ending]
    return blocks


def block_shares(hours: Floats) -> Floats:
    """Shares of the blocks of the week, from departures by hour of the week."""
    share: Floats = np.bincount(block(np.arange(HOURS)), hours, minlength=BLOCKS) / hours.sum()
    return share


def smoothed(
    counted: Floats,
    design: Floats,
    near: Floats,
    variance: Floats,
    spreads: tuple[float, ...],
    level: float = 0.0,
) -> tuple[Floats, float]:
    """The mean of a Gaussian process, given noisy sums of it, ``design`` times its values, and its log
    likelihood. Of the ``spreads`` of the process the likeliest is taken; ``level`` is that of what all its
    values have in common.
    """
    best, found = -np.inf, np.zeros(len(near))
    for spread in spreads:
        covariance = spread**2 * near + level**2
        whole = design @ covariance @ design.T + np.diag(variance)
        inverse = np.linalg.solve(whole, counted)
        likely = -0.5 * float(counted @ inverse) - 0.5 * float(np.linalg.slogdet(whole)[1])
        if likely > best:
            best, found = likely, covariance @ (design.T @ inverse)
    return found, best


def _same_kind(hour: Ints) -> Bools:
    same: Bools = hour[:, None] // 24 == hour // 24
    return same


def _likeliest(
    design: Floats,
    counted: Floats,
    variance: Floats,
    usual: Floats,
    near: Floats,
    spreads: tuple[float, ...],
    known: Floats | float = 0.0,
) -> Floats:
    """What ``_mode`` finds with the likeliest of the ``spreads``; ``known`` is what is added to all."""
    best, found = -np.inf, usual
    for spread in spreads:
        covariance = spread**2 * near + known + _ROUGHNESS**2 * np.eye(len(usual))
        likely, numbers = _mode(design, counted, variance, usual, covariance)
        if likely > best:
            best, found = likely, numbers
    return found


def _mode(
    design: Floats, counted: Floats, variance: Floats, usual: Floats, covariance: Floats
) -> tuple[float, Floats]:
    """The likeliest positive numbers whose sums, ``design`` times them, were counted with noise, if their
    logarithms are normal around those of the ``usual`` ones; and how likely the counts are (by Laplace's
    approximation). Newton's method, with steps halved until they help.
    """
    precision = np.linalg.inv(covariance)
    move = np.zeros(len(usual))

    def cost(move: Floats) -> float:
        left = counted - design @ (usual * np.exp(move))
        return 0.5 * float((left**2 / variance).sum() + move @ precision @ move)

    now = cost(move)
    for _ in range(_STEPS):
        slope = design * (usual * np.exp(move))
        gradient = slope.T @ ((counted - slope.sum(axis=1)) / variance) - precision @ move
        step = np.linalg.solve(precision + slope.T @ (slope / variance[:, None]), gradient)
        step *= min(1.0, _LONGEST_STEP / max(float(np.abs(step).max()), 1e-300))
        while cost(move + step) > now and np.abs(step).max() > 1e-6:
            step = step / 2
        before, now = now, min(cost(move + step), now)
        if before - now <= 1e-9 * abs(before):
            break
        move = move + step
    slope = design * (usual * np.exp(move))
    curvature = np.eye(len(usual)) + covariance @ slope.T @ (slope / variance[:, None])
    return -now - 0.5 * float(np.linalg.slogdet(curvature)[1]), usual * np.exp(move)


__all__ = ["KIND", "alike", "block_shares", "day_hours", "smoothed", "week_hours", "zone_blocks"]

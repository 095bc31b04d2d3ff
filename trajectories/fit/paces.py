"""How fast trips go, by length and by hour: estimates from noisy counts. Post-processing."""

from __future__ import annotations

import numpy as np

from synthgeo.arrays import Bools, Floats
from trajectories.calendar import DAY_HOURS
from trajectories.fit.departures import alike, smoothed
from trajectories.fit.shrinkage import combine
from trajectories.measure.times import GROUPS, PACES, SLOWEST, TimeCounts, clipped

_OUTSTANDING = 1.25  # standard deviations of the noise
_SURE = 5.0  # and of a hump apart from the largest
_STEEPEST, _STEP = 2.0, 0.125  # buckets by which paces may change from one length group to the next
_SPREAD = 0.5  # octaves by which the paces of two cities differ
_SPREADS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)  # octaves by which hours do
_CONGESTION = 0.3  # of that variance: what goes with the logarithm of departures
_ROUNDS = 6  # of Newton's method
_FURTHEST = 1.2  # octaves that an hour may be off
_FLATTEST = 0.4  # change of the share of slow trips with an octave, doubled
_PARTS = 8  # of a bucket of paces

OCTAVE = np.log2(SLOWEST) + (np.arange(PACES) + 0.5) * 8 / PACES


def estimate_paces(noisy: Floats, variance: float) -> Floats:
    """Paces by length, shrunk to those of all.

    Few paces are, and what noise puts elsewhere would be trips at the speed of aeroplanes. So a pace has to
    stand out, and if none does, it is the map's.
    """
    all_lengths = combine(noisy.sum(axis=0), np.zeros(PACES), GROUPS * variance, threshold=_OUTSTANDING)
    if not all_lengths.any():
        all_lengths[PACES // 2] = 1.0
    all_lengths[~humps(all_lengths, float(np.sqrt(GROUPS * variance)))] = 0.0
    shape = _moved(all_lengths / all_lengths.sum(), _paces_by_length(noisy, all_lengths, variance))
    expected = np.maximum(noisy.sum(axis=1, keepdims=True), 0.0) * shape
    paces = combine(noisy.ravel(), expected.ravel(), variance, threshold=_OUTSTANDING).reshape(noisy.shape)
    # Only where some trip of any length would be; a group of which nothing is known is as its neighbours let
    # expect.
    paces = np.where(shape > 0, paces, 0.0)
    paces = np.where(paces.any(axis=1, keepdims=True), paces, shape)
    number = np.maximum(noisy.sum(axis=1, keepdims=True), 0.0) + np.sqrt(PACES * variance) + 1e-9
    scaled: Floats = paces * number / paces.sum(axis=1, keepdims=True)
    return scaled


def humps(counts: Floats, deviation: float) -> Bools:
    """Buckets of the largest hump of a histogram, and of others that are no noise: those who walk and those
    who ride have paces apart. What else stands apart is noise.
    """
    begins = np.flatnonzero((counts > 0) & (np.concatenate([[0.0], counts[:-1]]) == 0))
    ends = np.flatnonzero((counts > 0) & (np.concatenate([counts[1:], [0.0]]) == 0)) + 1
    kept = np.zeros(len(counts), dtype=bool)
    top = int(np.argmax(counts))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        sure = counts[begin:end].sum() > _SURE * deviation * np.sqrt(end - begin)
        kept[begin:end] = sure or begin <= top < end
    return kept


def _paces_by_length(noisy: Floats, all_lengths: Floats, variance: float) -> Floats:
    """By how many buckets each length group is slower or faster than all: from each to the next by as many,
    the likeliest number; before anything is known none, give or take a half. Long trips take faster roads,
    and lose less of their time where they begin and end; alone, a small group would not say so.
    """
    # Most of what all are is the largest group: it hardly moves.
    largest = np.average(np.arange(GROUPS), weights=np.maximum(noisy.sum(axis=1), 0.0) ** 2 + 1e-9)
    steps = np.arange(-_STEEPEST, _STEEPEST + _STEP, _STEP)
    slope, level = (grid.ravel() for grid in np.meshgrid(steps, steps / 2))
    moves = level[:, None] + slope[:, None] * (np.arange(GROUPS) - largest)
    shapes = _moved(all_lengths / all_lengths.sum(), moves.ravel()).reshape(*moves.shape, PACES)
    # Each group has as many trips as fit best.
    agree = np.maximum((noisy * shapes).sum(axis=2), 0.0) ** 2 / (shapes**2).sum(axis=2)
    likely = agree.sum(axis=1) / (2 * variance + 1e-9) - 2 * slope**2 - 4 * level**2
    found: Floats = moves[int(np.argmax(likely))]
    return found


def _moved(shape: Floats, moves: Floats) -> Floats:
    """A histogram moved by so many buckets, a row for each; what leaves at one end stays there."""
    rows, low = np.zeros((len(moves), PACES)), np.floor(moves)
    for whole, part in ((low, 1 - (moves - low)), (low + 1, moves - low)):
        at = np.clip(np.arange(PACES) + whole[:, None].astype(np.int64), 0, PACES - 1)
        np.add.at(rows, (np.arange(len(moves))[:, None], at), part[:, None] * shape)
    return rows


def hour_shifts(counts: TimeCounts, paces: Floats, number: Floats) -> tuple[Floats, Floats]:
    """What each hour of the day adds to log2 pace, where ``number`` trips depart, and what is left of a
    pace's distance from its group's mean when the hour is known.

    Hours are a Gaussian process, a part of which follows departures: streets are slow when they are full. How
    many trips are slow says by how much an hour is off, but not in proportion: nearly all of them are in an
    hour that is off by an octave. So hours are found by Newton's method.
    """
    busy = np.log(np.maximum(number, 1e-9) / np.repeat([5, 2], DAY_HOURS // 2))
    busy -= np.average(busy, weights=number)
    busy /= max(float(np.sqrt(np.average(busy**2, weights=number))), 0.2)
    near = alike() + _CONGESTION * np.outer(busy, busy)
    variance = 2 * float(counts.variance[2])
    slower = counts.by_hour[0] - counts.by_hour[1]
    moves = np.arange(-1.5 * _FURTHEST, 1.5 * _FURTHEST, 0.05)
    shift, squeeze = np.zeros(DAY_HOURS), 1.0
    for _ in range(_ROUNDS):
        slow = _slowness(paces, counts.centre, squeeze, moves)
        have, above, below = (np.interp(shift + move, moves, slow) for move in (0.0, 0.1, -0.1))
        slope = number * np.maximum((above - below) / 0.2, _FLATTEST)
        # A single trip is slow or fast by chance, too.
        noise = variance + (1 - have**2) * number + 1e-9
        aim = slower - number * have + slope * shift
        shift, _ = smoothed(aim, np.diag(slope), near, noise, _SPREADS, level=_SPREAD)
        shift = np.clip(shift, -_FURTHEST, _FURTHEST)
        squeeze = _squeeze(paces, shift, number)
    return shift, np.array([squeeze])


def _slowness(paces: Floats, centre: Floats, squeeze: float, moves: Floats) -> Floats:
    """The mean of slow less fast, if all paces moved by so many octaves."""
    mean = paces @ OCTAVE / paces.sum(axis=1)
    inside = ((np.arange(_PARTS) + 0.5) / _PARTS - 0.5) * 8 / PACES
    octave = mean[:, None, None] + squeeze * (OCTAVE[:, None] + inside - mean[:, None, None])
    residual = (octave - centre[:, None, None]).ravel()
    chance = np.repeat(paces.ravel() / (_PARTS * paces.sum()), _PARTS)
    slow: Floats = np.array([chance @ clipped(residual + move) for move in moves])
    return slow


def _squeeze(paces: Floats, shift: Floats, number: Floats) -> float:
    """How much of the spread of paces is left when the hour is known."""
    within = paces / paces.sum(axis=1, keepdims=True)
    mean = within @ OCTAVE
    squares = (within * (OCTAVE - mean[:, None]) ** 2).sum(axis=1)
    spread = float(np.average(squares, weights=paces.sum(axis=1)))
    by_hour = float(np.average((shift - np.average(shift, weights=number)) ** 2, weights=number))
    return float(np.sqrt(np.clip(1 - by_hour / max(spread, 1e-9), 0.25, 1.0)))


__all__ = ["estimate_paces", "hour_shifts", "humps"]

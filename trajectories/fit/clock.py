"""When synthetic trips depart, and how fast they go: estimates from the noisy counts. Post-processing."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from synthgeo.arrays import Array, Bools, Floats, Ints
from trajectories.calendar import BLOCKS, DAY_HOURS, HOURS, block
from trajectories.fit.departures import (
    KIND,
    alike,
    block_shares,
    day_hours,
    smoothed,
    week_hours,
    zone_blocks,
)
from trajectories.fit.shrinkage import combine
from trajectories.measure.pairs import PairBlocks, non_negative
from trajectories.measure.times import (
    GAPS,
    GROUPS,
    PACES,
    SLOWEST,
    VARIATIONS,
    RecordingCounts,
    TimeCounts,
    ZoneCounts,
    clipped,
    length_group,
)

__all__ = [
    "Recording",
    "TripClock",
    "estimate_clock",
    "estimate_paces",
    "estimate_recording",
    "hour_shifts",
    "humps",
    "zone_flows",
]


_OUTSTANDING = 1.25  # standard deviations of the noise
# A few trips with a point each second have as many points as all others together: noise must not make them.
_SURE = 5.0
_LIKELY = 2.5
_LONG_GAP = 300.0  # seconds or metres between points
# Where a bucket of gaps holds a number that recorders are set to, that is the gap.
_USUAL_GAPS = np.array([1.0, 2, 3, 4, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600])


@dataclass(frozen=True, eq=False)
class TripClock:
    """Estimated departures and paces.

    Attributes
    ----------
    hours
        Shares of departures by hour of the week, Monday 00:00 first.
    paces
        Shares of trips by pace, one row for each length group (or one for all).
    shift
        What is added to log2 pace in each hour of the week.
    squeeze
        What is left of a pace's distance from its group's mean when the hour is known.
    zone
        Of each cell.
    blocks
        Chances of the blocks of the week, given the zones of origin and destination.
    """

    hours: Floats
    paces: Floats
    shift: Floats
    squeeze: Floats
    zone: Ints
    blocks: Floats

    @classmethod
    def of(cls, hours: Floats, paces: Floats) -> TripClock:
        """A clock that knows one histogram of departures and one of paces, the same everywhere."""
        return cls(
            hours, np.atleast_2d(paces), np.zeros(HOURS), np.ones(1), np.zeros(1, dtype=np.int64),
            block_shares(hours)[None, None],
        )  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> TripClock:
        """The inverse of ``to_arrays``."""
        return cls(**arrays)

    def to_arrays(self) -> dict[str, Array]:
        """For a file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def zones(self, cells: Ints) -> Ints:
        """Zones of cells; a clock that knows none has one."""
        return self.zone[cells] if len(self.zone) > 1 else np.zeros(len(cells), dtype=np.int64)

    def chance(self, wanted: Bools, origin: Ints, destination: Ints) -> Floats:
        """The chance that a trip between these zones departs in one of the ``wanted`` hours of the week."""
        chances: Floats = (self.blocks @ self._in_block(wanted))[origin, destination]
        return chances

    def departures(
        self, origin: Ints, destination: Ints, rng: np.random.Generator, *, wanted: Bools | None = None
    ) -> Floats:
        """Seconds since Monday 00:00 for trips between these zones; ``wanted`` hours only, where given."""
        share = self.hours
        chance = self.blocks
        if wanted is not None:
            if not self.hours[wanted].any():  # nothing was released there: any of them
                return 3600.0 * (rng.choice(np.flatnonzero(wanted), len(origin)) + rng.random(len(origin)))
            share = np.where(wanted, self.hours, 0.0)
            chance = chance * self._in_block(wanted)
        number = origin * self.blocks.shape[1] + destination
        drawn = _draw_rows(chance.reshape(-1, BLOCKS), number, rng)
        every = block(np.arange(HOURS))
        within = np.where(every == np.arange(BLOCKS)[:, None], share, 0.0)
        return 3600.0 * (_draw_rows(within, drawn, rng) + rng.random(len(drawn)))

    def draw_paces(self, usual: Floats, departure: Floats, rng: np.random.Generator) -> Floats:
        """A pace for trips that take ``usual`` seconds at public speeds and depart so many seconds since
        Monday 00:00.
        """
        group = np.minimum(length_group(usual), len(self.paces) - 1)
        drawn = (_draw_rows(self.paces, group, rng) + rng.random(len(group))) * 8 / PACES
        mean = self.paces @ (np.arange(PACES) + 0.5) * 8 / PACES / self.paces.sum(axis=1)
        hour = (departure // 3600.0).astype(np.int64) % HOURS
        octaves = mean[group] + self.squeeze * (drawn - mean[group]) + self.shift[hour]
        paces: Floats = SLOWEST * np.exp2(octaves)
        return paces

    @property
    def shortest_pace(self) -> float:
        """The pace of the fastest trips that are drawn, in the usual hour."""
        bucket = int(np.flatnonzero(self.paces.any(axis=0)).min(initial=PACES))
        return float(SLOWEST * np.exp2(bucket * 8 / PACES))

    def _in_block(self, wanted: Bools) -> Floats:
        """Of each block's departures, what is in the ``wanted`` hours."""
        every = block(np.arange(HOURS))
        whole = np.bincount(every, self.hours, minlength=BLOCKS)
        part = np.bincount(every, self.hours * wanted, minlength=BLOCKS)
        return np.divide(part, whole, out=np.zeros(BLOCKS), where=whole > 0)


@dataclass(frozen=True, eq=False)
class Recording:
    """How synthetic trips are recorded.

    Attributes
    ----------
    gaps
        Shares of trips by bucket of the gap between points: seconds, or metres without times.
    variations
        Shares of trips by how much their speed varies; empty when not known.
    boost
        What variations are multiplied by on the way from piece to piece, so that between points they are as
        measured: a trip's duration is fixed, and few steps vary less than many.
    """

    gaps: Floats
    variations: Floats
    boost: Floats

    def draw_gaps(self, count: int, rng: np.random.Generator) -> Floats:
        """A gap for each trip."""
        low, high = np.exp2(np.arange(GAPS) / 2), np.exp2(np.arange(1, GAPS + 1) / 2)
        usual = _USUAL_GAPS[np.minimum(np.searchsorted(_USUAL_GAPS, low), len(_USUAL_GAPS) - 1)]
        value = np.where((usual >= low) & (usual < high), usual, np.sqrt(low * high))
        return value[rng.choice(GAPS, count, p=self.gaps / self.gaps.sum())]

    @property
    def usual_variation(self) -> float:
        """The mean variation of speed, as it was measured."""
        middle = (np.arange(len(self.variations)) + 0.5) * 2 / VARIATIONS
        return float(np.average(middle, weights=self.variations)) if self.variations.any() else 0.0

    def draw_variations(self, count: int, rng: np.random.Generator) -> Floats:
        """How much the speed is to vary in each trip."""
        if not len(self.variations):
            return np.zeros(count)
        drawn = rng.choice(VARIATIONS, count, p=self.variations / self.variations.sum())
        variations: Floats = self.boost * (drawn + rng.random(count)) * 2 / VARIATIONS
        return variations


def estimate_clock(
    counts: TimeCounts, zones: ZoneCounts | None = None, flows: Floats | None = None, *, total: float
) -> TripClock:
    """Departures of ``total`` trips by hour of the week, paces by length, what each hour adds to a pace, and
    blocks of the week by zones, between which the trips are as ``flows``.
    """
    by_hour = day_hours(counts, zones, total)
    paces = estimate_paces(counts.paces, float(counts.variance[1]))
    shift, squeeze = hour_shifts(counts, paces, by_hour)
    clock = TripClock.of(week_hours(counts, by_hour), paces)
    clock = replace(clock, shift=shift[KIND], squeeze=squeeze)
    if zones is None or flows is None or len(zones.ending) < 2:
        return clock
    return replace(clock, zone=zones.zone, blocks=zone_blocks(zones, flows, clock.blocks[0, 0]))


def zone_flows(pairs: PairBlocks, cell_weight: Floats, zone: Ints) -> Floats:
    """Trips from zone to zone: those of each block of pairs, spread over its cells by their weight."""
    member = (zone[:, None] == np.arange(int(zone.max(initial=0)) + 1)) * cell_weight[:, None]
    running = np.concatenate([np.zeros((1, member.shape[1])), np.cumsum(member, axis=0)])
    origin = running[pairs.origin_high] - running[pairs.origin_low]
    destination = running[pairs.destination_high] - running[pairs.destination_low]
    for side in (origin, destination):
        side /= np.maximum(side.sum(axis=1, keepdims=True), 1e-300)
    flows: Floats = (origin * pairs.count[:, None]).T @ destination
    return flows


def estimate_recording(counts: RecordingCounts, *, timed: bool) -> Recording:
    """The gaps and variations that stand out; else a point a minute (or 25 metres) at steady speed."""
    gaps = combine(counts.gaps, np.zeros(GAPS), counts.variance, threshold=_SURE)
    if not gaps.any():
        gaps = _likeliest(counts.gaps, float(np.sqrt(counts.variance)), 60.0 if timed else 25.0)
    variations = counts.variations
    if len(variations):
        variations = combine(variations, np.zeros(VARIATIONS), counts.variance, threshold=_OUTSTANDING)
        variations[~humps(variations, float(np.sqrt(counts.variance)))] = 0.0
    return Recording(gaps, variations if variations.any() else np.empty(0), np.ones(1))


def _likeliest(counts: Floats, deviation: float, usual: float) -> Floats:
    """The two neighbouring buckets of gaps in which most trips are, as far as they are likely at all; else
    that of the ``usual`` gap. Noise falls into any bucket, and gaps of many minutes would leave trips without
    a point on the way: these have to stand out more.
    """
    together = counts[:-1] + counts[1:]
    rare = np.arange(GAPS - 1) > 2 * np.log2(_LONG_GAP)
    low = int(np.argmax(together - rare * _LIKELY * deviation))
    gaps = np.zeros(GAPS)
    if together[low] > _LIKELY * np.sqrt(2) * deviation:
        gaps[low : low + 2] = non_negative(counts[low : low + 2])
    else:
        gaps[int(2 * np.log2(usual))] = 1.0
    return gaps


def _draw_rows(table: Floats, row: Ints, rng: np.random.Generator) -> Ints:
    """A column for each row number, in proportion to the table; rows without any weight draw evenly."""
    weight = np.where(table.sum(axis=1, keepdims=True) > 0, table, 1.0)
    ends = np.cumsum(weight / weight.sum(axis=1, keepdims=True), axis=1) + np.arange(len(table))[:, None]
    drawn = np.searchsorted(ends.ravel(), row + rng.random(len(row)), side="right") - row * table.shape[1]
    return np.asarray(np.clip(drawn, 0, table.shape[1] - 1))


# How fast trips go, by length and by hour: estimates from noisy counts. Post-processing.

_SURE_HUMP = 5.0  # and of a hump apart from the largest
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
        sure = counts[begin:end].sum() > _SURE_HUMP * deviation * np.sqrt(end - begin)
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

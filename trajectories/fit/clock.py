"""When synthetic trips depart, and how fast they go: estimates from the noisy counts. Post-processing."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from synthgeo.arrays import Array, Bools, Floats, Ints
from trajectories.calendar import BLOCKS, DAY_HOURS, HOURS, block, day_hour
from trajectories.fit.shrinkage import combine
from trajectories.measure.pairs import PairBlocks, non_negative
from trajectories.measure.recording import GAPS, VARIATIONS, RecordingCounts
from trajectories.measure.times import GROUPS, PACES, SLOWEST, TimeCounts, clipped, length_group
from trajectories.measure.zones import ZoneCounts

_OUTSTANDING = 1.25  # standard deviations of the noise
# A few trips with a point each second have as many points as all others together: noise must not make them.
_SURE = 5.0
_LIKELY = 2.5
_LONG_GAP = 300.0  # seconds or metres between points
_MOVE = 0.25  # octaves
_STEEPEST, _STEP = 2.0, 0.125  # buckets by which paces may change from one length group to the next
_SPREAD = 0.5  # octaves by which the paces of two cities differ
_MEMORY = 6.0  # hours over which paces go together
_OWN = 0.25  # of the variance of paces over hours: what a kind of day does not share with the other
_ROUNDS = 30  # of iterative proportional fitting
# Where a bucket of gaps holds a number that recorders are set to, that is the gap.
_USUAL_GAPS = np.array([1.0, 2, 3, 4, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600])


@dataclass(frozen=True, eq=False)
class Clock:
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
    def of(cls, hours: Floats, paces: Floats) -> Clock:
        """A clock that knows one histogram of departures and one of paces, the same everywhere."""
        share = np.bincount(block(np.arange(HOURS)), hours, minlength=BLOCKS) / hours.sum()
        return cls(
            hours, np.atleast_2d(paces), np.zeros(HOURS), np.ones(1), np.zeros(1, dtype=np.int64),
            share[None, None],
        )  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Clock:
        """The inverse of ``to_arrays``; clocks of version 0.1.0 know hours and paces only."""
        return cls(**arrays) if "blocks" in arrays else cls.of(**arrays)

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

    def draw_variations(self, count: int, rng: np.random.Generator) -> Floats:
        """How much the speed is to vary in each trip."""
        if not len(self.variations):
            return np.zeros(count)
        drawn = rng.choice(VARIATIONS, count, p=self.variations / self.variations.sum())
        variations: Floats = self.boost * (drawn + rng.random(count)) * 2 / VARIATIONS
        return variations


def estimate_clock(
    counts: TimeCounts, zones: ZoneCounts | None = None, flows: Floats | None = None, *, total: float
) -> Clock:
    """Departures of ``total`` trips by hour of the week, shrunk to those of like days, and these to an even
    day; paces by length, shrunk to those of all; what each hour adds to a pace; and blocks of the week by
    zones, between which the trips are as ``flows``.

    Any hour may be; but few paces are, and what noise puts elsewhere would be trips at the speed of
    aeroplanes. So a pace has to stand out, and if none does, it is the map's.
    """
    for_hours, for_paces, for_sums = counts.variance.tolist()
    hours = _hours(counts.hours, for_hours, total)
    clock = Clock.of(hours, _paces(counts.paces, for_paces))
    # From clipped paces to paces: how far their mean moves when all paces move, and where it is by the
    # histogram. The sums know the mean better than that, whose buckets are many.
    octave = np.log2(SLOWEST) + (np.arange(PACES) + 0.5) * 8 / PACES
    residual = octave - counts.centre[:, None]
    chance = clock.paces / clock.paces.sum()
    low, have, high = ((chance * clipped(residual + move)).sum() for move in (-_MOVE, 0.0, _MOVE))
    unit = 2 * _MOVE / max(high - low, _MOVE)
    number = day_sums(hours)
    shift = _shifts(unit * counts.pace_sums, number, unit**2 * for_sums)
    squeeze = _squeeze(clock.paces, shift, hours)
    error = unit**2 * DAY_HOURS * for_sums / total**2
    level = np.clip(unit * (counts.pace_sums.sum() / total - have), -1.0, 1.0)
    shift += _SPREAD**2 / (_SPREAD**2 + error) * level
    clock = replace(clock, shift=shift[day_hour(np.arange(HOURS))], squeeze=squeeze)
    if zones is None or flows is None or zones.origins.shape[0] < 2:
        return clock
    return replace(clock, zone=zones.zone, blocks=_blocks(zones, flows, clock.blocks[0, 0]))


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


def day_sums(hours: Floats) -> Floats:
    """Departures by hour of a working day, then of a weekend day."""
    sums: Floats = np.bincount(day_hour(np.arange(HOURS)), hours, minlength=DAY_HOURS).astype(np.float64)
    return sums


def _hours(noisy: Floats, variance: float, total: float) -> Floats:
    if total < 2 * np.sqrt(HOURS * variance):  # all together are no more than noise
        return np.full(HOURS, total / HOURS)
    kind = day_hour(np.arange(HOURS))
    sums, usual = day_sums(noisy), np.empty(DAY_HOURS)
    for low in (0, 24):  # working days, then weekends
        days, here = int(np.sum(kind == low)), slice(low, low + 24)
        even = np.full(24, total * days / HOURS)
        usual[here] = combine(sums[here], even, days * variance, threshold=0.0) / days
    by_day = combine(noisy.reshape(7, 24).sum(axis=1), np.full(7, total / 7), 24 * variance, threshold=0.0)
    shape = usual[kind].reshape(7, 24)
    expected = (shape * (by_day / np.maximum(shape.sum(axis=1), 1e-300))[:, None]).ravel()
    hours = combine(noisy, expected, variance, threshold=0.0)
    return non_negative(hours, total) if hours.any() else np.ones(HOURS)


def _paces(noisy: Floats, variance: float) -> Floats:
    all_lengths = combine(noisy.sum(axis=0), np.zeros(PACES), GROUPS * variance, threshold=_OUTSTANDING)
    if not all_lengths.any():
        all_lengths[PACES // 2] = 1.0
    # Paces are one hump: what stands apart from it is noise.
    top = int(np.argmax(all_lengths))
    gaps = np.flatnonzero(all_lengths == 0)
    all_lengths[: gaps[gaps < top].max(initial=-1) + 1] = 0.0
    all_lengths[gaps[gaps > top].min(initial=PACES) :] = 0.0
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


def _shifts(sums: Floats, number: Floats, variance: float) -> Floats:
    """log2 pace by hour of the day against the mean: the posterior mean of a Gaussian process over the hours
    of the day, whose variance is the most likely one of a few.
    """
    level = float(sums.sum() / max(number.sum(), 1.0))
    hour, kind = np.arange(DAY_HOURS) % 24, np.arange(DAY_HOURS) // 24
    apart = np.abs(hour[:, None] - hour)
    near = np.exp(-np.minimum(apart, 24 - apart) / _MEMORY)
    near *= np.where(kind[:, None] == kind, 1.0, 1.0 - _OWN)
    residual = sums - number * level
    # A single trip's pace is noise, too: about half an octave, as much as it can be.
    noise = variance + 0.25 * number + 1e-9
    best, found = -np.inf, np.zeros(DAY_HOURS)
    for spread in (0.0, 0.05, 0.1, 0.2, 0.4):
        covariance = spread**2 * number[:, None] * near * number + np.diag(noise)
        inverse = np.linalg.solve(covariance, residual)
        likely = -0.5 * (residual @ inverse) - 0.5 * np.linalg.slogdet(covariance)[1]
        if likely > best:
            best, found = likely, spread**2 * near @ (number * inverse)
    shift: Floats = found - np.average(found, weights=number + 1e-9)
    return shift


def _squeeze(paces: Floats, shift: Floats, hours: Floats) -> Floats:
    """How much of the spread of paces is left when the hour is known."""
    octave = (np.arange(PACES) + 0.5) * 8 / PACES
    within = paces / paces.sum(axis=1, keepdims=True)
    mean = within @ octave
    squares = (within * (octave - mean[:, None]) ** 2).sum(axis=1)
    spread = float(np.average(squares, weights=paces.sum(axis=1)))
    by_hour = float(np.average(shift**2, weights=day_sums(hours) + 1e-9))
    return np.asarray(np.sqrt(np.clip([1 - by_hour / max(spread, 1e-9)], 0.25, 1.0)))


def _blocks(zones: ZoneCounts, flows: Floats, share: Floats) -> Floats:
    """Chances of blocks between zones: flows, and departures by zone and block, fitted to each other."""
    goals = []
    for noisy, together in ((zones.origins, flows.sum(axis=1)), (zones.destinations, flows.sum(axis=0))):
        expected = (together[:, None] * share).ravel()
        found = combine(noisy.ravel(), expected, zones.variance, threshold=0.0, reach=3.0)
        goals.append((found + 1e-3 * expected + 1e-9).reshape(noisy.shape))
    joint = (flows + 1e-9)[:, :, None] * share
    for _ in range(_ROUNDS):
        for axis, goal in enumerate(goals):
            factor = goal * (flows.sum() / goal.sum()) / np.maximum(joint.sum(axis=1 - axis), 1e-300)
            joint = joint * np.expand_dims(factor, 1 - axis)
    blocks: Floats = joint / np.maximum(joint.sum(axis=2, keepdims=True), 1e-300)
    return blocks


def _draw_rows(table: Floats, row: Ints, rng: np.random.Generator) -> Ints:
    """A column for each row number, in proportion to the table; rows without any weight draw evenly."""
    weight = np.where(table.sum(axis=1, keepdims=True) > 0, table, 1.0)
    ends = np.cumsum(weight / weight.sum(axis=1, keepdims=True), axis=1) + np.arange(len(table))[:, None]
    drawn = np.searchsorted(ends.ravel(), row + rng.random(len(row)), side="right") - row * table.shape[1]
    return np.asarray(np.clip(drawn, 0, table.shape[1] - 1))


__all__ = ["Clock", "Recording", "estimate_clock", "estimate_recording", "zone_flows"]

"""All measurements of one fit, and the one place where they are made.

Guarantee
---------
``measure`` composes the measurements of this package one after the other, each ε_i-differentially private
whatever the earlier ones released (structure that a later one uses, such as the cells, is an output of an
earlier one). By adaptive composition the whole is Σ ε_i-differentially private for one trip.
``MeasuredTrips`` holds their outputs and nothing else: whoever has it may compute anything from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from synthgeo.arrays import Array, Floats, Ints, Keys
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID, SplitRule
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise, laplace_variance
from trajectories.calendar import hour_of_week
from trajectories.ground.base import Ground, PlacedTrips
from trajectories.ground.state_graph import StateGraph
from trajectories.measure.ends import EndCounts, count_ends, measure_cells, measure_lengths
from trajectories.measure.pairs import (
    PairBlocks,
    Weights,
    expected_crossings,
    halvings_of,
    measure_links,
    measure_pairs,
    segment_offsets,
)
from trajectories.measure.times import (
    RecordingCounts,
    TimeCounts,
    ZoneCounts,
    measure_recording,
    measure_times,
    measure_zones,
    zones_of,
)
from trajectories.parts.columns import each, mapped

__all__ = [
    "BY_HOUR_SHARE",
    "COUNT_SHARE",
    "DEPARTURES_SHARE",
    "ENDS_SHARE",
    "PACES_SHARE",
    "TREE_SHARE",
    "WEAK",
    "ZONES_SHARE",
    "MeasuredTrips",
    "Shares",
    "measure",
]


_TIMES, _RECORDING = ("departures", "paces", "by_hour"), ("gaps", "variations")
WEAK = 0.5  # signal to noise below which counts say next to nothing
_SIGNALS = ("pairs", "by_cell", "links", "lengths", "departures")
_ENDS_IN_CELLS = 0.2  # of a trip's weight in the choice of cells, what its two ends have


@dataclass(frozen=True, eq=False)
class MeasuredTrips:
    """Released noisy measurements of trips.

    Attributes
    ----------
    partition
        The cells.
    pairs, pair_variance
        Trips by block of origin and destination cells.
    ends
        Ends by cell and, in busy cells, by part.
    links, link_variance
        Crossings from cell to cell, a trip's sharing the weight of 1; None when ways are not known. Of each
        segment, one link after the other, where links have some.
    lengths, length_variance
        Trips by length and compactness; None when not measured.
    times
        Departures by hour, and paces; None when not measured.
    zones
        Trips by zones and block of the week; None when not measured.
    recording
        Gaps between points, and variation of speed; None when not measured.
    weights
        How a trip shares its weight over its crossings.
    halvings
        On a plane, how often the side of each link is halved; None where links have no segments.
    """

    partition: Partition
    pairs: PairBlocks
    pair_variance: float
    ends: EndCounts
    links: Floats | None
    link_variance: float
    lengths: Floats | None
    length_variance: float
    times: TimeCounts | None
    zones: ZoneCounts | None
    recording: RecordingCounts | None
    weights: Weights
    halvings: Ints | None = None

    def arrays(self) -> dict[str, Array]:
        """Every released number, by name."""
        out: dict[str, Array] = {}
        for prefix, cells in (("cells", self.partition), ("parts", self.ends.parts)):
            out |= {f"{prefix}/{name}": getattr(cells, name) for name in ("prefix", "bits", "measure")}
        out |= {f"pairs/{field.name}": getattr(self.pairs, field.name) for field in fields(self.pairs)}
        out |= {"ends/by_cell": self.ends.by_cell, "ends/by_part": self.ends.by_part}
        for name, values in (("links", self.links), ("lengths", self.lengths), ("halvings", self.halvings)):
            if values is not None:
                out[name] = values
        for prefix, counts in (("times", self.times), ("zones", self.zones), ("recording", self.recording)):
            for field in fields(counts) if counts is not None else ():
                out[f"{prefix}/{field.name}"] = np.asarray(getattr(counts, field.name))
        variance = [
            self.pair_variance, self.link_variance, self.length_variance, self.ends.cell_variance,
            self.ends.part_variance,
        ]  # fmt: skip
        out["variance"] = np.array(variance)
        return out

    def counts(self) -> dict[str, tuple[Floats, float]]:
        """Every released number that is a count, by name, with the variance of its noise.

        Counts of several batches on the same cells, parts, blocks, zones and centres may be added up.
        """
        out = {
            "pairs": (self.pairs.count, self.pair_variance),
            "by_cell": (self.ends.by_cell, self.ends.cell_variance),
            "by_part": (self.ends.by_part, self.ends.part_variance),
        }
        if self.links is not None:
            out["links"] = (self.links, self.link_variance)
        if self.lengths is not None:
            out["lengths"] = (self.lengths, self.length_variance)
        if self.times is not None:
            for name, variance in zip(_TIMES, self.times.variance.tolist(), strict=True):
                out[name] = getattr(self.times, name).ravel(), variance
        if self.zones is not None:
            out["zones"] = self.zones.trips.ravel(), self.zones.variance
        if self.recording is not None:
            out |= {name: (getattr(self.recording, name), self.recording.variance) for name in _RECORDING}
        return out

    @cached_property
    def crossings(self) -> Floats | None:
        """Noisy crossings of each link, over all its segments."""
        return None if self.links is None else self.by_link(self.links)

    @cached_property
    def crossing_variance(self) -> Floats | float:
        """Of the noise in each of ``crossings``."""
        if self.halvings is None:
            return self.link_variance
        variance: Floats = self.link_variance * (1 << self.halvings).astype(np.float64)
        return variance

    def by_link(self, counts: Floats) -> Floats:
        """Sums over the segments of each link, of numbers like those of ``links``."""
        if self.halvings is None or not len(self.halvings):
            return counts
        sums: Floats = np.add.reduceat(counts, segment_offsets(self.halvings)[:-1])
        return sums

    def by_segment(self, crossings: Floats, like: Floats) -> Floats:
        """Numbers of links, shared by the segments of each in proportion to numbers like those of
        ``links``.
        """
        if self.halvings is None:
            return crossings
        weight, segments = np.maximum(like, 1e-9), 1 << self.halvings
        share: Floats = weight / np.repeat(self.by_link(weight), segments)
        return np.repeat(crossings, segments) * share

    @cached_property
    def total(self) -> tuple[float, float]:
        """The number of trips and its variance: what each kind of count sums to, by inverse variance."""
        sums = [
            (float(values.sum()), variance * len(values))
            for name, (values, variance) in self.counts().items()
            if name in ("pairs", "by_cell", "lengths", "departures")
        ]
        weights = np.array([1 / max(variance, 1e-12) for _, variance in sums])
        return float(np.dot([total for total, _ in sums], weights) / weights.sum()), float(1 / weights.sum())

    @cached_property
    def signal(self) -> dict[str, float]:
        """The mean square of what was counted over that of the noise, for each kind of count, at least 0:
        below 1 there is more noise than signal. From released numbers.
        """
        return {
            name: max(float(np.mean(values**2)) / max(variance, 1e-12) - 1.0, 0.0)
            for name, (values, variance) in self.counts().items()
            if len(values) and name in _SIGNALS
        }

    @property
    def silent(self) -> bool:
        """Whether nothing of where trips are stands out of the noise, not even how many there are."""
        total, variance = self.total
        # A single block of pairs says how many trips there are, not where.
        places = ("by_cell", "links") if self.pairs.size == 1 else ("pairs", "by_cell", "links")
        weak = all(self.signal.get(name, 0.0) < WEAK for name in places)
        return weak and total < 2 * float(np.sqrt(variance))

    def with_counts(self, counts: Mapping[str, tuple[Floats, float]]) -> MeasuredTrips:
        """The same cells, parts, blocks, zones and centres with other counts, named as ``counts`` names
        them.
        """
        (pairs, pair), (by_cell, cell), (by_part, part) = (
            counts[name] for name in ("pairs", "by_cell", "by_part")
        )
        links, link = counts.get("links", (None, 0.0))
        lengths, length = counts.get("lengths", (None, 0.0))
        times, zones, recording = None, None, None
        if "departures" in counts and self.times is not None:
            found = {name: counts[name][0].reshape(getattr(self.times, name).shape) for name in _TIMES}
            variance = np.array([counts[name][1] for name in _TIMES])
            times = TimeCounts(**found, centre=self.times.centre, variance=variance)
        if "zones" in counts and self.zones is not None:
            trips, of_zone = counts["zones"]
            zones = replace(self.zones, trips=trips.reshape(self.zones.trips.shape), variance=of_zone)
        if "gaps" in counts:
            (gaps, of_gap), (variations, _) = (counts[name] for name in _RECORDING)
            recording = RecordingCounts(gaps, variations, of_gap)
        return MeasuredTrips(
            self.partition, replace(self.pairs, count=pairs), pair,
            replace(self.ends, by_cell=by_cell, by_part=by_part, cell_variance=cell, part_variance=part),
            links, link, lengths, length, times, zones, recording, self.weights, self.halvings,
        )  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], weights: Weights) -> MeasuredTrips:
        """The inverse of ``arrays``."""

        def part(prefix: str) -> dict[str, Any]:
            found = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            return {name: array if array.ndim else float(array) for name, array in found.items()}

        pair, link, length, cell, by_part = arrays["variance"].tolist()
        partition, parts = Partition.checked(**part("cells/")), Partition.checked(**part("parts/"))
        holder = partition.holder_of(parts.start).astype(np.int64)
        times, zones, recording = part("times/"), part("zones/"), part("recording/")
        if "hours" in times:  # version 5 and before counted times otherwise: the clock is all that is left
            times, zones = {}, {}
        return cls(
            partition, PairBlocks(**part("pairs/")), pair,
            EndCounts(arrays["ends/by_cell"], parts, holder, arrays["ends/by_part"], cell, by_part),
            arrays.get("links"), link, arrays.get("lengths"), length,
            TimeCounts(**times) if times else None, ZoneCounts(**zones) if zones else None,
            RecordingCounts(**recording) if recording else None,
            weights, arrays.get("halvings"),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class WalkedTrips:
    """Private trips on the cells of a partition: what is counted of them. Trips in no cell are left out of
    all but ``states`` and ``start``.

    Attributes
    ----------
    states, start
        The states that each trip passes, joined up, and offsets.
    along
        On a plane, how far along the side between a state and the next each trip crosses it.
    origin, destination
        Keys of the places where each starts and ends.
    metres, diameter
        Of its path.
    usual
        Seconds that it takes at public speeds.
    departure, duration, gap, variation
        As in ``PlacedTrips``.
    """

    states: Ints
    start: Ints
    along: Floats | None
    origin: Keys
    destination: Keys
    metres: Floats
    diameter: Floats
    usual: Floats
    departure: Floats | None
    duration: Floats | None
    gap: Floats | None
    variation: Floats | None


@dataclass(frozen=True, eq=False)
class Walking:
    """From places to what is counted of trips, each by itself."""

    ground: Ground
    graph: StateGraph
    partition: Partition

    def __call__(self, placed: PlacedTrips) -> WalkedTrips:
        ground, graph = self.ground, self.graph
        states, start, along = ground.paths(placed, graph, self.partition)
        real = np.diff(start) > 0
        origin, destination = ground.end_keys(placed, self.partition, states, start).T
        metres, diameter, usual = ground.shapes_of_trips(placed, graph, states, start)
        departure, duration, gap, variation = (
            None if column is None else column[real]
            for column in (placed.departure, placed.duration, placed.gap, placed.variation)
        )
        return WalkedTrips(
            states, start, along, origin, destination, metres[real], diameter[real], usual[real],
            departure, duration, gap, variation,
        )  # fmt: skip


def measure(
    placed: PlacedTrips,
    ground: Ground,
    shares: Shares,
    *,
    noise: Noise,
    partition: Partition | None = None,
    theta: float = 0.0,
    weights: Weights = "uniform",
    like: MeasuredTrips | None = None,
) -> MeasuredTrips:
    """Make every measurement that has a share of ε. Cells that are given are not measured; ``like`` gives
    the cells, parts, blocks, zones and centres of an earlier release.
    """
    if like is not None:
        partition = like.partition
    if partition is None:
        # Where nothing but ends is known, cells need to be small there and nowhere else.
        at_ends = _ENDS_IN_CELLS if shares.transitions else 1.0
        partition = measure_cells(
            placed, ground.hierarchy, epsilon=shares.cells, noise=noise, max_depth=ground.bits, theta=theta,
            at_ends=at_ends,
        )  # fmt: skip
    graph = ground.graph(partition)
    walked = mapped(Walking(ground, graph, partition), placed, WalkedTrips)
    ends = count_ends(
        walked.origin, walked.destination, ground.bits, partition, ground.hierarchy,
        epsilon=shares.ends, noise=noise, parts=None if like is None else like.ends.parts,
    )  # fmt: skip
    first, last = (each(partition.cell_of, keys, ground.bits) for keys in (walked.origin, walked.destination))
    pairs = measure_pairs(
        first, last, partition,
        epsilon_tree=shares.pair_tree, epsilon_count=shares.pair_counts, noise=noise, ends=ends.by_cell,
        theta=theta, blocks=None if like is None else like.pairs,
    )  # fmt: skip
    links, link_variance, halvings = None, 0.0, None
    if shares.transitions:
        epsilon = shares.transitions
        link_variance = laplace_variance(GRID.one / epsilon) / GRID.one**2
        if like is not None:
            halvings = like.halvings
        elif not ground.has_ways:
            expected = expected_crossings(
                graph, pairs, laplace_variance(1 / shares.pair_counts), ends.by_cell,
                ground.centres(partition), noise.rng, weights,
            )  # fmt: skip
            finest = (ground.bits - partition.bits) // 2
            halvings = halvings_of(graph, expected, float(np.sqrt(link_variance)), finest)
        links = measure_links(
            graph, walked.states, walked.start, epsilon=epsilon, noise=noise, weights=weights,
            along=walked.along, halvings=halvings,
        )  # fmt: skip
    lengths, length_variance = None, 0.0
    if shares.lengths:
        lengths = measure_lengths(walked.metres, walked.diameter, epsilon=shares.lengths, noise=noise)
        length_variance = laplace_variance(1 / shares.lengths)
    times = zones = recording = None
    if shares.times and walked.departure is not None and walked.duration is not None:
        before = None if like is None or like.times is None else like.times.centre
        times = measure_times(
            walked.departure, walked.duration, walked.usual, epsilons=shares.time_counts, noise=noise,
            centre=before,
        )  # fmt: skip
        if like is not None and like.zones is not None:
            zone, ending = like.zones.zone, like.zones.ending
        else:
            zone, ending = zones_of(ground.centres(partition), ends.by_cell, epsilon=shares.zones)
        hour = each(hour_of_week, walked.departure)
        zones = measure_zones(zone, ending, first, last, hour, epsilon=shares.zones, noise=noise)
    if shares.recording and walked.gap is not None:
        variation = None if times is None else walked.variation
        recording = measure_recording(walked.gap, variation, epsilon=shares.recording, noise=noise)
    return MeasuredTrips(
        partition, pairs, laplace_variance(1 / shares.pair_counts), ends, links, link_variance, lengths,
        length_variance, times, zones, recording, weights, halvings,
    )  # fmt: skip


# How ε is divided among the measurements of trips.

# Of the ε of pairs: ends, the tree of pairs, the counts of its blocks. The tree has little left to do where
# ends are known.
ENDS_SHARE, TREE_SHARE, COUNT_SHARE = 0.55, 0.02, 0.43
# Of the ε of times: departures by day and four hours, paces by length, slow and fast trips by hour, trips by
# zones and block.
DEPARTURES_SHARE, PACES_SHARE, BY_HOUR_SHARE, ZONES_SHARE = 0.1, 0.15, 0.35, 0.4


@dataclass(frozen=True)
class Shares:
    """ε of each measurement, for one trip; 0 where a measurement is left out."""

    cells: float
    transitions: float
    pairs: float
    lengths: float
    times: float
    tree: bool = True  # whether the blocks of pairs are looked for; False: they are known already
    recording: float = 0.0

    @classmethod
    def of(cls, per_trip: PrivacyBudget, weights: dict[str, float], *, tree: bool = True) -> Shares:
        """Divide what one trip may cost in proportion to ``weights``; a weight of 0 leaves out."""
        used = {name: weight for name, weight in weights.items() if weight > 0}
        parts = per_trip.split(list(used.values()))
        epsilon = {name: part.epsilon for name, part in zip(used, parts, strict=True)}
        return cls(**{name: epsilon.get(name, 0.0) for name in weights}, tree=tree)

    @property
    def ends(self) -> float:
        """ε of the two counts of ends."""
        return self.pairs * ENDS_SHARE

    @property
    def pair_tree(self) -> float:
        """ε of the tree of pairs."""
        return self.pairs * TREE_SHARE if self.tree else 0.0

    @property
    def pair_counts(self) -> float:
        """ε of the counts of pairs: what ends and tree leave."""
        return self.pairs - self.ends - self.pair_tree

    @property
    def time_counts(self) -> tuple[float, float, float]:
        """ε of departures by day and four hours, of paces by length, of slow and fast trips by hour."""
        return self.times * DEPARTURES_SHARE, self.times * PACES_SHARE, self.times * BY_HOUR_SHARE

    @property
    def zones(self) -> float:
        """ε of trips by zones and block: what the other counts of times leave."""
        return self.times - sum(self.time_counts)

    def check(self) -> None:
        """Refuse shares too small for the noise they ask for: before anything is read or spent."""
        scales = {
            "cells": SplitRule(self.cells).scale * GRID.one if self.cells else 0.0,
            "transitions": GRID.one / self.transitions if self.transitions else 0.0,
            "pairs": SplitRule(self.pair_tree, fanout=4).scale * GRID.one
            if self.tree
            else 1 / self.pair_counts,
            "lengths": 1 / self.lengths if self.lengths else 0.0,
            "times": GRID.one / (self.times * DEPARTURES_SHARE) if self.times else 0.0,
            "recording": 2 / self.recording if self.recording else 0.0,
        }
        for name, scale in scales.items():
            if not scale <= MAX_SCALE:
                raise ConfigError(
                    f"the share of {name} is ε = {getattr(self, name):.2g} per trip: too little for any "
                    "noise to be drawn. Give more ε, a smaller bound per user, or a larger share"
                )

    def as_dict(self) -> dict[str, float]:
        """The measurements that are made, for the statement of a release."""
        return {name: epsilon for name, epsilon in asdict(self).items() if epsilon and name != "tree"}

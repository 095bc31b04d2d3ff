"""All measurements of one fit, and the one place where they are made.

Guarantee
---------
``measure`` composes the measurements of this package one after the other, each ε_i-differentially private
whatever the earlier ones released (structure that a later one uses, such as the cells, is an output of an
earlier one). By adaptive composition the whole is Σ ε_i-differentially private for one trip. ``Measured``
holds their outputs and nothing else: whoever has it may compute anything from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from synthgeo.arrays import Array, Floats
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.noise import Noise, laplace_variance
from trajectories.ground.base import Ground, PlacedTrips
from trajectories.measure.cells import measure_cells
from trajectories.measure.ends import EndCounts, count_ends
from trajectories.measure.lengths import measure_lengths, path_shapes
from trajectories.measure.pairs import PairBlocks, measure_pairs
from trajectories.measure.shares import Shares
from trajectories.measure.times import TimeCounts, measure_times
from trajectories.measure.transitions import Weights, measure_links

_ENDS_IN_CELLS = 0.2  # of a trip's weight in the choice of cells, what its two ends have


@dataclass(frozen=True, eq=False)
class Measured:
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
        Crossings from cell to cell, a trip's sharing the weight of 1; None when ways are not known.
    lengths, length_variance
        Trips by length and compactness; None when not measured.
    times
        Departures by hour, and paces; None when not measured.
    weights
        How a trip shares its weight over its crossings.
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
    weights: Weights

    def arrays(self) -> dict[str, Array]:
        """Every released number, by name."""
        out: dict[str, Array] = {}
        for prefix, cells in (("cells", self.partition), ("parts", self.ends.parts)):
            out |= {f"{prefix}/{name}": getattr(cells, name) for name in ("prefix", "bits", "measure")}
        out |= {f"pairs/{field.name}": getattr(self.pairs, field.name) for field in fields(self.pairs)}
        out |= {"ends/by_cell": self.ends.by_cell, "ends/by_part": self.ends.by_part}
        for name, values in (("links", self.links), ("lengths", self.lengths)):
            if values is not None:
                out[name] = values
        if self.times is not None:
            out |= {"times/hours": self.times.hours, "times/paces": self.times.paces}
        variance = [
            self.pair_variance, self.link_variance, self.length_variance, self.ends.cell_variance,
            self.ends.part_variance, 0.0 if self.times is None else self.times.variance,
        ]  # fmt: skip
        out["variance"] = np.array(variance)
        return out

    def counts(self) -> dict[str, tuple[Floats, float]]:
        """Every released number that is a count, by name, with the variance of its noise.

        Counts of several batches on the same cells, parts and blocks may be added up.
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
            out |= {name: (getattr(self.times, name), self.times.variance) for name in ("hours", "paces")}
        return out

    def with_counts(self, counts: Mapping[str, tuple[Floats, float]]) -> Measured:
        """The same cells, parts and blocks with other counts, named as ``counts`` names them."""
        (pairs, pair), (by_cell, cell), (by_part, part) = (
            counts[name] for name in ("pairs", "by_cell", "by_part")
        )
        links, link = counts.get("links", (None, 0.0))
        lengths, length = counts.get("lengths", (None, 0.0))
        times = None
        if "hours" in counts:
            (hours, a), (paces, b) = counts["hours"], counts["paces"]
            times = TimeCounts(hours, paces, max(a, b))
        return Measured(
            self.partition, replace(self.pairs, count=pairs), pair,
            replace(self.ends, by_cell=by_cell, by_part=by_part, cell_variance=cell, part_variance=part),
            links, link, lengths, length, times, self.weights,
        )  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], weights: Weights) -> Measured:
        """The inverse of ``arrays``."""

        def part(prefix: str) -> dict[str, Array]:
            return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}

        pair, link, length, cell, by_part, time = arrays["variance"].tolist()
        partition, parts = Partition(**part("cells/")), Partition(**part("parts/"))
        holder = partition.holder_of(parts.start).astype(np.int64)
        times = part("times/")
        return cls(
            partition, PairBlocks(**part("pairs/")), pair,
            EndCounts(arrays["ends/by_cell"], parts, holder, arrays["ends/by_part"], cell, by_part),
            arrays.get("links"), link, arrays.get("lengths"), length,
            TimeCounts(**times, variance=time) if times else None, weights,
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
    like: Measured | None = None,
) -> Measured:
    """Make every measurement that has a share of ε. Cells that are given are not measured; ``like`` gives
    the cells, parts and blocks of an earlier release.
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
    states, start = ground.paths(placed, graph, partition)
    real = np.diff(start) > 0
    origin, destination = ground.end_keys(placed, partition, states, start).T
    ends = count_ends(
        origin, destination, ground.bits, partition, ground.hierarchy, epsilon=shares.ends, noise=noise,
        parts=None if like is None else like.ends.parts,
    )  # fmt: skip
    pairs = measure_pairs(
        partition.cell_of(origin, ground.bits), partition.cell_of(destination, ground.bits), partition,
        epsilon_tree=shares.pair_tree, epsilon_count=shares.pair_counts, noise=noise, ends=ends.by_cell,
        theta=theta, blocks=None if like is None else like.pairs,
    )  # fmt: skip
    links, link_variance = None, 0.0
    if shares.transitions:
        epsilon = shares.transitions
        links = measure_links(graph, states, start, epsilon=epsilon, noise=noise, weights=weights)
        link_variance = laplace_variance(GRID.one / epsilon) / GRID.one**2
    lengths, length_variance = None, 0.0
    if shares.lengths:
        metres, diameter = path_shapes(graph, states, start)
        lengths = measure_lengths(metres[real], diameter[real], epsilon=shares.lengths, noise=noise)
        length_variance = laplace_variance(1 / shares.lengths)
    times = None
    if shares.times and placed.departure is not None and placed.duration is not None:
        usual = ground.usual_seconds(graph, states, start)
        times = measure_times(
            placed.departure[real], placed.duration[real], usual[real], epsilon=shares.times, noise=noise
        )
    return Measured(
        partition, pairs, laplace_variance(1 / shares.pair_counts), ends, links, link_variance, lengths,
        length_variance, times, weights,
    )  # fmt: skip


__all__ = ["Measured", "measure"]

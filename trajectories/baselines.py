"""Methods to compare with, under the same interface and the same promise.

* ``ShortestPathTrips``: private origin-destination pairs, joined by shortest paths: what a method that
  measures ways has to beat.
* ``PaperTrips``: Algorithms 16 to 21 of Kumar, *Differentially Private Synthetic Data Generation of Data
  Collected Over Time* (dissertation, UC Davis, 2024), as corrected in docs/guarantees.md.

Both have no times, and are not saved: they are there to be measured.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.privtree import GRID
from synthgeo.parameters import check_settings
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.ragged import offsets_of, owners_of, positions
from synthgeo.sources.declared import Reading
from trajectories.drawing import Drawing
from trajectories.ground.base import PlacedTrips
from trajectories.ground.state_graph import StateGraph, fill_gaps
from trajectories.measure.ends import EndCounts, measure_cells
from trajectories.measure.measured import MeasuredTrips, Shares
from trajectories.measure.pairs import crossing_shares, measure_pairs, non_negative
from trajectories.model import TripModel
from trajectories.reading.points import Trips, metres_per_unit
from trajectories.release import TrajectoryRelease
from trajectories.routing import RoadGraph, routes_between_edges
from trajectories.setup import TripSettings
from trajectories.synthesizer import TrajectorySynthesizer
from trajectories.walks.bridges import Chain, Walks, exponential_steps, fixed_walks, probable_hops
from trajectories.walks.sampler import TripSampler

_SPLIT = (0.3, 0.4, 0.3)  # cells, transitions, pairs: the dissertation's
_SPACING = 25.0  # metres between points


class _Baseline(TrajectorySynthesizer, ABC):
    """What both have in common."""

    _takes_parts = False

    @abstractmethod
    def _sampler_of(self, model: TripModel) -> TripSampler:
        """Draws trips from a fitted model."""

    def _draw(self, drawing: Drawing) -> TrajectoryRelease:
        if self._sampler is None:
            self._sampler = self._sampler_of(self.model)
        return drawing.draw(
            self._sampler, self.noise.rng, spent=self.budget, statement=self._statement,
            again=partial(self._draw, drawing),
        )  # fmt: skip

    def save(self, path: str | os.PathLike[str]) -> None:  # noqa: ARG002
        """Refused: a baseline is there to be measured."""
        raise ConfigError(
            f"{type(self).__name__} is a baseline, and is not saved: sample it where it was fitted"
        )


class ShortestPathTrips(_Baseline):
    """Private origin-destination pairs, joined by the shortest path over the public roads (or cells).

    Cells, ends and pairs are measured as ``TrajectorySynthesizer`` does where only ends are known; of the
    ways in between nothing is used.

    Guarantee
    ---------
    Pure ε-differential privacy for the unit, under adding or removing one: that of ``TrajectorySynthesizer``
    from ends alone. A trip becomes its two ends (sensitivity 1); cells, ends and pairs take ε1 + ε3 = ε, and
    all else is post-processing.
    """

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        reading: Reading | None = None,
        settings: TripSettings | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        chosen = check_settings(settings, TripSettings)
        chosen.only("ShortestPathTrips", ("split", "max_depth", "theta", "cleaning"))
        super().__init__(
            domain=domain, budget=budget, unit=unit, reading=reading, noise=noise, ledger=ledger,
            settings=replace(chosen, calibration=0.0, times=0.0, recording=0.0),
        )  # fmt: skip

    def _fit(self, trips: Trips, *, ends_only: bool, read: Any) -> Self:
        if not ends_only and trips.size:
            trips = self._setup.clean(trips).ends()
        return super()._fit(trips, ends_only=True, read=read)

    def _draw(self, drawing: Drawing) -> TrajectoryRelease:
        if drawing.spacing is None and self.domain.kind == "polygon":  # where the shortest way may bend
            across = metres_per_unit(self.domain)[0] if self.domain.crs is None else 1.0
            drawing = replace(drawing, spacing=_SPACING / across)
        return super()._draw(drawing)

    def _sampler_of(self, model: TripModel) -> TripSampler:
        return _ShortestPaths(model)


class _ShortestPaths(TripSampler):
    """Joins ends by shortest paths."""

    def between(self, origin: Ints, destination: Ints, block: Ints, rng: np.random.Generator) -> Walks:  # noqa: ARG002
        return shortest_walks(self.model, origin, destination)


def shortest_walks(model: TripModel, origin: Ints, destination: Ints) -> Walks:
    """The shortest walk for each pair of states."""
    if not isinstance(model.domain, RoadDomain):
        pairs = np.column_stack([origin, destination]).ravel()
        states, start, _ = fill_gaps(model.graph, pairs, 2 * np.arange(len(origin) + 1))
        last = states[np.maximum(start[1:] - 1, 0)] if len(states) else origin
        found: Bools = (np.diff(start) > 0) & (last == destination)
        return Walks(states, start, found)
    routes = routes_between_edges(RoadGraph.of(model.domain), origin, destination)
    same = origin == destination
    inner = np.where(same, 0, np.diff(routes.start))
    found = routes.found | same
    size = np.where(found, inner + np.where(same, 1, 2), 0)
    start = offsets_of(size)
    out = np.empty(start[-1], dtype=np.int64)
    out[start[:-1][found]], out[start[1:][found] - 1] = origin[found], destination[found]
    way = np.where(found, inner, 0)
    out[positions(start[:-1] + 1, way)] = routes.edges[positions(routes.start[:-1], way)]
    return Walks(out, start, found)


class PaperTrips(_Baseline):
    """Algorithms 16 to 21 of Kumar's dissertation, as corrected: the published method for trips.

    Cells by PrivTree; transitions from cell to cell, self-loops included, a trip's weight shared so that its
    ends are heard (equation 5.10 as its text means it); origin-destination pairs by PrivTree on the product;
    then walks of a fixed number of steps on the noisy transitions, exponential with the hops of the most
    probable path as median, self-loops put back, and points on the roads of each cell, joined by road. On a
    plane points that stay in a cell count once, so that only noise makes self-loops there.

    Guarantee
    ---------
    Pure ε-differential privacy for the unit, under adding or removing one. Cells take 0.3 ε (a trip's t
    points have 1/t each), transitions 0.4 ε (``measure_moves``), pairs 0.3 ε, half for the tree and half for
    counts (``measure_pairs``). Adaptive composition adds up to ε; all else uses these noisy numbers only,
    where the listings read the true ones (Algorithm 20 line 4, Algorithm 21 lines 8 to 10).
    """

    _counts = ("pairs", "links")  # ends it does not count

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        reading: Reading | None = None,
        settings: TripSettings | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        chosen = check_settings(settings, TripSettings)
        chosen.only("PaperTrips", ("max_depth", "theta", "match", "cleaning"))
        chosen = replace(chosen, split=_SPLIT, calibration=0.0, times=0.0, recording=0.0, length="median")
        super().__init__(
            domain=domain, budget=budget, unit=unit, reading=reading, settings=chosen, noise=noise,
            ledger=ledger,
        )  # fmt: skip
        self._moves: Moves | None = None

    def _fit(self, trips: Trips, *, ends_only: bool, read: Any) -> Self:
        if ends_only:
            raise ConfigError("PaperTrips needs the points of trips, not their ends alone")
        return super()._fit(trips, ends_only=False, read=read)

    def _model_of(self, placed: PlacedTrips, shares: Shares) -> TripModel:
        ground, noise, theta = self._setup.ground, self.noise, self.settings.theta
        partition = measure_cells(
            placed, ground.hierarchy, epsilon=shares.cells, noise=noise, max_depth=ground.bits, theta=theta,
            base=0,
        )  # fmt: skip
        graph = ground.graph(partition)
        states, start, _ = ground.paths(placed, graph, partition)
        moves = measure_moves(graph, graph.cell[states], start, epsilon=shares.transitions, noise=noise)
        origin, destination = ground.end_keys(placed, partition, states, start).T
        nothing = np.zeros(partition.size)
        pairs = measure_pairs(
            partition.cell_of(origin, ground.bits), partition.cell_of(destination, ground.bits), partition,
            epsilon_tree=shares.pairs / 2, epsilon_count=shares.pairs - shares.pairs / 2, noise=noise,
            ends=nothing, theta=theta,
        )  # fmt: skip
        ends = EndCounts(
            nothing, partition, np.arange(partition.size), np.full(partition.size, np.nan), 0.0, 0.0
        )
        measured = MeasuredTrips(
            partition, pairs, laplace_variance(2 / shares.pairs), ends, moves.links,
            laplace_variance(GRID.one / shares.transitions) / GRID.one**2, None, 0.0, None, None, None,
            "ends",
        )  # fmt: skip
        self._moves = moves
        model = TripModel.blank(ground, measured, "median")
        even = model.places
        ends_weight = np.bincount(even.part, even.size, minlength=partition.size)
        return model.but(pairs=replace(pairs, count=non_negative(pairs.count)), ends=ends_weight)

    def _sampler_of(self, model: TripModel) -> TripSampler:
        assert self._moves is not None
        return _PaperWalks(model, self._moves)


class Moves:
    """Noisy transitions between cells: of every link, and of staying in each cell."""

    def __init__(self, links: Floats, loops: Floats) -> None:
        self.links, self.loops = links, loops

    def chain(self, graph: StateGraph) -> tuple[Chain, Floats]:
        """Chances of moves from cell to cell without self-loops, uniform over neighbours where nothing is
        left; and the chance to stay in each cell.
        """
        before, after = graph.link_ends
        weight, stay = np.maximum(self.links, 0.0), np.maximum(self.loops, 0.0)
        out = np.bincount(before, weight, minlength=graph.cells)
        weight = np.where(out[before] > 0, weight, 1.0)
        together = np.bincount(before, weight, minlength=graph.cells)
        matrix = csr_array((weight / together[before], (before, after)), shape=(graph.cells, graph.cells))
        chance = np.divide(stay, stay + out, out=np.zeros(graph.cells), where=out > 0)
        return Chain(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data), chance


def count_moves(graph: StateGraph, cells: Ints, start: Ints) -> Ints:
    """Weighted moves of trips that visit these cells, in grid steps: over each link, then within each cell.
    A trip's n moves share at most 1. Private.
    """
    trip = owners_of(start)
    inner = trip[1:] == trip[:-1]
    link = graph.link_between(cells[:-1], cells[1:])
    move = np.where(cells[:-1] == cells[1:], graph.links + cells[:-1], link)[inner]
    known = move >= 0
    number = np.bincount(trip[:-1][inner][known], minlength=len(start) - 1)
    out = np.zeros(graph.links + graph.cells, dtype=np.int64)
    np.add.at(out, move[known], crossing_shares(number, "ends"))
    return out


def measure_moves(graph: StateGraph, cells: Ints, start: Ints, *, epsilon: float, noise: Noise) -> Moves:
    """Noisy moves over every link and within every cell, visited or not: L1 sensitivity 1, discrete Laplace
    noise of scale 1/ε on the grid, ε-differentially private.
    """
    exact = count_moves(graph, cells, start)
    noisy = GRID.value(exact + noise.discrete_laplace(GRID.one / epsilon, exact.size))
    return Moves(noisy[: graph.links], noisy[graph.links :])


class _PaperWalks(TripSampler):
    """Walks on cells (Algorithm 20), then through a place in each cell that they visit."""

    def __init__(self, model: TripModel, moves: Moves) -> None:
        super().__init__(model)
        self._chain, self._stay = moves.chain(model.graph)

    def between(self, origin: Ints, destination: Ints, block: Ints, rng: np.random.Generator) -> Walks:  # noqa: ARG002
        cell = self.graph.cell
        first, last = cell[origin], cell[destination]
        hops = probable_hops(self._chain, first, last)
        walks = fixed_walks(self._chain, first, last, exponential_steps(np.maximum(hops, 0), rng), rng)
        # Self-loops: a cell is visited once more with the chance to stay in it.
        again = 1 + (rng.random(len(walks.states)) < self._stay[walks.states])
        cells = np.repeat(walks.states, again)
        start = offsets_of(again)[walks.start]
        if not isinstance(self.model.domain, RoadDomain):
            return Walks(cells, start, walks.found)
        order, begin = self.graph.by_cell
        states = order[begin[cells] + (rng.random(len(cells)) * np.diff(begin)[cells]).astype(np.int64)]
        found = walks.found
        states[start[:-1][found]], states[start[1:][found] - 1] = origin[found], destination[found]
        return self._by_road(states, start, found)

    def _by_road(self, states: Ints, start: Ints, found: Bools) -> Walks:
        """Edges of visited cells, joined by road; a walk with a leg that no road joins is not found."""
        trip = owners_of(start)
        leg = np.flatnonzero(trip[1:] == trip[:-1])
        parts = shortest_walks(self.model, states[leg], states[leg + 1])
        broken = np.bincount(trip[leg], ~parts.found, minlength=len(found)) > 0
        found = found & ~broken
        # Each leg without its first state, after the first state of its walk.
        size = np.ones(len(states), dtype=np.int64)
        size[leg + 1] = np.maximum(np.diff(parts.start) - 1, 0)
        size *= found[trip]
        offsets = offsets_of(size)
        out = np.empty(offsets[-1], dtype=np.int64)
        opens = np.ones(len(states), dtype=bool)
        opens[leg + 1] = False
        opens &= found[trip]
        out[offsets[:-1][opens]] = states[opens]
        out[positions(offsets[leg + 1], size[leg + 1])] = parts.states[
            positions(parts.start[:-1] + 1, size[leg + 1])
        ]
        return Walks(out, offsets[start], found)


__all__ = ["Moves", "PaperTrips", "ShortestPathTrips", "count_moves", "measure_moves", "shortest_walks"]

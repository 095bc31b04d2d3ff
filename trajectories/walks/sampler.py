"""Drawing trips from a released model: ends, several conditional walks between them, and the choice of one.

Walks of three kinds are proposed for every pair of ends: straight to the destination, by way of another
place, and along the traffic from cell to cell (``traffic_walks``).

Post-processing: all randomness here is the caller's generator, and nothing but the model is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.errors import DomainError
from synthgeo.ragged import offsets_of_owners
from synthgeo.threads import in_threads
from trajectories.ground.state_graph import StateGraph
from trajectories.measure.ends import bucket
from trajectories.measure.pairs import PairBlocks
from trajectories.model import TripModel
from trajectories.walks.bridges import (
    Chain,
    KilledBridge,
    Walks,
    chained,
    exponential_steps,
    fixed_walks,
    join,
    probable_hops,
)
from trajectories.walks.traffic_walks import TrafficWalker
from trajectories.walks.traits import WalkFeatures, WalkTraits, WalkWeights

# Metres of detour that make a walk e times less likely. The ways between ends that are far apart can have so
# little weight that a double cannot hold it: then the next is tried.
RATES = (40.0, 1000.0, 100_000.0)
_PLAIN_RATE = 150.0
_CHUNK = 2500  # trips whose walks are in memory at once, in each thread
_FEW = 2000  # trips that are worth more walks each
_REVISIT = 0.1  # each return to a crossing makes a walk e^-0.1 times as likely to be chosen
_SHARP = 2.0  # and each sharp turn on a plane, e^-2 times
_HALF_TURN = 8.0  # and each turn round on roads, e^-8 times
_TURNING = 0.1  # and each turn by a right angle, e^-0.1 times
_NO_TRAFFIC = 0.3  # and each link on which there is no traffic, e^-0.3 times
_STEP = 0.4  # of the usual step: metres inside a cell that make a way e times less likely, if that is more
_TURN = 2.0  # a turn by a right angle makes a step e^-2 times as likely as one straight on
_VIAS = 30  # trips whose ends are the places to go by
_CHOICE = 64  # pairs drawn at least: few trips, too, are chosen among many
_EXCESS = 8  # pairs drawn for one that fits the hours asked for
_ROUNDS = 6
_ALIVE = 0.9995  # a step is survived at most with this probability

_NO_WALKS = Walks(np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, bool))


@dataclass(frozen=True)
class Effort:
    """How much work sampling does: distinct destinations at once, and walks of each kind for a trip."""

    destinations: int = 3000
    straight: int = 8  # a walk costs little once its destination's vector is there
    detours: int = 8
    along_traffic: int = 24

    def for_each_of(self, trips: int) -> Effort:
        """The effort for one of so many trips, which are chosen among the walks of all: of many trips a third
        of the walks give the same choice.
        """
        if trips <= _FEW:
            return self
        return replace(
            self, straight=-(-self.straight // 2), detours=-(-self.detours // 2),
            along_traffic=-(-self.along_traffic // 3),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pool:
    """Walks to choose from, several for each pair of ends: what the choice looks at, and a weight by their
    revisits and turns and by links that carry no traffic.
    """

    walks: Walks
    features: WalkFeatures
    weight: Floats

    def choose(self, fitted: WalkWeights, count: int, rng: np.random.Generator) -> Walks:
        """``count`` walks out of all: a pair that has no walk of a likely length gives way to one that has.

        Systematic sampling, the walks of a pair one after the other: each pair is taken as often as it is
        due, and no walk twice unless it is due more often than once.
        """
        weight, pair = self.features.weights(self.weight, fitted), self.features.pair
        order = rng.permutation(len(weight))
        order = order[np.argsort(rng.permutation(int(pair.max(initial=0)) + 1)[pair[order]], kind="stable")]
        running = np.cumsum(weight[order])
        drawn = (np.arange(count) + rng.random()) / count * running[-1]
        picked = np.searchsorted(running, drawn, side="right")
        chosen = rng.permutation(order[np.minimum(picked, len(order) - 1)])
        return _whole(self.walks.take(chosen))


class EndPicker:
    """Draws origins and destinations, on request only in given sets of states."""

    def __init__(self, model: TripModel, start: Bools | None = None, end: Bools | None = None) -> None:
        pairs, weight = model.pairs, model.place_weight
        self._state = model.places.state
        # Places are in the order of parts, and so of cells: those of a block of cells are a range.
        cell = model.cell_of_part[model.places.part]
        begin = offsets_of_owners(cell, model.partition.size)
        self._begin = begin
        self._sums = []
        share = np.ones(pairs.size)
        masses = np.ones(pairs.size)
        for mask, low, high in (
            (start, pairs.origin_low, pairs.origin_high),
            (end, pairs.destination_low, pairs.destination_high),
        ):
            running = np.concatenate([[0.0], np.cumsum(weight)])
            whole = running[begin[high]] - running[begin[low]]
            if mask is not None:
                running = np.concatenate([[0.0], np.cumsum(weight * mask[self._state])])
            mass = running[begin[high]] - running[begin[low]]
            share *= np.divide(mass, whole, out=np.zeros(len(whole)), where=whole > 0)
            masses *= mass
            self._sums.append(running)
        probability = pairs.count * share
        if probability.sum() <= 0:  # no released trips there: spread them like the traffic
            probability = masses
        if probability.sum() <= 0:
            raise DomainError("no trip can start and end there: the domain has no such places")
        self._pairs: PairBlocks = pairs
        self._probability = probability / probability.sum()

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """``count`` pairs of states, and the block that each was drawn from.

        Systematic sampling: each block is taken as often as it is due, and the trips of a block start, and
        end, evenly over its places. Independent draws would add noise of their own to the model's.
        """
        pairs = self._pairs
        due = (np.arange(count) + rng.random()) / max(count, 1)
        block = np.minimum(np.searchsorted(np.cumsum(self._probability), due, side="right"), pairs.size - 1)
        trips = np.bincount(block, minlength=pairs.size)
        rank = np.arange(count) - (np.cumsum(trips) - trips)[block]
        shuffled = np.empty(count, dtype=np.int64)  # a trip's place among the destinations of its block
        shuffled[np.lexsort([rng.random(count), block])] = rank
        ends = []
        for running, low, high, place in (
            (self._sums[0], pairs.origin_low, pairs.origin_high, rank),
            (self._sums[1], pairs.destination_low, pairs.destination_high, shuffled),
        ):
            first, last = self._begin[low[block]], self._begin[high[block]]
            share = (place + rng.random(count)) / trips[block]
            drawn = running[first] + share * (running[last] - running[first])
            at = np.searchsorted(running, drawn, side="right") - 1
            ends.append(self._state[np.clip(at, first, np.maximum(last - 1, first))])
        order = rng.permutation(count)
        return ends[0][order], ends[1][order], block[order]


class TripSampler:
    """Draws walks from one model. Holds the factorised chains, so make one and use it for many trips."""

    def __init__(self, model: TripModel, effort: Effort | None = None) -> None:
        self.model = model
        self.effort = effort or Effort()
        self.graph = model.graph
        self._weight = chain_weights(self.graph, model.link_cost)
        self._bridges: dict[float, KilledBridge] = {}
        self._vias: Ints | None = None
        self._walker: TrafficWalker | None = None

    def draw(
        self,
        count: int,
        rng: np.random.Generator,
        *,
        start: Bools | None = None,
        end: Bools | None = None,
        hours: Bools | None = None,
    ) -> Walks:
        """``count`` walks, on request between places where trips depart in these ``hours`` of the week. Pairs
        that no road joins are drawn again; if nothing helps, ``DomainError``.
        """
        picker = EndPicker(self.model, start, end)
        parts: list[Walks] = []
        missing = count
        for _ in range(_ROUNDS):
            if missing == 0:
                break
            origin, destination, block = self._ends(picker, max(missing, _CHOICE), hours, rng)
            destination = fewer(destination, self.model.order_of_states, self.effort.destinations, rng)
            walks = self.between(origin, destination, block, rng)
            parts.append(walks.take(rng.permutation(np.flatnonzero(walks.found))[:missing]))
            missing -= parts[-1].size
        if missing == count and count:
            raise DomainError("no way leads from the start to the end that were asked for")
        drawn = join([_NO_WALKS, *parts])
        if missing:  # some pairs have no way between them: give the others in their place
            drawn = drawn.take(np.concatenate([np.arange(drawn.size), rng.integers(0, drawn.size, missing)]))
        return drawn

    def _ends(
        self, picker: EndPicker, count: int, hours: Bools | None, rng: np.random.Generator
    ) -> tuple[Ints, Ints, Ints]:
        """Pairs of states and their blocks; of several times as many, those that fit the hours."""
        clock = self.model.clock
        if hours is None or clock is None:
            return picker.draw(count, rng)
        drawn = picker.draw(_EXCESS * count, rng)
        origin, destination = (clock.zones(self.graph.cell[states]) for states in drawn[:2])
        chance = clock.chance(hours, origin, destination)
        if not chance.any():
            chance = np.ones(len(chance))
        running = np.cumsum(chance)
        at = (np.arange(count) + rng.random()) / count * running[-1]
        kept = rng.permutation(np.minimum(np.searchsorted(running, at, side="right"), len(chance) - 1))
        return drawn[0][kept], drawn[1][kept], drawn[2][kept]

    def between(self, origin: Ints, destination: Ints, block: Ints, rng: np.random.Generator) -> Walks:
        """As many walks as pairs, of these blocks. Where lengths were measured each pair proposes several,
        and the choice is among all of them: in another order, and not one for every pair.
        """
        if self.model.weights is None:
            return _whole(self.model.ground.direct(self._propose(origin, destination, rng, _PLAIN_RATE)))
        # A destination's vector is needed in one chunk only; which destinations share one is left to chance.
        places, which = np.unique(destination, return_inverse=True)
        order = np.argsort(rng.permutation(len(places))[which], kind="stable")
        weights, effort = self.model.weights, self.effort.for_each_of(len(order))
        self._prepare(rng)

        def chosen(task: tuple[Ints, np.random.Generator]) -> Walks:
            here, own = task
            pool = self.pool(origin[here], destination[here], block[here], own, effort)
            return pool.choose(weights, len(here), own) if pool.weight.any() else _NO_WALKS

        chunks = np.array_split(order, -(-len(order) // _CHUNK)) if len(order) else []
        tasks = [(here, np.random.default_rng(rng.integers(0, 1 << 62, 4))) for here in chunks]
        return join([_NO_WALKS, *in_threads(chosen, tasks, label="sampling trips")])

    def _prepare(self, rng: np.random.Generator) -> None:
        """Compute what threads share, before they start."""
        if self.model.length == "killed":
            self._bridge(RATES[0])
        if self._follows:
            self._along_traffic()
        self._via(0, rng)

    @property
    def _follows(self) -> bool:
        return self.model.length == "killed" and bool(self.model.traffic.any())

    def pool(
        self, origin: Ints, destination: Ints, block: Ints, rng: np.random.Generator,
        effort: Effort | None = None,
    ) -> Pool:  # fmt: skip
        """Several walks for each pair; ``block`` is the block of pairs that it comes from."""
        graph, model, follows = self.graph, self.model, self._follows
        effort = self.effort if effort is None else effort
        kinds = [effort.straight, effort.detours, effort.along_traffic if follows else 0]
        straight, by_way, along = (np.repeat(np.arange(len(origin)), each) for each in kinds)
        pair = np.concatenate([straight, by_way, along])
        begin, end = origin[pair], destination[pair]
        via = self._via(len(by_way), rng)
        legs = [_stay(origin[straight]), self._propose(origin[by_way], via, rng)]
        if follows:
            legs.append(self._along_traffic().walks(origin[along], destination[along], rng))
        there = join(legs)
        # All go on to the same ends: one solve for each serves the three kinds.
        # Those that are on their way go on as they came.
        onward = self._propose(there.last(begin), end, rng, either=np.arange(len(pair)) < len(straight))
        walks = model.ground.direct(chained(there, onward))
        walks = model.ground.numbered(walks, rng)
        traits = WalkTraits.of(graph, walks)
        metres, diameter, turns = model.ground.shapes_of_walks(model, walks, traits)
        features = WalkFeatures.of(graph, traits, bucket(metres, diameter), pair, block[pair])
        penalty = _REVISIT * traits.returns + _SHARP * turns
        penalty += _TURNING * traits.turning + _HALF_TURN * traits.half_turns
        if model.traffic.any():
            penalty = penalty + _NO_TRAFFIC * features.crossings_of(model.traffic == 0)
        return Pool(walks, features, np.where(walks.found, np.exp(-penalty), 0.0))

    def straight(self, origin: Ints, destination: Ints, rng: np.random.Generator) -> Walks:
        """A walk straight to its destination for each pair, numbered."""
        return self.model.ground.numbered(self._propose(origin, destination, rng), rng)

    def _via(self, count: int, rng: np.random.Generator) -> Ints:
        """Places where traffic is, to go by: the long way between ends that are close."""
        if self._vias is None:
            self._vias = np.unique(np.concatenate(EndPicker(self.model).draw(_VIAS, rng)[:2]))
        return self._vias[rng.integers(0, len(self._vias), count)]

    def _along_traffic(self) -> TrafficWalker:
        if self._walker is None:
            graph = self.graph
            rate = max(RATES[0], _STEP * float(np.median(graph.metres)))
            weight = chain_weights(graph, np.zeros(graph.links)) * np.exp(-_at_least(graph.metres) / rate)
            self._walker = TrafficWalker(graph, weight, self.model.traffic)
        return self._walker

    def _propose(
        self, origin: Ints, destination: Ints, rng: np.random.Generator, first: float = RATES[0], *,
        either: Bools | bool = True,
    ) -> Walks:  # fmt: skip
        """A walk for each pair. Ends are known by their places: to those it arrives in either direction, and
        where ``either`` says so it leaves in either.
        """
        if self.model.length == "median":
            weight = self._weight * np.exp(-self.graph.metres / _PLAIN_RATE)
            chain = Chain(self.graph.first, self.graph.to, weight)
            hops = probable_hops(chain, origin, destination)
            return fixed_walks(chain, origin, destination, exponential_steps(np.maximum(hops, 0), rng), rng)
        walks = self._bridge(first).walks(origin, destination, rng, either=either)
        for rate in RATES[1:]:
            missing = np.flatnonzero(~walks.found)
            if not len(missing):
                break
            free = np.broadcast_to(either, origin.shape)[missing]
            more = self._bridge(rate).walks(origin[missing], destination[missing], rng, either=free)
            which = np.arange(walks.size)
            which[missing] = walks.size + np.arange(len(missing))
            walks = join([walks, more]).take(which)
        return walks

    def _bridge(self, rate: float) -> KilledBridge:
        if rate not in self._bridges:
            twin = self.graph.twin if len(self.graph.twin) else None
            self._bridges[rate] = KilledBridge(self._killed(rate), twin=twin)
        return self._bridges[rate]

    def _killed(self, rate: float) -> Chain:
        graph = self.graph
        weight = self._weight * np.exp(-_at_least(graph.metres) / rate)
        # A popular way may have a negative cost. No row may then reach 1, or walks would never end.
        sums = np.bincount(graph.source, weight, minlength=graph.size)
        weight *= np.minimum(1.0, _ALIVE / np.maximum(sums, 1e-300))[graph.source]
        return Chain(graph.first, graph.to, weight)


def _at_least(metres: Floats) -> Floats:
    """Steps of no length would let walks go on for ever."""
    return np.maximum(metres, 1e-3)


def _stay(states: Ints) -> Walks:
    """Walks of one state each."""
    return Walks(states.astype(np.int32), np.arange(len(states) + 1), np.ones(len(states), dtype=bool))


def _whole(walks: Walks) -> Walks:
    """The same walks, their states in 64 bits."""
    return replace(walks, states=walks.states.astype(np.int64))


def chain_weights(graph: StateGraph, link_cost: Floats) -> Floats:
    """Weight of each step before distance: its chance among the ways on, the smaller the more it turns, times
    e^-cost where it crosses a link.

    Whoever drives through a grid of streets turns seldom. Were all ways on alike, the many stairs between two
    places would outweigh the few ways with one corner.
    """
    ease = np.exp(-_TURN * graph.turn) if len(graph.turn) else np.ones(len(graph.to))
    ways = np.bincount(graph.source, ease, minlength=graph.size)[graph.source]
    link = graph.link_of_step
    if not len(link_cost):
        return np.asarray(ease / ways)
    cost = np.where(link >= 0, link_cost[np.maximum(link, 0)], 0.0)
    weight: Floats = np.exp(-cost) * ease / ways
    return weight


def fewer(destination: Ints, order: Ints, most: int, rng: np.random.Generator) -> Ints:
    """At most ``most`` distinct destinations: neighbours by ``order``, a number for each state, share one of
    them, the likelier the more trips go there.
    """
    states, which, trips = np.unique(destination, return_inverse=True, return_counts=True)
    if len(states) <= most:
        return destination
    sorted_ = np.argsort(order[states], kind="stable")
    group = np.arange(len(states)) * most // len(states)
    running = np.concatenate([[0], np.cumsum(trips[sorted_])])
    begin = np.searchsorted(group, np.arange(most + 1))
    low, high = running[begin[:-1]], running[begin[1:]]
    drawn = low + np.floor(rng.random(most) * (high - low))
    shared = sorted_[np.searchsorted(running, drawn, side="right") - 1]
    out = np.empty(len(states), dtype=np.int64)
    out[sorted_] = states[shared[group]]
    return out[which]


__all__ = ["Effort", "EndPicker", "Pool", "TripSampler", "chain_weights", "fewer"]

"""Random walks conditioned on where they start and where they end (bridges).

A chain gives every step s -> s' a weight W(s, s') >= 0. The weight of a path is the product over its steps.
A bridge from origin to destination draws a path with probability proportional to its weight, among all
paths that

* ``fixed_walks``: take exactly a given number of steps (Kumar, Algorithm 20). With h_k(s) the total weight
  of the paths of k steps from s to the destination, h_0 = indicator of the destination and h_k = W h_(k-1),
  a walk at s with k steps to go moves to s' with probability W(s, s') h_(k-1)(s') / h_k(s).
* ``killed_walks``: take any number of steps. With rows of W summing to less than 1 (each step may kill the
  walk), the total weight of all paths to the destination is h = (I - W)^-1 e_destination, one sparse
  solve. A walk at s moves to s' with probability W(s, s') h(s') / h(s), and one at the destination stops
  there with probability 1 / h(destination).

Where states have twins, streets in one direction and in the other, a bridge of the second kind goes to either
of two twins, and starts in whichever is likelier: it chooses the direction in which it leaves and arrives.

Both are exact, and no power of W is ever formed. Walks are grouped by destination, vectors are held for one
destination at a time, and all walks to it go forward in one compiled loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import dijkstra

from synthgeo.arrays import Array, Bools, Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.ragged import concatenate, offsets_of, owners_of
from trajectories.ground.state_graph import TOGETHER, PathWeights

MAX_STEPS = 4096
_TABLE = 1 << 26  # entries of the backward vectors held at once
_TOGETHER = 8  # destinations whose backward vectors are computed together
_BLOCK = 1 << 22
_ROOM = 8


@dataclass(frozen=True, eq=False)
class Chain:
    """Weighted steps in rows: step j of state s leads to ``to[j]``, ``first[s] <= j < first[s + 1]``."""

    first: Ints
    to: Ints
    weight: Floats

    @property
    def size(self) -> int:
        """Number of states."""
        return len(self.first) - 1

    def matrix(self) -> csr_array:
        """The weights as a sparse matrix."""
        return csr_array((self.weight, self.to, self.first), shape=(self.size, self.size))


@dataclass(frozen=True, eq=False)
class Walks:
    """Paths of states, one after the other: walk i is ``states[start[i]:start[i + 1]]``, both ends included.

    Where ``found`` is False no path exists (or none whose weight a double can hold) and the walk is empty.
    Of many that are only proposed, states are kept in 32 bits.
    ``number`` is a random number of each walk, from which the ground takes all that is random in its line;
    None where the line is drawn afresh.
    """

    states: Array
    start: Ints
    found: Bools
    number: Ints | None = None

    @property
    def size(self) -> int:
        """Number of walks."""
        return len(self.start) - 1

    @property
    def walk(self) -> Ints:
        """Which walk each state belongs to."""
        return owners_of(self.start)

    def last(self, instead: Ints) -> Ints:
        """Where each walk ends; ``instead`` for those that were not found."""
        if not len(self.states):
            return instead
        return np.where(self.found, self.states[np.maximum(self.start[1:] - 1, 0)], instead)

    def take(self, index: Ints) -> Walks:
        """The walks at these positions, in that order."""
        begin, size = self.start[:-1][index], np.diff(self.start)[index]
        start = offsets_of(size)
        out = np.empty(start[-1], dtype=self.states.dtype)
        _copy(self.states, begin, size, out, start)
        return Walks(out, start, self.found[index], None if self.number is None else self.number[index])


def join(parts: list[Walks]) -> Walks:
    """Several sets of walks as one, in order."""
    return Walks(
        np.concatenate([part.states for part in parts]),
        concatenate([part.start for part in parts]),
        np.concatenate([part.found for part in parts]),
        _numbers(parts),
    )


def _numbers(parts: list[Walks]) -> Ints | None:
    """The numbers of walks, if all have one."""
    known = [part.number for part in parts if part.size]
    if not known or any(number is None for number in known):
        return None
    return np.concatenate([number for number in known if number is not None])


def chained(first: Walks, second: Walks) -> Walks:
    """Walk i of the one, but for its last state, then walk i of the other, which starts where the first ends;
    found if both are.
    """
    found = first.found & second.found
    head = np.where(found, np.diff(first.start) - 1, 0)
    tail = np.where(found, np.diff(second.start), 0)
    start = offsets_of(head + tail)
    out = np.empty(start[-1], dtype=second.states.dtype)
    _copy(first.states, first.start[:-1], head, out, start)
    _copy(second.states, second.start[:-1], tail, out, start[:-1] + head)
    return Walks(out, start, found)


class KilledBridge:
    """Bridges of free length on one chain: factorise once, then one sparse solve for each destination.

    Every row of weights must sum to less than 1. A walk longer than ``max_steps`` counts as not found: with
    rows that sum to at most e^-c its probability falls like e^(-c max_steps). ``twin`` is the twin of each
    state, -1 where it has none.
    """

    def __init__(self, chain: Chain, *, max_steps: int = MAX_STEPS, twin: Ints | None = None) -> None:
        _check_weights(chain)
        sums = np.bincount(_sources(chain), chain.weight, minlength=chain.size)
        if chain.size and sums.max() >= 1:
            raise ConfigError("a killed walk needs every row of weights to sum to less than 1")
        self.chain = chain
        self.max_steps = max_steps
        self.ahead = PathWeights(chain.matrix())
        self._twin = np.full(chain.size, -1, dtype=np.int64) if twin is None else twin

    def reach(self, destination: int | Ints) -> Floats:
        """h: the total weight of all paths from each state to the destination, or to any of several."""
        h: Floats = next(self.ahead.blocks([destination]))[0]
        return h

    def walks(
        self, origin: Ints, destination: Ints, rng: np.random.Generator, *, either: Bools | bool = False
    ) -> Walks:
        """One bridge for each pair, to its destination or that one's twin and, where ``either`` is True, from
        its origin or that one's twin.
        """
        chain, twin = self.chain, self._twin
        _check_pairs(chain, origin, destination)
        # One of two twins stands for both.
        other = twin[destination]
        destination = np.where((other >= 0) & (other < destination), other, destination)
        order, groups = by_group(destination)
        ends, begin = destination[order[groups[:-1]]], origin[order]
        twins = np.stack([ends, np.where(twin[ends] >= 0, twin[ends], ends)], axis=1)
        free = np.broadcast_to(either, origin.shape)[order] & (twin[begin] >= 0)
        turned = np.where(free, twin[begin], begin)
        parts = []
        for low, reach in zip(range(0, len(ends), TOGETHER), self.ahead.blocks(list(twins)), strict=True):
            group = groups[low : low + TOGETHER + 1]
            part = _go_free(
                chain.first, chain.to, chain.weight, reach, begin, turned, group, twins[low : low + TOGETHER],
                self.max_steps, rng,
            )  # fmt: skip
            parts.append(part)
        return collect(parts, order)


def killed_walks(chain: Chain, origin: Ints, destination: Ints, rng: np.random.Generator) -> Walks:
    """One bridge of free length for each pair."""
    return KilledBridge(chain).walks(origin, destination, rng)


def fixed_walks(
    chain: Chain, origin: Ints, destination: Ints, steps: Ints, rng: np.random.Generator
) -> Walks:
    """One bridge of ``steps[i]`` steps for each pair; where that length does not exist, of the next that
    does.

    (On a bipartite graph every second length is missing.) "Next" looks as far as the longest walk asked for
    to the same destination, and a few steps beyond.
    """
    _check_weights(chain)
    _check_pairs(chain, origin, destination)
    if len(steps) != len(origin) or (len(steps) and int(np.min(steps)) < 0):
        raise ConfigError("steps must be one whole number >= 0 for each pair")
    if not len(origin):
        return collect([], origin)
    order, groups = by_group(destination)
    ends = destination[order[groups[:-1]]]
    back = csr_array(csc_array(chain.matrix()).T)  # row s: the states with a step to s
    back_first, back_to = back.indptr.astype(np.int64), back.indices.astype(np.int64)
    most = max(2, _TABLE // chain.size)
    steps = np.minimum(steps, most - 1)
    table = np.empty(0)
    parts = []
    for low in range(0, len(ends), _TOGETHER):
        to_end = np.stack(
            [
                _distances(back_first, back_to, ends[i : i + 1])
                for i in range(low, min(low + _TOGETHER, len(ends)))
            ]
        )
        bounds = groups[low : low + len(to_end) + 1]
        here = order[bounds[0] : bounds[-1]]
        hops = to_end[np.repeat(np.arange(len(to_end)), np.diff(bounds)), origin[here]]
        longest = int(np.max(np.where(hops >= 0, np.maximum(steps[here], hops), 0)))
        # Room above the longest for a length that exists.
        rows = min(longest + min(chain.size, _ROOM) + 1, most)
        width = max(1, min(len(to_end), _TABLE // (rows * chain.size)))
        if table.size < rows * chain.size * width:
            table = np.empty(rows * chain.size * width)
        for first in range(0, len(to_end), width):
            distance = to_end[first : first + width]
            h = table[: rows * chain.size * len(distance)].reshape(rows, chain.size, len(distance))
            inner = bounds[first : first + len(distance) + 1]
            ways = order[inner[0] : inner[-1]]
            from_origin = _distances(chain.first, chain.to, origin[ways])
            _backward(chain.first, chain.to, chain.weight, distance, from_origin, h)
            for d, (begin, end) in enumerate(pairwise(inner.tolist())):
                walk = order[begin:end]
                parts.append(
                    _go_fixed(chain.first, chain.to, chain.weight, h[:, :, d], origin[walk], steps[walk], rng)
                )
    return collect(parts, order)


def probable_hops(chain: Chain, origin: Ints, destination: Ints) -> Ints:
    """Number of steps of the most probable path for each pair, -1 where there is none.

    One Dijkstra over -ln(weight) for each distinct destination, on the reversed graph.
    """
    _check_weights(chain)
    _check_pairs(chain, origin, destination)
    open_ = chain.weight > 0
    cost = -np.log(chain.weight[open_])
    cost += 1e-12 - min(0.0, float(cost.min(initial=0.0)))  # a sparse graph reads 0 as "no edge"
    source = _sources(chain)[open_]
    reverse = csr_array((cost, (chain.to[open_], source)), shape=(chain.size, chain.size))
    ends, which = np.unique(destination, return_inverse=True)
    out = np.full(len(origin), -1, dtype=np.int64)
    block = max(1, _BLOCK // max(chain.size, 1))
    for low in range(0, len(ends), block):
        _, by = dijkstra(reverse, indices=ends[low : low + block], return_predecessors=True)
        here = np.flatnonzero((which >= low) & (which < low + block))
        out[here] = _count_hops(by, (which[here] - low).astype(np.int64), origin[here], destination[here])
    return out


def exponential_steps(hops: Ints, rng: np.random.Generator, *, stretch: float = 4.0) -> Ints:
    """Walk lengths in steps: exponential with median ``hops``, not below ``hops`` and not above ``stretch``
    times it.

    Clipped, not rejected: redrawing what is too short would double the median.
    """
    drawn = rng.exponential(1.0, len(hops)) * hops / np.log(2)
    drawn_steps: Ints = np.rint(np.clip(drawn, hops, stretch * hops)).astype(np.int64)
    return drawn_steps


def _check_pairs(chain: Chain, origin: Ints, destination: Ints) -> None:
    if len(origin) != len(destination):
        raise ConfigError(f"{len(origin)} origins for {len(destination)} destinations")
    for states in (origin, destination):
        if len(states) and (int(states.min()) < 0 or int(states.max()) >= chain.size):
            raise ConfigError(f"states must be in [0, {chain.size})")


def _check_weights(chain: Chain) -> None:
    if len(chain.weight) and not (np.isfinite(chain.weight).all() and chain.weight.min() >= 0):
        raise ConfigError("weights must be finite and >= 0")


def _sources(chain: Chain) -> Ints:
    return owners_of(chain.first)


def by_group(destination: Ints) -> tuple[Ints, Ints]:
    """Walks in the order of their destinations, and where those to each begin."""
    order = np.argsort(destination, kind="stable")
    ordered = destination[order]
    changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    edges = np.concatenate([[0], changes, [len(order)]]) if len(order) else np.zeros(1)
    return order, edges.astype(np.int64)


def collect(parts: list[tuple[Array, Ints, Bools]], order: Ints) -> Walks:
    """Walks that were drawn group by group, back in the order in which they were asked for."""
    if not parts:
        return Walks(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, bool))
    grouped = join([Walks(*part) for part in parts])
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return grouped.take(back)


@numba.njit(cache=True, nogil=True)
def _copy(states: Array, begin: Ints, size: Ints, out: Array, to: Ints) -> None:
    """Copy slices of ``states`` to where each belongs."""
    for i in range(len(size)):
        for j in range(size[i]):
            out[to[i] + j] = states[begin[i] + j]


@numba.njit(cache=True, nogil=True)
def _pick(first: Ints, to: Ints, weight: Floats, h: Floats, state: int, rng: np.random.Generator) -> int:
    total = 0.0
    for j in range(first[state], first[state + 1]):
        total += weight[j] * h[to[j]]
    left = rng.random() * total
    chosen = -1
    for j in range(first[state], first[state + 1]):
        share = weight[j] * h[to[j]]
        if share > 0.0:
            chosen = to[j]
            left -= share
            if left < 0.0:
                break
    return chosen


@numba.njit(cache=True, nogil=True)
def _go_free(
    first: Ints, to: Ints, weight: Floats, reach: Floats, origin: Ints, turned: Ints,
    group: Ints, ends: Ints, max_steps: int, rng: np.random.Generator,
) -> tuple[Array, Ints, Bools]:  # fmt: skip
    """Walks to each of several pairs of ends, group after group, from ``origin`` or ``turned``; a row of
    ``reach`` is h of one pair.
    """
    low, count = group[0], group[-1] - group[0]
    out = np.empty(max(1024, 64 * count), dtype=np.int32)
    start = np.zeros(count + 1, dtype=np.int64)
    found = np.zeros(count, dtype=np.bool_)
    filled = 0
    for e in range(len(ends)):
        h, end, other = reach[e], ends[e, 0], ends[e, 1]
        for i in range(group[e] - low, group[e + 1] - low):
            state, begin, back = origin[low + i], filled, turned[low + i]
            if back != state and rng.random() * (h[state] + h[back]) >= h[state]:
                state = back
            if h[state] > 0.0:
                while True:
                    if filled == len(out):
                        out = longer(out)
                    out[filled] = state
                    filled += 1
                    if state in (end, other) and rng.random() * h[state] < 1.0:
                        found[i] = True
                        break
                    if filled - begin > max_steps:
                        break
                    state = _pick(first, to, weight, h, state, rng)
                    if state < 0:
                        break
                if not found[i]:
                    filled = begin
            start[i + 1] = filled
    return out[:filled], start, found


@numba.njit(cache=True, nogil=True)
def longer(states: Array) -> Array:
    """The same with as much room again."""
    out = np.empty(2 * len(states), dtype=states.dtype)
    out[: len(states)] = states
    return out


@numba.njit(cache=True, nogil=True)
def _distances(first: Ints, to: Ints, sources: Ints) -> Ints:
    """Steps from the nearest source; -1 where none leads."""
    distance = np.full(len(first) - 1, -1, dtype=np.int64)
    queue = np.empty(len(first) - 1, dtype=np.int64)
    size = 0
    for source in sources:
        if distance[source] < 0:
            distance[source] = 0
            queue[size] = source
            size += 1
    read = 0
    while read < size:
        state = queue[read]
        read += 1
        for j in range(first[state], first[state + 1]):
            if distance[to[j]] < 0:
                distance[to[j]] = distance[state] + 1
                queue[size] = to[j]
                size += 1
    return distance


@numba.njit(cache=True, nogil=True)
def _backward(first: Ints, to: Ints, weight: Floats, to_end: Ints, from_origin: Ints, h: Floats) -> None:
    """Fill ``h[k, s, d]``: the weight of the paths of k steps from s to destination d, up to a factor for
    each k and d. States that no walk of the table's length passes are left out.

    Several destinations at once: a step's weight is read once for all, and the innermost loop runs over
    neighbouring numbers.
    """
    rows, size, ends = h.shape
    nearest = np.full(size, rows, dtype=np.int64)
    for d in range(ends):
        for state in range(size):
            if 0 <= to_end[d, state] < nearest[state]:
                nearest[state] = to_end[d, state]
    h[0] = 0.0
    for d in range(ends):
        h[0, np.argmin(np.where(to_end[d] < 0, rows, to_end[d])), d] = 1.0
    biggest = np.empty(ends)
    for k in range(1, rows):
        h[k] = 0.0
        biggest[:] = 0.0
        for state in range(size):
            if nearest[state] > k or from_origin[state] < 0 or from_origin[state] + k >= rows:
                continue
            for j in range(first[state], first[state + 1]):
                share, there = weight[j], to[j]
                for d in range(ends):
                    h[k, state, d] += share * h[k - 1, there, d]
            for d in range(ends):
                biggest[d] = max(biggest[d], h[k, state, d])
        for d in range(ends):
            if 0.0 < biggest[d] < 1e-100:  # a common factor of one row cancels in every step
                for state in range(size):
                    h[k, state, d] /= biggest[d]


@numba.njit(cache=True, nogil=True)
def _go_fixed(
    first: Ints, to: Ints, weight: Floats, h: Floats, origin: Ints, steps: Ints, rng: np.random.Generator
) -> tuple[Ints, Ints, Bools]:
    rows = len(h)
    out = np.empty(max(1024, 64 * len(origin)), dtype=np.int64)
    start = np.zeros(len(origin) + 1, dtype=np.int64)
    found = np.zeros(len(origin), dtype=np.bool_)
    filled = 0
    for i in range(len(origin)):
        left = steps[i]
        while left < rows and h[left, origin[i]] <= 0.0:
            left += 1
        if left < rows:
            state = origin[i]
            if filled + left + 1 > len(out):
                larger = np.empty(2 * (filled + left + 1), dtype=np.int64)
                larger[:filled] = out[:filled]
                out = larger
            out[filled] = state
            filled += 1
            while left > 0:
                left -= 1
                state = _pick(first, to, weight, h[left], state, rng)
                out[filled] = state
                filled += 1
            found[i] = True
        start[i + 1] = filled
    return out[:filled].copy(), start, found


@numba.njit(cache=True, nogil=True)
def _count_hops(by: Array, row: Ints, origin: Ints, destination: Ints) -> Ints:
    out = np.full(len(row), -1, dtype=np.int64)
    for i in range(len(row)):
        state, hops = origin[i], 0
        while state >= 0 and state != destination[i]:
            state = by[row[i], state]
            hops += 1
        if state >= 0:
            out[i] = hops
    return out


__all__ = [
    "MAX_STEPS",
    "Chain",
    "KilledBridge",
    "Walks",
    "by_group",
    "chained",
    "collect",
    "exponential_steps",
    "fixed_walks",
    "join",
    "killed_walks",
    "longer",
    "probable_hops",
]

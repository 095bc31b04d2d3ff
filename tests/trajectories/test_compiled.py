"""What is computed in compiled passes is what the plain way gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

import synthgeo as sg
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.ragged import where
from trajectories.ground import ground_of
from trajectories.ground.state_graph import TOGETHER, PathWeights, StateGraph
from trajectories.matching.path_assembly import only
from trajectories.measure.ends import path_shapes
from trajectories.walks import sampler
from trajectories.walks.bridges import Chain, KilledBridge, Walks
from trajectories.walks.sampler import chain_weights
from trajectories.walks.traits import WalkTraits

ROADS = sg.RoadDomain.from_graph(sg.simulate.city_graph(rows=8, columns=9, seed=4), max_distance=40.0)


def graph_of_cells(bits=4):
    prefix = np.arange(1 << bits, dtype=np.uint64)
    measure = hierarchy_of(ROADS).measure(prefix, bits)
    cells = Partition(prefix[measure > 0], np.full(int((measure > 0).sum()), bits), measure[measure > 0])
    return ground_of(ROADS, 20).graph(cells)


GRAPH = graph_of_cells()


def some_walks(count=200):
    weight = chain_weights(GRAPH, np.zeros(GRAPH.links)) * np.exp(-GRAPH.metres / 300.0)
    rng = np.random.default_rng(1)
    origin, destination = rng.integers(0, GRAPH.size, (2, count))
    return KilledBridge(Chain(GRAPH.first, GRAPH.to, weight)).walks(origin, destination, rng)


def test_many_destinations_at_once_are_solved_like_one_dense_system() -> None:
    rng, size = np.random.default_rng(0), 40
    weights = rng.random((size, size)) * (rng.random((size, size)) < 0.1)
    weights *= 0.9 / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
    exact = np.linalg.inv(np.eye(size) - weights)
    ends = [*range(TOGETHER + 5), np.array([3, 7, 11])]
    found = np.concatenate(list(PathWeights(csr_array(weights)).blocks(ends)))
    expected = np.stack([exact[:, np.atleast_1d(end)].sum(axis=1) for end in ends])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert (found >= 0).all()


def test_traits_of_walks_are_those_that_real_trips_are_measured_by() -> None:
    walks = some_walks()
    traits = WalkTraits.of(GRAPH, walks)
    metres, diameter = path_shapes(GRAPH, walks.states.astype(np.int64), walks.start)
    np.testing.assert_array_equal(traits.metres, metres)
    np.testing.assert_array_equal(traits.diameter, diameter)
    cells = GRAPH.cell[walks.states]
    for i in range(walks.size):
        low, high = walks.start[i], walks.start[i + 1]
        here = cells[low:high]
        cross = np.flatnonzero(here[1:] != here[:-1])
        links = GRAPH.link_between(here[cross], here[cross + 1])
        assert traits.links[traits.begin[i] : traits.begin[i + 1]].tolist() == links.tolist()
        places = GRAPH.place[walks.states[low:high]].tolist()
        again = [j for j, place in enumerate(places) if place in places[:j]]
        straight_back = [j for j in again if j > 1 and places[j] == places[j - 2]]
        assert traits.returns[i] == len(again) + 9 * len(straight_back)
        assert traits.turning[i] == pytest.approx(turning(walks.states[low:high]))
    assert traits.returns.any()
    assert traits.turning.any()
    assert len(traits.links) > walks.size


def turning(states) -> float:
    """One less the cosine of each turn from an edge's end onto the next."""
    total = 0.0
    for one, two in pairwise(ROADS.network.lines[states]):
        before, after = np.diff(one.coords[-2:], axis=0)[0], np.diff(two.coords[:2], axis=0)[0]
        total += 1 - before @ after / (np.hypot(*before) * np.hypot(*after))
    return total


def test_who_crosses_a_median_to_go_back_turns_round_and_who_goes_round_a_block_does_not() -> None:
    for across, number in ((12.0, 1), (100.0, 0)):
        xy = np.array([[-80.0, 0.0], [-20.0, 0.0], [0.0, across / 2], [-20.0, across], [-80.0, across]])
        steps = len(xy) - 1
        graph = StateGraph(
            first=np.append(np.arange(len(xy)), steps), to=np.arange(1, len(xy)), metres=np.ones(steps),
            cell=np.zeros(len(xy), dtype=np.int64), size_of=np.ones(len(xy)), xy=xy, place=np.arange(len(xy)),
            cells=1, turn=np.zeros(steps),
        )  # fmt: skip
        walk = Walks(np.arange(len(xy)), np.array([0, len(xy)]), np.ones(1, dtype=bool))
        assert WalkTraits.of(graph, walk).half_turns.tolist() == [number]


def test_walks_through_a_grid_turn_seldom(monkeypatch) -> None:
    """With all ways on alike they would take stairs."""
    some = {}
    for cost in (0.0, sampler._TURN):
        monkeypatch.setattr(sampler, "_TURN", cost)
        walks = some_walks()
        traits = WalkTraits.of(GRAPH, walks)
        some[cost] = traits.turning.sum() / traits.metres.sum()
    assert some[2.0] < 0.6 * some[0.0]


def test_of_the_walks_of_a_pair_those_that_turn_less_weigh_more(monkeypatch) -> None:
    points = sg.simulate.city_trips(ROADS, trips=150, seed=2)
    model = sg.TrajectorySynthesizer(
        domain=ROADS, budget=sg.PrivacyBudget(20.0), noise=sg.SeededNoise(1)
    ).fit(points).model  # fmt: skip
    rng = np.random.default_rng(6)
    ends = *rng.integers(0, GRAPH.size, (2, 100)), np.zeros(100, dtype=np.int64)
    pool = sampler.TripSampler(model).pool(*ends, np.random.default_rng(7))
    for name in ("_TURNING", "_HALF_TURN"):
        monkeypatch.setattr(sampler, name, 0.0)
    alike = sampler.TripSampler(model).pool(*ends, np.random.default_rng(7))
    np.testing.assert_array_equal(pool.walks.states, alike.walks.states)
    traits = WalkTraits.of(model.graph, pool.walks)
    cost = np.log(alike.weight[pool.walks.found] / pool.weight[pool.walks.found])
    expected = (0.1 * traits.turning + 8.0 * traits.half_turns)[pool.walks.found]
    np.testing.assert_allclose(cost, expected, atol=1e-9)
    assert traits.half_turns.any()


def test_paths_keep_what_is_kept() -> None:
    rng = np.random.default_rng(2)
    start = np.array([0, 4, 4, 9, 30])
    path, kept = rng.integers(0, 99, 30), rng.random(30) < 0.5
    short, offsets = only(path, start, kept)
    assert short.tolist() == path[kept].tolist()
    assert offsets.tolist() == where(start, kept).tolist()


def test_a_point_is_on_the_roads_if_its_nearest_one_is_near_enough() -> None:
    low, high = np.array(ROADS.bounds).reshape(2, 2)
    xy = np.random.default_rng(3).uniform(low - 100, high + 100, (5000, 2))
    xy[0] = np.inf
    inside = ROADS.contains(xy)
    np.testing.assert_array_equal(inside, ROADS.nearest_segment(xy)[0] >= 0)
    assert 0.1 < inside.mean() < 0.95

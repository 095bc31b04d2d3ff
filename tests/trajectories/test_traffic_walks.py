"""Walks along the traffic: exact against enumeration, on the roads, and round loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import synthgeo as sg
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from trajectories.ground import ground_of
from trajectories.walks.sampler import chain_weights
from trajectories.walks.traffic_walks import TrafficWalker

REJECT = 1e-9
DRAWS = 20_000


def uniform(domain, bits) -> Partition:
    prefix = np.arange(1 << bits, dtype=np.uint64)
    measure = hierarchy_of(domain).measure(prefix, bits)
    return Partition(prefix[measure > 0], np.full(int((measure > 0).sum()), bits), measure[measure > 0])


def step_weights(graph, rate=40.0):
    return chain_weights(graph, np.zeros(graph.links)) * np.exp(-graph.metres / rate)


def split(walks):
    return np.split(walks.states, walks.start[1:-1])


BOX = sg.BoxDomain(0, 0, 400, 200)
PLANE = ground_of(BOX, 3).graph(uniform(BOX, 3))  # eight cells, each a state: every step crosses a link


def turn_chances(graph, weight, traffic):
    """T, and the chances of the first link, from the definition; one state a cell."""
    leaves, enters = graph.link_ends
    reach = np.zeros(graph.links)
    reach[graph.link_of_step] = weight
    liked = traffic * reach**0.06
    matrix = np.where(leaves[None, :] == enters[:, None], liked, 0.0)
    matrix[enters[None, :] == leaves[:, None]] *= 0.01
    return 0.8 * matrix / matrix.sum(axis=1, keepdims=True), liked


def chances_of_paths(origin, destination, traffic, longest):
    """Weight of each path of up to so many links, and of all longer ones together."""
    weight = step_weights(PLANE)
    turn, first = turn_chances(PLANE, weight, traffic)
    leaves, enters = PLANE.link_ends
    paths = {(link,): first[link] for link in np.flatnonzero(leaves == origin)}
    found = {}
    for _ in range(longest):
        found |= {path: chance for path, chance in paths.items() if enters[path[-1]] == destination}
        paths = {
            (*path, int(link)): chance * turn[path[-1], link]
            for path, chance in paths.items()
            for link in np.flatnonzero(turn[path[-1]] > 1e-6)
        }
    ahead = np.linalg.solve(np.eye(PLANE.links) - turn, (enters == destination).astype(float))
    here = leaves == origin
    return found, float(first[here] @ ahead[here]) - sum(found.values())


def p_value(drawn_by, assumed):
    """Of walks drawn with one traffic, if they were drawn with the other."""
    rng = np.random.default_rng(5)
    ones = np.ones(DRAWS, dtype=np.int64)
    walks = TrafficWalker(PLANE, step_weights(PLANE), drawn_by).walks(0 * ones, 7 * ones, rng)
    assert walks.found.all()
    counts = {}
    for states in split(walks):
        path = tuple(PLANE.link_between(states[:-1], states[1:]).tolist())
        counts[path] = counts.get(path, 0) + 1
    chances, longer = chances_of_paths(0, 7, assumed, 6)
    whole = sum(chances.values()) + longer
    listed = [path for path, chance in chances.items() if chance * DRAWS > 10 * whole]
    assert len(listed) > 20
    observed = np.array([counts.get(path, 0) for path in listed])
    expected = np.array([chances[path] for path in listed]) / whole * DRAWS
    return stats.chisquare(
        np.append(observed, DRAWS - observed.sum()), np.append(expected, DRAWS - expected.sum())
    ).pvalue


@pytest.mark.statistical
def test_paths_match_enumeration():
    """Seeded: never flakes. With fresh seeds it would fail with probability 1e-9."""
    traffic = np.random.default_rng(1).uniform(1, 9, PLANE.links)
    assert p_value(traffic, traffic) > REJECT


@pytest.mark.statistical
def test_enumeration_tells_another_traffic():
    traffic = np.random.default_rng(1).uniform(1, 9, PLANE.links)
    assert p_value(np.sqrt(traffic), traffic) < REJECT


def ring(graph, cells):
    """Traffic from each of the cells to the next, and back to the first; none elsewhere."""
    traffic = np.zeros(graph.links)
    cells = np.asarray(cells)
    traffic[graph.link_between(cells, np.roll(cells, -1))] = 20.0
    return traffic


def test_a_loop_is_driven_round():
    """Cells 0, 1, 3, 2 lie in a square. In one-way traffic, who goes from 0 to 2, its neighbour, goes round
    it.
    """
    around = [0, 1, 3, 2]
    walks = TrafficWalker(PLANE, step_weights(PLANE), ring(PLANE, around)).walks(
        np.zeros(500, dtype=np.int64), np.full(500, 2), np.random.default_rng(0)
    )
    assert walks.found.all()
    assert np.mean([states.tolist()[:4] == around for states in split(walks)]) > 0.99


def test_where_no_traffic_leads_walks_still_arrive():
    walks = TrafficWalker(PLANE, step_weights(PLANE), ring(PLANE, [0, 1, 3, 2])).walks(
        np.zeros(50, dtype=np.int64), np.full(50, 7), np.random.default_rng(0)
    )
    assert walks.found.all()
    assert (walks.last(np.zeros(50, dtype=np.int64)) == 7).all()


@pytest.fixture(scope="module")
def city():
    roads = sg.RoadDomain.from_graph(sg.simulate.city_graph(12, 10, seed=1))
    return ground_of(roads, 20).graph(uniform(roads, 5))


def test_walks_on_roads_go_step_by_step_to_the_cell(city):
    rng = np.random.default_rng(2)
    origin, destination = rng.integers(0, city.size, (2, 400))
    traffic = rng.exponential(1.0, city.links)
    walks = TrafficWalker(city, step_weights(city), traffic).walks(origin, destination, rng)
    assert walks.found.mean() > 0.95
    steps = set(zip(city.source.tolist(), city.to.tolist(), strict=True))
    for i in np.flatnonzero(walks.found):
        states = walks.states[walks.start[i] : walks.start[i + 1]]
        assert states[0] in (origin[i], city.twin[origin[i]])
        cells = city.cell[states]
        assert cells[-1] == city.cell[destination[i]] != cells[-2]
        assert steps.issuperset(zip(states[:-1].tolist(), states[1:].tolist(), strict=True))


def test_walks_leave_a_street_by_the_end_from_which_they_get_on(city):
    """Who may choose has a shorter way to the first link than who is put into one direction by chance."""
    rng = np.random.default_rng(4)
    origin = rng.choice(np.flatnonzero(city.twin >= 0), 2000)
    destination = rng.integers(0, city.size, 2000)
    fixed = replace(city, twin=np.empty(0, dtype=np.int64))
    metres = []
    for graph in (city, fixed):
        walker = TrafficWalker(graph, step_weights(graph), np.ones(graph.links))
        walks = walker.walks(origin, destination, np.random.default_rng(5))
        ways = [states for states in split(walks) if len(states)]
        first = [states[: np.argmax(graph.cell[states] != graph.cell[states[0]])] for states in ways]
        metres.append(np.mean([graph.size_of[states].sum() for states in first]))
    assert metres[0] < 0.93 * metres[1]


def test_walks_on_roads_cross_links_that_have_traffic(city):
    """Half of the links have traffic. Only where they do not join up are others crossed."""
    rng = np.random.default_rng(3)
    traffic = np.where(rng.random(city.links) < 0.5, 5.0, 0.0)
    origin, destination = rng.integers(0, city.size, (2, 400))
    walks = TrafficWalker(city, step_weights(city), traffic).walks(origin, destination, rng)
    link = city.link_between(city.cell[walks.states[:-1]], city.cell[walks.states[1:]])
    link = link[(walks.walk[1:] == walks.walk[:-1]) & (link >= 0)]
    assert (traffic[link] > 0).mean() > 0.8


def test_reach_of_a_link_is_the_weight_of_all_ways_inside_the_cell(city):
    weight = step_weights(city)
    walker = TrafficWalker(city, weight, np.ones(city.links))
    matrix = np.zeros((city.size, city.size))
    matrix[city.source, city.to] = weight
    link = int(np.argmax(np.bincount(city.link_of_step[city.link_of_step >= 0])))
    inside = np.flatnonzero(city.cell == city.link_ends[0][link])
    leaving = np.zeros(city.size)
    over = city.link_of_step == link
    np.add.at(leaving, city.source[over], weight[over])
    within = matrix[np.ix_(inside, inside)]
    expected = np.linalg.solve(np.eye(len(inside)) - within, leaving[inside])
    row = walker._reach[walker._row[link] : walker._row[link + 1]]
    np.testing.assert_allclose(row, expected, rtol=1e-9, atol=1e-280)


def test_a_graph_without_links():
    box = sg.BoxDomain(0, 0, 1, 1)
    graph = ground_of(box, 20).graph(uniform(box, 0))
    walker = TrafficWalker(graph, np.empty(0), np.empty(0))
    walks = walker.walks(np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64), np.random.default_rng(0))
    assert not walks.found.any()
    assert len(walks.states) == 0

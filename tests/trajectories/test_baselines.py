"""The methods to compare with: the same interface, connected trips, sensitivity of what is new."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import shapely

import synthgeo as sg
from synthgeo.errors import BudgetExhausted, ConfigError
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.noise import SeededNoise
from trajectories.baselines import PaperTrips, ShortestPathTrips, count_moves, measure_moves
from trajectories.ground.plane import PlaneGround
from trajectories.measure.ends import measure_cells
from trajectories.reading.points import Trips

ROADS = sg.RoadDomain.from_graph(sg.simulate.city_graph(6, 5, seed=1))
POINTS = sg.simulate.city_trips(ROADS, trips=120, seed=2)
BOX = sg.BoxDomain(0, 0, 1000, 1000)


def wanderers(trips=150, points=8, seed=4):
    rng = np.random.default_rng(seed)
    xy = np.cumsum(rng.normal(0, 40, (trips, points, 2)), axis=1) + rng.uniform(200, 800, (trips, 1, 2))
    xy = xy.clip(1, 999).reshape(-1, 2)
    return {"trip_id": np.repeat(np.arange(trips), points), "x": xy[:, 0], "y": xy[:, 1]}


@pytest.mark.parametrize("kind", [PaperTrips, ShortestPathTrips])
@pytest.mark.parametrize("place", ["roads", "plane"])
def test_a_baseline_fits_and_samples_like_the_synthesizer(kind, place, tmp_path):
    domain, data = (ROADS, POINTS) if place == "roads" else (BOX, wanderers())
    model = kind(domain=domain, budget=sg.PrivacyBudget(4.0), noise=sg.SeededNoise(3)).fit(data)
    assert model.spent == sg.PrivacyBudget(4.0)
    assert sum(model.sample(1).provenance["shares"].values()) <= 4.0
    release = model.sample(40)
    assert release.total == 40
    assert release.provenance["mechanism"] == kind.__name__
    assert repr(model).startswith(kind.__name__)
    assert domain.contains(release.xy).all()
    assert not release.releasable
    if place == "roads":
        edges = release.edges
        inner = edges["trip_id"].to_numpy()[1:] == edges["trip_id"].to_numpy()[:-1]
        assert (edges["v"].to_numpy()[:-1] == edges["u"].to_numpy()[1:])[inner].all()
    with pytest.raises(BudgetExhausted):
        model.fit(data)
    with pytest.raises(ConfigError, match="baseline"):
        model.save(tmp_path / "a.model")


def test_shortest_paths_go_round_corners_of_land():
    """Points, not only lines: what compares trips joins their points."""
    corner = shapely.Polygon([(0, 0), (1000, 0), (1000, 200), (200, 200), (200, 1000), (0, 1000)])
    ends = np.tile([[100.0, 950.0], [950.0, 100.0]], (50, 1))
    ends += np.random.default_rng(1).uniform(-50, 50, ends.shape)
    data = {"trip_id": np.repeat(np.arange(50), 2), "x": ends[:, 0], "y": ends[:, 1]}
    land = sg.PolygonDomain(corner)
    model = ShortestPathTrips(domain=land, budget=sg.PrivacyBudget(50.0), noise=sg.SeededNoise(3))
    release = model.fit(data, x="x", y="y").sample(30)
    lines = [
        shapely.LineString(release.xy[first:last])
        for first, last in zip(release.start[:-1], release.start[1:], strict=True)
    ]
    assert shapely.covers(corner.buffer(15.0), lines).all()


def test_the_paper_is_not_blamed_for_ends_that_it_does_not_count():
    model = PaperTrips(domain=BOX, budget=sg.PrivacyBudget(100.0), noise=sg.SeededNoise(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(wanderers())


def test_the_paper_needs_points():
    model = PaperTrips(domain=BOX, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(3))
    ends = {"a": [1.0], "b": [1.0], "c": [2.0], "d": [2.0]}
    with pytest.raises(ConfigError, match="points"):
        model.fit(ends, origin=("a", "b"), destination=("c", "d"))
    assert model.spent is None


def test_removing_a_trip_moves_the_counts_of_moves_by_at_most_one():
    data = wanderers(trips=30)
    ground = PlaneGround(BOX, 10)
    trips = Trips(np.column_stack([data["x"], data["y"]]), 8 * np.arange(31))
    placed = ground.place(trips, method="hmm")
    cells = measure_cells(placed, ground.hierarchy, epsilon=2.0, noise=SeededNoise(1), max_depth=10)
    graph = ground.graph(cells)

    def moves(kept):
        states, start, _ = ground.paths(ground.place(trips.take(kept), method="hmm"), graph, cells)
        return GRID.value(count_moves(graph, states, start))

    whole = moves(np.arange(30))
    assert whole[graph.links :].sum() == 0  # repeats count once on a plane: fill_gaps joins them
    for gone in range(30):
        changed = np.abs(whole - moves(np.delete(np.arange(30), gone))).sum()
        assert 0 <= changed <= 1
    nobody = measure_moves(
        graph, np.empty(0, np.int64), np.zeros(1, np.int64), epsilon=1.0, noise=SeededNoise(1)
    )
    assert (nobody.links != 0).all()
    assert (nobody.loops != 0).all()
    chain, stay = nobody.chain(graph)
    np.testing.assert_allclose(np.add.reduceat(chain.weight, chain.first[:-1]), 1.0)
    assert ((stay >= 0) & (stay < 1)).all()


def test_excursions_into_dead_ends_are_taken_out():
    """No walk of the synthesizer turns straight back, but where it starts or ends."""
    model = sg.TrajectorySynthesizer(
        domain=ROADS,
        budget=sg.PrivacyBudget(4.0),
        noise=sg.SeededNoise(3),
        settings=sg.TripSettings(times=0.0),
    )
    edges = model.fit(POINTS).sample(200).edges
    opposite = ROADS.network.opposite
    edge, trip = edges["edge"].to_numpy(), edges["trip_id"].to_numpy()
    back = (opposite[edge[:-1]] == edge[1:]) & (trip[:-1] == trip[1:])
    assert not back.any()
    overlapping = model.model.partition
    twice = type(overlapping)(
        *(np.repeat(getattr(overlapping, name), 2) for name in ("prefix", "bits", "measure"))
    )
    with pytest.raises(ConfigError, match="overlap"):
        sg.TrajectorySynthesizer(
            domain=ROADS, budget=sg.PrivacyBudget(1.0), settings=sg.TripSettings(partition=twice)
        )
    with pytest.raises(ConfigError, match="from_graph"):
        sg.TrajectorySynthesizer(domain=sg.simulate.city_graph(3, 3, seed=1), budget=sg.PrivacyBudget(1.0))

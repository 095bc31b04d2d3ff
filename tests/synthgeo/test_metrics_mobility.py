"""Figures that papers on synthetic mobility report: by hand on trips that are easy to see through."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo as sg
from synthgeo.evaluation.rides import hotspot_gain, mobility_scores
from synthgeo.evaluation.spatial import Paths

LARGE = ("hotspots",)


def trips(seed: int, shift: float = 0.0) -> Paths:
    rng = np.random.default_rng(seed)
    ends = np.where(rng.random((300, 1, 2)) < 0.7, 2000.0, 8000.0) + rng.normal(0, 300, (300, 2, 2))
    ends[:, 1] += 1500 + shift
    corners = np.stack([ends[:, 0], np.stack([ends[:, 1, 0], ends[:, 0, 1]], axis=1), ends[:, 1]], axis=1)
    return Paths(corners.reshape(-1, 2), np.arange(0, 901, 3)).every(100.0)


def test_like_trips_are_near_and_unlike_ones_far():
    real = trips(0)
    same, near, far = (mobility_scores(real, other) for other in (real, trips(1), trips(1, 3000.0)))
    for name, value in same.items():  # as many points a kilometre, but not the same ones
        if name in LARGE:
            assert far[name] < near[name] < 1
            assert value > 0.99
        else:
            assert value < near[name] < far[name] or np.isnan(far[name])


def test_paths_between_the_same_ends_are_as_far_apart_as_their_detour():
    straight = Paths(
        np.array([[0.0, 0.0], [9000.0, 0.0], [0.0, 9000.0], [9000.0, 9000.0]]), np.array([0, 2, 4])
    )
    around = Paths(
        np.array(
            [[0.0, 0.0], [0.0, 3000.0], [9000.0, 3000.0], [9000.0, 0.0], [0.0, 9000.0], [9000.0, 9000.0]]
        ),
        np.array([0, 4, 6]),
    )
    found = mobility_scores(straight, around)
    assert found["od_paths"] == pytest.approx(3000 / 2, rel=0.02)  # one of the two goes around
    assert found["flows"] > 0.3


def test_hotspots_by_hand():
    real = np.array([8.0, 4.0, 2.0, 0.0])
    assert hotspot_gain(real, np.array([0.0, 1.0, 2.0, 3.0]), top=2) == pytest.approx(
        (0 + 2 / np.log2(3)) / (8 + 4 / np.log2(3))
    )
    assert hotspot_gain(np.zeros(3), np.ones(3), top=2) == 1.0


def test_evaluate_reports_them_where_they_are_asked_for():
    roads = sg.RoadDomain.from_graph(sg.simulate.city_graph(8, 6, seed=1))
    points = sg.simulate.city_trips(roads, trips=60, seed=2)
    model = sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(20.0), noise=sg.SeededNoise(1))
    wanted = ["density", "transitions", "hotspots", "gyration", "flows", "od_paths"]
    found = sg.evaluate(points, model.fit(points).sample(60), wanted, repeats=1).set_index("metric")
    assert set(found.index) == set(wanted)
    # Of thirty trips no two may have the same ends.
    assert found.drop(index="od_paths")[["value", "floor"]].notna().all(axis=None)

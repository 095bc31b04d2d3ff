"""Lines on land go around what is not land, and synthetic walks with them."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

import synthgeo as sg
from synthgeo.polylines import Polylines
from trajectories.ground.plane import Inside

ANGLE = np.linspace(0, 2 * np.pi, 200, endpoint=False)
SHORE = (1000 * (1 + 0.35 * np.sin(7 * ANGLE)))[:, None] * np.column_stack([np.cos(ANGLE), np.sin(ANGLE)])
LAND = shapely.Polygon(SHORE, [[(-200, -200), (200, -200), (200, 200), (-200, 200)]])


def points_on_land(count: int, seed: int) -> np.ndarray:
    xy = np.random.default_rng(seed).uniform(-1350, 1350, (6 * count, 2))
    return xy[shapely.contains_xy(LAND, *xy.T)][:count]


def leaves(lines: Polylines, land: shapely.Geometry) -> np.ndarray:
    parts = np.split(lines.xy, lines.offsets[1:-1])
    return ~shapely.covers(land.buffer(1e-6), shapely.linestrings(np.concatenate(parts), indices=np.repeat(
        np.arange(len(parts)), [len(part) for part in parts]
    )))  # fmt: skip


def test_lines_stay_on_land_and_keep_their_ends():
    lines = Polylines(points_on_land(1200, 0), np.arange(0, 1201, 3))
    kept = Inside(LAND).keep(lines)
    assert leaves(lines, LAND).mean() > 0.5
    assert not leaves(kept, LAND).any()
    for at in (lambda some: some.offsets[:-1], lambda some: some.offsets[1:] - 1):
        assert np.array_equal(kept.xy[at(kept)], lines.xy[at(lines)])
    # A line that was on land is as it was, and the others are not much longer than they must be.
    fine = np.flatnonzero(~leaves(lines, LAND))
    assert kept.lengths[fine] == pytest.approx(lines.lengths[fine])
    across = Polylines(np.array([[-300.0, 0.0], [300.0, 0.0]]), np.array([0, 2]))
    assert Inside(LAND).keep(across).lengths[0] < 1.5 * (2 * np.hypot(100, 200) + 400)


def test_between_islands_there_is_no_way_but_straight():
    islands = shapely.union_all([shapely.box(0, 0, 10, 10), shapely.box(20, 0, 30, 10)])
    line = Polylines(np.array([[5.0, 5.0], [25.0, 5.0]]), np.array([0, 2]))
    assert np.array_equal(Inside(islands).keep(line).xy, line.xy)


def test_synthetic_walks_do_not_cross_water():
    xy = points_on_land(300, 1)
    data = {"trip_id": np.repeat(np.arange(100), 3), "x": xy[:, 0], "y": xy[:, 1]}
    model = sg.TrajectorySynthesizer(
        domain=sg.PolygonDomain(LAND), budget=sg.PrivacyBudget(20.0), noise=sg.SeededNoise(1)
    )
    trips = model.fit(data).sample(60)
    assert shapely.covers(LAND.buffer(1e-6), trips.lines.geometry).all()
    assert shapely.intersects_xy(LAND.buffer(1e-6), *trips.xy.T).all()

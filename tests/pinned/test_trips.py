"""Seeded trips, pinned: a moved line of code may not move a number.

Where a change of method moves them on purpose, the new digests go in with the reason in the commit.
"""

from __future__ import annotations

import numpy as np
import pytest
import shapely

import synthgeo as sg
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from tests.pinned.digest import digest

ROADS = sg.RoadDomain.from_graph(sg.simulate.city_graph(8, 6, seed=1))
POINTS = sg.simulate.city_trips(ROADS, trips=150, users=50, seed=2)
LAND = sg.PolygonDomain(shapely.Point(500, 500).buffer(480))
BOX = sg.BoxDomain(0, 0, 1000, 1000)


def wanderers():
    """Points of 150 trips on a plane, a minute apart."""
    rng = np.random.default_rng(4)
    trip = np.repeat(np.arange(150), 12)
    steps = rng.normal(0, 40, (len(trip), 2))
    steps[::12] = rng.uniform(200, 800, (150, 2))
    xy = np.cumsum(steps.reshape(150, 12, 2), axis=1).reshape(-1, 2).clip(1, 999)
    time = 1_700_000_000 + 60.0 * np.arange(len(trip))
    return {"trip_id": trip, "time": time, "x": xy[:, 0], "y": xy[:, 1]}


def ends():
    """The trips on roads by their two ends."""
    grouped = POINTS.groupby("trip_id")
    return grouped.agg(
        a=("lon", "first"), b=("lat", "first"), c=("lon", "last"), d=("lat", "last"),
        left=("time", "first"), came=("time", "last"),
    ).reset_index()  # fmt: skip


def cells():
    """64 public cells of the box."""
    prefix = np.arange(64, dtype=np.uint64)
    return Partition(prefix, np.full(64, 6), hierarchy_of(BOX).measure(prefix, 6))


BY_ENDS = {
    "origin": ("a", "b"), "destination": ("c", "d"), "departure": "left", "arrival": "came",
    "crs": "EPSG:4326",
}  # fmt: skip
USERS = sg.PrivacyUnit.user(max_trajectories=2)
FITS = {
    "roads": (ROADS, {}, POINTS, {}),
    "roads, no times": (ROADS, {"times": 0.0}, POINTS, {}),
    "roads, no lengths": (ROADS, {"calibration": 0.0}, POINTS, {}),
    "roads, weights to the ends": (ROADS, {"weights": "ends"}, POINTS, {}),
    "roads, median lengths": (ROADS, {"length": "median"}, POINTS, {}),
    "roads, nearest road": (ROADS, {"match": "nearest", "theta": 3.0}, POINTS, {}),
    "roads, users": (ROADS, {"unit": USERS, "budget": sg.PrivacyBudget(4.0)}, POINTS, {}),
    "roads, ends": (ROADS, {}, ends(), BY_ENDS),
    "plane": (BOX, {}, wanderers(), {}),
    "plane, median lengths": (BOX, {"length": "median"}, wanderers(), {}),
    "plane, given cells": (BOX, {"partition": cells()}, wanderers(), {}),
    "land": (LAND, {}, wanderers(), {}),
}
STREAMS = {"roads over time": {"lifetime": 1}, "roads over time, all so far": {"calibration": 0.0}}
PINNED = {
    "roads over time": "0659f3c36539",
    "roads over time, all so far": "4b173ab9c792",
    "roads": "e5c0d3850a0a",
    "roads, no times": "f3b57c9e4469",
    "roads, no lengths": "fd39ab01b1de",
    "roads, weights to the ends": "1aeef3e8cdc2",
    "roads, median lengths": "0c60fd92e499",
    "roads, nearest road": "fad249bfc1a4",
    "roads, users": "24ab525058bd",
    "roads, ends": "dfe43670b059",
    "plane": "b08492f83ad4",
    "plane, median lengths": "bc879f334fae",
    "plane, given cells": "dc6e90709246",
    "land": "7cc556f90f78",
    "conditions": "ffa2f71debc1",
}


def fitted(name):
    domain, options, data, columns = FITS[name]
    settings = {"budget": sg.PrivacyBudget(2.0), "noise": sg.SeededNoise(9), **options}
    return sg.TrajectorySynthesizer.from_options(domain=domain, **settings).fit(data, **columns)


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_fit_and_sample(name):
    trips = fitted(name).sample(40)
    assert digest(trips.to_pandas()) == PINNED[name]


@pytest.mark.parametrize("name", STREAMS)
def test_batches_of_a_stream(name):
    given = {"domain": ROADS, "budget": sg.PrivacyBudget(2.0), "noise": sg.SeededNoise(9)}
    stream = sg.TrajectoryStream.from_options(**given, **STREAMS[name])
    releases = [stream.update(POINTS[POINTS["trip_id"] % 2 == part]) for part in range(2)]
    assert digest([release.to_pandas() for release in releases]) == PINNED[name]


def test_conditions():
    model = fitted("roads")
    west = shapely.box(*ROADS.bounds[:2], np.mean(ROADS.bounds[::2]), ROADS.bounds[3])
    spot = tuple(ROADS.network.lines[17].interpolate(0.5, normalized=True).coords[0])
    wishes = ({"start": west}, {"end": spot}, {"start": np.array([0, 1])}, {"hour": 8}, {"interval": 15.0})
    assert digest([model.sample(10, **wish).to_pandas() for wish in wishes]) == PINNED["conditions"]

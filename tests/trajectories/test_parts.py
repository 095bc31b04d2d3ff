"""Trips in parts: sums over parts are the sums of the whole, wherever the parts are."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo as sg
from synthgeo.sources.histogram import Histogram
from trajectories.ground import ground_of
from trajectories.ground.base import PlacedTrips
from trajectories.measure.measured import measure
from trajectories.parts.columns import Column, Parts, Stored, added, arrays_of, each, in_parts, total
from trajectories.reading.points import Trips
from trajectories.setup import TripSetup

BOX = sg.BoxDomain(0, 0, 1000, 1000)


class Listed(Parts):
    """Parts in a list."""

    def __init__(self, parts):
        self.parts, self.names = parts, frozenset(parts[0])

    def results(self, work):
        return [work(part) for part in self.parts]

    def map(self, work, names):
        return Listed(self.results(work))


def walks(count, seed=1):
    """Trips of two to seven points, ten seconds apart."""
    rng = np.random.default_rng(seed)
    start = np.concatenate([[0], np.cumsum(rng.integers(2, 8, count))])
    xy = rng.uniform(100, 900, (start[-1], 2))
    leaves = np.repeat(rng.integers(0, 7 * 86_400, count), np.diff(start))
    return Trips(xy, start, leaves + 10.0 * np.arange(start[-1]))


def test_totals_of_columns_are_those_of_the_arrays():
    column = Column(Listed([{"code": np.array([0, 1, 1])}, {"code": np.array([2, 1])}]), Stored("code"))
    assert total(np.bincount, column, None, 4).tolist() == [1, 3, 1, 0]
    assert total(np.bincount, each(np.multiply, column, 2), None, 5).tolist() == [1, 0, 3, 0, 1]
    assert total(np.bincount, np.array([0, 1]), None, 3).tolist() == [1, 1, 0]


def test_histograms_and_tuples_add_up():
    one, two = (Histogram.of(np.array(keys, dtype=np.uint64)) for keys in ([1, 2], [2, 3]))
    found, number = added([(one, 1), (two, 2)])
    assert found.equals(Histogram.of(np.array([1, 2, 2, 3], dtype=np.uint64)))
    assert number == 3


@pytest.mark.parametrize("cuts", [(40,), (1, 30, 31, 77)])
def test_trips_in_parts_measure_like_all_at_once(cuts):
    setup = TripSetup.of(
        domain=BOX, budget=sg.PrivacyBudget(5.0), unit=None, split=(0.1, 0.4, 0.5), calibration=0.1,
        times=0.2, weights="uniform", length="killed", max_depth=8, theta=0.0, match="hmm", cleaning=None,
    )  # fmt: skip
    trips, shares, ground = walks(90), setup.shares(timed=True), ground_of(BOX, 8)
    pieces = [setup.place(trips.take(rows)) for rows in np.split(np.arange(90), cuts)]
    split = in_parts(PlacedTrips, Listed([arrays_of(piece) for piece in pieces]))
    whole = measure(setup.place(trips), ground, shares, noise=sg.SeededNoise(4)).arrays()
    parts = measure(split, ground, shares, noise=sg.SeededNoise(4)).arrays()
    assert parts.keys() == whole.keys()
    for name, values in whole.items():
        assert np.array_equal(values, parts[name], equal_nan=True), name

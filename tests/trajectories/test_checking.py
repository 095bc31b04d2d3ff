"""The curator's look at trips before anything is spent, and the progress of what spends."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo import threads
from trajectories.fit import calibrate

ROADS = sg.RoadDomain.from_graph(sg.simulate.city_graph(8, 6, seed=1))
POINTS = sg.simulate.city_trips(ROADS, trips=60, seed=2)


def synthesizer(**options):
    return sg.TrajectorySynthesizer.from_options(
        domain=ROADS, budget=sg.PrivacyBudget(20.0), noise=sg.SeededNoise(1), **options
    )


def figures(points: pd.DataFrame) -> pd.Series:
    return synthesizer().check(points).figures.set_index("what")["value"]


def test_the_check_says_what_trips_are_like():
    found = figures(POINTS)
    assert found["trips"] == 60
    assert found["points off the network, share"] == 0
    assert found["trips of which nothing is left, share"] == 0
    assert found["gap between points, s, median"] == 30
    assert 5 < found["speed between points, km/h, median"] < 80
    assert found["steps above 216 km/h, share"] == 0


def test_the_check_names_what_goes_wrong():
    late = POINTS.sort_values(["trip_id", "time"], ignore_index=True)
    rank = late.groupby("trip_id").cumcount()
    size = late.groupby("trip_id")["trip_id"].transform("size")
    half = (late["trip_id"].rank(method="dense") <= 30) & (rank >= size // 2)
    gap = late.assign(time=late["time"] + pd.to_timedelta(np.where(half, 3600, 0), unit="s"))
    assert figures(gap)["trips cut or thinned by cleaning, share"] > 0.4
    report = synthesizer().check(gap)
    assert "of the trips are cut or thinned by cleaning" in str(report)
    assert report.to_dict()["figures"]
    off = POINTS.assign(lon=POINTS["lon"] + np.where(np.arange(len(POINTS)) % 4, 0.0, 0.5))
    found = figures(off)
    assert found["points off the network, share"] == pytest.approx(0.25, abs=0.02)
    assert found["trips with such a point, share"] > 0.8


def test_the_check_reads_times_as_fit_does():
    zoned = POINTS.assign(time=POINTS["time"].dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    for options in ({}, {"tz": "Europe/Berlin"}):
        model = synthesizer(**options)
        assert model.check(zoned).ok
        model.fit(zoned)


def test_the_check_has_a_picture():
    report = synthesizer().check(POINTS)
    ax = report.plot(trips=10)
    assert "10 private trips (for the curator only)" in ax.get_title()
    assert len(ax.collections) == 2
    assert len(ax.collections[1].get_paths()) == 10


def test_fit_and_sample_show_how_far_they_are(monkeypatch):
    seen = []

    def watched(items, *, label, total=None, enabled=None):
        seen.append((label, enabled))
        return iter(items)

    monkeypatch.setattr(calibrate, "track", watched)
    monkeypatch.setattr(threads, "track", watched)
    synthesizer().fit(POINTS).sample(20)
    assert ("fitting walks", None) in seen
    assert ("sampling trips", None) in seen

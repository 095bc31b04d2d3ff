"""Times inside windows: slots over days of any length, what they cost, users, states, the command line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from streams.birth_times import luck_of
from streams.slots import TimeSlots, Usual, slot_length
from tests.conftest import Silence

BOX = sg.BoxDomain(0, 0, 1, 1)
SCHEMA = sg.Schema({"a": sg.Categorical(["x", "y"])})
GRID = {"time": "when", "every": "1D", "start": "2026-03-06", "end": "2026-03-11"}


def events(n=600, seed=0, tz=None):
    """Everything happens from 6 to 9 in the morning, on five days around a change of the clock."""
    rng = np.random.default_rng(seed)
    when = pd.Timestamp("2026-03-06") + pd.to_timedelta(rng.integers(0, 5, n), unit="D")
    when = when + pd.to_timedelta(rng.uniform(6, 9, n), unit="h")
    return pd.DataFrame(
        {
            "x": rng.random(n),
            "y": rng.random(n),
            "when": when if tz is None else when.tz_localize(tz),
            "a": rng.choice(["x", "y"], n),
            "who": rng.integers(0, 40, n),
        }
    )


def make(kind="points", **options):
    given = {"budget": sg.PrivacyBudget(1.0), "lifetime": 2, "times": "hour", "noise": Silence(1)} | options
    if kind == "table":
        return sg.TabularStream.from_options(schema=SCHEMA, **given)
    return sg.PHDStream.from_options(domain=BOX, max_depth=4, **given)


@pytest.mark.parametrize("kind", ["points", "table"])
@pytest.mark.parametrize("tz", [None, "America/Chicago"])
def test_without_noise_times_are_in_the_slots_of_the_events(kind, tz):
    """The clock changes on 8 March, a day of 23 hours."""
    stream = make(kind, budget=sg.PrivacyBudget(50.0))
    for release in stream.run(events(tz=tz), **GRID, tz=tz):
        found = release.data
        assert set(found["time"].dt.hour) == {6, 7, 8}
        assert (found["time"].dt.normalize() == found["window_start"]).all()
        assert str(found["time"].dt.tz) == str(tz)
        assert (found["time"].dt.microsecond == 0).all()
    assert release.provenance["times"] == "hour"


def test_every_event_pays_for_its_time_and_no_more_than_all():
    stream = make(times_share=0.25)
    list(stream.run(events(), **GRID))
    costs = stream.costs
    assert list(costs["times"]) == [0.25] * 5
    np.testing.assert_allclose(costs["total"], 1.0)
    assert stream.epsilon == 1.0
    assert costs["total"].max() <= stream.epsilon


def test_noise_of_the_slots_has_the_scale_of_their_share():
    class Watching(sg.SeededNoise):
        scales = ()

        def discrete_laplace(self, scale, size=None):
            self.scales = (*self.scales, (scale, size))
            return super().discrete_laplace(scale, size)

    stream = make("table", noise=Watching(1), unit=sg.PrivacyUnit.user(max_events=4, key="who"))
    list(stream.run(events(), **GRID))
    assert [scale for scale, size in stream.noise.scales if size == 24] == pytest.approx([40.0] * 5)


@pytest.mark.parametrize("kind", ["points", "table"])
def test_only_what_a_user_may_contribute_is_in_a_slot(kind):
    data = events(40).assign(who=1, when=pd.Timestamp("2026-03-06T07:30"))
    stream = make(kind, unit=sg.PrivacyUnit.user(max_events=3, key="who"), deletions=False)
    counted = stream.count(next(iter(stream.windows(data, **GRID)))[1])
    slots = counted.counts.keys >= np.uint64(1 << 62)
    assert counted.counts.weights[slots, 0].tolist() == [3]


def test_outside_of_the_domain_there_is_no_slot():
    data = events(40)
    data.loc[data.index[:15], "x"] = 2.0
    for given in (data, data.assign(op=1)):
        window = next(iter(make().windows(given.assign(when=pd.Timestamp("2026-03-06T07:30")), **GRID)))[1]
        counts = make().count(window).counts
        assert counts.weights[counts.keys >= np.uint64(1 << 62), 0].tolist() == [25]


def test_deletions_are_in_no_slot():
    when = pd.Timestamp("2026-03-06T07:30")
    rows = pd.DataFrame({"a": ["x"] * 5, "op": [1, 1, 1, -1, -1], "when": when, "since": when})
    for kind in ("points", "table"):
        stream = make(kind, inserted="since")
        window = next(iter(stream.windows(rows.assign(x=0.5, y=0.5), **GRID)))[1]
        counts = stream.count(window).counts
        assert counts.weights[counts.keys >= np.uint64(1 << 62), 0].tolist() == [3]


def test_a_file_is_counted_like_a_frame(tmp_path):
    data = events()
    data.to_csv(tmp_path / "events.csv", index=False)
    one = [release.to_pandas() for release in make(noise=sg.SeededNoise(2)).run(data, **GRID)]
    two = make(noise=sg.SeededNoise(2)).run(str(tmp_path / "events.csv"), **GRID)
    for frame, release in zip(one, two, strict=True):
        pd.testing.assert_frame_equal(frame, release.to_pandas())


@pytest.mark.parametrize("kind", ["points", "table"])
def test_a_saved_stream_goes_on_the_same(kind, tmp_path):
    stream = make(kind, noise=sg.SeededNoise(1))
    windows = [window for _, window in stream.windows(events(), **GRID)]
    for window in windows[:3]:
        stream.update(window)
    stream.save(tmp_path / "state")
    again = type(stream).load(tmp_path / "state")
    assert again.choices() == stream.choices()
    for window in windows[3:]:
        pd.testing.assert_frame_equal(again.update(window).to_pandas(), stream.update(window).to_pandas())
    assert again.costs.equals(stream.costs)


def test_points_that_persist_keep_their_time():
    known = {}
    for release in make(persist=True, lifetime=3, noise=sg.SeededNoise(1)).run(events(), **GRID):
        data = release.to_pandas()
        for row in data.itertuples():
            assert known.setdefault(row.id, row.time) == row.time
    assert len(known) > len(data)
    luck = luck_of(np.arange(10_000))
    assert np.abs(np.bincount((luck * 10).astype(int), minlength=10) - 1000).max() < 150


def test_slots_are_cut_at_the_ends_of_windows():
    hour = 3_600_000_000
    slots = TimeSlots("when", anchor=hour // 2, length=hour)
    first, edges = slots.edges((hour // 2 - 10, 2 * hour))
    assert first == -1
    assert edges.tolist() == [hour // 2 - 10, hour // 2, 3 * hour // 2, 2 * hour]


def test_shrinking_leaves_clear_totals_and_smooths_drowned_ones():
    shape = np.array([100.0, 300.0, 100.0, 100.0, 100.0])
    clear = np.array([5000.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(Usual(shape, 50.0, 1).combined(clear, 2.0)[0], clear, atol=1.0)
    drowned, after = Usual(shape, 150.0, 9).combined(np.array([12.0, 13.0, 5.0, 9.0, 11.0]), 200.0)
    np.testing.assert_allclose(drowned / drowned.sum(), shape / shape.sum())
    assert after.windows == 10
    assert after.totals[1] == pytest.approx(300 + 0.1 * (13 - 300))


def test_earlier_windows_tell_the_hours_of_a_small_one(monkeypatch):
    """Forty windows of few events: with little ε, hours follow from all of them together."""
    rng = np.random.default_rng(1)
    when = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.repeat(np.arange(40), 80), unit="D")
    data = pd.DataFrame({"a": "x", "when": when + pd.to_timedelta(rng.uniform(6, 9, 3200), unit="h")})
    grid = {"time": "when", "every": "1D", "start": "2026-01-01", "end": "2026-02-10"}

    def inside():
        releases = make("table", lifetime=1, noise=sg.SeededNoise(1)).run(data, **grid)
        return np.mean([r.data["time"].dt.hour.isin([6, 7, 8]).mean() for r in list(releases)[10:]])

    together = inside()
    monkeypatch.setattr(Usual, "combined", lambda usual, noisy, variance: (noisy, usual))
    assert together > 0.7 > 0.5 > inside()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"times": "soon"}, "times"),
        ({"times": "0h"}, "times"),
        ({"times": "1us"}, "whole seconds"),
        ({"times": 3}, "times"),
        ({"times_share": 1.0}, "times_share"),
        ({"times_share": 0}, "times_share"),
    ],
)
def test_what_is_no_slot_or_no_share_is_refused(options, match):
    with pytest.raises(sg.ConfigError, match=match):
        make(**options)
    assert slot_length("15min") == 900_000_000


def test_times_need_windows_and_a_lifetime():
    stream = make()
    with pytest.raises(sg.ConfigError, match="windows"):
        stream.update(events())
    with pytest.raises(sg.ConfigError, match="lifetime"):
        next(iter(make(lifetime=None).run(events(), **GRID)))
    with pytest.raises(sg.ConfigError, match="slots"):
        next(iter(make(times="1s").run(events(), **GRID | {"every": "2D"})))
    assert stream.step == 0
    assert stream.spent is None

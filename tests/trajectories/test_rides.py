"""Synthetic trips in time: speeds, hours, weeks, gaps between points."""

from __future__ import annotations

import datetime as dt
import itertools
from zoneinfo import ZoneInfo

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo import ragged
from synthgeo.errors import ConfigError, InputError
from synthgeo.evaluation.rides import TripHalf, ride_errors, ride_scores
from trajectories.calendar import Week, hour_of_week, local_seconds
from trajectories.fit.clock import estimate_recording
from trajectories.ground.roads import RoadGround
from trajectories.measure.times import measure_recording
from trajectories.reading.points import Trips
from trajectories.walks.bridges import Walks
from trajectories.walks.pacing import Pieces, timetable

TZ = "America/Chicago"


def commuters(trips=600, seed=3):
    """East in the morning at 20 km/h, west in the evening at 40, a point every 30 s; local working days."""
    rng = np.random.default_rng(seed)
    morning = rng.random(trips) < 0.5
    points = 11
    speed = np.where(morning, 20, 40) / 3.6 * rng.lognormal(0, 0.1, trips)
    x0 = np.where(morning, rng.uniform(500, 1500, trips), rng.uniform(8500, 9500, trips))
    step = speed * 30 * np.where(morning, 1, -1)
    x = x0[:, None] + step[:, None] * np.arange(points)
    y = rng.uniform(3000, 7000, trips)[:, None] + np.zeros(points)
    day = pd.Timestamp("2026-05-04", tz=TZ) + pd.to_timedelta(rng.integers(0, 5, trips), unit="D")
    left = day + pd.to_timedelta(np.where(morning, 8.5, 18.5) * 3600, unit="s")
    time = left.repeat(points) + pd.to_timedelta(np.tile(30.0 * np.arange(points), trips), unit="s")
    return pd.DataFrame(
        {"trip_id": np.arange(trips).repeat(points), "time": time, "x": x.ravel(), "y": y.ravel()}
    )


DATA = commuters()
BOX = sg.BoxDomain(0, 0, 10_000, 10_000)  # metres


@pytest.fixture(scope="module")
def fitted():
    return sg.TrajectorySynthesizer(
        domain=BOX, budget=sg.PrivacyBudget(20.0), noise=sg.SeededNoise(1), tz=TZ,
        settings=sg.TripSettings(start="2026-05-04", max_speed=60.0),
    ).fit(DATA)  # fmt: skip


def seconds_of(frame):
    return (
        frame["time"]
        .dt.tz_convert("UTC")
        .dt.tz_localize(None)
        .to_numpy()
        .astype("datetime64[us]")
        .astype(float)
        / 1e6
    )


def test_without_a_number_the_released_total_is_drawn(fitted):
    assert fitted.sample().total == fitted.total == pytest.approx(600, abs=40)


def test_no_step_is_faster_than_the_cap(fitted):
    for options in ({}, {"interval": 2.0}, {"spacing": 20.0}):
        release = fitted.sample(200, **options)
        made = Trips(release.xy, release.start, seconds_of(release.data))
        assert ride_scores(made, made, tz=TZ).fastest <= 60.0


def test_hours_weekdays_and_week_are_those_asked_for(fitted):
    left = fitted.sample(60, hour=8, weekday=2).lines.departure
    assert set(left.dt.hour) == {8}
    assert set(left.dt.date.astype(str)) == {"2026-05-06"}
    left = fitted.sample(60, hour=np.array([8, 18]), week="2026-10-30").lines.departure  # a Friday
    assert set(left.dt.hour) <= {8, 18}
    assert left.min() >= pd.Timestamp("2026-10-30", tz=TZ)
    assert left.max() < pd.Timestamp("2026-11-06", tz=TZ)
    for wrong in (
        {"hour": 24},
        {"weekday": -1},
        {"hour": []},
        {"week": "soon"},
        {"spacing": 5, "interval": 5},
    ):
        with pytest.raises(ConfigError):
            fitted.sample(5, **wrong)


def test_where_depends_on_when(fitted):
    """Morning trips start in the west, evening trips in the east."""
    west = [np.mean(release.xy[release.start[:-1], 0] < 5000) for release in (
        fitted.sample(200, hour=8), fitted.sample(200, hour=18))]  # fmt: skip
    assert west[0] > 0.85
    assert west[1] < 0.15


def test_paces_depend_on_the_hour(fitted):
    speeds = []
    for hour in (8, 18):
        lines = fitted.sample(600, hour=hour).lines
        taken = (lines.arrival - lines.departure).dt.total_seconds()
        speeds.append(3.6 * float(np.median(lines.metres / taken)))
    assert speeds[0] == pytest.approx(20, rel=0.15)
    assert speeds[1] == pytest.approx(40, rel=0.15)


def test_points_come_as_often_as_in_the_data(fitted):
    frame = fitted.sample(100).data
    gap = np.diff(seconds_of(frame))[np.diff(frame.trip_id) == 0]
    assert np.median(gap) == pytest.approx(30, abs=3)
    untimed = sg.TrajectorySynthesizer(
        domain=BOX,
        budget=sg.PrivacyBudget(20.0),
        noise=sg.SeededNoise(1),
        settings=sg.TripSettings(times=0.0),
    )
    release = untimed.fit(DATA).sample(100)
    inner = ragged.owners_of(release.start)
    step = np.hypot(*np.diff(release.xy, axis=0).T)[np.diff(inner) == 0]
    assert 120 < np.median(step) < 400  # metres: 167 in the morning, 333 in the evening


def test_a_saved_model_keeps_its_clock(fitted, tmp_path):
    fitted.save(tmp_path / "a.model")
    again = sg.TrajectorySynthesizer.load(tmp_path / "a.model")
    assert (again.tz, again.max_speed) == (TZ, 60.0)
    left = again.sample(20, hour=8).lines.departure
    assert set(left.dt.hour) == {8}
    assert left.min() >= pd.Timestamp("2026-05-04", tz=TZ)


def test_clocks_of_time_zones():
    # 8:30 in Chicago, before and after clocks go forward on 8 March 2026.
    stamps = pd.DatetimeIndex(["2026-03-06 08:30", "2026-03-09 08:30"]).tz_localize(TZ)
    instants = stamps.tz_convert("UTC").tz_localize(None).to_numpy().astype("datetime64[s]").astype(float)
    assert hour_of_week(local_seconds(instants, TZ)).tolist() == [4 * 24 + 8, 8]
    week = Week.of("2026-03-02", TZ)
    there = week.instants(np.array([6 * 86400 + 2.5 * 3600, 4 * 86400 + 8.5 * 3600]))
    assert there[0] == pd.Timestamp("2026-03-08 03:30", tz=TZ)  # 2:30 does not exist
    assert there[1] == stamps[0]
    for wrong in ("Mars/Olympus", "", 3):
        with pytest.raises(ConfigError, match="tz must be"):
            sg.TrajectorySynthesizer(domain=BOX, budget=sg.PrivacyBudget(1.0), tz=wrong)
    for wrong in ("2026-05-04T08:00", "May", 0, np.int64(0)):
        with pytest.raises(ConfigError, match="first day"):
            sg.TrajectorySynthesizer(
                domain=BOX, budget=sg.PrivacyBudget(1.0), settings=sg.TripSettings(start=wrong)
            )


@pytest.mark.parametrize(
    ("first", "tz"),
    [
        ("2026-03-29", "Europe/Berlin"),
        ("2026-10-25", "Europe/Berlin"),
        ("2026-09-06", "America/Santiago"),  # at midnight
        ("2026-10-04", "Australia/Lord_Howe"),  # half an hour
        ("2011-12-26", "Pacific/Apia"),  # a whole day
    ],
)
def test_no_crowd_leaves_when_clocks_are_put_forward(first, tz):
    """Times that clocks skip or show twice are what Python's zoneinfo takes them for."""
    week, seconds = Week.of(first, tz), np.arange(0.0, 7 * 86400, 700)
    ahead = (seconds // 86400 - week.first.weekday()) % 7 * 86400 + seconds % 86400
    midnight = dt.datetime.fromisoformat(first)
    clocks = [midnight + dt.timedelta(seconds=one) for one in ahead.tolist()]
    expected = [clock.replace(tzinfo=ZoneInfo(tz)).timestamp() for clock in clocks]
    found = week.instants(seconds)
    assert [one.timestamp() for one in found] == expected
    assert found.value_counts().max() <= 2


def test_timetables_keep_duration_cap_and_order():
    rng = np.random.default_rng(0)
    size = rng.integers(1, 40, 200)
    metres = rng.uniform(0, 300, size.sum())
    pieces = Pieces(ragged.offsets_of(size), metres, metres / 10)
    duration = ragged.sums(metres, pieces.offsets) / rng.uniform(2, 40, 200)
    table = timetable(pieces, duration, rng.uniform(0, 2, 200), np.full(200, 30.0), rng, max_speed=30.0)
    knots = ragged.owners_of(table.offsets)
    inner = np.diff(knots) == 0
    seconds, way = np.diff(table.seconds)[inner], np.diff(table.metres)[inner]
    assert (seconds >= 0).all()
    assert (way <= 30.0 * seconds + 1e-9).all()
    slow = ragged.sums(metres, pieces.offsets) / duration < 29
    np.testing.assert_allclose(table.duration[slow], duration[slow])
    steady = timetable(pieces, duration, np.zeros(200), np.zeros(200), rng, max_speed=None)
    trip = np.arange(200)
    np.testing.assert_allclose(steady.metres_at(trip, duration / 2), ragged.sums(metres, pieces.offsets) / 2)
    np.testing.assert_allclose(steady.seconds_at(trip, steady.metres_at(trip, duration / 3)), duration / 3)


def test_trips_stand_at_their_ends_and_vary_as_asked_under_a_cap():
    """A trip whose speed varies begins and ends standing, longer at its end; and the share of its time that
    the cap leaves free varies the more, so that the whole varies as without a cap.
    """
    rng = np.random.default_rng(1)
    trips, edges = 400, 60
    pieces = Pieces(edges * np.arange(trips + 1), np.full(trips * edges, 100.0), np.full(trips * edges, 10.0))
    duration, gap = np.full(trips, 600.0), np.full(trips, 60.0)
    trip = np.arange(trips)
    spread = {}
    for cap in (None, 20.0):
        table = timetable(pieces, duration, np.full(trips, 0.3), gap, rng, max_speed=cap)
        np.testing.assert_allclose(table.duration, duration)
        first, last = (
            table.metres_at(trip, np.full(trips, after)) - table.metres_at(trip, np.full(trips, after - 60.0))
            for after in (60.0, 600.0)
        )
        usual = 6000.0 / 10
        assert usual > first.mean() > 1.05 * last.mean()
        middle = [
            table.metres_at(trip, np.full(trips, t + 60.0)) - table.metres_at(trip, np.full(trips, t))
            for t in (120.0, 180.0, 240.0, 300.0, 360.0)
        ]
        spread[cap] = float(np.std(middle) / np.mean(middle))
    assert spread[20.0] == pytest.approx(spread[None], rel=0.25)
    steady = timetable(pieces, duration, np.zeros(trips), gap, rng, max_speed=None)
    assert steady.metres_at(trip, np.full(trips, 60.0)) == pytest.approx(600.0)


def test_noise_makes_no_gaps_that_leave_trips_without_points():
    """900 trips with a point every two or three seconds, counted with noise of scale 100: the largest single
    bucket was one of hours in one fit of twelve, and trips lost their ways. Chance of five or more in 200
    where each is one in 300: below one in 10^3.
    """
    gap = np.repeat([2.0, 3.0], 450)
    variation = np.full(900, 0.6)
    long = sum(
        estimate_recording(
            measure_recording(gap, variation, epsilon=0.02, noise=sg.SeededNoise(seed)), timed=True
        )
        .gaps[17:]
        .any()
        for seed in range(200)
    )
    assert long < 5


def test_ride_scores_tell_like_from_unlike():
    box = sg.BoxDomain(0, 0, 10_000, 10_000)
    from trajectories.reading.points import read_trips

    real = read_trips(DATA, box, unit=sg.PrivacyUnit.trajectory())
    same = ride_scores(real, real, tz=TZ)
    assert (same.speed_by_hour, same.place_hour_blocks) == (0.0, 0.0)
    assert same.place_hour == same.place_hour_real > 0.3
    late = Trips(real.xy, real.start, real.time + 10 * 3600)
    other = ride_scores(real, late, tz=TZ)
    assert other.speed_by_hour == 1.0  # nobody drives then
    assert other.place_hour_blocks == pytest.approx(1.0)
    with pytest.raises(InputError, match="times"):
        ride_scores(real, Trips(real.xy, real.start), tz=TZ)


def test_evaluate_knows_rides_and_what_halves_of_the_real_trips_have():
    roads = sg.RoadDomain.from_graph(sg.simulate.city_graph(8, 6, seed=1))
    points = sg.simulate.city_trips(roads, trips=80, seed=2)
    model = sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(20.0), noise=sg.SeededNoise(1))
    release = model.fit(points).sample(80)
    wanted = ["speed_by_hour", "turns_per_km", "od_hours", "trip"]
    found = sg.evaluate(points, release, metrics=wanted, repeats=1).set_index("metric")
    assert set(found.index) == set(wanted)
    assert found[["value", "floor"]].notna().all(axis=None)
    assert 0 < found.loc["od_hours", "floor"] < 1
    same = ride_errors(points, TripHalf.of(points, release)[0])
    assert 0 < same["od_hours"] < 0.8


def test_evaluate_reads_clock_times_as_fit_does():
    """Without a zone in the data they are those of the synthesizer's: in Berlin an hour or two from UTC."""
    roads = sg.RoadDomain.from_graph(sg.simulate.city_graph(8, 6, seed=1))
    points = sg.simulate.city_trips(roads, trips=80, seed=2)
    assert points["time"].dt.tz is None
    found = []
    for tz in ("UTC", "Europe/Berlin"):
        model = sg.TrajectorySynthesizer(
            domain=roads, budget=sg.PrivacyBudget(20.0), noise=sg.SeededNoise(1), tz=tz
        )
        found.append(ride_errors(points, model.fit(points).sample(80)))
    assert found[0] == pytest.approx(found[1])


def test_rides_and_ways_are_compared_in_metres_of_the_ground():
    metres, degrees = BOX, sg.BoxDomain(9.0, 0.0, 9.09, 0.09, crs="EPSG:4326")  # 10 km each
    frame = DATA.assign(x=9.0 + DATA["x"] / 111_320, y=DATA["y"] / 110_574)
    names = ["speed_by_hour", "turns_per_km", "place_hour", "od_hours", "od_paths"]
    scores = []
    for domain, data in ((metres, DATA), (degrees, frame)):
        model = sg.TrajectorySynthesizer(
            domain=domain, budget=sg.PrivacyBudget(20.0), noise=sg.SeededNoise(1), tz=TZ
        )
        release = model.fit(data).sample(300)
        scores.append(sg.evaluate(data, release, metrics=names, repeats=1).set_index("metric")["floor"])
    pd.testing.assert_series_equal(*scores, rtol=0.02)


def test_what_cannot_be_evaluated_is_said(fitted):
    release = fitted.sample(20)
    with pytest.raises(InputError, match="there is no trip to measure"):
        sg.evaluate(DATA.iloc[:0], release)
    with pytest.raises(ConfigError, match="takes a release as a synthesizer made it"):
        sg.evaluate(DATA, release.data)


def test_turns_are_told_however_close_points_are():
    """Three sides of a block, a point every 5 or every 25 metres; a way there and back has a half turn."""
    block = np.array([[0.0, 0.0], [200.0, 0.0], [200.0, 200.0], [0.0, 200.0]])
    back = np.array([[0.0, 0.0], [200.0, 0.0], [0.0, 0.0]])
    for line, turns, half in ((block, 2, 0.0), (back, 1, 1.0)):
        for every in (5.0, 25.0):
            steps = [
                one + (two - one) * np.arange(0, 1, every / np.hypot(*(two - one)))[:, None]
                for one, two in itertools.pairwise(line)
            ]
            xy = np.concatenate([*steps, line[-1:]])
            trips = Trips(xy, np.array([0, len(xy)]), 10.0 * np.arange(len(xy)))
            scores = ride_scores(trips, trips, tz="UTC")
            metres = np.hypot(*np.diff(line, axis=0).T).sum()
            assert scores.turns == pytest.approx(1000 * turns / metres)
            assert scores.half_turns == half


def test_trips_slow_down_where_they_turn():
    """Two roads straight on, then around a corner: the roads at the corner take longer by as much."""
    where = {0: (0.0, 0.0), 1: (100.0, 0.0), 2: (200.0, 0.0), 3: (200.0, 100.0)}
    graph = nx.MultiDiGraph(crs="EPSG:32616", simplified=True)
    for node, (x, y) in where.items():
        graph.add_node(node, x=x + 445_000, y=y + 4_630_000, street_count=2)
    for u, v in itertools.pairwise(where):
        graph.add_edge(u, v, osmid=u, length=100.0, speed_kph=36.0)
    ground = RoadGround(sg.RoadDomain.from_graph(graph), 20)
    walks = Walks(np.array([0, 1, 2, 0, 1]), np.array([0, 3, 5]), np.ones(2, dtype=bool))
    pieces = ground.pieces(walks, np.zeros(2), np.full(2, 100.0))
    straight, before, after, *others = pieces.usual
    assert straight == pytest.approx(10.0)
    assert before == pytest.approx(after)
    assert 11.0 < before < 20.0
    assert others == pytest.approx([10.0, 10.0])

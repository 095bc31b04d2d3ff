"""Reading trips: the same from every engine, in order, one unit at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthgeo.domain.box import BoxDomain
from synthgeo.errors import ConfigError, ContributionError, InputError
from synthgeo.privacy.unit import PrivacyUnit
from trajectories.reading.points import Trips, metres_per_unit, read_ends, read_trips

PLANE = BoxDomain(-1e6, -1e6, 1e6, 1e6)
CITY = BoxDomain(440_000, 4_630_000, 450_000, 4_640_000, crs="EPSG:32616")
TRIP = PrivacyUnit.trajectory()


def recorded(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Points of about twenty trips, rows shuffled, times distinct within a trip."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "trip_id": rng.integers(0, 20, n) * 7,
        "x": rng.uniform(0, 100, n),
        "y": rng.uniform(0, 100, n),
        "time": pd.Timestamp("2024-05-01", tz="UTC") + pd.to_timedelta(rng.permutation(n), unit="s"),
    })  # fmt: skip
    return frame.iloc[rng.permutation(n)].reset_index(drop=True)


def as_sets(trips: Trips) -> set[tuple[bytes, bytes]]:
    """Trips as comparable values, whatever their order."""
    time = np.zeros(len(trips.xy)) if trips.time is None else trips.time
    return {
        (trips.xy[a:b].tobytes(), time[a:b].tobytes())
        for a, b in zip(trips.start[:-1], trips.start[1:], strict=True)
    }


def test_trips_are_grouped_and_put_in_order_of_time() -> None:
    frame = recorded()
    trips = read_trips(frame, PLANE, unit=TRIP)
    expected = {
        (g[["x", "y"]].to_numpy().tobytes(), (g["time"].astype("int64").to_numpy() / 1e6).tobytes())
        for _, g in frame.astype({"time": "datetime64[us, UTC]"}).sort_values("time").groupby("trip_id")
    }
    assert as_sets(trips) == expected
    assert trips.user is None


def test_without_times_rows_give_the_order_and_ties_do_too() -> None:
    frame = pd.DataFrame({"trip_id": list("abab"), "x": [1.0, 2, 3, 4], "y": 0.0, "when": [5, 5, 5, 1]})
    plain = read_trips(frame, PLANE, unit=TRIP)
    assert plain.xy[:, 0].tolist() == [1, 3, 2, 4]
    assert plain.time is None
    timed = read_trips(frame, PLANE, unit=TRIP, time="when")
    assert timed.xy[:, 0].tolist() == [1, 3, 4, 2]
    assert timed.time is not None
    assert timed.time.tolist() == [5, 5, 1, 5]


def test_times_can_be_left_out() -> None:
    trips = read_trips(recorded(), PLANE, unit=TRIP, time=False)
    assert trips.time is None


def test_times_may_be_text_seconds_or_zoned() -> None:
    base = {"trip_id": [1, 1], "x": [0.0, 1.0], "y": [0.0, 0.0]}
    for times in (
        ["2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z"],
        ["2024-01-01 00:00:00", "2024-01-01 01:00:00"],
        [1704067200, 1704070800],
        pd.to_datetime(["2024-01-01T01:00", "2024-01-01T02:00"]).tz_localize("Europe/Berlin"),
    ):
        trips = read_trips(pd.DataFrame({**base, "time": times}), PLANE, unit=TRIP)
        assert trips.time is not None
        assert trips.time.tolist() == [1704067200.0, 1704070800.0]


def test_every_engine_reads_the_same(tmp_path: Path) -> None:
    frame = recorded()
    expected = as_sets(read_trips(frame, PLANE, unit=TRIP))
    for i in range(3):
        frame.iloc[i::3].to_parquet(tmp_path / f"part{i}.parquet")
    frame.to_csv(tmp_path / "points.csv", index=False)
    dd = pytest.importorskip("dask.dataframe")
    inputs: dict[str, Any] = {
        "arrow": pa.Table.from_pandas(frame),
        "dict": {name: frame[name].to_numpy() for name in frame.columns},
        "glob": str(tmp_path / "part*.parquet"),
        "csv": tmp_path / "points.csv",
        "dask": dd.from_pandas(frame, npartitions=4),
    }
    for name, data in inputs.items():
        assert as_sets(read_trips(data, PLANE, unit=TRIP)) == expected, name


def test_degrees_are_projected_and_geometries_too() -> None:
    frame = pd.DataFrame({"trip_id": [1, 1], "lon": [-87.65, -87.64], "lat": [41.88, 41.87]})
    points = gpd.GeoDataFrame(
        frame[["trip_id"]], geometry=gpd.points_from_xy(frame["lon"], frame["lat"]), crs="EPSG:4326"
    )
    one, other = (read_trips(data, CITY, unit=TRIP) for data in (frame, points))
    np.testing.assert_allclose(one.xy, other.xy)
    expected = points.to_crs(CITY.crs).geometry
    np.testing.assert_allclose(one.xy, np.column_stack([expected.x, expected.y]))


def test_input_is_not_changed() -> None:
    frame = recorded()
    before = frame.copy(deep=True)
    read_trips(frame, PLANE, unit=TRIP)
    pd.testing.assert_frame_equal(frame, before)


def test_no_rows_is_no_trip() -> None:
    trips = read_trips(recorded().iloc[:0], PLANE, unit=TRIP)
    assert trips.size == 0
    assert len(trips.lengths()) == 0


def test_one_trip_less_changes_no_other() -> None:
    frame = recorded()
    everything = as_sets(read_trips(frame, PLANE, unit=TRIP))
    for trip in frame["trip_id"].unique()[:5]:
        rest = as_sets(read_trips(frame[frame["trip_id"] != trip], PLANE, unit=TRIP))
        assert rest < everything
        assert len(everything - rest) == 1


def of_users(sizes: list[int], seed: int) -> pd.DataFrame:
    """User u has sizes[u] trips, numbered from 0 for each user, of one point that says whose it is."""
    user = np.repeat(np.arange(len(sizes)), sizes)
    trip = np.concatenate([np.arange(size) for size in sizes]) if sizes else np.empty(0, int)
    frame = pd.DataFrame({"user_id": user, "trip_id": trip, "x": user * 1.0, "y": trip * 1.0})
    return frame.sample(frac=1, random_state=seed)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=6), st.integers(1, 4), st.integers(0, 99))
def test_a_user_contributes_at_most_the_bound_and_decides_for_nobody_else(
    sizes: list[int], bound: int, seed: int
) -> None:
    frame = of_users(sizes, seed)
    unit = PrivacyUnit.user(max_trajectories=bound)
    kept = read_trips(frame, PLANE, unit=unit)
    per_user = np.bincount(kept.xy[:, 0].astype(int), minlength=len(sizes))
    assert per_user.tolist() == [min(size, bound) for size in sizes]
    without = read_trips(frame[frame["user_id"] != 0], PLANE, unit=unit)
    others = {tuple(p) for p in kept.xy.tolist() if p[0] != 0}
    assert {tuple(p) for p in without.xy.tolist()} == others


def test_a_user_with_a_thousand_trips_keeps_a_spread_of_them() -> None:
    unit = PrivacyUnit.user(max_trajectories=50)
    kept = read_trips(of_users([1000, 3], 1), PLANE, unit=unit)
    assert kept.size == 53
    assert kept.user is not None
    assert np.bincount(kept.user).tolist() in ([50, 3], [3, 50])


def test_trips_of_two_users_with_the_same_number_stay_two() -> None:
    frame = pd.DataFrame({"user_id": ["a", "b", "a"], "trip_id": [1, 1, 1], "x": [0.0, 5, 1], "y": 0.0})
    trips = read_trips(frame, PLANE, unit=PrivacyUnit.user(max_trajectories=2))
    assert sorted(np.diff(trips.start).tolist()) == [1, 2]


def test_ends_are_trips_of_two_points() -> None:
    frame = pd.DataFrame({
        "pickup_lon": [-87.65, -87.64], "pickup_lat": [41.88, 41.88], "dropoff_lon": [-87.64, -87.66],
        "dropoff_lat": [41.87, 41.86], "a": [0, 10], "b": [60, 10], "user_id": ["u", "u"],
    })  # fmt: skip
    names: dict[str, Any] = {
        "origin": ("pickup_lon", "pickup_lat"),
        "destination": ("dropoff_lon", "dropoff_lat"),
        "departure": "a",
        "arrival": "b",
    }
    trips = read_ends(frame, CITY, unit=TRIP, **names)
    assert trips.start.tolist() == [0, 2, 4]
    assert trips.time is not None
    assert trips.time.tolist() == [0, 60, 10, 10]
    assert read_ends(frame, CITY, unit=PrivacyUnit.user(max_trajectories=1), **names).size == 1
    late = frame.assign(b=[60, 9])
    with pytest.raises(InputError, match=r"'b', row 1.*before it departs"):
        read_ends(late, CITY, unit=TRIP, **names)
    with pytest.raises(ConfigError, match="both departure and arrival"):
        read_ends(frame, CITY, unit=TRIP, **{**names, "arrival": None})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="trip_id"), "missing column 'trip_id'"),
        (lambda f: f.assign(x=f["x"].where(f.index != 7)), r"'x', row 7"),
        (lambda f: f.assign(trip_id=f["trip_id"].where(f.index != 4)), r"'trip_id', row 4.*missing"),
        (lambda f: f.assign(time=f["time"].where(f.index != 9)), r"'time', row 9.*missing"),
        (lambda f: f.assign(time="noon"), r"'time', rows 0, .*not a time"),
        (lambda f: f.assign(time=True), "'time', rows 0, 1, .*: is not a time as declared"),
        (lambda f: f.drop(columns=["x"]), "no coordinates"),
    ],
)
def test_bad_rows_are_named(change: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_trips(change(recorded()), PLANE, unit=TRIP)


def test_a_missing_user_is_named() -> None:
    frame = recorded().assign(user_id="u")
    frame.loc[3, "user_id"] = None
    with pytest.raises(ContributionError, match=r"'user_id', row 3"):
        read_trips(frame, PLANE, unit=PrivacyUnit.user(max_trajectories=1))


@pytest.mark.parametrize("unit", [PrivacyUnit.event(), PrivacyUnit.user(max_events=3)])
def test_units_that_do_not_protect_trips_are_refused(unit: PrivacyUnit) -> None:
    with pytest.raises(ConfigError, match="protected whole"):
        read_trips(recorded(), PLANE, unit=unit)


def test_senseless_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="time must name a column"):
        read_trips(recorded(), PLANE, unit=TRIP, time=True)
    with pytest.raises(InputError, match="missing column 'clock'"):
        read_trips(recorded(), PLANE, unit=TRIP, time="clock")


@pytest.mark.parametrize(
    "arrays",
    [
        {"xy": np.zeros((3, 3)), "start": [0, 3]},
        {"xy": np.zeros((3, 2)), "start": [0, 2]},
        {"xy": np.zeros((3, 2)), "start": [0, 0, 3]},
        {"xy": np.zeros((3, 2)), "start": []},
        {"xy": np.zeros((3, 2)), "start": [0, 3], "time": [1.0]},
        {"xy": np.zeros((3, 2)), "start": [0, 3], "user": [1, 2]},
    ],
)
def test_arrays_that_are_no_trips_are_refused(arrays: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="trips"):
        Trips(**{name: np.asarray(value) for name, value in arrays.items()})


def test_take_only_and_ends() -> None:
    trips = Trips(np.arange(12.0).reshape(6, 2), np.array([0, 1, 4, 6]), np.arange(6.0), np.array([7, 8, 9]))
    two = trips.take(np.array([2, 0]))
    assert two.start.tolist() == [0, 2, 3]
    assert two.xy[:, 0].tolist() == [8, 10, 0]
    assert two.user is not None
    assert two.user.tolist() == [9, 7]
    some = trips.only(np.array([False, True, False, True, True, False]))
    assert some.start.tolist() == [0, 2, 3]
    assert some.user is not None
    assert some.user.tolist() == [8, 9]
    assert trips.ends().xy[:, 0].tolist() == [0, 0, 2, 6, 8, 10]


def test_metres_per_unit() -> None:
    assert metres_per_unit(PLANE) == (1.0, 1.0)
    assert metres_per_unit(CITY) == (1.0, 1.0)
    x, y = metres_per_unit(BoxDomain(-88, 59, -87, 61, crs="EPSG:4326"))
    assert x == pytest.approx(55_660, rel=1e-3)
    assert y == pytest.approx(110_574)


def test_repr_says_nothing_private() -> None:
    assert "20" not in repr(read_trips(recorded(), PLANE, unit=TRIP))


def test_the_identity_of_trips_is_their_content() -> None:
    xy = np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 0.0], [0.2, 0.2], [0.3, 0.3]])
    trips = Trips(xy, np.array([0, 3, 5]), np.arange(5.0))
    turned = trips.take(np.array([1, 0]))
    assert trips.fingerprint() == turned.fingerprint()
    others = [
        Trips(xy, np.array([0, 2, 5]), np.arange(5.0)),
        Trips(xy, np.array([0, 3, 5]), np.arange(5.0) + 1),
        Trips(xy, np.array([0, 3, 5])),
        Trips(xy[[1, 0, 2, 3, 4]], np.array([0, 3, 5]), np.arange(5.0)),
        trips.take(np.array([0])),
    ]
    assert len({other.fingerprint() for other in [trips, *others]}) == 6

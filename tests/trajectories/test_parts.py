"""Trips in parts: sums over parts are the sums of the whole, wherever the parts are."""

from __future__ import annotations

import time
import warnings
from functools import partial
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.hashing import mix
from synthgeo.privacy.users import UserIds
from synthgeo.sources import values
from synthgeo.sources.histogram import Histogram
from tests.trajectories.dying import DyingPlacing, Killer
from trajectories.ground import ground_of
from trajectories.ground.base import PlacedTrips
from trajectories.measure.measured import measure
from trajectories.model import TripModel
from trajectories.parts import placing, shuffle, workers
from trajectories.parts.columns import PartColumn, Parts, Stored, added, arrays_of, each, in_parts, total
from trajectories.parts.folder import PrivateFolder
from trajectories.reading.points import Trips
from trajectories.setup import TripSetup

BOX = sg.BoxDomain(0, 0, 1000, 1000)


class Listed(Parts):
    """Parts in a list."""

    def __init__(self, parts):
        self.parts, self.names = parts, frozenset(parts[0])

    def results(self, work):
        return [work(part) for part in self.parts]

    def map(self, work, more=None):
        return Listed(self.results(work))

    def __len__(self):
        return len(self.parts)


def walks(count, seed=1):
    """Trips of two to seven points, ten seconds apart."""
    rng = np.random.default_rng(seed)
    start = np.concatenate([[0], np.cumsum(rng.integers(2, 8, count))])
    xy = rng.uniform(100, 900, (start[-1], 2))
    leaves = np.repeat(rng.integers(0, 7 * 86_400, count), np.diff(start))
    return Trips(xy, start, leaves + 10.0 * np.arange(start[-1]))


def test_totals_of_columns_are_those_of_the_arrays():
    column = PartColumn(Listed([{"code": np.array([0, 1, 1])}, {"code": np.array([2, 1])}]), Stored("code"))
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
        domain=BOX,
        budget=sg.PrivacyBudget(5.0),
        settings=sg.TripSettings(
            split=(0.1, 0.4, 0.5), calibration=0.1, times=0.2, recording=0.02, max_depth=8
        ),
    )
    trips, shares, ground = walks(90), setup.shares(timed=True), ground_of(BOX, 8)
    pieces = [setup.place(trips.take(rows)) for rows in np.split(np.arange(90), cuts)]
    split = in_parts(PlacedTrips, Listed([arrays_of(piece) for piece in pieces]))
    whole = measure(setup.place(trips), ground, shares, noise=sg.SeededNoise(4)).arrays()
    parts = measure(split, ground, shares, noise=sg.SeededNoise(4)).arrays()
    assert parts.keys() == whole.keys()
    for name, array in whole.items():
        assert np.array_equal(array, parts[name], equal_nan=True), name


# Files.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One table of points, shuffled, as two Parquet files of small row groups and as one CSV file."""
    trips = walks(300, seed=2)
    rows = pd.DataFrame({"trip_id": [f"t{trip}" for trip in trips.trip], "x": trips.xy[:, 0]})
    rows["y"], rows["user_id"] = trips.xy[:, 1], trips.trip % 40
    rows["time"] = pd.to_datetime(trips.time, unit="s")
    rows = rows.sample(frac=1.0, random_state=3)
    folder = tmp_path_factory.mktemp("trips")
    rows[:700].to_parquet(folder / "a.parquet", row_group_size=100, index=False)
    rows[700:].to_parquet(folder / "b.parquet", row_group_size=100, index=False)
    rows.to_csv(folder / "c.csv", index=False)
    return folder


@pytest.fixture
def unfitted(monkeypatch):
    """What was measured is all that is asked for here."""

    def blank(setup, measured, *_):
        return TripModel.blank(setup.ground, measured, setup.settings.length)

    monkeypatch.setattr(TripSetup, "fit", blank)


def fitted(data, workers=None, ends=None, **options):
    given = {"domain": BOX, "budget": sg.PrivacyBudget(3.0), "noise": sg.SeededNoise(5), "max_depth": 8}
    model = sg.TrajectorySynthesizer.from_options(**given, workers=workers, **options).fit(data, **ends or {})
    attributes = model._attribute_model
    return model.model.measured.arrays() | ({} if attributes is None else attributes.to_state()[1])


def same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(values, other[name], equal_nan=True) for name, values in one.items()
    )


@pytest.mark.parametrize("unit", [None, sg.PrivacyUnit.user(max_trajectories=3)])
def test_files_in_parts_fit_like_files_in_memory(unfitted, folder, unit, monkeypatch):
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 200)
    monkeypatch.setattr(shuffle, "_PIECE_ROWS", 300)
    monkeypatch.setattr(shuffle, "_PIECE_BYTES", 9000)
    whole = fitted(str(folder / "*.parquet"), unit=unit)
    assert same(whole, fitted(str(folder / "*.parquet"), workers=1, unit=unit))
    assert same(whole, fitted(str(folder / "c.csv"), workers=1, unit=unit))
    monkeypatch.setattr(shuffle, "_PIECE_ROWS", 50)  # a part of the files is kept in several pieces
    assert same(whole, fitted(str(folder / "*.parquet"), workers=1, unit=unit))
    assert not same(whole, fitted(str(folder / "a.parquet"), workers=1, unit=unit))


FARES = sg.Schema(
    {
        "vehicle": sg.Categorical(["car", "van"]),
        "fare": sg.Numeric(0, 40, bins=10, outside="clip"),
        "day": sg.Date("1970-01-01", "1970-01-08", bins=7),
    }
)


@pytest.fixture(scope="module")
def with_fares(folder, tmp_path_factory):
    """The same trips with attributes, in a CSV file and in Parquet."""
    rows = pd.read_csv(folder / "c.csv", parse_dates=["time"])
    number = rows["trip_id"].str[1:].astype(int)
    rows = rows.assign(vehicle=np.where(number % 3, "car", "van"), fare=number % 50, day=rows["time"].dt.date)
    made = tmp_path_factory.mktemp("fares")
    rows.to_csv(made / "c.csv", index=False)
    rows.to_parquet(made / "a.parquet", row_group_size=100, index=False)
    return made


@pytest.mark.parametrize("unit", [None, sg.PrivacyUnit.user(max_trajectories=3)])
def test_attributes_travel_with_the_rows(unfitted, with_fares, unit, monkeypatch):
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 200)
    given = {"unit": unit, "attributes": FARES}
    whole = fitted(str(with_fares / "a.parquet"), **given)
    assert any("/" in name for name in whole)
    for name in ("a.parquet", "c.csv"):
        assert same(whole, fitted(str(with_fares / name), workers=1, **given))


ENDS = {"origin": ("x", "y"), "destination": ("x2", "y2"), "departure": "time", "arrival": "came"}


@pytest.mark.parametrize("unit", [None, sg.PrivacyUnit.user(max_trajectories=2)])
def test_trips_known_by_their_ends_in_parts(unfitted, with_fares, unit, monkeypatch, tmp_path):
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 200)
    rows = pd.read_parquet(with_fares / "a.parquet")
    rows = rows.assign(x2=rows["y"], y2=rows["x"], came=rows["time"] + pd.Timedelta("5min"))
    rows.drop(columns="trip_id").to_parquet(tmp_path / "a.parquet", row_group_size=100)
    given = {"unit": unit, "attributes": FARES, "ends": ENDS}
    whole = fitted(str(tmp_path / "a.parquet"), **given)
    assert same(whole, fitted(str(tmp_path / "a.parquet"), workers=1, **given))


def test_windows_of_one_large_file_are_those_of_one_in_memory(unfitted, folder, monkeypatch):
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 200)
    given = {"domain": BOX, "budget": sg.PrivacyBudget(3.0), "lifetime": 1, "max_depth": 8}
    grid = {"every": "2D", "start": "1970-01-01", "end": "1970-01-09"}
    found = []
    for number in (None, 1):
        stream = sg.TrajectoryStream.from_options(**given, noise=sg.SeededNoise(5), workers=number)
        steps = []
        for _, window in stream.windows(str(folder / "c.csv"), **grid):
            counted = stream.count(window, identify=True)
            mechanism = stream.mechanism.copy()
            mechanism.advance(counted.counts, step=1, structure=True)
            steps.append((counted.identity, counted.clock.window, mechanism.latest.arrays()))
        found.append(steps)
    for one, other in zip(*found, strict=True):
        assert one[:2] == other[:2]
        assert same(one[2], other[2])
    assert len({step[0].fingerprint for step in found[0]}) == 4


def test_folders_of_private_rows_are_the_owners_alone_and_go_with_them():
    folder = PrivateFolder()
    path = Path(folder.name)
    assert path.stat().st_mode & 0o777 == 0o700
    (path / "rows").write_bytes(b"private")
    del folder
    assert not path.exists()


def test_a_window_of_parts_holds_its_own_trips_whatever_ids_others_have(tmp_path):
    """Two (user, trip) whose 64-bit mix agrees, computed: each step of the mix can be undone. The second ends
    as its window begins.
    """
    trip, other, user = 1, 2, 10
    while True:  # until the user's number fits into 63 bits
        before = [mix(np.uint64(0), np.uint64(one), np.uint64(0)) for one in (trip, other)]
        same = int(before[0] ^ before[1]) ^ user
        if same < 2**63:
            break
        other += 1
    pairs = np.array([[0, trip, 0, user], [0, other, 0, same]], dtype=np.uint64)
    assert len(set(mix(*pairs.T).tolist())) == 1
    rows = pd.DataFrame({"trip_id": np.repeat([trip, other], 3), "user_id": np.repeat([user, same], 3)})
    rows["time"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.repeat([0, 1], 3), unit="D")
    rows.assign(x=100.0, y=np.arange(6.0)).to_csv(tmp_path / "trips.csv", index=False)
    unit = sg.PrivacyUnit.user(max_trajectories=1)
    stream = sg.TrajectoryStream(domain=BOX, budget=sg.PrivacyBudget(1.0), unit=unit, workers=1)
    windows = stream.windows(str(tmp_path / "trips.csv"), every="1D", start="2026-01-01", end="2026-01-03")
    found = [list(values.ids(window.read(["trip_id"]), "trip_id").low) for _, window in windows]
    assert found == [[trip] * 3, [other] * 3]


def test_attributes_that_nothing_fits_are_refused_in_parts_too(unfitted, with_fares):
    wrong = sg.Schema({"fare": sg.Numeric(1000, 2000, bins=4, outside="clip")})
    given = {"domain": BOX, "budget": sg.PrivacyBudget(3.0), "max_depth": 8, "workers": 1}
    model = sg.TrajectorySynthesizer.from_options(**given, attributes=wrong)
    with pytest.warns(UserWarning, match="not used"), pytest.raises(sg.InputError, match="every value"):
        model.fit(str(with_fares / "c.csv"))
    assert model.spent is None


@pytest.mark.slow
def test_two_processes_fit_like_one_also_when_they_are_killed(unfitted, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 200)
    whole = fitted(str(folder / "*.parquet"))
    monkeypatch.setattr(placing, "Placing", partial(DyingPlacing, folder=str(tmp_path)))
    assert same(whole, fitted(str(folder / "*.parquet"), workers=2))
    died, placed = (len(list(tmp_path.glob(f"{what}-*"))) for what in ("died", "placed"))
    assert died == 2
    assert placed > 2


@pytest.mark.slow
def test_a_task_that_kills_every_process_is_given_up(monkeypatch):
    monkeypatch.setattr(workers, "_TRIES", 1)
    with pytest.raises(sg.SynthGeoError, match="died 1 times"):
        list(workers.Workers(2).map(Killer(), range(1)))


def test_errors_of_rows_name_the_file(unfitted, folder, tmp_path):
    rows = pd.read_csv(folder / "c.csv")
    rows.loc[4, "x"] = np.nan
    rows.to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(sg.InputError, match=r"column 'x', line 6 of bad.csv"):
        fitted(str(tmp_path / "bad.csv"), workers=1)


def test_a_stream_takes_files_in_parts_like_files_in_memory(unfitted, folder, monkeypatch):
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 200)
    released = []
    for number in (None, 1):
        stream = sg.TrajectoryStream(
            domain=BOX, budget=sg.PrivacyBudget(3.0), unit=sg.PrivacyUnit.user(max_trajectories=4),
            lifetime=1, settings=sg.TripSettings(max_depth=8), noise=sg.SeededNoise(5), workers=number,
        )  # fmt: skip
        counts = [stream.count(str(folder / name)) for name in ("a.parquet",)]
        mechanism = stream.mechanism.copy()
        mechanism.advance(counts[0].counts, step=1, structure=True)
        released.append((mechanism.latest.arrays(), counts[0].bounder.admit(*known_trips(folder)).sum()))
    (one, seen), (other, again) = released
    assert same(one, other)
    assert seen == again


def known_trips(folder):
    """Trips of which some were in the first file."""
    rows = pd.read_parquet(folder / "b.parquet").drop_duplicates("trip_id")
    return UserIds.of(rows["trip_id"]), UserIds.of(rows["user_id"])


# A cluster of processes.


@pytest.fixture(scope="module")
def client():
    from dask.distributed import Client, LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as connected,
        ):
            yield connected


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("unit", [None, sg.PrivacyUnit.user(max_trajectories=3)])
def test_a_cluster_fits_like_one_process(unfitted, folder, client, unit):
    """Trips and users are split over partitions: dask's shuffle puts them together."""
    frame = dd.from_pandas(pd.read_csv(folder / "c.csv", parse_dates=["time"]), npartitions=7, sort=False)
    assert same(fitted(str(folder / "*.parquet"), unit=unit), fitted(frame, unit=unit))


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_that_takes_too_long_spends_nothing(unfitted, folder, client):
    rows = pd.read_parquet(folder / "a.parquet")
    slow = dd.from_pandas(rows, npartitions=2, sort=False).map_partitions(slowly, meta=rows.iloc[:0])
    model = sg.TrajectorySynthesizer(domain=BOX, budget=sg.PrivacyBudget(1.0))
    with (
        sg.cluster_timeout(0.5),
        pytest.raises(sg.errors.ClusterError, match=r"not answer within 0\.5 seconds"),
    ):
        model.fit(slow)
    assert model.spent is None


def slowly(rows):
    time.sleep(3)
    return rows


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_measures_attributes_like_one_process(unfitted, with_fares, client):
    rows = pd.read_parquet(with_fares / "a.parquet")
    whole = fitted(str(with_fares / "a.parquet"), attributes=FARES)
    assert same(whole, fitted(dd.from_pandas(rows, npartitions=3, sort=False), attributes=FARES))


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_whose_workers_are_killed_fits_like_one_process(
    unfitted, folder, client, tmp_path, monkeypatch
):
    frame = dd.from_pandas(pd.read_csv(folder / "c.csv", parse_dates=["time"]), npartitions=7, sort=False)
    monkeypatch.setattr(placing, "Placing", partial(DyingPlacing, folder=str(tmp_path)))
    assert same(fitted(str(folder / "*.parquet")), fitted(frame))
    assert len(list(tmp_path.glob("died-*"))) == 2

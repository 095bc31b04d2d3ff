"""Same data, same counts, bit for bit, whatever the engine and however the rows are cut."""

from __future__ import annotations

import warnings
from collections import Counter

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from synthgeo.sources import Histogram, Reading, open_source, source, values
from tests.synthgeo.source_keys import DroppingKeys, GridKeys

ENGINES = ["pandas", "arrow", "batches", "arrays", "parquet", "two parquet files", "csv", "dask"]
GRID = {"time": "time", "every": "6h", "start": "2015-01-01", "end": "2015-01-03"}
FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(autouse=True)
def _plain_dask():
    with dask.config.set(scheduler="synchronous"):
        yield


def open_as(engine, frame, folder):
    """The same rows as a source of each engine."""
    half = len(frame) // 2
    if engine == "pandas":
        return open_source(frame)
    if engine == "arrow":
        return open_source(pa.Table.from_pandas(frame, preserve_index=False))
    if engine == "batches":
        return open_source(pa.Table.from_pandas(frame, preserve_index=False).to_reader(max_chunksize=7))
    if engine == "arrays":
        return open_source({name: frame[name].to_numpy() for name in frame.columns})
    if engine == "parquet":
        frame.to_parquet(folder / "all.parquet", row_group_size=10)
        return open_source(folder / "all.parquet")
    if engine == "two parquet files":
        frame.iloc[:half].to_parquet(folder / "part-0.parquet")
        frame.iloc[half:].to_parquet(folder / "part-1.parquet")
        return open_source(str(folder / "part-*.parquet"))
    if engine == "csv":
        frame.to_csv(folder / "all.csv", index=False)
        return open_source(folder / "all.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return open_source(dd.from_pandas(frame, npartitions=3, sort=False))


def random_frame(seed, rows):
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2014-12-31 18:00")
    return pd.DataFrame(
        {
            "lon": rng.uniform(-0.1, 1.1, rows),
            "lat": rng.uniform(-0.1, 1.1, rows),
            "op": rng.choice([1, 1, -1], rows),
            "user": [f"{user:03d}" for user in rng.integers(0, 9, rows)],
            "time": start + pd.to_timedelta(rng.integers(0, 60 * 3600, rows), unit="s"),
            "unused": rng.normal(size=rows),
        }
    )


def users_histogram(source, m):
    key = GridKeys(op=True)
    events = source.user_events(key, key.columns, "user", weights=2)
    ops = events.weights[:, 0] - events.weights[:, 1]
    inside = ops != 0
    kept = np.zeros(len(ops), dtype=bool)
    bounder = ContributionBounder(PrivacyUnit.user(max_events=m), deletes=True)
    kept[inside] = bounder.admit(events.users.take(inside), events.keys[inside], ops[inside])
    return events.histogram(kept)


@pytest.mark.parametrize("engine", ENGINES[1:])
@settings(max_examples=15, deadline=None, suppress_health_check=FIXTURES)
@given(seed=st.integers(0, 2**32), rows=st.integers(0, 60), chunk=st.sampled_from([5, 1 << 19]))
def test_engines_agree(engine, seed, rows, chunk, tmp_path_factory):
    frame = random_frame(seed, rows)
    key = GridKeys(op=True)
    with pytest.MonkeyPatch.context() as patch:
        expected = open_source(frame).histogram(key, key.columns, weights=2)
        expected_windows = [
            (start, window.histogram(key, key.columns, weights=2))
            for start, window in open_source(frame).windows(**GRID)
        ]
        expected_users = users_histogram(open_source(frame), 4)
        patch.setattr(source, "CHUNK_ROWS", chunk)
        folder = tmp_path_factory.mktemp("engine")
        counted = open_as(engine, frame, folder).histogram(key, key.columns, weights=2)
        windows = [
            (start, window.histogram(key, key.columns, weights=2))
            for start, window in open_as(engine, frame, folder).windows(**GRID)
        ]
        users = users_histogram(open_as(engine, frame, folder), 4)
    assert counted.equals(expected)
    assert [start for start, _ in windows] == [start for start, _ in expected_windows]
    assert len(windows) == 8
    assert all(ours.equals(other) for (_, ours), (_, other) in zip(windows, expected_windows, strict=True))
    assert users.equals(expected_users)


@pytest.mark.parametrize("engine", ENGINES)
def test_windows_hold_each_row_of_the_grid_once(engine, tmp_path):
    frame = random_frame(5, 200)
    key = GridKeys()
    inside = frame[(frame.time >= GRID["start"]) & (frame.time < GRID["end"])]
    assert 0 < len(inside) < len(frame)
    total = Histogram.empty()
    for _, window in open_as(engine, frame, tmp_path).windows(**GRID):
        total = total.merge(window.histogram(key, key.columns))
    assert total.equals(open_source(inside).histogram(key, key.columns))


@pytest.mark.parametrize("engine", ENGINES)
def test_windows_without_rows_are_windows(engine, tmp_path):
    frame = random_frame(5, 30).assign(time=pd.Timestamp("2015-01-02 13:00"))
    key = GridKeys()
    sizes = [
        window.histogram(key, key.columns).size
        for _, window in open_as(engine, frame, tmp_path).windows(**GRID)
    ]
    assert [size > 0 for size in sizes] == [False] * 6 + [True, False]


@pytest.mark.parametrize("engine", ENGINES)
def test_users_events_come_by_window_too(engine, tmp_path):
    frame = random_frame(6, 120)
    found = [users_histogram(window, 2) for _, window in open_as(engine, frame, tmp_path).windows(**GRID)]
    expected = [users_histogram(window, 2) for _, window in open_source(frame).windows(**GRID)]
    assert all(ours.equals(other) for ours, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_function_may_leave_rows_out(engine, tmp_path):
    frame = random_frame(7, 120)
    kept, weighted = DroppingKeys(), GridKeys()
    assert (
        open_as(engine, frame, tmp_path)
        .histogram(kept, weighted.columns)
        .equals(open_source(frame).histogram(weighted, weighted.columns))
    )
    windows = open_as(engine, frame, tmp_path).windows(**GRID)
    expected = open_source(frame).windows(**GRID)
    for (_, window), (_, other) in zip(windows, expected, strict=True):
        ours = window.histogram(kept, weighted.columns)
        assert ours.equals(other.histogram(weighted, weighted.columns))


@pytest.mark.parametrize("engine", ["pandas", "arrow", "parquet", "two parquet files", "csv", "dask"])
def test_rows_read_whole_are_the_rows(engine, tmp_path):
    frame = random_frame(8, 50)
    chunk = open_as(engine, frame, tmp_path).read(["lon", "user", "time"])
    assert np.array_equal(values.numbers(chunk, "lon"), frame["lon"].to_numpy())
    assert values.as_words(chunk, "user").tolist() == frame["user"].tolist()
    assert np.array_equal(values.times(chunk, "time"), frame["time"].to_numpy().astype("datetime64[us]"))


@pytest.mark.parametrize("engine", ENGINES)
def test_bad_row_is_named_wherever_it_is(engine, tmp_path):
    frame = random_frame(9, 40)
    frame.loc[33, "op"] = 5
    key = GridKeys(op=True)
    named = {
        "two parquet files": "row 13 of part-1.parquet",
        "dask": "row 6 of partition 2",
        "csv": "line 35",
    }
    row = named.get(engine, "row 33")
    with pytest.raises(ValueError, match=f"column 'op', {row}.*must be"):
        open_as(engine, frame, tmp_path).histogram(key, key.columns, weights=2)
    frame["time"] = GRID["start"]
    frame["time"] = pd.to_datetime(frame["time"])
    frame.loc[[20, 21], "time"] = pd.Timestamp("2014-01-01")
    _, window = next(open_as(engine, frame, tmp_path).windows(**GRID))
    with pytest.raises(ValueError, match=f"column 'op', {row}.*must be"):
        window.histogram(key, key.columns, weights=2)


@pytest.mark.parametrize("engine", ENGINES)
def test_missing_column_is_named(engine, tmp_path):
    source = open_as(engine, random_frame(1, 10).drop(columns="lat"), tmp_path)
    with pytest.raises(ValueError, match="missing column 'lat'; there are lon, op, user, time, unused"):
        source.histogram(GridKeys(), ["lon", "lat"])


@pytest.mark.parametrize("engine", ENGINES)
def test_missing_time_is_named(engine, tmp_path):
    frame = random_frame(1, 40)
    frame.loc[35, "time"] = pd.NaT
    named = {
        "two parquet files": "row 15 of part-1.parquet",
        "dask": "row 8 of partition 2",
        "csv": "line 37",
    }
    row = named.get(engine, "row 35")
    with pytest.raises(ValueError, match=f"column 'time', {row}.*the time is missing"):
        list(open_as(engine, frame, tmp_path).windows(**GRID))


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=3, deadline=None, suppress_health_check=FIXTURES)
@given(seed=st.integers(0, 2**32), victim=st.integers(0, 8), m=st.integers(2, 5))
def test_user_bounds_hold_over_a_stream_on_every_engine(engine, seed, victim, m, tmp_path_factory):
    """Never more than m events of a user; without one user everybody else's events stay the same."""
    frame = random_frame(seed, 150)
    name = f"{victim:03d}"
    full = kept_of_stream(open_as(engine, frame, tmp_path_factory.mktemp("full")), m)
    others = frame[frame["user"] != name].reset_index(drop=True)
    reduced = kept_of_stream(open_as(engine, others, tmp_path_factory.mktemp("reduced")), m)
    gone = UserIds.of([name])
    gone = (int(gone.high[0]), int(gone.low[0]))
    by_user = Counter()
    for events in full:
        for (user, _, _), count in events.items():
            by_user[user] += count
    assert max(by_user.values()) <= m
    assert [Counter({e: n for e, n in events.items() if e[0] != gone}) for events in full] == reduced


def kept_of_stream(source, m):
    """The admitted events (user, key, op) of each window."""
    key = GridKeys(op=True)
    bounder = ContributionBounder(PrivacyUnit.user(max_events=m), deletes=True)
    kept = []
    for _, window in source.windows(**GRID):
        events = window.user_events(key, key.columns, "user", weights=2)
        ops = events.weights[:, 0] - events.weights[:, 1]
        inside = events.take(ops != 0)
        admitted = inside.take(bounder.admit(inside.users, inside.keys, ops[ops != 0]))
        users = zip(admitted.users.high.tolist(), admitted.users.low.tolist(), strict=True)
        signs = (admitted.weights[:, 0] - admitted.weights[:, 1]).tolist()
        kept.append(Counter(zip(users, admitted.keys.tolist(), signs, strict=True)))
    return kept


@pytest.mark.parametrize("engine", ENGINES)
def test_fingerprints_tell_content_not_order_or_engine(engine, tmp_path):
    """Alternating with counts, window by window, as a durable run does."""
    frame = random_frame(10, 80)
    shuffled = frame.sample(frac=1, random_state=1).reset_index(drop=True)
    columns = {"lon": "number", "lat": "number", "op": "number", "user": "id", "time": "time"}
    expected = [window.fingerprint(columns) for _, window in open_source(shuffled).windows(**GRID)]
    key = GridKeys()
    for number, (_, window) in enumerate(open_as(engine, frame, tmp_path).windows(**GRID)):
        assert window.fingerprint(columns) == expected[number]
        window.histogram(key, key.columns)
        counted = window.identified(columns)
        assert counted.histogram(key, key.columns).equals(window.histogram(key, key.columns))
        bounded = window.identified(columns)
        events = bounded.user_events(GridKeys(op=True), GridKeys(op=True).columns, "user", weights=2)
        chunk = window.identified(columns)
        assert chunk.read(["lon"]).rows == len(events.keys) == chunk.identity.records
        for known in (counted, bounded, chunk):
            assert known.identity.fingerprint == expected[number]
    changed = frame.copy()
    inside = frame.index[frame["time"].between("2015-01-01 06:00", "2015-01-01 11:00")][0]
    changed.loc[inside, "user"] = "999"
    found = [window.fingerprint(columns) for _, window in open_source(changed).windows(**GRID)]
    assert [ours != other for ours, other in zip(found, expected, strict=True)] == [False, True] + [False] * 6


def test_rows_that_are_left_out_of_the_counts_belong_to_the_content(tmp_path):
    """A row is dropped for what it is asked, so a count and a fingerprint may leave out different ones."""
    frame = random_frame(11, 30).astype(str)
    frame.loc[3, "op"], frame.loc[4, "lat"] = "7", "x"
    frame.to_csv(tmp_path / "a.csv", index=False)
    columns = {"lon": "number", "lat": "number", "op": "number", "user": "id"}
    key = GridKeys(op=True)
    for data in (frame, tmp_path / "a.csv"):
        source = open_source(data, reading=Reading(bad_rows="drop"))
        expected, counts = source.fingerprint(columns), source.histogram(key, key.columns, weights=2)
        known = source.identified(columns)
        assert known.histogram(key, key.columns, weights=2).equals(counts)
        assert (known.identity.fingerprint, known.identity.records) == (expected, 29)
        known = source.identified(columns)
        assert len(known.user_events(key, key.columns, "user", weights=2).keys) == 28
        assert known.identity.fingerprint == expected

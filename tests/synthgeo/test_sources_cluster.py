"""The dask engine on a real cluster of processes: same counts, also when a worker dies."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import warnings
from collections import Counter

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.errors import ClusterError, InputError
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.user_table import StoredBounder
from synthgeo.sources import Reading, open_source
from synthgeo.sources.dask import files_on_cluster
from tests.synthgeo.source_keys import (
    Admitted,
    GridKeys,
    RowKeys,
    SlowKeys,
    StragglingKeys,
    deep_releases,
    few_keys,
)
from tests.synthgeo.test_sources_coupling import HEADER, KINDS, csv_bytes, dask_source

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
KEY = GridKeys()


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


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(11)
    rows = 4_000
    return pd.DataFrame(
        {
            "lon": rng.uniform(-0.1, 1.1, rows),
            "lat": rng.uniform(-0.1, 1.1, rows),
            "user": rng.integers(0, 300, rows),
            "time": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 86400, rows), unit="s"),
        }
    )


def test_cluster_counts_like_one_machine(client, frame):
    distributed, local = open_source(dd.from_pandas(frame, npartitions=11)), open_source(frame)
    assert distributed.histogram(KEY, KEY.columns).equals(local.histogram(KEY, KEY.columns))
    grid = {"time": "time", "every": "6h", "start": "2015-01-01", "end": "2015-01-02"}
    for (_, ours), (_, other) in zip(distributed.windows(**grid), local.windows(**grid), strict=True):
        assert ours.histogram(KEY, KEY.columns).equals(other.histogram(KEY, KEY.columns))


def test_cluster_bounds_users_like_one_machine(client, frame, tmp_path):
    """Three batches, with the memory here and in a table; a worker dies in the middle of the second."""
    unit = PrivacyUnit.user(max_events=9, key="user")
    here = ContributionBounder(unit)
    others = [ContributionBounder(unit), StoredBounder(unit, tmp_path / "users", buckets=3)]
    for number in range(3):
        batch = frame.iloc[number::3]
        expected = open_source(batch).count_users(KEY, KEY.columns, "user", Admitted(width=1), here)
        assert expected.weights.sum() > 100
        for order, bounder in enumerate(others):
            source = open_source(dd.from_pandas(batch, npartitions=5))
            marks = tmp_path / f"marks-{number}-{order}"
            marks.mkdir()
            slow = number == 1
            killer = kill_one(marks, after=2) if slow else None
            keys = SlowKeys(str(marks), 0.3) if slow else KEY
            found = source.count_users(keys, KEY.columns, "user", Admitted(width=1), bounder)
            if killer is not None:
                killer.join()
                assert len(list(marks.iterdir())) > 5
            assert found.equals(expected)


def test_one_more_row_couples_nobody_on_workers(client, tmp_path):
    """The property of ``test_sources_coupling``, for rows that processes read: lines, and objects."""
    rng = np.random.default_rng(1)
    times = [f"2021-0{number % 9 + 1}-02 03:00:00" for number in range(300)]
    rows = pd.DataFrame(
        {
            "lon": rng.random(300),
            "lat": rng.random(300),
            "op": 1,
            "time": times,
            "user": range(300),
            "kind": "4",
        },
        columns=HEADER,
    ).astype(str)
    reading = Reading(bad_rows="drop")
    content = csv_bytes(rows.to_dict("records"))
    lines = content.split(b"\n")
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    expected = hashes(files_on_cluster([str(path)], reading))
    assert expected.total() == 300
    nasty = [
        b"1,2,1,04/13/2020,10000000000000000000,x",
        b'"',
        b"\xff\xfe,,,",
        b"1,2,1,2020-01-01T00:00Z,1,true",
        b"",
    ]
    for number, line in enumerate(nasty):
        at = 1 + 60 * number
        path.write_bytes(b"\n".join([*lines[:at], line, *lines[at:]]))
        assert not expected - hashes(files_on_cluster([str(path)], reading))
    frame = rows.astype(object)
    expected = hashes(dask_source(frame, reading))
    for value in (None, 2**70, pd.Timestamp("2020-04-13", tz="UTC"), b"x", pd.NA):
        more = pd.concat(
            [frame, pd.DataFrame([dict.fromkeys(HEADER, value)], dtype=object)], ignore_index=True
        )
        assert not expected - hashes(dask_source(more.astype(object), reading))


def hashes(source):
    """The multiset of records, as workers read and count them."""
    found = source.histogram(RowKeys(tuple(KINDS.items())), HEADER)
    return Counter(dict(zip(found.keys.tolist(), found.weights[:, 0].tolist(), strict=True)))


def test_bad_rows_come_back_from_a_worker(client, frame):
    broken = frame.copy()
    broken.loc[3_999, "lat"] = np.nan
    with pytest.raises(InputError, match=r"column 'lat', row 999 of partition 3: is missing or not a number"):
        open_source(dd.from_pandas(broken, npartitions=4)).histogram(KEY, KEY.columns)


class Signaller(threading.Thread):
    """Signals the worker that has just begun a partition, once so many were begun."""

    def __init__(self, marks, after, number):
        super().__init__()
        self.marks, self.after, self.number, self.victim = marks, after, number, None
        self.start()

    def run(self):
        while len(list(self.marks.iterdir())) < self.after:
            time.sleep(0.02)
        latest = max(self.marks.iterdir(), key=lambda mark: mark.stat().st_mtime_ns)
        self.victim = int(latest.name.partition("-")[0])
        assert self.victim != os.getpid()
        os.kill(self.victim, self.number)

    def join(self):
        """The process that was signalled."""
        super().join()
        return self.victim


def kill_one(marks, after):
    return Signaller(marks, after, signal.SIGKILL)


def test_a_worker_killed_midway_changes_nothing(client, frame, tmp_path):
    killer = kill_one(tmp_path, after=5)
    slow = SlowKeys(str(tmp_path), 0.4)
    counted = open_source(dd.from_pandas(frame, npartitions=20)).histogram(slow, KEY.columns)
    killer.join()
    assert len(list(tmp_path.iterdir())) > 20  # what was lost with the worker was counted again
    assert counted.equals(open_source(frame).histogram(KEY, KEY.columns))


def slowly(rows, mark, seconds=30.0, begun=None):
    """Takes long, unless the folder of the mark is there; leaves a file when it begins."""
    if not mark.exists():
        if begun is not None:
            begun.touch()
        time.sleep(seconds)
    return rows


def test_a_cluster_that_takes_too_long_spends_nothing_and_the_run_goes_on(client, frame, tmp_path):
    mark = tmp_path / "go"
    points = frame[["lon", "lat"]]
    slow = dd.from_pandas(points, npartitions=2).map_partitions(slowly, mark, meta=points.iloc[:0])
    stream = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1, crs=4326), budget=sg.PrivacyBudget(1.0))
    with sg.StreamRun.open(tmp_path / "run", stream) as run:
        with sg.cluster_timeout(1.0), pytest.raises(ClusterError, match="not answer within 1 seconds"):
            run.step("1", slow)
        assert run.steps == 0
        mark.mkdir()
        run.step("1", slow)
        assert run.steps == 1


def test_rows_that_a_worker_cannot_read_are_one_line(client, frame, tmp_path):
    for number in range(2):
        frame.to_parquet(tmp_path / f"{number}.parquet")
    frame.to_parquet(tmp_path / "1.parquet", compression=None)
    frames = open_source(dd.read_parquet(sorted(tmp_path.glob("*.parquet")), columns=["lon", "lat"]))
    content = (tmp_path / "1.parquet").read_bytes()
    (tmp_path / "1.parquet").write_bytes(content[:4] + bytes(2_000) + content[2_004:])
    files = files_on_cluster([str(tmp_path / "*.parquet")], Reading())  # its footer can still be read
    for source, line in ((files, r"1\.parquet: .*"), (frames, r"a worker could not read its rows \(\w+\)")):
        with pytest.raises(InputError, match=line) as problem:
            source.histogram(KEY, KEY.columns)
        assert "\n" not in str(problem.value)


def small_cluster(**more):
    from dask.distributed import LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL}
    return LocalCluster(n_workers=2, **options, **more)


def test_a_frozen_worker_is_left(frame, tmp_path):
    """A worker that stops without dying is given up by the scheduler, and its rows are counted elsewhere."""
    from dask.distributed import Client

    slow = SlowKeys(str(tmp_path), 0.2)
    with warnings.catch_warnings(), dask.config.set({"distributed.scheduler.worker-ttl": "2s"}):
        warnings.simplefilter("ignore")
        with small_cluster() as cluster, Client(cluster):
            stopper = Signaller(tmp_path, 3, signal.SIGSTOP)
            counted = open_source(dd.from_pandas(frame, npartitions=12)).histogram(slow, KEY.columns)
            assert stopper.join()
            assert counted.equals(open_source(frame).histogram(KEY, KEY.columns))


def close_once_begun(cluster, begun):
    while not begun.exists():
        time.sleep(0.02)
    cluster.sync(cluster.scheduler.close)


def test_a_run_goes_on_after_its_scheduler_was_restarted(frame, tmp_path):
    from dask.distributed import Client

    points = frame[["lon", "lat"]]
    slow = dd.from_pandas(points, npartitions=12).map_partitions(
        slowly, tmp_path / "go", 1.0, tmp_path / "begun", meta=points.iloc[:0]
    )
    stream = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1, crs=4326), budget=sg.PrivacyBudget(1.0))
    ledger = sg.Ledger.open(tmp_path / "ledger.sqlite", dataset="points", cap=sg.PrivacyBudget(1.0))
    with (
        warnings.catch_warnings(),
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        sg.StreamRun.open(tmp_path / "run", stream, ledger=ledger) as run,
    ):
        warnings.simplefilter("ignore")
        with small_cluster() as cluster, Client(cluster):
            closer = threading.Thread(target=close_once_begun, args=(cluster, tmp_path / "begun"))
            closer.start()
            with pytest.raises(ClusterError, match="connection to the cluster was lost"):
                run.step("1", slow)
            closer.join()
        assert run.steps == 0
        assert ledger.spent is None
        (tmp_path / "go").mkdir()
        with small_cluster() as cluster, Client(cluster):  # the scheduler is back
            run.step("1", slow)
        assert run.steps == 1
        assert ledger.spent == sg.PrivacyBudget(1.0)


def test_a_straggler_is_waited_for_and_counts_once(client, frame, tmp_path):
    hangs = StragglingKeys(str(tmp_path), 1.5)
    counted = open_source(dd.from_pandas(frame, npartitions=6)).histogram(hangs, KEY.columns)
    assert len(list(tmp_path.iterdir())) == 6
    assert counted.equals(open_source(frame).histogram(KEY, KEY.columns))


def test_cells_asked_of_a_cluster_give_the_same_releases(client, monkeypatch, frame):
    expected = list(deep_releases(frame))
    few_keys(monkeypatch)
    assert list(deep_releases(dd.from_pandas(frame, npartitions=4))) == expected

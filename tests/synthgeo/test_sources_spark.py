"""The Spark engine on a real cluster of processes: same counts and releases, also when a worker dies."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import synthgeo as sg
from synthgeo.errors import ClusterError, InputError
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.user_table import StoredBounder
from synthgeo.sources import open_source, values
from synthgeo.sources.declared import Reading
from tests.synthgeo.source_keys import (
    Admitted,
    GridKeys,
    Marked,
    SlowKeys,
    StragglingKeys,
    deep_releases,
    few_keys,
)
from tests.synthgeo.test_sources_agreement import GRID, random_frame, users_histogram

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed: the tests on Spark skip")
if shutil.which("java") is None:
    pytest.skip("no Java here: the tests on Spark skip", allow_module_level=True)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
KEY = GridKeys(op=True)


@pytest.fixture(scope="module")
def session():
    """One session for all tests: two worker processes with one core each."""
    from pyspark.sql import SparkSession

    home = os.path.dirname(pyspark.__file__)  # noqa: PTH120
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_HOME", home)
        patch.setenv("SPARK_LOCAL_HOSTNAME", "localhost")
        patch.setenv("PYTHONPATH", os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]))  # noqa: PTH109
        spark = (
            SparkSession.builder.master("local-cluster[2,1,1024]")
            .appName("synthgeo tests")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "America/Chicago")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.speculation", "true")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("OFF")
        yield spark
        spark.stop()


def on_spark(session, frame, partitions=5):
    made = session.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False))
    if "time" in frame:  # times without a zone arrive as local ones of the session
        made = made.withColumn("time", made["time"].cast("timestamp_ntz"))
    return made.repartition(partitions)


@pytest.fixture(scope="module")
def frame():
    found = random_frame(11, 3_000)
    return found.assign(user=found["user"].astype(object))


def test_spark_counts_like_one_machine(session, frame):
    ours, local = open_source(on_spark(session, frame)), open_source(frame)
    assert ours.histogram(KEY, KEY.columns, weights=2).equals(local.histogram(KEY, KEY.columns, weights=2))
    kinds = {"lon": "number", "user": "id", "time": "time"}
    assert ours.fingerprint(kinds, key=b"s") == local.fingerprint(kinds, key=b"s")
    counted = 0
    for (start, here), (stamp, there) in zip(ours.windows(**GRID), local.windows(**GRID), strict=True):
        assert start == stamp
        found = here.histogram(KEY, KEY.columns, weights=2)
        assert found.equals(there.histogram(KEY, KEY.columns, weights=2))
        counted += int(found.weights.sum())
        assert users_histogram(here, 2).equals(users_histogram(there, 2))
    assert counted > 1_000


def test_rows_read_whole_are_the_rows(session, frame):
    chunk = open_source(on_spark(session, frame)).read(["lon", "user"])
    found = sorted(zip(values.numbers(chunk, "lon"), values.as_words(chunk, "user"), strict=True))
    assert found == sorted(zip(frame["lon"], frame["user"], strict=True))


def test_no_rows_are_no_rows(session, frame):
    source = open_source(on_spark(session, frame).where("lon > 5"))
    assert source.histogram(KEY, KEY.columns, weights=2).size == 0
    assert source.read(["lon"]).rows == 0


def test_instants_are_the_same_whatever_the_zone_of_the_session(session):
    times = pd.to_datetime(["2015-01-01T00:30Z", "2015-01-01T07:00Z"])
    made = session.createDataFrame([(t.to_pydatetime(),) for t in times], "at timestamp")
    source = open_source(made)
    assert source.is_zoned("at")
    assert np.array_equal(np.sort(values.times(source.read(["at"]), "at")), times.tz_localize(None))


def test_odd_names_of_columns(session):
    source = open_source(session.createDataFrame([(1.0, 2.0)], "`a.b` double, `c``d` double"))
    chunk = source.read(["a.b", "c`d"])
    assert [float(chunk[name][0]) for name in ("a.b", "c`d")] == [1.0, 2.0]


def test_spark_bounds_users_like_one_machine(session, frame, tmp_path):
    """Two batches, with the memory in a table: users meet in Spark's shuffle."""
    unit = PrivacyUnit.user(max_events=250, key="user")
    here = ContributionBounder(unit, deletes=True)
    stored = StoredBounder(unit, tmp_path / "users", buckets=3, deletes=True)
    for number in range(2):
        batch = frame.iloc[number::2]
        expected = open_source(batch).count_users(KEY, KEY.columns, "user", Admitted(), here, weights=2)
        assert expected.weights.sum() > 100
        source = open_source(on_spark(session, batch, 2))
        found = source.count_users(KEY, KEY.columns, "user", Admitted(), stored, weights=2)
        assert found.equals(expected)
    broken = open_source(on_spark(session, frame.assign(user=frame["user"].where(frame.index != 17)), 2))
    with pytest.raises(InputError, match=r"column 'user', row \d+ of partition \d: the id is missing"):
        broken.count_users(KEY, KEY.columns, "user", Admitted(), stored, weights=2)


def test_bad_rows_come_back_from_a_worker(session, frame):
    broken = frame.assign(lat=frame["lat"].where(np.arange(len(frame)) != 17))
    with pytest.raises(InputError, match=r"column 'lat', row \d+ of partition \d: is missing or not a num"):
        open_source(on_spark(session, broken, 3)).histogram(KEY, KEY.columns, weights=2)


def test_what_spark_itself_cannot_read_is_one_line(session, tmp_path, frame):
    frame[["lon", "lat", "op"]].to_parquet(tmp_path / "a.parquet")
    rows = session.read.parquet(str(tmp_path / "a.parquet"))
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no longer")
    with pytest.raises(InputError, match="Spark could not read the rows") as problem:
        open_source(rows).histogram(KEY, KEY.columns, weights=2)
    assert "\n" not in str(problem.value)


def test_a_cluster_that_takes_too_long_is_left(session, frame, tmp_path):
    plain = GridKeys()
    source = open_source(on_spark(session, frame, 2))
    with sg.cluster_timeout(1.0), pytest.raises(ClusterError, match="not answer within 1 seconds"):
        source.histogram(SlowKeys(str(tmp_path), 20), plain.columns)
    assert source.histogram(plain, plain.columns).equals(open_source(frame).histogram(plain, plain.columns))


def test_a_worker_killed_midway_changes_nothing(session, frame, tmp_path):
    slow = SlowKeys(str(tmp_path), 0.3)
    killed = []

    def kill_one():
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.02)
        latest = max(tmp_path.iterdir(), key=lambda mark: mark.stat().st_mtime_ns)
        killed.append(int(latest.name.partition("-")[0]))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    plain = GridKeys()
    counted = open_source(on_spark(session, frame, 8)).histogram(slow, plain.columns)
    killer.join()
    assert killed[0] != os.getpid()
    assert len(list(tmp_path.iterdir())) > 8  # what was lost with the worker was counted again
    assert counted.equals(open_source(frame).histogram(plain, plain.columns))


def test_a_straggler_is_waited_for_and_counts_once(session, frame, tmp_path):
    plain = GridKeys()
    counted = open_source(on_spark(session, frame, 6)).histogram(
        StragglingKeys(str(tmp_path), 1.5), plain.columns
    )
    assert len(list(tmp_path.iterdir())) >= 6
    assert counted.equals(open_source(frame).histogram(plain, plain.columns))


def test_a_frozen_worker_is_left_after_the_time_allowed(session, frame, tmp_path):
    """A process that stops without dying fails the count in one line; the next one does without it."""
    plain, stopped = GridKeys(), []

    def freeze_one():
        while not (marks := list(tmp_path.iterdir())):
            time.sleep(0.02)
        stopped.append(int(marks[0].name.partition("-")[0]))
        os.kill(stopped[0], signal.SIGSTOP)

    source = open_source(on_spark(session, frame, 2))
    expected = open_source(frame).histogram(plain, plain.columns)
    assert source.histogram(plain, plain.columns).equals(expected)  # workers are there
    freezer = threading.Thread(target=freeze_one)
    freezer.start()
    try:
        with sg.cluster_timeout(4.0), pytest.raises(ClusterError, match="not answer within 4 seconds"):
            source.histogram(SlowKeys(str(tmp_path), 1.0), plain.columns)
        freezer.join()
        assert stopped[0] != os.getpid()
        assert source.histogram(plain, plain.columns).equals(expected)
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped[0], signal.SIGKILL)


PRODUCTS = ("points", "users", "table", "table of users")
BOX = {"domain": sg.BoxDomain(0, 0, 1, 1, crs=4326), "x": "lon", "y": "lat"}
SCHEMA = sg.Schema({"lon": sg.Numeric(0, 1, bins=4), "user": sg.Categorical([f"{i:03d}" for i in range(9)])})


def release(product, data):
    unit = {"unit": sg.PrivacyUnit.user(max_events=4, key="user")} if "users" in product else {}
    given = {"budget": sg.PrivacyBudget(1.0), "noise": sg.SeededNoise(5), **unit}
    if product.startswith("table"):
        return sg.TabularStream.from_options(schema=SCHEMA, **given).update(data).data.to_csv()
    return sg.PHDStream.from_options(**BOX, **given).update(data).data.geometry.to_wkb().tolist()


def releases(data):
    return [release(product, data) for product in PRODUCTS]


def test_the_same_release_under_the_same_seed(session, frame, tmp_path):
    from synthgeo.sources.spark import files_on_spark

    points = frame[["lon", "lat", "user"]]
    points = points[points["lon"].between(0, 1)]
    points.to_csv(tmp_path / "all.csv", index=False)
    points.to_parquet(tmp_path / "all.parquet", row_group_size=700)
    expected = releases(points)
    assert len(set(map(str, expected))) == len(PRODUCTS)
    assert releases(on_spark(session, points)) == expected
    for name in ("all.csv", "all.parquet"):
        assert releases(files_on_spark([tmp_path / name], Reading(), session)) == expected


class Killer(threading.Thread):
    """Kills a worker once two partitions were begun: the process that began the last one, or the first Java
    process above it, which is Spark's executor.
    """

    def __init__(self, marks, java):
        super().__init__()
        self.marks, self.java, self.killed = marks, java, None
        self.start()

    def run(self):
        import psutil

        while len(list(self.marks.iterdir())) < 2:
            time.sleep(0.02)
        latest = max(self.marks.iterdir(), key=lambda mark: mark.stat().st_mtime_ns)
        victim = psutil.Process(int(latest.name.partition("-")[0]))
        if self.java:
            victim = next(process for process in victim.parents() if "java" in process.name())
        assert os.getpid() in [process.pid for process in victim.parents()]
        victim.kill()
        self.killed = victim.pid


def test_four_engines_release_the_same_though_workers_are_killed(session, frame, tmp_path):
    """In memory, DuckDB over files, dask and Spark with two processes each, one of which is killed in the
    middle of every release.
    """
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    points = frame[["lon", "lat", "user"]]
    points = points[points["lon"].between(0, 1)]
    points.to_parquet(tmp_path / "all.parquet", row_group_size=700)
    expected = releases(points)
    assert releases(str(tmp_path / "all.parquet")) == expected

    def on_dask(marked):
        return dd.from_pandas(points, npartitions=5).map_partitions(marked, meta=points.iloc[:0])

    def slowly_on_spark(marked):
        rows = on_spark(session, points)
        return rows.mapInArrow(lambda batches: map(marked, batches), rows.schema)

    cluster = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(**cluster) as two, Client(two):
        for make, java in ((on_dask, False), (slowly_on_spark, True)):
            found = []
            for product in PRODUCTS:
                marks = tmp_path / f"{make.__name__} {product}"
                marks.mkdir()
                killer = Killer(marks, java)
                found.append(release(product, make(Marked(str(marks), 0.3))))
                killer.join()
                assert killer.killed
                assert len(list(marks.iterdir())) > 5  # what was lost with the worker was counted again
            assert found == expected


def test_cells_asked_of_spark_give_the_same_releases(session, frame, monkeypatch):
    points = frame[["lon", "lat", "user"]]
    expected = next(deep_releases(points))
    few_keys(monkeypatch)
    assert next(deep_releases(on_spark(session, points, 2))) == expected


def test_the_command_line_counts_on_spark(session, frame, tmp_path):
    from typer.testing import CliRunner

    from synthgeo.cli.app import app

    points = frame[["lon", "lat"]].rename(columns={"lon": "x", "lat": "y"})
    points.to_csv(tmp_path / "a.csv", index=False)
    found = []
    for name, more in (("here", []), ("there", ["--spark=local[2]"])):
        run = ["stream", "run", tmp_path / name, tmp_path / "a.csv", "--bounds=0,0,1,1", "--epsilon=1"]
        done = CliRunner().invoke(app, [str(part) for part in [*run, "--seed=7", *more]])
        assert done.exit_code == 0, done.output
        found.append(next((tmp_path / name / "releases").rglob("data.parquet")).read_bytes())
    assert found[0] == found[1]
    assert session.range(3).count() == 3  # a session that somebody else started goes on

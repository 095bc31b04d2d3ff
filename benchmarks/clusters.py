"""Counting on clusters of processes: against each engine's own ``group by`` of the same keys, users, tables.

``python -m benchmarks.clusters count`` counts Morton keys on dask with two processes and on Spark
``local[2]``; ``users`` bounds users in memory, through files, and on both clusters; ``marginals`` counts all
pairs of 100 columns. Each measurement runs in a process of its own and is given in seconds of processor time
of it and of all its workers, after a small job that starts them. A run that is stopped goes on where it was;
remove a file of results to measure its part again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import in_a_process, made_once, peak_memory_mib, record, recorded
from benchmarks.engines import BITS, BOX, SPREAD, _keys, _summary, measure_sql, simulate
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources import Histogram, Source, UserEvents, open_source
from synthgeo.sources.declared import Reading

ROWS = 40_000_000
USERS, EVENTS, BOUND = 10_000_000, 10, 4
COLUMNS, TABLE_ROWS = 100, 10_000_000
FILES = "city-*.parquet"


def _processor_seconds() -> float:
    """Of this process and of all that it started and that still run."""
    import psutil

    here = psutil.Process()
    total = 0.0
    for process in [here, *here.children(recursive=True)]:
        used = process.cpu_times()
        total += used.user + used.system
    return total


def _measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    before, start = _processor_seconds(), time.perf_counter()
    found = work()
    return found, {"seconds": time.perf_counter() - start, "cpu_seconds": _processor_seconds() - before}


@contextmanager
def _dask() -> Iterator[Any]:
    from dask.distributed import Client, LocalCluster

    two: Any = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)  # type: ignore[no-untyped-call]
    with two as cluster, Client(cluster) as client:  # type: ignore[no-untyped-call]
        yield client


@contextmanager
def _spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    session = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "16")
        .config("spark.driver.memory", "3g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


@dataclass(frozen=True)
class Plain:
    """The keys of a partition as a column, for an engine's own grouping."""

    keys: Any

    def __call__(self, frame: Any) -> Any:
        import pandas as pd

        found, weights = self.keys({name: frame[name].to_numpy() for name in frame})
        return pd.Series(found[weights[:, 0] > 0].view(np.int64), name="key")


def count_duckdb(folder: Path) -> dict[str, Any]:
    """Our key function over the batches that DuckDB streams."""
    source, keys, columns = _keys(folder, BITS[0])
    return _counted(source, keys, columns)


def count_duckdb_plain(folder: Path) -> dict[str, Any]:
    """One SQL query."""
    found, used = _measured(lambda: measure_sql(folder, BITS[0]))
    return found | used


def _counted(source: Source, keys: Any, columns: list[str]) -> dict[str, Any]:
    found, used = _measured(lambda: source.histogram(keys, columns))
    return used | _summary(found.keys, found.weights[:, 0])


def count_dask(folder: Path) -> dict[str, Any]:
    """Workers read row groups of the files as Arrow batches."""
    from synthgeo.sources.dask import files_on_cluster

    _, keys, columns = _keys(folder, BITS[0])
    with _dask():
        files_on_cluster([folder / "city-0.parquet"], Reading()).time_span("time")
        return _counted(files_on_cluster([str(folder / FILES)], Reading()), keys, columns)


def count_dask_frame(folder: Path) -> dict[str, Any]:
    """Partitions of a dask DataFrame, which are pandas."""
    import dask.dataframe as dd

    _, keys, columns = _keys(folder, BITS[0])
    with _dask():
        frame = dd.read_parquet(str(folder / FILES), columns=columns)
        open_source(frame.partitions[0]).histogram(keys, columns)
        return _counted(open_source(frame), keys, columns)


def count_dask_plain(folder: Path) -> dict[str, Any]:
    """The same keys by ``map_partitions``, then dask's ``value_counts``."""
    import dask.dataframe as dd
    import pandas as pd

    _, keys, columns = _keys(folder, BITS[0])
    with _dask():
        frame = dd.read_parquet(str(folder / FILES), columns=columns)
        made = frame.map_partitions(Plain(keys), meta=pd.Series([], dtype=np.int64, name="key"))
        made.partitions[0].size.compute()
        found, used = _measured(lambda: made.value_counts().compute().sort_index())
    return used | _summary(found.index.to_numpy().view(np.uint64), found.to_numpy())


def count_spark(folder: Path) -> dict[str, Any]:
    """Spark's workers read row groups of the files as Arrow batches."""
    from synthgeo.sources.spark import files_on_spark

    _, keys, columns = _keys(folder, BITS[0])
    with _spark() as session:
        files_on_spark([folder / "city-0.parquet"], Reading(), session).time_span("time")
        return _counted(files_on_spark([str(folder / FILES)], Reading(), session), keys, columns)


def count_spark_frame(folder: Path) -> dict[str, Any]:
    """A Spark DataFrame over the files, handed to the key function in Arrow batches."""
    _, keys, columns = _keys(folder, BITS[0])
    with _spark() as session:
        open_source(session.read.parquet(str(folder / "city-0.parquet"))).histogram(keys, columns)
        return _counted(open_source(session.read.parquet(str(folder / FILES))), keys, columns)


def count_spark_plain(folder: Path) -> dict[str, Any]:
    """The same keys in Spark's own expressions, grouped and counted."""
    from pyspark.sql import functions as sql

    half = BITS[0] // 2
    with _spark() as session:

        def keys_of(files: str) -> Any:
            rows = session.read.parquet(str(folder / files)).where(
                f"lon between {BOX[0]} and {BOX[2]} and lat between {BOX[1]} and {BOX[3]}"
            )
            for name, low, high in (("lon", BOX[0], BOX[2]), ("lat", BOX[1], BOX[3])):
                slot = sql.floor((sql.col(name) - low) * ((1 << half) / (high - low))).cast("long")
                rows = rows.withColumn(name, sql.least(slot, sql.lit((1 << half) - 1)))
                for shift, mask in SPREAD[1:]:  # ten bits need no more
                    spread = sql.col(name).bitwiseOR(sql.shiftleft(name, shift)).bitwiseAND(sql.lit(mask))
                    rows = rows.withColumn(name, spread)
            return rows.select(sql.shiftleft("lon", 1).bitwiseOR(sql.col("lat")).alias("key"))

        keys_of("city-0.parquet").groupBy("key").count().toArrow()
        found, used = _measured(lambda: keys_of(FILES).groupBy("key").count().sort("key").toArrow())
    return used | _summary(found["key"].to_numpy().view(np.uint64), found["count"].to_numpy())


@dataclass(frozen=True)
class Admitted:
    """Counts what a bounder admits."""

    width: int = 1

    def __call__(self, events: UserEvents, bounder: ContributionBounder) -> Histogram:
        return events.histogram(bounder.admit(events.users, events.keys))


def _bounded(folder: Path, source: Source) -> dict[str, Any]:
    from synthgeo.privacy.user_table import StoredBounder

    _, keys, columns = _keys(folder, BITS[0])
    unit = PrivacyUnit.user(max_events=BOUND, key="user")
    with tempfile.TemporaryDirectory(dir=folder) as table:
        bounder = StoredBounder(unit, table, buckets=32)
        found, used = _measured(lambda: source.count_users(keys, columns, "user", Admitted(), bounder))
    return used | {"driver_peak_mib": peak_memory_mib()} | _summary(found.keys, found.weights[:, 0])


def users_memory(folder: Path) -> dict[str, Any]:
    """All events in memory, and what is remembered as well."""
    _, keys, columns = _keys(folder, BITS[0])
    bounder = ContributionBounder(PrivacyUnit.user(max_events=BOUND, key="user"))
    source: Any = open_source(str(folder / FILES))
    found, used = _measured(lambda: Source.count_users(source, keys, columns, "user", Admitted(), bounder))
    return used | {"driver_peak_mib": peak_memory_mib()} | _summary(found.keys, found.weights[:, 0])


def users_duckdb(folder: Path) -> dict[str, Any]:
    """Events through files, a table of users on disk."""
    return _bounded(folder, open_source(str(folder / FILES)))


def users_dask(folder: Path) -> dict[str, Any]:
    """Events through dask's shuffle, a table of users on disk."""
    from synthgeo.sources.dask import files_on_cluster

    with _dask():
        source = files_on_cluster([str(folder / FILES)], Reading())
        files_on_cluster([folder / "city-0.parquet"], Reading()).time_span("time")
        return _bounded(folder, source)


def users_spark(folder: Path) -> dict[str, Any]:
    """Events through Spark's shuffle, a table of users on disk."""
    from synthgeo.sources.spark import files_on_spark

    with _spark() as session:
        source = files_on_spark([str(folder / FILES)], Reading(), session)
        files_on_spark([folder / "city-0.parquet"], Reading(), session).time_span("time")
        return _bounded(folder, source)


def _wide(folder: Path, rows: int, values: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"wide-{values}.parquet"
    unfinished = path.with_suffix(".part")
    if not path.exists():
        rng = np.random.default_rng(values)
        names = [f"c{number:02d}" for number in range(COLUMNS)]
        with pq.ParquetWriter(unfinished, pa.schema([(name, pa.int8()) for name in names])) as writer:
            for part in np.array_split(np.arange(rows), max(1, rows // 250_000)):
                drawn = {name: rng.integers(0, values, part.size).astype(np.int8) for name in names}
                writer.write_table(pa.table(drawn))
        unfinished.replace(path)
    return path


def _pairs(folder: Path, rows: int, values: int) -> dict[str, Any]:
    import synthgeo as sg
    from tabular.marginals import MarginalIndex
    from tabular.workload import all_k_way

    source = open_source(str(_wide(folder, rows, values)))
    schema = sg.Schema({name: sg.Categorical(range(values)) for name in source.columns})
    index = MarginalIndex(schema, all_k_way(schema, 2))
    index.keys(np.zeros((1 << 10, COLUMNS), np.int64), np.ones(1 << 10, np.int64))  # compiled
    raw = _measured(lambda: [chunk.rows for chunk in source.chunks(source.columns)])[1]
    codes = _measured(
        lambda: [schema.encode(chunk, narrow=True).shape for chunk in source.chunks(source.columns)]
    )[1]
    found, all_of_it = _measured(lambda: source.histogram(index, source.columns))
    counting = all_of_it["cpu_seconds"] - codes["cpu_seconds"]
    return {
        "rows": rows,
        "values": values,
        "pairs": len(index.cliques),
        "read_cpu_seconds": raw["cpu_seconds"],
        "encoded_cpu_seconds": codes["cpu_seconds"],
        **all_of_it,
        "times_read": all_of_it["cpu_seconds"] / raw["cpu_seconds"],
        "times_encoded": all_of_it["cpu_seconds"] / codes["cpu_seconds"],
        "ns_per_row_and_pair": 1e9 * counting / rows / len(index.cliques),
        "counted": int(found.weights.sum()),
    }


def marginals_8(folder: Path) -> dict[str, Any]:
    """Columns with 8 values: by bits."""
    return _pairs(folder, int((folder / "rows").read_text()), 8)


def marginals_32(folder: Path) -> dict[str, Any]:
    """Columns with 32 values: row by row."""
    return _pairs(folder, int((folder / "rows").read_text()), 32)


PARTS: dict[str, tuple[Callable[[Path], dict[str, Any]], ...]] = {
    "count": (
        count_duckdb_plain,
        count_duckdb,
        count_dask_plain,
        count_dask,
        count_dask_frame,
        count_spark_plain,
        count_spark,
        count_spark_frame,
    ),
    "users": (users_memory, users_duckdb, users_dask, users_spark),
    "marginals": (marginals_8, marginals_32),
}
MEASURES = {measure.__name__: measure for part in PARTS.values() for measure in part}
SIZES = {"count": ROWS, "users": USERS * EVENTS, "marginals": TABLE_ROWS}


def main() -> None:
    """Simulate, measure, record."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("part", nargs="?", choices=list(PARTS), help="one part, not all")
    options.add_argument("--rows", type=int, help="instead of the full number, for every part")
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--measure", choices=list(MEASURES), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        found = MEASURES[chosen.measure](chosen.folder)
        print(json.dumps(found | {"peak_mib": peak_memory_mib()}))
        return
    for part in [chosen.part] if chosen.part else PARTS:
        rows = chosen.rows or SIZES[part]
        before = recorded(f"clusters_{part}")  # what a run that was stopped has measured
        results = before["results"] if before and before["config"] == {"rows": rows} else {}
        results.pop("same", None)
        with made_once(f"clusters-{part}-{rows}") as folder:
            (folder / "rows").write_text(str(rows))
            if part != "marginals":
                simulate(folder, rows, users=rows // EVENTS if part == "users" else None)
            for measure in PARTS[part]:
                if measure.__name__ in results:
                    continue
                results[measure.__name__] = found = in_a_process(
                    "benchmarks.clusters", "--measure", measure.__name__, "--folder", str(folder)
                )
                print(f"{measure.__name__:20} {found['cpu_seconds']:8.1f} s of processor time", flush=True)
                digests = {found["digest"] for found in results.values() if "digest" in found}
                record(f"clusters_{part}", {"rows": rows}, {**results, "same": len(digests) <= 1})


if __name__ == "__main__":
    main()

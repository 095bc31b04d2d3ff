"""Counting at scale: files larger than memory through DuckDB, against plain SQL that computes the same keys.

``python -m benchmarks.engines`` simulates a city of 40 million points in Parquet, then counts Morton keys,
each measurement in a process of its own, so that the peak memory belongs to it. ``--rows`` makes it smaller,
``--folder`` keeps the data for the next run. ``--rows 1000000000 --only stream deep`` needs 30 GB of disk
(``TMPDIR`` says where); a run that is stopped finds its files again. ``--copies`` simulates one file and
copies it, which takes an eighth of the time.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks._common import in_a_process, made_once, peak_memory_mib, record
from synthgeo.hierarchy.base import hierarchy_of

ROWS = 40_000_000
FILES = 8
HOTSPOTS = 400
BOX = (-74.30, 40.48, -73.70, 40.93)
BITS = (20, 40)
DEEP = 30
SPREAD = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)


def simulate(folder: Path, rows: int, *, users: int | None = None, copies: bool = False) -> None:
    """A city of Gaussian hotspots, a month of seconds, in files that are not sorted by time; of one file only
    where the others are to be ``copies`` of it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(2015)
    centre = rng.uniform(BOX[:2], BOX[2:], (HOTSPOTS, 2))
    spread = rng.gamma(2.0, 0.004, HOTSPOTS)
    share = rng.dirichlet(np.full(HOTSPOTS, 0.3))
    for number in range(FILES):
        path, rng = folder / f"city-{number}.parquet", np.random.default_rng([2015, number])
        if path.exists():
            continue
        unfinished = path.with_suffix(".part")
        if copies and number:
            shutil.copyfile(folder / "city-0.parquet", unfinished)
            unfinished.replace(path)
            continue
        with pq.ParquetWriter(unfinished, _schema()) as writer:
            for part in np.array_split(np.arange(rows // FILES), max(1, rows // FILES // 1_000_000)):
                spot = rng.choice(HOTSPOTS, part.size, p=share)
                xy = rng.normal(centre[spot], spread[spot, None])
                time_ = rng.integers(0, 31 * 86_400, part.size) * 1_000_000 + 1_420_070_400_000_000
                columns = [
                    xy[:, 0],
                    xy[:, 1],
                    time_.astype("datetime64[us]"),
                    rng.integers(0, users or rows // 20, part.size),
                ]
                writer.write_table(pa.table([pa.array(column) for column in columns], schema=_schema()))
        unfinished.replace(path)


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [("lon", pa.float64()), ("lat", pa.float64()), ("time", pa.timestamp("us")), ("user", pa.int64())]
    )


def sql_of_keys(bits: int) -> str:
    """The same Morton keys in SQL: scale, truncate, interleave by masks and shifts."""
    half = bits // 2

    def slot(column: str, low: float, high: float) -> str:
        position = f"trunc(({column} - {low}) * ({1 << half} / ({high} - {low})))"
        return f"least(cast({position} as ubigint), {(1 << half) - 1})"

    def spread(value: str) -> str:
        for shift, mask in SPREAD:
            value = f"spread({value}, {shift}, {mask})"
        return value

    x, y = spread(slot("lon", BOX[0], BOX[2])), spread(slot("lat", BOX[1], BOX[3]))
    return f"(({x}) << 1) | ({y})"


def measure_sql(folder: Path, bits: int) -> dict[str, Any]:
    """DuckDB alone: keys and ``count(*) group by`` in one query."""
    import duckdb

    database = duckdb.connect()
    database.execute("create macro spread(v, s, k) as ((v | (v << s)) & k::ubigint)")
    where = f"lon between {BOX[0]} and {BOX[2]} and lat between {BOX[1]} and {BOX[3]}"
    query = (
        f"select key, count(*) as n from (select {sql_of_keys(bits)} as key "
        f"from read_parquet('{folder}/city-*.parquet') where {where}) group by key"
    )
    start = time.perf_counter()
    table = database.sql(query).to_arrow_table()
    spent = time.perf_counter() - start
    order = np.argsort(table["key"].to_numpy())
    return {"seconds": spent, **_summary(table["key"].to_numpy()[order], table["n"].to_numpy()[order])}


def measure_engine(folder: Path, bits: int) -> dict[str, Any]:
    """Our engine: DuckDB streams the columns, the key function of every engine counts."""
    source, keys, columns = _keys(folder, bits)
    start = time.perf_counter()
    histogram = source.histogram(keys, columns)
    spent = time.perf_counter() - start
    return {"seconds": spent, **_summary(histogram.keys, histogram.weights[:, 0])}


def measure_windows(folder: Path, bits: int) -> dict[str, Any]:
    """31 daily windows of files that are not sorted by time."""
    source, keys, columns = _keys(folder, bits)
    start = time.perf_counter()
    windows = source.windows(time="time", every="1D", start="2015-01-01", end="2015-02-01")
    sizes = [window.histogram(keys, columns).size for _, window in windows]
    return {"seconds": time.perf_counter() - start, "windows": len(sizes), "keys": sum(sizes)}


def measure_users(folder: Path, bits: int) -> dict[str, Any]:
    """A tenth of the files, at most 10 events of each user."""
    from synthgeo.privacy.contribution import ContributionBounder
    from synthgeo.privacy.unit import PrivacyUnit

    source, keys, columns = _keys(folder, bits, files="city-0.parquet")
    start = time.perf_counter()
    events = source.user_events(keys, columns, "user")
    kept = ContributionBounder(PrivacyUnit.user(max_events=10)).admit(events.users, events.keys)
    histogram = events.histogram(kept)
    return {"seconds": time.perf_counter() - start, "events": len(kept), "keys": histogram.size}


def measure_release(folder: Path, bits: int) -> dict[str, Any]:
    """Count and privatise: from the files to the released cells of a spatial stream."""
    import synthgeo as sg

    domain = sg.BoxDomain(*BOX, crs="EPSG:4326")
    stream = sg.PHDStream(
        domain=domain, budget=sg.PrivacyBudget(epsilon=1.0), settings=sg.PointSettings(max_depth=bits)
    )
    start = time.perf_counter()
    release: Any = stream.update(str(folder / "city-*.parquet"))
    cells = release.cells
    spent = time.perf_counter() - start
    memory = peak_memory_mib()
    start = time.perf_counter()
    points = len(release.xy)
    sampling = time.perf_counter() - start
    return {
        "seconds": spent,
        "cells": len(cells),
        "peak_mib_before_sampling": memory,
        "points_sampled_a_second": points / sampling,
    }


def measure_stream(folder: Path, bits: int) -> dict[str, Any]:
    """A stream of 31 daily windows over files not sorted by time: count, privatise, release cells."""
    import synthgeo as sg

    domain = sg.BoxDomain(*BOX, crs="EPSG:4326")
    stream: Any = sg.PHDStream(
        domain=domain, budget=sg.PrivacyBudget(epsilon=1.0), settings=sg.PointSettings(max_depth=bits)
    )
    start = time.perf_counter()
    windows = {"time": "time", "every": "1D", "start": "2015-01-01", "end": "2015-02-01"}
    cells = [release.counts.size for release in stream.run(str(folder / "city-*.parquet"), **windows)]
    return {"seconds": time.perf_counter() - start, "steps": len(cells), "cells": cells[-1]}


def measure_deep(folder: Path, bits: int) -> dict[str, Any]:  # noqa: ARG001
    """One release at depth 30, where nearly every row has a key of its own: counts are asked for level by
    level.
    """
    import synthgeo as sg
    from streams.spatial import points

    asked: list[int] = []
    counted: Any = points.PointRecords._counted

    def watched(*given: Any) -> Any:
        found = counted(*given)
        asked.append(found.size)
        return found

    domain = sg.BoxDomain(*BOX, crs="EPSG:4326")
    stream = sg.PHDStream(
        domain=domain, budget=sg.PrivacyBudget(1.0), settings=sg.PointSettings(max_depth=DEEP), lifetime=1
    )
    start = time.perf_counter()
    with patch.object(points.PointRecords, "_counted", watched):
        release: Any = stream.update(str(folder / "city-*.parquet"))
    return {
        "seconds": time.perf_counter() - start,
        "depth": DEEP,
        "cells": release.counts.size,
        "deepest": int(release.partition.bits.max()),
        "asked": asked,
    }


def measure_dask(folder: Path, bits: int) -> dict[str, Any]:
    """Two worker processes; the driver merges nothing but the last histograms."""
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    from synthgeo.sources import open_source

    _, keys, columns = _keys(folder, bits)
    two: Any = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)  # type: ignore[no-untyped-call]
    with two as cluster, Client(cluster) as client:  # type: ignore[no-untyped-call]
        source = open_source(dd.read_parquet(str(folder / "city-*.parquet"), columns=columns))
        start = time.perf_counter()
        before = sum(client.run(time.process_time).values())
        histogram = source.histogram(keys, columns)
        worker = sum(client.run(time.process_time).values()) - before
        spent = time.perf_counter() - start
    summary = _summary(histogram.keys, histogram.weights[:, 0])
    return {"seconds": spent, "worker_cpu_seconds": worker, **summary}


def measure_text(folder: Path, bits: int) -> dict[str, Any]:
    """The same rows as CSV: our reader, which asks each field, against DuckDB's with declared types."""
    import duckdb

    text = folder / "city.csv"
    if not text.exists():
        duckdb.sql(f"copy (from read_parquet('{folder}/city-*.parquet')) to '{text}' (header)")
    source, keys, columns = _keys(folder, bits, files=text.name)
    start = time.perf_counter()
    histogram = source.histogram(keys, columns)
    ours = time.perf_counter() - start
    database = duckdb.connect()
    database.execute("create macro spread(v, s, k) as ((v | (v << s)) & k::ubigint)")
    where = f"lon between {BOX[0]} and {BOX[2]} and lat between {BOX[1]} and {BOX[3]}"
    types = "{'lon': 'double', 'lat': 'double', 'time': 'timestamp', 'user': 'bigint'}"
    start = time.perf_counter()
    table = database.sql(
        f"select key, count(*) as n from (select {sql_of_keys(bits)} as key "
        f"from read_csv('{text}', header=true, columns={types}) where {where}) group by key"
    ).to_arrow_table()
    sql = time.perf_counter() - start
    order = np.argsort(table["key"].to_numpy())
    expected = _summary(table["key"].to_numpy()[order], table["n"].to_numpy()[order])
    found = _summary(histogram.keys, histogram.weights[:, 0])
    return {
        "seconds": ours,
        "sql_seconds": sql,
        "times_sql": ours / sql,
        "same_histogram": found["digest"] == expected["digest"],
        "file_mib": text.stat().st_size / 2**20,
        **found,
    }


def measure_merge(folder: Path, bits: int) -> dict[str, Any]:
    """The histograms of the eight files into one."""
    from synthgeo.sources.histogram import merge_all

    parts = []
    for number in range(FILES):
        source, keys, columns = _keys(folder, bits, files=f"city-{number}.parquet")
        parts.append(source.histogram(keys, columns))
    start = time.perf_counter()
    merged = merge_all(parts)
    spent = time.perf_counter() - start
    return {"seconds": spent, "keys_in": sum(part.size for part in parts), "keys": merged.size}


def measure_privatise(folder: Path, bits: int) -> dict[str, Any]:
    """Three steps of a stream whose counts are there already: what is left is tree, counters and rounding."""
    import synthgeo as sg
    from streams.records import with_columns
    from streams.spatial.points import PointRecords

    source, keys, columns = _keys(folder, bits)
    histogram = source.histogram(keys, columns)
    stream = sg.PHDStream(
        domain=sg.BoxDomain(*BOX, crs="EPSG:4326"),
        budget=sg.PrivacyBudget(1.0),
        settings=sg.PointSettings(max_depth=bits),
    )
    nothing = np.empty((0, 2))
    counts = with_columns(histogram, PointRecords.width)
    with patch.object(PointRecords, "count", lambda *_: counts):
        start = time.perf_counter()
        for _ in range(3):
            stream.update(nothing)
        spent = (time.perf_counter() - start) / 3
    return {"seconds": spent, "keys": histogram.size}


def _keys(folder: Path, bits: int, files: str = "city-*.parquet") -> tuple[Any, Any, list[str]]:
    from synthgeo.domain.box import BoxDomain
    from synthgeo.domain.coordinates import find_coordinates
    from synthgeo.sources import open_source

    source = open_source(str(folder / files))
    domain = BoxDomain(*BOX, crs="EPSG:4326")
    reader = find_coordinates(source.columns, domain)

    return source, PointKeys(domain, reader, bits), list(reader.columns)


@dataclass(frozen=True)
class PointKeys:
    """Morton keys of points; outside of the domain they weigh nothing."""

    domain: Any
    reader: Any
    bits: int

    def __call__(self, chunk: Any) -> tuple[np.ndarray, np.ndarray]:
        found, inside = hierarchy_of(self.domain).locate(self.reader(chunk), self.bits)
        return found, inside.astype(np.int64)[:, None]


def _summary(keys: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    """Enough to tell whether two results are the same histogram."""
    mixed = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ counts.astype(np.uint64)
    return {"keys": int(keys.size), "rows": int(counts.sum()), "digest": int(np.bitwise_xor.reduce(mixed))}


MEASURES = {
    "sql": measure_sql,
    "engine": measure_engine,
    "windows": measure_windows,
    "users": measure_users,
    "release": measure_release,
    "stream": measure_stream,
    "deep": measure_deep,
    "dask": measure_dask,
    "text": measure_text,
    "merge": measure_merge,
    "privatise": measure_privatise,
}


def alone(measure: str, folder: Path, bits: int) -> dict[str, Any]:
    """Run one measurement in a process of its own; its peak memory is that of a fresh process."""
    options = ["--measure", measure, "--bits", str(bits), "--folder", str(folder)]
    found: dict[str, Any] = in_a_process("benchmarks.engines", *options)
    return found


def compare(folder: Path, rows: int) -> dict[str, Any]:
    """All measurements, printed as they come."""
    results: dict[str, Any] = {}
    for bits in BITS:
        for measure in (
            ("sql", "engine", "merge", "release") if bits == BITS[0] else ("sql", "engine", "merge")
        ):
            results[f"{measure}_{bits}_bits"] = found = alone(measure, folder, bits)
            print(
                f"{measure:8} {bits} bits  {found['seconds']:7.2f} s  peak {found['peak_mib']:6.0f} MiB",
                flush=True,
            )
        sql, engine = results[f"sql_{bits}_bits"], results[f"engine_{bits}_bits"]
        engine["times_sql"] = engine["seconds"] / sql["seconds"]
        engine["times_sql_cpu"] = engine["cpu_seconds"] / sql["cpu_seconds"]
        engine["same_histogram"] = sql["digest"] == engine["digest"] and sql["keys"] == engine["keys"]
        times = f"{engine['times_sql']:.2f} times the SQL, {engine['times_sql_cpu']:.2f} in processor time"
        print(f"         {times}; same histogram: {engine['same_histogram']}")
    release = results[f"release_{BITS[0]}_bits"]
    release["times_sql"] = release["seconds"] / results[f"sql_{BITS[0]}_bits"]["seconds"]
    print(f"         release: {release['times_sql']:.2f} times the SQL")
    for measure in ("privatise", "windows", "users", "stream", "text", "dask"):
        results[measure] = found = alone(measure, folder, BITS[0])
        print(
            f"{measure:8}          {found['seconds']:7.2f} s  peak {found['peak_mib']:6.0f} MiB", flush=True
        )
    results["file_mib"] = sum(file.stat().st_size for file in folder.glob("city-*.parquet")) / 2**20
    results["rows"] = rows
    return results


def main() -> None:
    """Simulate, measure, record."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=ROWS)
    options.add_argument("--folder", type=Path)
    options.add_argument(
        "--only", nargs="+", choices=list(MEASURES), help="some measurements, each recorded under its name"
    )
    options.add_argument("--copies", action="store_true", help="simulate one file, and copy it")
    options.add_argument("--measure", choices=list(MEASURES))
    options.add_argument("--bits", type=int, default=BITS[0])
    chosen = options.parse_args()
    if chosen.measure:
        found = MEASURES[chosen.measure](chosen.folder, chosen.bits)
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = used.ru_utime + used.ru_stime
        print(json.dumps(found | {"peak_mib": peak_memory_mib(), "cpu_seconds": cpu}))
        return
    config = {"rows": chosen.rows, "files": FILES, "copies": chosen.copies, "bits": BITS, "seed": 2015}
    with made_once(f"engines-{chosen.rows}") as temporary:
        folder = chosen.folder or temporary
        folder.mkdir(parents=True, exist_ok=True)
        simulate(folder, chosen.rows, copies=chosen.copies)
        for only in chosen.only or ():
            results = alone(only, folder, chosen.bits)
            print(f"{only}: {results}", flush=True)
            record(f"engines_{only}", config, results)
        if not chosen.only:
            record("engines", config, compare(folder, chosen.rows))


if __name__ == "__main__":
    main()

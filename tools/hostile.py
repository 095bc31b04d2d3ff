"""A hundred hostile files, each given to every reader under the ending that it reads.

``python -m tools.hostile`` (``make hostile``) gives each file to each loader of ``tools.fuzz``, in a process
of its own. The loader answers, or refuses with one typed line; nothing that it says holds a value of the
file; it takes less than 1 GiB of memory and less than two minutes. ``--every 7`` takes every seventh pair.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import resource
import sqlite3
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools import fuzz
from tools.fuzz import Target, mutated

#: Stands in cells that hold values; names of columns and settings are public.
MARK = "Zq7vXk"
MOST_MEMORY, MOST_SECONDS = 1 << 30, 120
# Files that have crashed a process: each reader gets them in every campaign.
CRASHED = ("deep shapes",)
_HEAD = b"lon,lat,op,time,user,kind\n"
_GOOD = b"0.5,0.25,1,2020-01-01 10:00,7,a\n"
# GDAL reads what no other reader here does; a crash of it would end a search that has one process.
TARGETS = (*fuzz.TARGETS, Target("gpkg", ".gpkg", bytes, fuzz._rows))  # noqa: SLF001


def _row(**changed: Any) -> bytes:
    row = {"lon": "0.5", "lat": "0.25", "op": "1", "time": "2020-01-01", "user": "7", "kind": "a"} | changed
    return ",".join(str(value) for value in row.values()).encode("utf-8", "surrogateescape") + b"\n"


def _texts() -> Iterator[tuple[str, bytes]]:
    """Lines of text."""
    odd = [MARK, f"{MARK}\0", "9" * 400, "1e999", "-", '"', f'"{MARK}', f'"{MARK}"x', "0x1p5", "٣", "=1+1",
           "9999-12-31T23:59:59", "0000-00-00", "2020-01-01T00:00:00+99:99", "\ud800",
           MARK * 9999]  # fmt: skip
    for name in ("lon", "op", "time", "user"):
        for number, value in enumerate(odd):
            if number % 2 == len(name) % 2:
                text = value.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
                yield f"a {name} that is value {number}", _HEAD + _GOOD + _row(**{name: text})
    yield "a line of 30 megabytes", _HEAD + _row(kind=MARK * 5_000_000)
    yield "300,000 broken lines", _HEAD + (MARK.encode() + b",1\n") * 300_000
    yield "lines that hold nothing", _HEAD + b"\n" * 9_000_000
    yield "carriage returns alone", (_HEAD + _GOOD * 3).replace(b"\n", b"\r")
    yield "20,000 columns", b",".join(b"c%d" % n for n in range(20_000)) + b"\n" + b",".join([b"1"] * 20_000)
    yield "UTF-16", (_HEAD + _GOOD).decode().encode("utf-16")
    yield "bytes that are no UTF-8", _HEAD + MARK.encode() + b"\xff\xfe,1,1,2020,7,a\n"
    yield "nothing", b""
    yield "gigabytes of zeros, packed", gzip.compress(bytes(400_000_000), 1)
    yield "a packed table of empty lines", gzip.compress(_HEAD + b"\n" * 200_000_000, 1)
    yield "a packed file that is cut", gzip.compress(_HEAD + _GOOD * 999)[:-9]


def _jsons() -> Iterator[tuple[str, bytes]]:
    """JSON lines, GeoJSON, schemas."""
    yield "deep lists", b"[" * 200_000
    yield "deep objects", b'{"a":' * 100_000
    yield "a deep property", b'{"lon": 0.5, "lat": ' + b"[" * 90_000 + b"]" * 90_000 + b"}\n"
    yield "wide lists", b'{"lon": [' + b"[]," * 300_000 + b"1]}\n" * 2
    yield "lone surrogates", b'{"lon": 0.5, "lat": 0.2, "user": "' + MARK.encode() + b'\\ud800"}\n'
    yield "a number of 400 digits", b'{"lon": 1' + b"0" * 400 + b', "lat": 0.2, "user": 7}\n'
    yield "NaN and infinity", b'{"lon": NaN, "lat": -Infinity, "user": 7}\n'
    yield "keys that repeat", b'{"lon": 1, "lon": "' + MARK.encode() + b'", "lat": 1}\n'
    for number, place in enumerate(
        [
            "[1e400, 1]",
            '["x", 2]',
            "[]",
            "[[[[1]]]]",
            "[" + "1" * 400 + ", 2]",
            f'"{MARK}"',
            "null",
            "[NaN, 1]",
        ]
    ):
        shape = ("Point", "Polygon", "MultiPoint", "GeometryCollection")[number % 4]
        geometry = f'{{"type": "{shape}", "coordinates": {place}}}'
        feature = f'{{"type": "Feature", "geometry": {geometry}, "properties": {{"user": "{MARK}"}}}}'
        yield f"geometry {number}", f'{{"type": "FeatureCollection", "features": [{feature}]}}'.encode()
    for number, facts in enumerate(
        [
            {"bins": 10**9},
            {"bins": 10**400},
            {"bins": [0] * 99},
            {"low": "x"},
            {"decimals": 10**9},
            {"high": 1e308},
        ]
    ):
        column = {"type": "numeric", "low": 0, "high": 9, "bins": 4} | facts
        yield f"a schema {number}", json.dumps({"columns": {"a": column}}).encode()
    many = {f"a{n}": {"type": "numeric", "low": 0, "high": 9, "bins": 10**6} for n in range(500)}
    yield "a schema of many bins", json.dumps({"columns": many}).encode()


def _parquets() -> Iterator[tuple[str, bytes]]:
    """Parquet that says more than it holds, or something else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def file(columns: dict[str, Any], **options: Any) -> bytes:
        out = io.BytesIO()
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(table, out, **({"compression": "zstd"} | options))
        return out.getvalue()

    n = 4
    places = {"lon": np.full(n, 0.5), "lat": np.full(n, 0.5)}
    many = {"lon": np.full(5_000_000, 0.5), "lat": np.full(5_000_000, 0.5), "user": np.full(5_000_000, 7)}
    yield "five million equal rows", file(many, row_group_size=10**8)
    yield "cells of 20 megabytes", file({"lon": np.full(60, 0.5), "lat": np.full(60, 0.5), "user": ["7" * 20_000_000] * 60})  # fmt: skip  # noqa: E501
    yield (
        "a cell of 400 megabytes",
        file({**{k: v[:1] for k, v in places.items()}, "user": ["7" * 400_000_000]}),
    )
    bad = pa.array([MARK.encode() + b"\xff"] * n, pa.binary())
    bad = pa.Array.from_buffers(pa.string(), n, bad.buffers())
    yield "texts that are no UTF-8", file({**places, "user": bad, "kind": bad})
    for unit in ("s", "ms", "us", "ns"):
        yield (
            f"times beyond all clocks in {unit}",
            file({**places, "time": pa.array([2 ** (40 if unit == "s" else 62)] * n, pa.timestamp(unit))}),
        )
    yield "lists in cells", file({"lon": [[0.5]] * n, "lat": [[0.5]] * n, "user": [{"a": MARK}] * n})
    yield "decimals", file({**places, "user": pa.array([10**60] * n, pa.decimal256(70))})
    yield "durations", file({**places, "time": pa.array([1] * n, pa.duration("s")), "op": [True] * n})
    yield "5,000 columns", file({f"c{k}": [1.0] for k in range(5000)})
    geo = {"version": "1.0.0", "primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    point, start = struct.pack("<BIdd", 1, 1, 0.5, 0.5), struct.pack("<BII", 1, 2, 2**31 - 1)
    shapes = {
        "cut shapes": point[:9], "shapes that claim points": start,
        "shapes of no kind": b"\1\xff\xff\xff\xff",
        "deep shapes": struct.pack("<BII", 1, 7, 1) * 50_000, "empty shapes": b"",
    }  # fmt: skip
    for name, wkb in shapes.items():
        table = pa.table({"geometry": pa.array([point, wkb], pa.binary()), "user": [7, 8]})
        yield name, file(table.replace_schema_metadata({b"geo": json.dumps(geo)}))
    deep = pa.table(places).replace_schema_metadata({b"geo": b"[" * 99_999})
    yield "deep metadata", file(deep)
    whole = file({**places, "user": [MARK] * n, "kind": ["a"] * n})
    rng = np.random.default_rng(1)
    for number in range(8):
        yield f"changed bytes {number}", mutated(whole, rng)


def _others() -> Iterator[tuple[str, bytes]]:
    """States, settings, roads, databases."""
    import zipfile
    from copy import copy

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("header.npy", np.lib.format.MAGIC_PREFIX + bytes(1 << 20))
        for number in range(4000):
            again = copy(archive.filelist[0])
            again.filename = f"array/{number}.npy"
            archive.filelist.append(again)
    yield "a state whose parts overlap", _sealed(out.getvalue())
    out = io.BytesIO()
    np.savez(out, header=np.frombuffer(b"[" * 200_000, dtype=np.uint8))
    yield "a state with a deep header", _sealed(out.getvalue())
    head = {"format": 1, "kind": "PHDStream", "version": 10**30, "values": {}}
    out = io.BytesIO()
    np.savez(out, header=np.frombuffer(json.dumps(head).encode(), dtype=np.uint8))
    yield "a state of a far version", _sealed(out.getvalue())
    yield "deep settings", b"a = " + b"[" * 50_000
    yield "a zone of 99 hours", b"start = 2020-01-01T00:00:00+99:99\n"
    yield "5,000 digits", b"epsilon = " + b"9" * 5000
    laughs = "".join(f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 10))
    yield "entities", f'<!DOCTYPE a [<!ENTITY l0 "ha">{laughs}]><graphml>&l9;</graphml>'.encode()
    yield "deep roads", b"<graphml>" + b"<a>" * 200_000
    for name, statement in (
        ("a view of blobs", "CREATE VIEW a AS SELECT 1 AS fid, zeroblob(900000000) AS geom"),
        ("a view without end", "CREATE VIEW a AS WITH RECURSIVE r(x) AS "
                               "(SELECT 1 UNION ALL SELECT x + 1 FROM r) "
                               "SELECT x AS fid, NULL AS geom FROM r"),
    ):  # fmt: skip
        yield name, _geopackage(statement)


def _geopackage(statement: str) -> bytes:
    import geopandas as gpd

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.gpkg"
        gpd.GeoDataFrame({"user": [7]}, geometry=gpd.points_from_xy([0.5], [0.5]), crs=4326).to_file(
            path, layer="b"
        )
        base = sqlite3.connect(path)
        base.execute(statement)
        for table in ("gpkg_contents", "gpkg_geometry_columns"):
            base.execute(f"UPDATE {table} SET table_name = 'a'")  # noqa: S608
        base.commit()
        base.close()
        return path.read_bytes()


def _sealed(payload: bytes) -> bytes:
    return b"synthgeo state\n" + hashlib.sha256(payload).digest() + payload


FAMILIES: tuple[Callable[[], Iterator[tuple[str, bytes]]], ...] = (_texts, _jsons, _parquets, _others)


@dataclass(frozen=True)
class Outcome:
    """What came of a file and a reader: None, or what is wrong; bytes over what the process had before."""

    problem: str | None
    memory: int
    seconds: float


def attempt(target: Target, content: bytes, folder: Path) -> Outcome:
    """Give a file to a loader in a process of its own."""
    path, said = folder / f"input{target.ending}", folder / "said"
    path.write_bytes(content)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _load(target, path, said)
    _, status, _ = os.wait4(child, 0)
    told = said.read_text(errors="replace") if said.exists() else ""
    memory, _, text = told.partition("\n")
    kind, _, output = text.partition("\n")
    if status or not memory.isdigit():
        problem: str | None = f"the process ended with {os.waitstatus_to_exitcode(status)}"
    elif kind:
        problem = kind
    elif MARK in output:
        problem = f"a value is said: {output[:300]!r}"
    else:
        problem = None if int(memory) < MOST_MEMORY else f"{int(memory) >> 20} MB"
    for left in folder.iterdir():
        left.unlink()
    return Outcome(problem, int(memory) if memory.isdigit() else 0, time.monotonic() - began)


def _load(target: Target, path: Path, said: Path) -> None:
    """In the child: memory, what is wrong, and all that was said. Never returns."""
    import signal

    from synthgeo.errors import SynthGeoError

    signal.alarm(MOST_SECONDS)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))
    handle = os.open(said.with_name("output"), os.O_CREAT | os.O_RDWR)
    os.dup2(handle, 1), os.dup2(handle, 2)
    sys.stdout = sys.stderr = os.fdopen(os.dup(handle), "w")  # whatever took their place in the parent
    problem, words = "", ""
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            target.load(path)
        words = " ".join(str(one.message) for one in told)
    except SynthGeoError as refused:
        words = str(refused)
        problem = "" if "\n" not in words and len(words) < 2000 else "an error of several lines"
    except BaseException as raised:  # noqa: BLE001 - this is what is looked for
        frames = traceback.extract_tb(raised.__traceback__)
        problem = f"{type(raised).__name__} at {Path(frames[-1].filename).name}:{frames[-1].lineno}"
    sys.stdout.flush()
    words += said.with_name("output").read_text(errors="replace")
    memory = max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)
    said.write_text(f"{memory}\n{problem}\n{words}", errors="replace")
    os._exit(0)


def campaign(every: int = 1, *, seconds: float = float("inf")) -> Iterator[tuple[str, str, Outcome]]:
    """Each file with each reader, or every so many of these pairs until the time is over, and ``CRASHED``."""
    import geopandas  # noqa: F401  what all children need is imported once
    import pyogrio  # noqa: F401

    import synthgeo.cli.app  # noqa: F401

    pair, end = 0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        for family in FAMILIES:
            for name, content in family():
                for target in TARGETS:
                    pair += 1
                    if name in CRASHED or (pair % every == 0 and time.monotonic() < end):
                        yield name, target.name, attempt(target, content, Path(folder))


def main() -> None:
    """Run the campaign, and tell what is wrong."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--every", type=int, default=1)
    options.add_argument("--all", action="store_true", help="show what is right as well")
    chosen = options.parse_args()
    wrong = pairs = most = 0
    for name, reader, outcome in campaign(chosen.every):
        pairs, most = pairs + 1, max(most, outcome.memory)
        wrong += outcome.problem is not None
        if outcome.problem is not None or chosen.all:
            cost = f"{outcome.memory >> 20} MB, {outcome.seconds:.1f} s"
            print(f"{reader}, {name}: {outcome.problem or 'good'} ({cost})", flush=True)
    print(f"{pairs} files and readers, {wrong} wrong, at most {most >> 20} MB")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

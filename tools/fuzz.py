"""Hostile files for every loader: whatever the bytes, a typed error or a result.

``python -m tools.fuzz`` changes seeds at random and gives them to each loader; ``--guided`` lets atheris
follow the coverage instead (the extra ``fuzz``), loader by loader, each in its own process. What breaks a
loader is written to ``fuzz-found/``. ``tests/fixtures/fuzz`` keeps inputs worth trying again, by loader: they
join the seeds, and the suite gives each of them to its loader.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

FOUND = Path("fuzz-found")
KEPT = Path(__file__).parents[1] / "tests" / "fixtures" / "fuzz"
_OWN = ("synthgeo", "streams", "tabular", "trajectories")
ROWS = b"lon,lat,op,time,user,kind\n0.5,0.25,1,2020-01-01 10:00,7,a\n0.75,1e-3,-1,2020-01-02T11:00:00,008,b\n"
CONFIG = b'epsilon = 1.0\nbounds = [0, 0, 1, 1]\ncrs = "EPSG:4326"\nstart = 2026-03-02\n'
POINT = {"type": "Point", "coordinates": [0.5, 0.2]}
FEATURE = {"type": "Feature", "geometry": POINT, "properties": {"user": 7}}
FEATURES = {"type": "FeatureCollection", "features": [FEATURE] * 2}
SCHEMA = {
    "columns": {
        "a": {"type": "categorical", "values": ["x", "y"]},
        "b": {"type": "numeric", "low": 0, "high": 9},
    }
}


@dataclass(frozen=True)
class Target:
    """A loader: the ending of its files, a whole file to begin with, and what is done with one."""

    name: str
    ending: str
    seed: Callable[[], bytes]
    load: Callable[[Path], Any]


def _rows(path: Path) -> None:
    """Read a file for what points, tables and users ask of it."""
    from synthgeo.sources import Reading, open_source, values

    kinds = {"lon": "number", "lat": "number", "op": "number", "time": "time", "user": "id", "kind": "word"}
    for tz in (None, "Europe/Berlin"):
        source = open_source(path, reading=Reading(bad_rows="drop", tz=tz))
        asked = {name: kind for name, kind in kinds.items() if source.has(name)}
        if source.geometry is not None:
            asked[source.geometry] = "point"
        source.fingerprint(asked)
        chunk = source.read(list(asked))
        for name, kind in asked.items():
            values.record_hash(chunk, name, kind)


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    table = pa.table({"lon": [0.5, 0.7], "lat": [0.2, None], "user": [2**60, 7], "kind": ["a", None]})
    pq.write_table(table, out)
    return out.getvalue()


def _state() -> bytes:
    from synthgeo.state import dump_state

    return dump_state("PHDStream", 2, {"budget": {"epsilon": 1.0, "delta": 0.0}}, {"a": np.arange(9)})


def _sealed(path: Path) -> None:
    """A state whose checksum is right, whatever else is not."""
    import synthgeo as sg
    from synthgeo.state import parse_state

    content = path.read_bytes()
    magic, payload = content[:15], content[47:]
    parse_state(magic + hashlib.sha256(payload).digest() + payload, "PHDStream", 2)
    sg.PHDStream.load(path)


def _model(make: Callable[[], Any]) -> Callable[[], bytes]:
    def seed() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            make().save(Path(folder) / "model")
            return (Path(folder) / "model").read_bytes()

    return seed


def _stream() -> Any:
    import synthgeo as sg

    stream = sg.PHDStream(
        domain=sg.BoxDomain(0, 0, 1, 1),
        budget=sg.PrivacyBudget(1.0),
        settings=sg.PointSettings(max_depth=4),
        noise=sg.SeededNoise(1),
    )
    stream.update(np.random.default_rng(1).random((50, 2)))
    return stream


def _seal(path: Path) -> None:
    """Give a state whose values were changed the checksum that fits them."""
    content = path.read_bytes()
    path.write_bytes(content[:15] + hashlib.sha256(content[47:]).digest() + content[47:])


def _load_stream(path: Path) -> None:
    import synthgeo as sg

    _seal(path)
    sg.PHDStream.load(path).update(np.full((3, 2), 0.5))


def _table() -> Any:
    import synthgeo as sg

    schema = sg.Schema({"a": sg.Categorical(["x", "y"]), "b": sg.Categorical(["x", "y", "z"])})
    made = sg.TabularSynthesizer(
        schema=schema,
        budget=sg.PrivacyBudget(1.0),
        settings=sg.TableSettings(iterations=10),
        noise=sg.SeededNoise(1),
        progress=False,
    )
    return made.fit({"a": ["x", "y"] * 20, "b": ["x", "y", "z", "x"] * 10})


def _load_table(path: Path) -> None:
    import synthgeo as sg

    _seal(path)
    sg.TabularSynthesizer.load(path).sample(3).to_pandas()


def _trips() -> Any:
    import pandas as pd

    import synthgeo as sg

    xy = np.random.default_rng(1).random((12, 2))
    frame = pd.DataFrame({"trip_id": np.repeat(np.arange(6), 2), "x": xy[:, 0], "y": xy[:, 1]})
    made = sg.TrajectorySynthesizer(
        domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1),
        settings=sg.TripSettings(max_depth=2, cleaning=False),
    )  # fmt: skip
    return made.fit(frame)


def _load_trips(path: Path) -> None:
    import synthgeo as sg

    _seal(path)
    sg.TrajectorySynthesizer.load(path)


def _load_config(path: Path) -> None:
    """A configuration file of the command line, whatever it says."""
    import typer

    from synthgeo.cli.app import app
    from synthgeo.cli.options import _load_config as load  # noqa: PLC2701

    command: Any = typer.main.get_command(app)
    stream = command.commands["stream"].commands["run"]
    load(typer.Context(stream), path)


def _ledger() -> bytes:
    import synthgeo as sg

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l.sqlite"
        with sg.Ledger.open(path, dataset="d", cap=sg.PrivacyBudget(2.0)) as ledger:
            ledger.charge("p", sg.PrivacyBudget(1.0), sg.PrivacyUnit.event())
        return path.read_bytes()


def _load_ledger(path: Path) -> None:
    import synthgeo as sg

    with sg.Ledger.open(path) as ledger:
        ledger.show()


def _graph() -> bytes:
    import osmnx as ox

    import synthgeo as sg

    with tempfile.TemporaryDirectory() as folder:
        ox.save_graphml(sg.simulate.city_graph(2, 2, seed=1), Path(folder) / "g.graphml")
        return (Path(folder) / "g.graphml").read_bytes()


def _load_graph(path: Path) -> None:
    import synthgeo as sg

    sg.RoadDomain.from_graphml(path)


def _load_schema(path: Path) -> None:
    import synthgeo as sg

    sg.Schema.from_json(path)


TARGETS = (
    Target("csv", ".csv", lambda: ROWS, _rows),
    Target("gz", ".csv.gz", lambda: gzip.compress(ROWS, mtime=0), _rows),
    Target("jsonl", ".jsonl", lambda: b'{"lon": 0.5, "lat": 0.2, "user": 7}\n', _rows),
    Target("geojson", ".geojson", lambda: json.dumps(FEATURES).encode(), _rows),
    Target("parquet", ".parquet", _parquet, _rows),
    Target("state", ".state", _state, _sealed),
    Target("stream", ".state", _model(_stream), _load_stream),
    Target("table", ".model", _model(_table), _load_table),
    Target("trips", ".model", _model(_trips), _load_trips),
    Target("config", ".toml", lambda: CONFIG, _load_config),
    Target("ledger", ".sqlite", _ledger, _load_ledger),
    Target("graphml", ".graphml", _graph, _load_graph),
    Target("schema", ".json", lambda: json.dumps(SCHEMA).encode(), _load_schema),
)  # fmt: skip
# Bytes at which parsers change their mind.
_TOKENS = (
    b"\0",
    b"\xff",
    b'"',
    b",",
    b"\n",
    b"\r",
    b"e999",
    b"-",
    b"9" * 400,
    b"{",
    b"[",
    b"]" * 50,
    b"null",
    b"NaN",
    b"\xed\xa0\x80",
)


def mutated(seed: bytes, rng: np.random.Generator) -> bytes:
    """The seed with a few random changes: bytes, tokens, cuts, repeats."""
    out = bytearray(seed)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(out) + 1))
        kind = int(rng.integers(5))
        if kind == 0 and at < len(out):
            out[at] = int(rng.integers(256))
        elif kind == 1:
            out[at:at] = _TOKENS[int(rng.integers(len(_TOKENS)))]
        elif kind == 2:
            del out[at : at + int(rng.integers(1, 40))]
        elif kind == 3:
            out[at:at] = out[at : at + int(rng.integers(1, 60))]
        elif at < len(out):
            out[at] ^= 1 << int(rng.integers(8))
    return bytes(out)


def attempt(target: Target, content: bytes, folder: Path) -> str | None:
    """What is wrong when a loader gets these bytes; None where it answers, or refuses with a typed error."""
    from synthgeo.errors import SynthGeoError

    path = folder / f"input{target.ending}"
    for left in folder.iterdir():
        left.unlink()
    path.write_bytes(content)
    # Checksums within an archive are no obstacle to whoever makes one up.
    unchecked = mock.patch.object(zipfile.ZipExtFile, "_update_crc", return_value=None)
    try:
        with unchecked, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.load(path)
    except SynthGeoError as problem:
        return None if "\n" not in str(problem) else f"an error of several lines: {problem}"
    except Exception as problem:  # noqa: BLE001 - this is what is looked for
        frames = traceback.extract_tb(problem.__traceback__)
        own = [frame for frame in frames if any(f"/{part}/" in frame.filename for part in _OWN)] or list(
            frames
        )
        place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
        return f"{type(problem).__name__} at {place}: {problem}"
    return None


def random_search(target: Target, *, tries: int, seconds: float, seed: int) -> list[tuple[bytes, str]]:
    """Inputs that break a loader, among so many tries or until the time is over."""
    rng, begin, start = np.random.default_rng(seed), time.monotonic(), target.seed()
    found: dict[str, tuple[bytes, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(tries):
            content = mutated(start, rng)
            problem = attempt(target, content, Path(folder))
            if problem is not None:
                found.setdefault(problem.partition(": ")[0], (content, problem))
            if time.monotonic() - begin > seconds:
                break
    return list(found.values())


def kept(target: Target) -> list[bytes]:
    """Inputs of a loader that are in the repository."""
    return [path.read_bytes() for path in sorted((KEPT / target.name).glob("*"))]


def _compiled() -> list[str]:
    """Modules with functions that numba compiles: it cannot compile what atheris made of them."""
    root = KEPT.parents[2]
    files = [path for package in _OWN for path in (root / package).rglob("*.py")]
    return [
        path.relative_to(root).with_suffix("").as_posix().replace("/", ".")
        for path in files
        if re.search(r"^@(numba\.)?n?jit\b", path.read_text(), re.MULTILINE)
    ]


def guided(target: Target, seconds: int) -> None:
    """Let atheris look for inputs that break a loader; it stops at the first."""
    import atheris

    folder, corpus = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    seed = target.seed()
    for name in [name for name in sys.modules if name.partition(".")[0] in _OWN]:
        del sys.modules[name]
    with atheris.instrument_imports(include=list(_OWN), exclude=_compiled()):
        attempt(target, seed, folder)  # imports whatever the loader needs
    for number, content in enumerate([seed, *kept(target)]):
        (corpus / str(number)).write_bytes(content)

    def one(content: bytes) -> None:
        problem = attempt(target, content, folder)
        if problem is not None:
            raise RuntimeError(problem)

    FOUND.mkdir(exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={FOUND}/{target.name}-", str(corpus)]
    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def main() -> None:
    """Fuzz the loaders that were asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "names", nargs="*", help=f"of {', '.join(target.name for target in TARGETS)}; default: all"
    )
    options.add_argument("--seconds", type=int, default=60, help="for each loader")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--guided", action="store_true", help="follow the coverage with atheris")
    chosen = options.parse_args()
    wanted = [target for target in TARGETS if not chosen.names or target.name in chosen.names]
    if chosen.guided and len(wanted) == 1:
        guided(wanted[0], chosen.seconds)
        return
    if chosen.guided:
        again = [sys.executable, "-m", "tools.fuzz", "--guided", "--seconds", str(chosen.seconds)]
        names = [target.name for target in wanted]
        broken_ones = [name for name in names if subprocess.run([*again, name], check=False).returncode]
        print(f"{len(wanted)} loaders, broken: {', '.join(broken_ones) or 'none'}")
        sys.exit(1 if broken_ones else 0)
    broken = 0
    for target in wanted:
        for content, problem in random_search(target, tries=10**9, seconds=chosen.seconds, seed=chosen.seed):
            broken += 1
            FOUND.mkdir(exist_ok=True)
            name = FOUND / f"{target.name}-{hashlib.sha256(content).hexdigest()[:12]}{target.ending}"
            name.write_bytes(content)
            print(f"{target.name}: {problem[:200]} ({name})", flush=True)
    print(f"{broken} inputs broke a loader")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()

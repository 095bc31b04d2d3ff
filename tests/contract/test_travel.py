"""What travels: no public artefact holds a private value, an exact count, a hash of data, a path or a name.

The noise here is loud: no draw is near 0, so that a released number is never the exact one by chance.
"""

from __future__ import annotations

import getpass
import io
import json
import re
import shutil
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import synthgeo as sg
from synthgeo.sources import open_source
from trajectories.reading.points import read_trips

ROWS, TRIPS, PER_USER = 3163, 317, 29
PLACE = (0.12345678901, 0.98765432109)
BUDGET = sg.PrivacyBudget(1.0)
BOX = sg.BoxDomain(0, 0, 1, 1)
SCHEMA = sg.Schema({"age": sg.Numeric(0, 100, bins=4), "job": sg.Categorical(["a", "b"], other="b")})


class Loud(sg.SystemNoise):
    """Noise of which every draw is far from 0, and any two are far apart: insertions less deletions too."""

    def discrete_laplace(self, scale: Any, size: int | None = None) -> Any:
        return self._far(super().discrete_laplace(scale, size))

    def discrete_gaussian(self, sigma: float, size: int) -> Any:
        return self._far(super().discrete_gaussian(sigma, size))

    @staticmethod
    def _far(drawn: Any) -> Any:
        return drawn + 4001 * np.arange(drawn.size, 0, -1).reshape(drawn.shape)


class Replayed(sg.SeededNoise):
    """The same noise at each run of this test, said to be fresh; for trips over time, which are drawn as many
    as were counted: a loud count would be a million of them.
    """

    releasable = True


def points() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.random((ROWS, 2)), columns=["x", "y"])
    frame.loc[:PER_USER, ["x", "y"]] = PLACE
    owner = np.arange(ROWS) // PER_USER
    return frame.assign(user_id=[f"zq-user-{number}" for number in owner])


def people() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    jobs = np.where(rng.random(ROWS) < 0.5, "a", "zq-secret-job")
    return pd.DataFrame({"age": 40 + rng.random(ROWS), "job": jobs}).assign(user_id=points()["user_id"])


def trips() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    xy = np.clip(rng.random((TRIPS, 1, 2)) + np.cumsum(rng.normal(0, 0.02, (TRIPS, 5, 2)), axis=1), 0, 1)
    frame = pd.DataFrame(xy.reshape(-1, 2), columns=["x", "y"])
    frame.loc[0, ["x", "y"]] = PLACE
    return frame.assign(trip_id=[f"zq-trip-{i}" for i in np.repeat(np.arange(TRIPS), 5)])


def private_points(folder: Path) -> tuple[list[Any], Any, str]:
    points().to_csv(folder / "zq-source.csv", index=False)
    unit = sg.PrivacyUnit.user(max_events=4, key="user_id")
    stream = sg.PHDStream(domain=BOX, budget=BUDGET, unit=unit, max_depth=3, noise=Loud())
    source = open_source(folder / "zq-source.csv")
    return [stream.update(folder / "zq-source.csv")], None, source.fingerprint(stream.kinds(source))


def private_stream(folder: Path) -> tuple[list[Any], Any, str]:
    people().to_parquet(folder / "zq-source.parquet")
    stream = sg.TabularStream(schema=SCHEMA, budget=BUDGET, noise=Loud())
    source = open_source(folder / "zq-source.parquet")
    return [stream.update(folder / "zq-source.parquet")], None, source.fingerprint(stream.kinds(source))


def private_table(folder: Path) -> tuple[list[Any], Any, str]:
    people().to_csv(folder / "zq-source.csv", index=False)
    table = sg.TabularSynthesizer(schema=SCHEMA, budget=sg.PrivacyBudget(1.0, 1e-6), noise=Loud())
    table.fit(folder / "zq-source.csv")
    return [table.sample(50)], table, open_source(folder / "zq-source.csv").fingerprint(SCHEMA.kinds)


def private_trips(folder: Path) -> tuple[list[Any], Any, str]:
    trips().to_csv(folder / "zq-source.csv", index=False)
    model = sg.TrajectorySynthesizer(domain=BOX, budget=BUDGET, max_depth=4, noise=Loud())
    model.fit(folder / "zq-source.csv")
    read = read_trips(folder / "zq-source.csv", BOX, unit=model.unit)
    return [model.sample(20)], model, read.fingerprint()


def private_trip_stream(folder: Path) -> tuple[list[Any], Any, str]:
    trips().to_csv(folder / "zq-source.csv", index=False)
    stream = sg.TrajectoryStream(
        domain=BOX, budget=BUDGET, max_depth=3, calibration=0.0, time=None, noise=Replayed(2)
    )
    read = read_trips(folder / "zq-source.csv", BOX, unit=stream.unit)
    return [stream.update(folder / "zq-source.csv")], None, read.fingerprint()


def private_panel(folder: Path) -> tuple[list[Any], Any, str]:
    people().drop_duplicates("user_id").to_csv(folder / "zq-source.csv", index=False)
    unit = sg.PrivacyUnit.user(max_events=4, key="user_id")
    stream = sg.PanelStream(schema=SCHEMA, budget=BUDGET, unit=unit, iterations=50, noise=Loud())
    source = open_source(folder / "zq-source.csv")
    return [stream.update(folder / "zq-source.csv")], None, source.fingerprint(stream.kinds(source))


def texts_of(path: Path) -> list[str]:
    """Everything in a file that can be read as text: names, metadata, values."""
    content = path.read_bytes()
    found = [path.name]
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        metadata = {**(table.schema.metadata or {}), **(pq.read_metadata(path).metadata or {})}
        found += [f"{{{key!r}: {value!r}}}" for key, value in metadata.items()]
        found += table.schema.names
        values = (value for name in table.schema.names for value in table[name].to_pylist())
        found += [str(value) for value in values if not isinstance(value, bytes)]
    elif content.startswith(b"synthgeo state"):
        with np.load(io.BytesIO(content[content.index(b"PK") :])) as archive:
            found += [json.dumps(json.loads(archive["header"].tobytes())), *archive.files]
            found += [
                str(value) for name in archive.files if name != "header" for value in archive[name].ravel()
            ]
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            found += [archive.read(name).decode("utf-8", "replace") for name in archive.namelist()]
    else:
        found.append(content.decode("utf-8", "replace"))
    return found


SLOW_TRIPS = pytest.param(private_trips, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "make", [private_points, private_stream, private_table, private_panel, private_trip_stream, SLOW_TRIPS]
)
def test_nothing_private_travels(make: Any, tmp_path: Path) -> None:
    private, public = tmp_path / "zq-folder", tmp_path / "public"
    private.mkdir()
    public.mkdir()
    releases, model, fingerprint = make(private)
    (release,) = releases
    release.to_parquet(public / "one.parquet")
    release.to_csv(public / "one.csv")
    release.publish(public / "published")
    sg.report(None, release, public / "page.html", public=True)
    if model is not None:
        model.save(public / "model")
    search(public, ["zq-", str(tmp_path), fingerprint])


def test_nothing_private_travels_with_a_series(tmp_path: Path) -> None:
    """What a run of a series puts into ``releases``, and what the mechanism says of itself."""
    (tmp_path / "zq-folder").mkdir()
    counts = [float(ROWS), float(TRIPS), 0.0, float(ROWS)]
    # A run restores its own noise: so much of it that an exact number comes by chance once in 10^7 times.
    budget = sg.PrivacyBudget(1e-7)
    mechanism = sg.series.LPA(budget=budget, horizon=len(counts))
    with sg.StreamRun.open(tmp_path / "zq-folder" / "run", mechanism) as run:
        for day, count in enumerate(counts):
            run.step(f"day-{day}", count)
        said = json.dumps([run.stream().provenance, run.report().to_dict()], default=str)
    shutil.copytree(tmp_path / "zq-folder" / "run" / "releases", tmp_path / "public")
    (tmp_path / "public" / "said.json").write_text(said)
    search(tmp_path / "public", ["zq-", str(tmp_path)], rows_are_counts=True)


def search(public: Path, words: list[str], *, rows_are_counts: bool = False) -> None:
    """Look through every public file for private words, places and counts."""
    files = [path for path in public.rglob("*") if path.is_file()]
    assert len(files) >= 5
    words = [*words, str(Path.home()), *(repr(number)[:11] for number in PLACE)]
    words += [name for name in (socket.gethostname(), getpass.getuser()) if len(name) > 4]  # else by chance
    # Numbers of their own, not digits within a checksum.
    numbers = re.compile(rf"(?<![\w.\-:])({ROWS}|{TRIPS})(?![\w:%]|\.[1-9])")
    for path in files:
        content = path.read_bytes()
        for number in PLACE:
            assert struct.pack("<d", number) not in content, path
        for text in texts_of(path):
            for word in words:
                assert word not in text, (path, word)
            # Facts, not rows: synthetic rows are numbered, and their numbers are no counts.
            if rows_are_counts or text.startswith(("{", "<", "#")):
                plain = re.sub(
                    r"(?s)<(svg|style|script).*?</\1>|<[^>]*>", " ", text
                )  # no coordinates of drawings
                assert not numbers.search(plain), (path, numbers.search(plain))


def test_a_count_in_a_statement_would_be_found(tmp_path: Path) -> None:
    """The twin: the number of trips among the facts of a release."""
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "one.parquet")
    table = pq.read_table(tmp_path / "one.parquet")
    table = table.replace_schema_metadata({"synthgeo": json.dumps({"trips": TRIPS})})
    pq.write_table(table, tmp_path / "one.parquet")
    assert any(re.search(rf"(?<![\d.]){TRIPS}(?![\d.])", text) for text in texts_of(tmp_path / "one.parquet"))

"""What travels: no public artefact holds a private value, an exact count, a hash of data, a path or a name.

The noise here is loud: no draw is near 0, so that a released number is never the exact one by chance.
"""

from __future__ import annotations

import getpass
import hashlib
import io
import json
import logging
import re
import shutil
import socket
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import synthgeo as sg
from synthgeo.cli.app import run as command
from synthgeo.sources import open_source
from synthgeo.sources.declared import CURATOR
from trajectories.reading.points import read_trips

ROWS, OUTSIDE, TRIPS, HOMES, PER_USER = 3163, 151, 317, 457, 9
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


@dataclass
class Secrets:
    """What must stay with the curator: counts of rows, of what was admitted and of single values; places, of
    the bounding box too; hashes, names and values as text.
    """

    numbers: set[int]
    places: set[float] = field(default_factory=lambda: set(PLACE))
    words: set[str] = field(default_factory=lambda: {"zq-", str(Path.home())})

    def __post_init__(self) -> None:
        names = (socket.gethostname(), getpass.getuser())
        self.words |= {name for name in names if len(name) > 4}  # else by chance
        alone = "|".join(
            text
            for n in sorted(self.numbers)
            for text in dict.fromkeys((str(n), f"{n:,}", f"{n:,}".replace(",", " ")))
        )
        # Numbers of their own, not digits within a checksum or another number.
        self.counts = re.compile(rf"(?<![\w.,\-:])({alone})(?![\w:%]|[.,]\d*[1-9])")

    def of_file(self, path: Path, kinds: dict[str, str] | None = None) -> Secrets:
        """Also hashes of a file: of its bytes and, as read, of its records. A part tells as much."""
        content = path.read_bytes()
        hashes = [getattr(hashlib, kind)(content).hexdigest() for kind in ("sha256", "blake2b", "md5")]
        hashes += [] if kinds is None else [open_source(path).fingerprint(kinds)]
        return self.of_hashes(*hashes)

    def of_hashes(self, *hashes: str) -> Secrets:
        """Also these hashes, and hashes of their texts."""
        again = [hashlib.sha256(text.encode()).hexdigest() for text in hashes]
        self.words |= {text[:12] for text in (*hashes, *again)}
        return self


def points() -> pd.DataFrame:
    """Of which some rows lie outside of the domain."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.random((ROWS, 2)), columns=["x", "y"])
    frame.loc[:PER_USER, ["x", "y"]] = PLACE
    frame.loc[ROWS - OUTSIDE :, "x"] += 7
    owner = np.arange(ROWS) // PER_USER
    return frame.assign(user_id=[f"zq-user-{number}" for number in owner])


def people() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    jobs = np.where(rng.random(ROWS) < 0.5, "a", "zq-secret-job")
    return pd.DataFrame({"age": 40 + rng.random(ROWS), "job": jobs}).assign(user_id=points()["user_id"])


def trips() -> pd.DataFrame:
    """Of which four lie outside of the domain."""
    rng = np.random.default_rng(3)
    xy = np.clip(rng.random((TRIPS, 1, 2)) + np.cumsum(rng.normal(0, 0.02, (TRIPS, 5, 2)), axis=1), 0, 1)
    xy = np.concatenate([xy, 3 + xy[:4]])
    frame = pd.DataFrame(xy.reshape(-1, 2), columns=["x", "y"])
    frame.loc[0, ["x", "y"]] = PLACE
    return frame.assign(trip_id=[f"zq-trip-{i}" for i in np.repeat(np.arange(len(xy)), 5)])


def box(*frames: pd.DataFrame) -> set[float]:
    """The bounding boxes of these rows, but for sides that are the domain's own."""
    sides = {
        float(side) for frame in frames for xy in (frame[["x", "y"]],) for side in (*xy.min(), *xy.max())
    }
    return {*PLACE, *(sides - {0.0, 1.0})}


def counts_of(*columns: pd.Series) -> set[int]:
    """How often each value is there."""
    return {int(n) for column in columns for n in column.value_counts() if n > 99}


# Each: a release, the model that it was drawn from (if there is one to hand on), and what it must not tell.
Made = tuple[Any, Any, Secrets]


def private_points(folder: Path) -> Made:
    frame = points()
    frame.to_csv(folder / "zq-source.csv", index=False)
    unit = sg.PrivacyUnit.user(max_events=4, key="user_id")
    stream = sg.PHDStream(
        domain=BOX, budget=BUDGET, unit=unit, settings=sg.PointSettings(max_depth=3), noise=Loud()
    )
    inside = frame.iloc[: ROWS - OUTSIDE]
    users = inside.groupby("user_id").size()
    numbers = {ROWS, len(inside), int(users.clip(upper=4).sum()), len(users), frame["user_id"].nunique()}
    kinds = stream.kinds(open_source(folder / "zq-source.csv"))
    secrets = Secrets(numbers, box(frame, inside)).of_file(folder / "zq-source.csv", kinds)
    return stream.update(folder / "zq-source.csv"), None, secrets


def private_stream(folder: Path) -> Made:
    frame = people()
    frame.to_parquet(folder / "zq-source.parquet")
    stream = sg.TabularStream(schema=SCHEMA, budget=BUDGET, noise=Loud())
    kinds = stream.kinds(open_source(folder / "zq-source.parquet"))
    secrets = Secrets({ROWS, *counts_of(frame["job"])}).of_file(folder / "zq-source.parquet", kinds)
    return stream.update(folder / "zq-source.parquet"), None, secrets


def private_table(folder: Path) -> Made:
    frame = people()
    frame.to_csv(folder / "zq-source.csv", index=False)
    unit = sg.PrivacyUnit.user(max_events=4, key="user_id")
    table = sg.TabularSynthesizer(schema=SCHEMA, budget=sg.PrivacyBudget(1.0, 1e-6), unit=unit, noise=Loud())
    table.fit(folder / "zq-source.csv")
    users = frame.groupby("user_id").size()
    numbers = {ROWS, len(users), int(users.clip(upper=4).sum()), *counts_of(frame["job"])}
    kinds = {**SCHEMA.kinds, "user_id": "id"}
    secrets = Secrets(numbers).of_file(folder / "zq-source.csv", SCHEMA.kinds)
    return table.sample(50), table, secrets.of_file(folder / "zq-source.csv", kinds)


def private_households(folder: Path) -> Made:
    parents, children = sg.simulate.households(HOMES, seed=3)
    key = "household_id"
    parents, children = (
        frame.assign(**{key: "zq-home-" + frame[key].astype(str)}) for frame in (parents, children)
    )
    for name, frame in (("parents", parents), ("children", children)):
        frame.to_csv(folder / f"zq-{name}.csv", index=False)
    schemas = dict(zip(("parent", "child"), sg.simulate.household_schemas(), strict=True))
    made = sg.HouseholdSynthesizer.from_options(
        **schemas, max_children=3, budget=BUDGET, iterations=50, noise=Loud()
    )
    made.fit(folder / "zq-parents.csv", folder / "zq-children.csv")
    kept = children.groupby(key).size().clip(upper=3)
    secrets = Secrets({HOMES, len(children), int(kept.sum()), len(kept)})
    for name in ("parents", "children"):
        secrets.of_file(folder / f"zq-{name}.csv")
    return made.sample(60), made, secrets


def private_panel(folder: Path) -> Made:
    frame = people().drop_duplicates("user_id")
    frame.to_csv(folder / "zq-source.csv", index=False)
    unit = sg.PrivacyUnit.user(max_events=4, key="user_id")
    stream = sg.PanelStream(
        schema=SCHEMA, budget=BUDGET, unit=unit, settings=sg.TableSettings(iterations=50), noise=Loud()
    )
    kinds = stream.kinds(open_source(folder / "zq-source.csv"))
    secrets = Secrets({len(frame), *counts_of(frame["job"])}).of_file(folder / "zq-source.csv", kinds)
    return stream.update(folder / "zq-source.csv"), None, secrets


def secrets_of_trips(path: Path, unit: Any) -> Secrets:
    """Hashes of trips as they are in the file, as they are read, and after those outside are left out."""
    frame = trips()
    read = read_trips(path, BOX, unit=unit)
    inside = np.array([BOX.contains(xy).all() for xy in np.split(read.xy, read.start[1:-1])])
    hashes = [read.fingerprint(), read.take(np.flatnonzero(inside)).fingerprint()]
    numbers = {TRIPS, TRIPS + 4, len(frame), 5 * TRIPS}
    return Secrets(numbers, box(frame, frame.iloc[: 5 * TRIPS])).of_file(path).of_hashes(*hashes)


def private_trips(folder: Path) -> Made:
    trips().to_csv(folder / "zq-source.csv", index=False)
    model = sg.TrajectorySynthesizer(
        domain=BOX, budget=BUDGET, settings=sg.TripSettings(max_depth=4), noise=Loud()
    )
    model.fit(folder / "zq-source.csv")
    return model.sample(20), model, secrets_of_trips(folder / "zq-source.csv", model.unit)


def private_trip_stream(folder: Path) -> Made:
    trips().to_csv(folder / "zq-source.csv", index=False)
    stream = sg.TrajectoryStream(
        domain=BOX,
        budget=BUDGET,
        settings=sg.TripSettings(max_depth=3, calibration=0.0),
        columns=sg.ColumnNames(time=None),
        noise=Replayed(2),
    )
    release = stream.update(folder / "zq-source.csv")
    return release, None, secrets_of_trips(folder / "zq-source.csv", stream.unit)


@dataclass
class Content:
    """What can be read of a file: facts in words, numbers of rows and models as text, arrays, raw bytes."""

    facts: list[str]
    values: list[str] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)


def content_of(path: Path) -> Content:
    """Everything in a file: names, metadata, values."""
    raw = path.read_bytes()
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        metadata = {**(table.schema.metadata or {}), **(pq.read_metadata(path).metadata or {})}
        facts = [
            path.name,
            *(f"{{{key!r}: {value!r}}}" for key, value in metadata.items()),
            *table.schema.names,
        ]
        values = [value for name in table.schema.names for value in table[name].to_pylist()]
        binary = b"".join(value for value in values if isinstance(value, bytes))
        return Content(
            facts, [str(value) for value in values if not isinstance(value, bytes)], raw=[raw, binary]
        )
    if raw.startswith(b"synthgeo state"):
        with np.load(io.BytesIO(raw[raw.index(b"PK") :])) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.dumps(json.loads(arrays.pop("header").tobytes()))
        values = [str(value) for array in arrays.values() for value in array.ravel()]
        return Content([path.name, header, *arrays], values, list(arrays.values()), [raw])
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        texts = [part.decode("utf-8", "replace") for part in parts.values()]
        return Content([path.name, *parts], texts, raw=list(parts.values()))
    text = raw.decode("utf-8", "replace")
    if path.suffix == ".csv":  # facts, not rows: synthetic rows are numbered, and their numbers are no counts
        return Content([path.name, text.partition("\n")[0]], [text], raw=[raw])
    return Content([path.name, text], raw=[raw])


def search(public: Path, secrets: Secrets) -> None:
    """Look through every public file for private words, places and counts."""
    files = [path for path in public.rglob("*") if path.is_file()]
    assert len(files) >= 5
    for path in files:
        content = content_of(path)
        assert not found_in(content.facts, secrets, digits=5), (
            path,
            found_in(content.facts, secrets, digits=5),
        )
        rows = Secrets(secrets.numbers, secrets.places, secrets.words)
        assert not (
            found := [word for text in content.values for word in texts_of(rows, 9) if word in text]
        ), (path, found)
        for place in secrets.places:
            packed = struct.pack("<d", place)
            assert not any(packed in raw for raw in content.raw), (path, place)
        for array in content.arrays:
            if array.dtype.kind in "iuf":
                assert not np.isin(array, [*secrets.numbers, *secrets.places]).any(), (path, array)


def texts_of(secrets: Secrets, digits: int) -> set[str]:
    """Words, and places to some digits."""
    return secrets.words | {repr(place)[: digits + 2] for place in secrets.places}


def found_in(texts: Iterable[str], secrets: Secrets, *, digits: int) -> list[str]:
    """What these words tell."""
    found = []
    for text in texts:
        found += [word for word in texts_of(secrets, digits) if word in text]
        plain = re.sub(r"(?s)<(svg|style|script).*?</\1>|<[^>]*>", " ", text)  # no coordinates of drawings
        found += [match.group() for match in secrets.counts.finditer(plain)]
    return found


def handed_on(release: Any, model: Any, public: Path) -> None:
    """All that may be handed on of a release and of its model."""
    public.mkdir(exist_ok=True)
    release.to_parquet(public / "one.parquet")
    release.to_csv(public / "one.csv")
    release.publish(public / "published")
    sg.report(None, release, public / "page.html", public=True)
    said = [repr(release), json.dumps(release.provenance, default=str), release.expected_error().to_string()]
    if model is not None:
        model.save(public / "model")
        said.append(repr(model))
    (public / "said.txt").write_text("\n".join(said))


SLOW_TRIPS = pytest.param(private_trips, marks=pytest.mark.slow)
PRODUCTS = [
    private_points,
    private_stream,
    private_table,
    private_households,
    private_panel,
    private_trip_stream,
]


@pytest.mark.parametrize("make", [*PRODUCTS, SLOW_TRIPS])
def test_nothing_private_travels(make: Any, tmp_path: Path, caplog: Any, capfd: Any) -> None:
    private, public = tmp_path / "zq-folder", tmp_path / "public"
    private.mkdir()
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        release, model, secrets = make(private)
        handed_on(release, model, public)
    secrets.words |= {str(tmp_path)}
    search(public, secrets)
    logged = [caplog.text, *capfd.readouterr(), *(str(warning.message) for warning in warned)]
    assert not found_in(logged, secrets, digits=5)


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
    search(tmp_path / "public", Secrets({ROWS, TRIPS}, words={"zq-", str(tmp_path)}))


def test_nothing_private_travels_through_the_command_line(tmp_path: Path, capfd: Any) -> None:
    """A run in a private folder, on a file with rows that cannot be read, and what is published of it."""
    folder = tmp_path / "zq-folder"
    folder.mkdir()
    frame = points()
    frame.astype({"x": object}).assign(x=lambda one: one["x"].where(one.index != 5, "zq-no-number")).to_csv(
        folder / "zq-source.csv", index=False
    )
    bounds = ["--bounds=0,0,1,1", "--epsilon=0.001", "--bad-rows=drop"]
    assert command(["stream", "run", str(folder / "run"), str(folder / "zq-source.csv"), *bounds]) == 0
    ran = capfd.readouterr()
    assert command(["publish", str(folder / "run"), "--to", str(tmp_path / "public")]) == 0
    assert command(["verify", str(tmp_path / "public")]) == 0
    published = capfd.readouterr()
    numbers = {ROWS, ROWS - 1, ROWS - OUTSIDE, ROWS - OUTSIDE - 1}
    secrets = Secrets(numbers, box(frame)).of_file(folder / "zq-source.csv")
    search(tmp_path / "public", secrets)
    secrets.words.discard("zq-")  # names of batches are the curator's own
    secrets.words |= {"zq-no-number", "zq-user"}
    assert not found_in([*ran, *published], secrets, digits=5)


# --- twins: each kind of leak is found ---


def into_statement(public: Path, _: Secrets) -> None:
    path = public / "published" / "statement.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "fitted_to": ROWS}))


def into_readme(text: Callable[[Secrets], str]) -> Callable[[Path, Secrets], None]:
    def plant(public: Path, secrets: Secrets) -> None:
        path = public / "published" / "README.md"
        path.write_text(path.read_text() + f"\nMade from {text(secrets)}.\n")

    return plant


def into_metadata(text: Callable[[Secrets], Any]) -> Callable[[Path, Secrets], None]:
    def plant(public: Path, secrets: Secrets) -> None:
        table = pq.read_table(public / "one.parquet")
        more = {**(table.schema.metadata or {}), b"synthgeo": json.dumps({"of": text(secrets)}).encode()}
        pq.write_table(table.replace_schema_metadata(more), public / "one.parquet")

    return plant


def into_model(array: np.ndarray) -> Callable[[Path, Secrets], None]:
    def plant(public: Path, _: Secrets) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, header=np.frombuffer(b"{}", dtype=np.uint8), counts=array)
        (public / "model").write_bytes(b"synthgeo state\n" + buffer.getvalue())

    return plant


def into_rows(public: Path, _: Secrets) -> None:
    path = public / "one.csv"
    path.write_text(path.read_text() + "41,zq-secret-job\n")


def into_geometry(public: Path, _: Secrets) -> None:
    pd.DataFrame({"geometry": [struct.pack("<d", PLACE[0])]}).to_parquet(public / "one.parquet")


def admitted(_: Secrets) -> int:
    return int(people().groupby("user_id").size().clip(upper=4).sum())


def cut_hash(secrets: Secrets) -> str:
    return max(word for word in secrets.words if re.fullmatch("[0-9a-f]{12}", word)) + "00"


LEAKS = {
    "a count of rows in a statement": into_statement,
    "a count of rows in a card": into_readme(lambda _: f"{ROWS:,} rows"),
    "a count of admitted rows in metadata": into_metadata(admitted),
    "a count of one value in a card": into_readme(lambda _: str(min(counts_of(people()["job"])))),
    "a count among the arrays of a model": into_model(np.array([1.0, ROWS])),
    "a place among the arrays of a model": into_model(np.array(PLACE)),
    "a hash of the records, cut": into_readme(cut_hash),
    "a side of the bounding box": into_metadata(lambda _: [round(PLACE[0], 6)]),
    "a side of the bounding box as text": into_metadata(lambda _: str(PLACE[1])),
    "a name of a file": into_metadata(lambda _: "zq-source.csv"),
    "a value that was not declared": into_rows,
    "a place inside a geometry": into_geometry,
}


@pytest.fixture(scope="module")
def handed(tmp_path_factory: Any) -> tuple[Path, Secrets]:
    """A table that was handed on."""
    private, public = (tmp_path_factory.mktemp(name) for name in ("zq-folder", "handed"))
    release, model, secrets = private_table(private)
    handed_on(release, model, public)
    search(public, secrets)
    return public, secrets


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_found(leak: str, handed: tuple[Path, Secrets], tmp_path: Path) -> None:
    shutil.copytree(handed[0], tmp_path / "public")
    LEAKS[leak](tmp_path / "public", handed[1])
    with pytest.raises(AssertionError):
        search(tmp_path / "public", handed[1])


def test_what_the_curator_is_told_is_in_no_log_of_others(monkeypatch: Any) -> None:
    """A record goes to all handlers above its logger, whatever level the loggers there have."""
    others, own = io.StringIO(), io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(others)])
    monkeypatch.setattr(CURATOR, "handlers", [logging.StreamHandler(own)])
    monkeypatch.setattr(CURATOR, "level", logging.INFO)
    table = sg.TabularSynthesizer(schema=SCHEMA, budget=BUDGET, reading=sg.Reading(unattended=True))
    table.fit(people().drop(columns="user_id")[:0])
    assert "no rows" in own.getvalue()
    assert "rows" not in others.getvalue()


@pytest.mark.parametrize("line", [f"read {ROWS:,} rows", "dropped 'zq-user-7'", f"x from {PLACE[0]:.7f}"])
def test_a_line_of_a_log_that_tells_is_found(line: str) -> None:
    assert found_in([f"step 1 done: {line}"], Secrets({ROWS}), digits=5)

"""Counts that are asked for cell by cell: the same releases as from all keys, and few keys on the driver."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from streams.spatial import points, requests
from streams.spatial.counted import LeafCounts
from streams.spatial.requests import AskedCounts, CellsAsked, KnownTo, together
from synthgeo import codec
from synthgeo.hierarchy.base import ROOT
from synthgeo.hierarchy.cells import Partition
from synthgeo.sources import Histogram

BOX = sg.BoxDomain(0, 0, 1, 1)
DEPTH = 20
GRID = {"time": "time", "every": "6h", "start": "2026-01-01", "end": "2026-01-02"}


@pytest.fixture
def small(monkeypatch):
    """A driver that holds few keys, and the numbers of keys that reach it."""
    monkeypatch.setattr(requests, "DRIVER_BITS", 8)
    monkeypatch.setattr(requests, "COARSE_BITS", 7)
    monkeypatch.setattr(requests, "MOST_CELLS", 512)
    monkeypatch.setattr(requests, "SPARE", 4)
    seen = []
    counted = points.PointRecords._counted

    def watched(self, *given):
        found = counted(self, *given)
        seen.append(found.size)
        return found

    monkeypatch.setattr(points.PointRecords, "_counted", watched)
    return seen


def city(rows=8_000):
    """Points that crowd into a corner, so that trees grow deep."""
    rng = np.random.default_rng(5)
    xy = rng.beta(0.3, 3.0, (rows, 2))
    return pd.DataFrame(
        {
            "x": xy[:, 0],
            "y": xy[:, 1],
            "op": np.where(rng.random(rows) < 0.1, -1, 1),
            "user": rng.integers(0, 600, rows),
            "time": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 86400, rows), unit="s"),
        }
    )


STREAMS = {
    "lasting": {},
    "each window": {"lifetime": 1},
    "windows": {"lifetime": 3, "times": "hour"},
    "blocks": {"lifetime": 60},
    "every step": {"schedule": "every_step"},
    "users": {"unit": sg.PrivacyUnit.user(max_events=2, key="user"), "lifetime": 1, "times": "hour"},
    "users with deletions": {"unit": sg.PrivacyUnit.user(max_events=2, key="user"), "deletions": True},
}


def cells(release):
    return release.cells.drop(columns="geometry").to_dict("list")


@pytest.mark.parametrize("kind", STREAMS)
def test_the_same_releases_as_from_all_keys(kind, small, tmp_path, monkeypatch):
    frame, options = city(), STREAMS[kind]
    if kind in ("lasting", "blocks", "users with deletions"):  # room for the levels to spare
        monkeypatch.setattr(requests, "MOST_CELLS", 1 << 16)
        monkeypatch.setattr(requests, "SPARE", 10)
    if "lifetime" in options:  # deletions would have to say when
        frame = frame.drop(columns="op")
    frame.to_parquet(tmp_path / "a.parquet")
    given = {"domain": BOX, "budget": sg.PrivacyBudget(1.0), "max_depth": DEPTH, **options}
    known = [
        cells(r)
        for r in sg.PHDStream.from_options(**given, noise=sg.SeededNoise(1)).run(
            frame, **GRID, progress=False
        )
    ]
    in_memory = len(small)
    asking = sg.PHDStream.from_options(**given, noise=sg.SeededNoise(1))
    found = [cells(r) for r in asking.run(str(tmp_path / "*.parquet"), **GRID, progress=False)]
    assert found == known
    assert len(small) > 2 * in_memory  # several requests per window
    if kind not in ("lasting", "blocks", "users with deletions"):  # these ask for some levels more
        assert 2 * max(small[in_memory:]) < max(small[:in_memory])


def test_batches_that_wait_are_counted_as_finely_as_they_are_known():
    """Later leaves that are finer are counted together, and nothing is lost, after a state too."""
    rng = np.random.default_rng(1)
    every = Histogram.of(rng.integers(0, 1 << 10, 3_000).astype(np.uint64), np.ones((3_000, 1), np.int64))
    whole = CellsAsked(Partition(ROOT, np.zeros(1, np.int64), np.ones(1)), 1, 10)
    counts = AskedCounts(10, ((whole, whole.of(every)),), lambda request: request.of(every))
    then, later = (
        Partition(np.arange(1 << bits, dtype=np.uint64), np.full(1 << bits, bits), np.ones(1 << bits))
        for bits in (2, 6)
    )
    batch = counts.on(then, spare=2)
    assert batch.size == 16
    again = codec.load(KnownTo, *codec.dump(batch))
    finer = counts.on(then, spare=3)
    for known, bits in ((batch, 4), (again, 4), (finer, 5), (together([batch, finer]), 4)):
        found = LeafCounts.measure([known], (1, 1), later, 10, scale=0.01, noise=sg.SeededNoise(1))
        assert np.unique(found.cells.bits).tolist() == [bits]
        assert found.cells.measure.sum() == later.measure.sum()
        times = 2 if known.weights.sum() > 3_000 else 1
        assert (
            found.values.tolist()
            == (times * found.cells.totals(every.keys, 10, every.weights[:, 0])).tolist()
        )


def test_in_a_run_a_request_that_fails_spends_nothing_and_the_run_goes_on(small, tmp_path, monkeypatch):
    path = str(tmp_path / "a.parquet")
    city().drop(columns="op").to_parquet(path)
    given = {"domain": BOX, "budget": sg.PrivacyBudget(1.0), "max_depth": DEPTH, "lifetime": 1}
    with sg.StreamRun.open(tmp_path / "run", sg.PHDStream.from_options(**given)) as run:
        counted, calls = points.PointRecords._counted, []

        def lost(self, *rest):
            calls.append(1)
            if len(calls) == 2:
                raise sg.errors.ClusterError("the connection to the cluster was lost; nothing was spent")
            return counted(self, *rest)

        monkeypatch.setattr(points.PointRecords, "_counted", lost)
        with pytest.raises(sg.errors.ClusterError, match="lost"):
            run.step("one", path)
        assert run.steps == 0
        run.step("one", path)
        assert run.steps == 1


def test_asked_cells_are_those_below_and_no_others():
    leaves = Partition(np.array([0b01, 0b111], np.uint64), np.array([2, 3]), np.ones(2))
    request = CellsAsked(leaves, 1, 6)
    keys, asked = request(np.arange(64, dtype=np.uint64))
    assert np.flatnonzero(asked).tolist() == [*range(16, 32), *range(56, 64)]
    assert np.unique(keys[asked]).tolist() == [16, 24, 56, 60]
    counts = Histogram(np.array([3, 17, 18, 63], np.uint64), np.array([[9], [1], [2], [4]]))
    found = request.of(counts)
    assert (found.keys.tolist(), found.weights[:, 0].tolist()) == ([16, 60], [3, 4])


def test_what_one_machine_holds_is_counted_at_once():
    given = {"domain": BOX, "budget": sg.PrivacyBudget(1.0)}
    asking = [
        sg.PHDStream.from_options(**given, max_depth=depth)._records.coarse is not None
        for depth in (20, 24, 30)
    ]
    assert asking == [False, False, True]
    cells = sg.H3Domain(resolution=9, within=sg.BoxDomain(8.5, 47.3, 8.6, 47.4, crs="EPSG:4326"))
    assert sg.PHDStream(domain=cells, budget=sg.PrivacyBudget(1.0))._records.coarse is None


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "dask"])
def test_a_file_that_changes_between_two_passes_is_recognised(kind, small, tmp_path, monkeypatch):
    """Before anything is released; what was replaced by as many bytes too. The run goes on."""
    from synthgeo.sources import Reading
    from synthgeo.sources.dask import files_on_cluster

    frame = city(2_000)[["x", "y"]]
    path = tmp_path / f"a.{'parquet' if kind == 'dask' else kind}"

    def write():
        if path.suffix == ".csv":
            frame.to_csv(path, index=False)
        elif path.suffix == ".jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_parquet(path)

    write()
    counted, passes = points.PointRecords._counted, []

    def changing(self, *given):
        found = counted(self, *given)
        passes.append(found)
        if len(passes) == 1:
            size = path.stat().st_size
            write()
            assert path.stat().st_size == size
        return found

    stream = sg.PHDStream(
        domain=BOX,
        budget=sg.PrivacyBudget(4.0),
        settings=sg.PointSettings(max_depth=DEPTH),
        lifetime=1,
        columns=sg.ColumnNames(x="x", y="y"),
    )
    with sg.StreamRun.open(tmp_path / "run", stream) as run:
        with monkeypatch.context() as patch:
            patch.setattr(points.PointRecords, "_counted", changing)
            with pytest.raises(
                sg.InputError, match=r"^a\.\w+: the file has changed since it was opened"
            ) as problem:
                run.step("1", files_on_cluster([path], Reading()) if kind == "dask" else path)
        assert "\n" not in str(problem.value)
        assert len(passes) == 1
        assert run.steps == 0
        assert not list((tmp_path / "run" / "releases").rglob("data.*"))
        run.step("1", path)
        assert run.steps == 1
        assert len(small) > 2  # a second pass was needed

"""``--scheduler``: counting on a cluster of processes releases the same as counting here."""

from __future__ import annotations

import warnings

import geopandas as gpd
import pandas as pd
import pytest

from tests.cli.conftest import BOX, one_line, write_points

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def address():
    from dask.distributed import LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster:
            yield cluster.scheduler_address


@pytest.mark.parametrize(
    "windows", [[], ["--time=time", "--every=6h", "--start=2015-01-01", "--end=2015-01-02"]]
)
def test_cluster_and_one_machine_release_the_same(synthgeo, address, tmp_path, windows):
    for number in range(2):
        write_points(tmp_path / f"day-{number}.parquet", seed=number, rows=2_000)
    new = [BOX, "--epsilon=1", "--seed=7", "--depth=8", *windows]
    here = synthgeo("stream", "run", tmp_path / "here", tmp_path / "*.parquet", *new)
    there = synthgeo(
        "stream", "run", tmp_path / "there", tmp_path / "*.parquet", *new, f"--scheduler={address}"
    )
    assert here.code == there.code == 0, there.err
    frames = [
        [gpd.read_parquet(path) for path in sorted((tmp_path / name / "releases").rglob("data.parquet"))]
        for name in ("here", "there")
    ]
    assert len(frames[0]) == (4 if windows else 2)
    for ours, theirs in zip(*frames, strict=True):
        pd.testing.assert_frame_equal(ours, theirs)


def test_a_cluster_that_does_not_answer_is_said(synthgeo, tmp_path, monkeypatch):
    write_points(tmp_path / "a.parquet", seed=1)
    run = ["stream", "run", tmp_path / "run", tmp_path / "a.parquet", BOX, "--epsilon=1"]
    outcome = synthgeo(*run, "--scheduler=nonsense")
    assert outcome.code == 3
    assert "no cluster answers" in one_line(outcome.err)
    assert not (tmp_path / "run").exists()

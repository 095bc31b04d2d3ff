"""Points are drawn and written in pieces: memory does not grow with them."""

from __future__ import annotations

import subprocess
import sys

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from streams.runs.stored import write_release
from streams.spatial import release as point_release

POINTS = np.random.default_rng(1).random((1000, 2))


def made(**options):
    box = sg.BoxDomain(0, 0, 1, 1, crs="EPSG:4326")
    noise = sg.SeededNoise(1)
    return sg.PHDStream.from_options(
        domain=box, budget=sg.PrivacyBudget(9.0), max_depth=6, noise=noise, **options
    )


def windowed():
    times = pd.date_range("2026-01-01", periods=1000, freq="1min")
    stream = made(lifetime=3)
    for _, batch in stream.windows(
        pd.DataFrame({"lon": POINTS[:, 0], "lat": POINTS[:, 1], "time": times}),
        time="time", every="6h", start="2026-01-01", end="2026-01-01 12:00",
    ):  # fmt: skip
        release = stream.update(batch)
    return release


@pytest.mark.parametrize(
    "make", [lambda: made().update(POINTS), lambda: made(persist=True).update(POINTS), windowed],
    ids=["drawn", "living", "with windows"],
)  # fmt: skip
def test_a_file_holds_the_points_of_the_release(make, tmp_path, monkeypatch):
    whole = make()
    one = whole.data
    assert whole.total > 300
    monkeypatch.setattr(point_release, "PIECE", 100)
    release = make()
    write_release(tmp_path / "step", release, ("data",))
    assert "data" not in release.__dict__
    stored = gpd.read_parquet(tmp_path / "step" / "data.parquet")
    pd.testing.assert_frame_equal(stored, release.data, check_dtype=False)
    assert stored["id"].tolist() == one["id"].tolist()
    # The first piece is what a release of one piece draws, and each cell has its points.
    cells = release.partition
    for data in (one, stored):
        assert np.array_equal(np.bincount(owners(data, whole, cells), minlength=cells.size), whole.counts)


def owners(data, release, cells):
    from synthgeo.hierarchy.base import hierarchy_of

    xy = np.column_stack([data.geometry.x, data.geometry.y])
    keys, _ = hierarchy_of(release.domain).locate(xy, 20)
    return cells.cell_of(keys, 20)


def test_pieces_differ_and_repeat():
    release = made().update(POINTS)
    release.counts = release.counts * 1000
    first, second = release._drawn(0), release._drawn(1)
    assert not np.isin(first[:, 0], second[:, 0]).any()
    assert np.array_equal(release._drawn(1), second)
    assert sum(len(release._drawn(number)) for number in range(release._numbers)) == release.total


PEAK = """
import resource, sys, pathlib, numpy as np
from tests.streams.test_point_pieces import POINTS, made
from streams.runs.stored import write_release
from streams.spatial import release as point_release
point_release.PIECE = 1 << 15
release = made().update(POINTS)
release.counts = release.counts * int(sys.argv[1])
write_release(pathlib.Path(sys.argv[2]), release, ("data",))
print(release.total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_three_times_the_points_take_the_same_memory(tmp_path):
    found = []
    for times in (600, 1800):
        command = [sys.executable, "-c", PEAK, str(times), str(tmp_path / str(times))]
        total, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        found.append((int(total), int(peak)))
    assert found[1][0] == 3 * found[0][0] > 1_500_000
    assert found[1][1] < 1.15 * found[0][1]

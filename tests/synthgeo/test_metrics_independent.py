"""Metrics against computations that other people wrote: scipy, pandas, shapely, movingpandas, SDMetrics.

Small data, other libraries' own functions; nothing of ours is used on the right-hand side but the grid of
cells, which is public geometry. SDMetrics pins an older pandas, so its answers stand here as numbers; the
data they belong to is below, and ``pip install sdmetrics`` elsewhere gives them again.
"""

from __future__ import annotations

import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import shapely
from scipy.spatial.distance import jensenshannon, pdist

import synthgeo as sg
from synthgeo.evaluation import trajectories as trips
from synthgeo.evaluation.spatial import Paths, random_rectangles, range_counts, relative_error
from synthgeo.evaluation.tables import marginal_counts, total_variation, workload_errors

BOX = (0.0, 0.0, 1000.0, 1000.0)


def walks(count: int, seed: int) -> list[np.ndarray]:
    """Random polylines of 2 to 12 points inside the box."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        steps = rng.normal(0, 60, (int(rng.integers(2, 13)), 2))
        lines.append(np.clip(rng.uniform(100, 900, 2) + np.cumsum(steps, axis=0), 0, 999.0))
    return lines


REAL, MADE = walks(80, 1), walks(60, 2)
TRUTH, FAKE = Paths.of(REAL), Paths.of(MADE)


def binned(points: np.ndarray, side: int) -> np.ndarray:
    """Counts on a grid by numpy's histogram."""
    (minx, miny, maxx, maxy) = BOX
    counts, _, _ = np.histogram2d(*points.T, bins=side, range=[(minx, maxx), (miny, maxy)])
    return counts.ravel()


@pytest.mark.parametrize("seed", range(5))
def test_divergence_is_scipys_jensen_shannon_squared(seed):
    rng = np.random.default_rng(seed)
    p, q = rng.poisson(2, 40).astype(float), rng.poisson(3, 40).astype(float)
    assert trips.divergence(p, q) == pytest.approx(jensenshannon(p, q, base=2) ** 2, abs=1e-12)


def test_divergence_is_the_mean_relative_entropy_to_the_middle():
    p, q = np.array([3.0, 1, 0, 6]), np.array([1.0, 1, 5, 3])
    middle = (p / p.sum() + q / q.sum()) / 2
    entropies = [scipy.stats.entropy(side, middle, base=2) for side in (p, q)]
    assert trips.divergence(p, q) == pytest.approx(np.mean(entropies))


def test_popularity_is_scipys_kendall_tau_of_numpys_histograms():
    counts = [binned(np.concatenate(lines), 15) for lines in (REAL, MADE)]
    expected = scipy.stats.kendalltau(*counts).statistic
    assert trips.popularity_tau(TRUTH, FAKE, bounds=BOX) == pytest.approx(expected)


def test_start_end_by_pandas_crosstab():
    def pairs(lines: list[np.ndarray]) -> pd.Series:
        ends = pd.DataFrame([(*line[0] // 25, *line[-1] // 25) for line in lines])
        return ends.value_counts()

    both = pd.concat([pairs(REAL), pairs(MADE)], axis=1).fillna(0.0).to_numpy()
    found, _ = trips.start_end_error(TRUTH, FAKE, bounds=BOX, side=40)
    assert found == pytest.approx(jensenshannon(both[:, 0], both[:, 1], base=2))


def test_lengths_are_shapelys():
    assert TRUTH.lengths() == pytest.approx(shapely.length([shapely.LineString(line) for line in REAL]))


def test_lengths_are_movingpandas():
    """movingpandas wants times and a metric CRS; in one, its lengths are plane lengths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mpd = pytest.importorskip("movingpandas")
        rows = pd.DataFrame(np.concatenate(REAL), columns=["x", "y"])
        rows["trip"] = np.repeat(np.arange(len(REAL)), [len(line) for line in REAL])
        rows["t"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rows.groupby("trip").cumcount(), unit="min")
        frame = gpd.GeoDataFrame(rows, geometry=gpd.points_from_xy(rows["x"], rows["y"]), crs="EPSG:32632")
        collection = mpd.TrajectoryCollection(frame, traj_id_col="trip", t="t")
        lengths = {one.id: one.get_length() for one in collection.trajectories}
    found = TRUTH.lengths()
    assert len(lengths) > 0.9 * len(REAL)  # movingpandas leaves out trips that do not move
    assert found[list(lengths)] == pytest.approx(list(lengths.values()))


def test_diameters_are_scipys_largest_distance():
    assert TRUTH.diameters() == pytest.approx([pdist(line).max() for line in REAL])


def test_length_buckets_by_numpy():
    lengths = [[shapely.LineString(line).length for line in lines] for lines in (REAL, MADE)]
    edges = np.linspace(0, max(lengths[0]), 21)
    counts = [np.histogram(np.minimum(values, edges[-1]), edges)[0] for values in lengths]
    expected = jensenshannon(*counts, base=2) ** 2
    assert trips.bucket_divergence(TRUTH.lengths(), FAKE.lengths()) == pytest.approx(expected)


def test_rectangle_counts_are_shapelys():
    points = np.concatenate(REAL)
    rectangles = random_rectangles(BOX, 60, share=(0.01, 0.1), rng=np.random.default_rng(3))
    tree = shapely.STRtree(shapely.points(points))
    boxes = shapely.box(*rectangles.T)
    expected = np.bincount(tree.query(boxes, predicate="intersects")[0], minlength=len(boxes))
    assert range_counts(points, rectangles).tolist() == expected.tolist()
    assert expected.max() > 0


def test_trips_touching_are_shapelys():
    """Sampled finely, a path touches a rectangle when the line does: no corner is clipped here."""
    rectangles = random_rectangles(BOX, 40, share=(0.02, 0.05), rng=np.random.default_rng(4))
    lines = shapely.linestrings(np.concatenate(REAL), indices=TRUTH.trip)
    boxes = shapely.box(*rectangles.T)
    expected = shapely.intersects(lines[None, :], boxes[:, None]).sum(axis=1)
    found = trips.trips_touching(TRUTH.every(0.05), rectangles)
    assert found.tolist() == expected.tolist()


def test_relative_error_by_hand():
    assert relative_error([10, 0, 4], [8, 1, 4], sanity=2) == pytest.approx((2 / 10 + 1 / 2 + 0) / 3)


COLOURS, SIZES = ["a", "b", "c", "d"], ["s", "m", "l"]
SCHEMA = sg.Schema({"colour": sg.Categorical(COLOURS), "size": sg.Categorical(SIZES)})
PEOPLE = pd.DataFrame({"colour": list("aaaabbbbccdd"), "size": list("ssmmllsmllsm")})
SYNTHETIC = pd.DataFrame({"colour": list("aabbbbbccc"), "size": list("smlsmlsmll")})
# 1 - TVComplement and 1 - ContingencySimilarity of SDMetrics 0.32.0 on these two frames.
SDMETRICS = {("colour",): 0.3, ("size",): 0.06666666666666665, ("colour", "size"): 0.3}


@pytest.fixture(scope="module")
def marginals():
    cliques = list(SDMETRICS)
    return [marginal_counts(frame, SCHEMA, cliques) for frame in (PEOPLE, SYNTHETIC)]


def test_total_variation_is_sdmetrics(marginals):
    assert total_variation(*marginals) == pytest.approx(SDMETRICS)


def test_total_variation_by_pandas_on_random_tables():
    rng = np.random.default_rng(8)
    real, made = (
        pd.DataFrame({"colour": rng.choice(COLOURS, n, p=p), "size": rng.choice(SIZES, n)})
        for n, p in ((700, [0.4, 0.3, 0.2, 0.1]), (300, [0.1, 0.2, 0.3, 0.4]))
    )
    shares = [pd.crosstab(f["colour"], f["size"], normalize="all") for f in (real, made)]
    expected = (shares[0] - shares[1]).abs().to_numpy().sum() / 2
    counts = [marginal_counts(frame, SCHEMA, [("colour", "size")]) for frame in (real, made)]
    assert total_variation(*counts)["colour", "size"] == pytest.approx(expected)


def test_workload_errors_by_pandas(marginals):
    """Absolute errors are shares of the real rows, relative ones of cells with somebody in; means."""
    tables = [
        pd.crosstab(frame["colour"], frame["size"]).reindex(index=COLOURS, columns=SIZES, fill_value=0)
        for frame in (PEOPLE, SYNTHETIC)
    ]
    gap = (tables[0] - tables[1]).abs()
    found = workload_errors(*({("colour", "size"): m["colour", "size"]} for m in marginals))
    assert found.avg_we == pytest.approx(gap.to_numpy().mean() / len(PEOPLE))
    assert found.avg_sum_we == found.max_sum_we == pytest.approx(gap.to_numpy().sum() / len(PEOPLE))
    assert found.max_rel_we == pytest.approx((gap / tables[0].where(tables[0] > 0)).stack().mean())

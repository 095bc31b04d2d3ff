"""Frames people use, in and out; how objects show themselves in a notebook."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import shapely

import synthgeo as sg

BOX = sg.BoxDomain(454_000, 5_238_000, 478_000, 5_262_000, crs="EPSG:32632")
LAND = gpd.GeoDataFrame(geometry=[shapely.box(8.4, 47.3, 8.7, 47.5)], crs="EPSG:4326")


def frame(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame({"lon": rng.uniform(8.42, 8.68, n), "lat": rng.uniform(47.32, 47.48, n)})


@pytest.fixture(scope="module")
def release():
    return sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(1.0)).update(frame())


def test_polars_in_and_out(release):
    other = sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(3))
    same = sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(3))
    np.testing.assert_array_equal(other.update(pl.from_pandas(frame())).xy, same.update(frame()).xy)
    table = release.to_polars()
    assert table.columns == ["id", "x", "y"]
    assert table.height == release.total
    assert release.to_polars(crs="EPSG:4326").columns == ["id", "lon", "lat"]
    assert release.to_polars(crs="EPSG:4326")["lat"].is_between(47.2, 47.6).all()


def test_arrow_keeps_geometry_and_statement(release):
    table = release.to_arrow(crs="EPSG:4326")
    assert b"geo" in table.schema.metadata
    assert b"synthgeo" in table.schema.metadata
    places = shapely.from_wkb(table["geometry"].to_pylist())
    assert len(places) == release.total
    assert 47 < shapely.get_y(places).mean() < 48


def test_every_writer_takes_a_crs(release, tmp_path):
    release.to_parquet(tmp_path / "a.parquet", crs="EPSG:3857")
    assert gpd.read_parquet(tmp_path / "a.parquet").crs.to_epsg() == 3857
    release.to_csv(tmp_path / "a.csv", crs="EPSG:4326")
    assert list(pd.read_csv(tmp_path / "a.csv")) == ["id", "lon", "lat"]
    release.to_csv(tmp_path / "b.csv", crs="EPSG:3857")
    moved = pd.read_csv(tmp_path / "b.csv")
    assert moved["x"].between(9.3e5, 9.8e5).all()
    release.to_csv(tmp_path / "c.csv")
    assert pd.read_csv(tmp_path / "c.csv")["x"].between(*BOX.bounds[::2]).all()
    release.to_geojson(tmp_path / "a.geojson")
    assert gpd.read_file(tmp_path / "a.geojson").total_bounds[3] < 48
    plain = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0))
    bare = plain.update(np.random.default_rng(1).random((50, 2)))
    with pytest.raises(sg.ConfigError, match="coordinate system"):
        bare.to_csv(tmp_path / "d.csv", crs="EPSG:4326")


def test_a_geodataframe_is_a_domain():
    named = sg.PHDStream(domain=sg.PolygonDomain(LAND), budget=sg.PrivacyBudget(1.0))
    stream = sg.PHDStream(domain=LAND, budget=sg.PrivacyBudget(1.0))
    assert stream.domain == named.domain
    assert stream.update(frame()).total > 0
    assert stream.clone().domain == named.domain
    assert sg.baselines.OfflinePrivTree(domain=LAND, budget=sg.PrivacyBudget(1.0)).domain == named.domain
    assert sg.TrajectorySynthesizer(domain=LAND, budget=sg.PrivacyBudget(1.0)).domain == named.domain
    assert sg.Location(LAND.geometry).domain == named.domain


def test_objects_show_themselves(release, tmp_path):
    shown = release._repr_html_()
    assert "PHDStream" in shown
    assert "may be published" in shown
    assert "<td" in shown
    assert "73%" in sg.PrivacyBudget(1.0)._repr_html_()
    schema = sg.Schema({"<b>": sg.Categorical(["x", "y"]), "n": sg.Numeric(0, 9)})
    assert "&lt;b&gt;" in schema._repr_html_()
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d & e", cap=sg.PrivacyBudget(2.0)) as ledger:
        assert "d &amp; e" in ledger._repr_html_()


def test_explore_draws_synthetic_points(release, monkeypatch):
    pytest.importorskip("folium")
    assert "leaflet" in release.explore(tiles=None).get_root().render().lower()
    monkeypatch.setattr("synthgeo.release._MOST_EXPLORED", 10)
    with pytest.warns(UserWarning, match="drawing 10 of"):
        release.explore(tiles=None)

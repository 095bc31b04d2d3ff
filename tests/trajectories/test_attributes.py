"""What else is recorded of trips: measured with where, when and how far, drawn with trips that it fits."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from trajectories.attributes import agreeing
from trajectories.model import TripModel
from trajectories.over_time import counting
from trajectories.parts.records import DISTANCE, HOUR, ORIGIN
from trajectories.setup import TripSetup

BOX = sg.BoxDomain(0, 0, 10_000, 10_000)
SCHEMA = sg.Schema({"vehicle": sg.Categorical(["car", "van"]), "fare": sg.Numeric(0, 40, bins=10)})
ENDS = {"origin": ("ox", "oy"), "destination": ("dx", "dy"), "departure": "left", "arrival": "came"}


def taxis(count=2000, seed=0):
    """Vans go far and start in the west; the fare follows the distance."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(1, 9999, (2, count, 2))
    metres = np.hypot(*(b - a).T)
    van = rng.random(count) < np.where(metres > 4000, 0.6, 0.05) + np.where(a[:, 0] < 5000, 0.3, 0.0)
    left = pd.Timestamp("2026-03-02") + pd.to_timedelta(rng.integers(0, 86400, count), unit="s")
    return pd.DataFrame(
        {
            "ox": a[:, 0], "oy": a[:, 1], "dx": b[:, 0], "dy": b[:, 1], "left": left,
            "came": left + pd.to_timedelta(metres / 8, unit="s"),
            "vehicle": np.where(van, "van", "car"), "fare": 2 + metres / 400,
        }
    )  # fmt: skip


def fitted(epsilon=8.0, data=None, **options):
    given = {"domain": BOX, "budget": sg.PrivacyBudget(epsilon), "noise": sg.SeededNoise(1), "max_depth": 8}
    model = sg.TrajectorySynthesizer.from_options(**{**given, "attributes": SCHEMA, **options})
    return model.fit(taxis() if data is None else data, **ENDS)


@pytest.fixture(scope="module")
def model():
    return fitted()


def test_attributes_go_with_the_trip_they_are_of(model):
    trips = model.sample(2000).trips
    assert list(trips.columns)[-3:] == ["vehicle", "fare", "geometry"]
    van = trips["vehicle"] == "van"
    assert trips["metres"][van].median() > 1.3 * trips["metres"][~van].median()
    ends = trips.geometry.get_coordinates().groupby(level=0).first()
    assert van[ends["x"] < 4500].mean() - van[ends["x"] > 5500].mean() > 0.15
    straight = trips.geometry.apply(lambda line: np.hypot(*np.subtract(line.coords[0], line.coords[-1])))
    assert np.corrcoef(straight, trips["fare"])[0, 1] > 0.6


def test_trips_that_are_asked_for_by_time_find_their_records(model):
    trips = model.sample(300, hour=8).trips
    assert set(trips["departure"].dt.hour) == {8}
    van = trips["vehicle"] == "van"
    assert trips["metres"][van].median() > 1.2 * trips["metres"][~van].median()


def test_given_attributes_choose_their_trips(model):
    vans = model.sample(300, given={"vehicle": "van"}).trips
    cars = model.sample(300, given={"vehicle": "car"}).trips
    assert set(vans["vehicle"]) == {"van"}
    assert len(vans) == 300
    assert vans["metres"].median() > 1.3 * cars["metres"].median()
    with pytest.raises(sg.ConfigError, match="no attribute 'colour'"):
        model.sample(5, given={"colour": "red"})
    with pytest.warns(UserWarning, match="vehicle, fare are not used"):
        plain = fitted(attributes=None)
    with pytest.raises(sg.ConfigError, match="fit with attributes"):
        plain.sample(5, given={"vehicle": "van"})


def test_a_saved_model_draws_the_same(model, tmp_path):
    model.save(tmp_path / "model")
    again = sg.TrajectorySynthesizer.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.sample(50).trips, model.sample(50).trips)


def test_the_shares_add_up_to_epsilon(model):
    shares = model.sample(1).provenance["shares"]
    assert shares["attributes"] == pytest.approx(2.0)
    assert sum(shares.values()) <= 8.0 * (1 + 1e-12)


def test_bad_attributes_are_refused_before_anything_is_spent():
    data = taxis(50)
    data.loc[7, "vehicle"] = "bus"
    model = sg.TrajectorySynthesizer(domain=BOX, budget=sg.PrivacyBudget(1.0), attributes=SCHEMA)
    with pytest.raises(sg.InputError, match="'vehicle'"):
        model.fit(data, **ENDS)
    assert model.spent is None
    with pytest.raises(sg.ConfigError, match="is taken"):
        sg.TrajectorySynthesizer(
            domain=BOX,
            budget=sg.PrivacyBudget(1.0),
            attributes=sg.Schema({DISTANCE: sg.Numeric(0, 1, bins=2)}),
        )


def test_a_check_finds_attributes_that_do_not_fit():
    made = sg.TrajectorySynthesizer(domain=BOX, budget=sg.PrivacyBudget(1.0), attributes=SCHEMA)
    assert made.check(taxis(50), **ENDS).ok
    assert "is not one of the 2 categories" in str(made.check(taxis(50).assign(vehicle="bus"), **ENDS))
    assert not made.check(taxis(50).drop(columns="fare"), **ENDS).ok


@pytest.mark.filterwarnings("ignore:'crs' was not provided")
def test_all_files_of_trips_have_their_attributes(model, tmp_path):
    release = model.sample(20)
    assert {"vehicle", "fare"} <= set(release.layers["trips"])
    release.to_gpkg(tmp_path / "trips.gpkg")
    written = gpd.read_file(tmp_path / "trips.gpkg", layer="trips")
    assert written["vehicle"].tolist() == release.trips["vehicle"].tolist()


def test_points_have_the_attributes_of_their_first_row():
    data = taxis(400)
    points = pd.DataFrame(
        {
            "trip_id": np.tile(np.arange(400), 2),
            "x": np.concatenate([data["ox"], data["dx"]]), "y": np.concatenate([data["oy"], data["dy"]]),
            "time": np.concatenate([data["left"], data["came"]]),
            "vehicle": "van", "fare": 10.0,
        }
    )  # fmt: skip
    points.loc[points.index >= 400, "vehicle"] = "car"
    given = {"domain": BOX, "budget": sg.PrivacyBudget(50.0), "noise": sg.SeededNoise(1), "max_depth": 4}
    model = sg.TrajectorySynthesizer.from_options(
        **given, attributes=SCHEMA, calibration=0.0, cleaning=False
    ).fit(points)
    assert (model.sample(200).trips["vehicle"] == "van").mean() > 0.98


def test_bins_and_values_may_be_left_to_the_data_and_a_row_for_each_trip_holds_them(tmp_path):
    """``bins="auto"`` is what a newcomer's schema has."""
    found = sg.Categorical(values="private", candidates=["car", "van", "bus"], other="else")
    schema = sg.Schema({"vehicle": found, "fare": sg.Numeric(0, 40, bins="auto")})
    release = fitted(attributes=schema, data=taxis(800)).sample(400)
    assert release.trips["fare"].corr(release.trips["metres"]) > 0.3
    assert {"car", "van"} <= set(release.trips["vehicle"]) <= {"car", "van", "else"}  # not the bus
    release.trips_to_csv(tmp_path / "trips.csv")
    written = pd.read_csv(tmp_path / "trips.csv")
    assert {"start_x", "start_y", "end_x", "end_y", "departure", "arrival", "fare"} <= set(written.columns)
    assert (tmp_path / "trips.csv.provenance.json").exists()


def test_trips_known_by_their_ends_have_two_points_without_a_map(model):
    assert model.sample(50).data.groupby("trip_id").size().eq(2).all()
    assert model.sample(50, spacing=100).data.groupby("trip_id").size().gt(2).any()


def test_a_record_agrees_in_as_much_as_there_is():
    wanted = {DISTANCE: np.array([1, 1, 2, 5]), HOUR: np.array([3, 4, 3, 0]), ORIGIN: np.array([0, 0, 7, 0])}
    offered = {DISTANCE: np.array([1, 1, 2]), HOUR: np.array([3, 9, 3]), ORIGIN: np.array([0, 0, 2])}
    found = agreeing(wanted, offered, np.random.default_rng(0))
    assert found[0] == 0
    assert found[1] in (0, 1)
    assert found[2] == 2
    assert 0 <= found[3] < 3


def test_no_trip_is_drawn_twice_for_records_of_one_kind():
    """At little ε noise may make all records alike; few trips agree with them, and those were repeated."""
    wanted = {DISTANCE: np.zeros(50, dtype=np.int64), ORIGIN: np.arange(50) % 3}
    offered = {DISTANCE: np.r_[0, 0, np.ones(98, dtype=np.int64)], ORIGIN: np.arange(100) % 3}
    found = agreeing(wanted, offered, np.random.default_rng(0), once=True)
    assert len(set(found.tolist())) == 50
    assert {0, 1} <= set(found.tolist())  # those that agree come first


def test_a_stream_that_keeps_everything_keeps_few_tables(monkeypatch):
    """Tables of old batches are folded into one, which tells what they told."""
    monkeypatch.setattr(counting, "MOST_TABLES", 2)

    def blank(setup, measured, *_):
        return TripModel.blank(setup.ground, measured, setup.settings.length)

    monkeypatch.setattr(TripSetup, "fit", blank)
    stream = sg.TrajectoryStream(
        domain=BOX,
        budget=sg.PrivacyBudget(8.0),
        attributes=SCHEMA,
        settings=sg.TripSettings(max_depth=6),
        noise=sg.SeededNoise(1),
    )
    mechanism, tables, vans = stream.mechanism, [], []
    for seed in range(4):
        rows = taxis(800, seed)
        points = pd.concat(
            [
                rows[["vehicle", "fare"]].assign(
                    trip_id=seed * 800 + np.arange(800), x=rows[f"{end}x"], y=rows[f"{end}y"], time=rows[time]
                )
                for end, time in (("o", "left"), ("d", "came"))
            ]
        )
        mechanism.advance(stream.count(points).counts, step=seed + 1, structure=seed == 0)
        tables.append(len(mechanism.attributes.tables))
        records = mechanism.attributes.records(4000, np.random.default_rng(seed))
        vans.append((records["vehicle"] == "van").mean())
    assert tables == [1, 2, 1, 2]
    assert sum(mechanism.attributes.weights) == pytest.approx(3200, rel=0.1)
    real = (taxis(3200)["vehicle"] == "van").mean()
    assert np.abs(np.array(vans) - real).max() < 0.06

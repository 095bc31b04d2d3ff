"""Plans: from public numbers alone, and near what a release then has."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg

BOX = sg.BoxDomain(0, 0, 1, 1)


def stream(**options) -> sg.PHDStream:
    return sg.PHDStream.from_options(domain=BOX, budget=sg.PrivacyBudget(1.0), **options)


def test_more_budget_and_more_rows_help_and_bounds_hurt():
    levels = {"epsilons": (0.1, 1.0), "repeats": 1}
    few = sg.plan(stream(), rows=1_000, **levels).table
    many = sg.plan(stream(), rows=20_000, **levels).table
    users = sg.plan(stream(unit=sg.PrivacyUnit.user(max_events=20)), rows=1_000, **levels).table
    assert few["error"][0] > few["error"][1]
    assert few["error"][1] > many["error"][1]
    assert users["error"][1] > few["error"][1]
    assert users["noise"][1] == pytest.approx(20 * few["noise"][1], rel=0.05)


def test_it_says_when_the_signal_drowns():
    unit = sg.PrivacyUnit.user(max_events=50)
    drowned = sg.plan(stream(unit=unit), rows=500, epsilons=(0.1, 0.5), repeats=1)
    assert drowned.least is None
    assert "at ε = 0.5 and 50 events per user the map is noise" in str(drowned)
    fine = sg.plan(stream(), rows=20_000, epsilons=(1.0,), repeats=1)
    assert fine.least == 1.0
    assert "the map is not noise at any of these" in str(fine)
    assert "<table" in fine._repr_html_()


def test_the_noise_of_a_plan_is_that_of_the_release():
    """Of circles, which the stand-in was not made for: noise within 20 %, error within a factor of 2."""
    data = sg.simulate.circles(steps=10, points=500, deletion=False, seed=1)
    box = sg.BoxDomain(0, 0, 1, 1)
    made = sg.PHDStream(domain=box, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(2))
    for _, batch in data.groupby("step"):
        release = made.update(batch[["x", "y"]])
    found = sg.plan(made, rows=len(data), steps=10, epsilons=(1.0,), repeats=1).table.iloc[0]
    measured = release.expected_error()["standard_deviation"][1]
    assert found["noise"] == pytest.approx(measured, rel=0.2)
    grid = [
        np.histogram2d(xy[:, 0], xy[:, 1], bins=8, range=[[0, 1], [0, 1]])[0].ravel() / len(xy)
        for xy in (data[["x", "y"]].to_numpy(), release.xy)
    ]
    error = np.abs(grid[0] - grid[1]).sum() / 2
    assert error / 2 <= found["error"] <= 2 * error


def test_tables_keep_their_rules():
    schema = sg.Schema(
        {"a": sg.Categorical(["x", "y", "z"]), "b": sg.Numeric(0, 10, bins=5), "c": sg.Categorical([1, 2])},
        impossible=[{"a": "x", "c": 1}],
    )
    table = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0))
    found = sg.plan(table, rows=2_000, epsilons=(0.02, 2.0), repeats=1).table
    assert found["error"][0] > found["error"][1]
    assert table.spent is None
    with pytest.raises(sg.ConfigError, match="steps must be 1"):
        sg.plan(table, rows=10, steps=2)
    over_time = sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(1.0))
    assert len(sg.plan(over_time, rows=600, steps=3, epsilons=(1.0,), repeats=1).table) == 1


def test_a_plan_touches_nothing(tmp_path):
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=sg.PrivacyBudget(2.0)) as ledger:
        made = stream(ledger=ledger)
        first = sg.plan(made, rows=500, epsilons=(1.0,), repeats=1)
        again = sg.plan(made, rows=500, epsilons=(1.0,), repeats=1)
        pd.testing.assert_frame_equal(first.table, again.table)
        assert ledger.spent is None
        assert made.step == 0


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"steps": 0}, {"epsilons": ()}, {"epsilons": (-1,)}])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(sg.ConfigError):
        sg.plan(stream(), **{"rows": 10} | wrong)


def test_the_picture_has_all_levels():
    axes = sg.plan(stream(), rows=500, epsilons=(0.5, 1.0), repeats=1).plot()
    assert len(axes.lines[0].get_xdata()) == 2


def test_trips_of_drivers_drown():
    unit = sg.PrivacyUnit.user(max_trajectories=20, key="driver")
    box = sg.BoxDomain(0, 0, 10_000, 10_000)
    model = sg.TrajectorySynthesizer(domain=box, budget=sg.PrivacyBudget(1.0), unit=unit)
    found = sg.plan(model, rows=300, epsilons=(0.05, 100.0), repeats=1)
    assert found.least == 100.0
    assert "at ε = 0.05 and 20 trips per user the map is noise; at 100 it is not" in str(found)
    stream = sg.TrajectoryStream(domain=box, budget=sg.PrivacyBudget(1.0))
    with pytest.raises(sg.ConfigError, match="as many rows as one batch has trips"):
        sg.plan(stream, rows=300)


def test_the_noise_of_a_plan_for_trips_is_that_of_a_fit_on_points():
    graph = sg.simulate.city_graph(4, 4, seed=1)
    points = sg.simulate.city_trips(graph, trips=60, seed=1)
    model = sg.TrajectorySynthesizer(domain=sg.RoadDomain.from_graph(graph), budget=sg.PrivacyBudget(1.0))
    planned = sg.plan(model, rows=60, epsilons=(1.0,), repeats=1).table["noise"][0]
    measured = model.fit(points).sample(10).expected_error()["standard_deviation"][0]
    assert planned == pytest.approx(measured, rel=0.01)


def test_bounds_of_users_are_compared():
    """With users alike a larger bound keeps more trips under as much more noise: few trips are the reason
    for error, until each user's trips are all kept.
    """
    unit = sg.PrivacyUnit.user(max_trajectories=5)
    model = sg.TrajectorySynthesizer(
        domain=sg.BoxDomain(0, 0, 10_000, 10_000), budget=sg.PrivacyBudget(1.0), unit=unit
    )
    found = sg.plan(model, rows=2_000, users=200, bounds=(10, 1, 1_000), epsilons=(1.0, 40.0), repeats=1)
    table = found.table
    assert table["bound"].tolist() == [1, 10, 1_000] * 2
    assert table["rows"].tolist() == [200, 2_000, 2_000] * 2
    assert table["noise"][1] == pytest.approx(10 * table["noise"][0], rel=0.05)
    assert table["error"][5] > table["error"][4]  # no more trips, a hundred times the noise
    assert found.best_bound == 10
    assert str(found).endswith("at ε = 40 take a bound of 10 per user")
    assert len(found.plot().lines) == 3
    assert model.unit.max_contributions == 5
    for wrong in (
        {"users": 200},
        {"bounds": (1,)},
        {"users": 200, "bounds": ()},
        {"users": 0, "bounds": (1,)},
    ):
        with pytest.raises(sg.ConfigError):
            sg.plan(model, rows=2_000, **wrong)
    with pytest.raises(sg.ConfigError, match="trips of users"):
        sg.plan(stream(), rows=2_000, users=10, bounds=(1,))


def test_attributes_of_trips_are_stood_in_for():
    model = sg.TrajectorySynthesizer(
        domain=sg.BoxDomain(0, 0, 1000, 1000), budget=sg.PrivacyBudget(1.0),
        attributes=sg.Schema({"vehicle": sg.Categorical(["van", "car"]), "fare": sg.Numeric(0, 50, bins=5)}),
    )  # fmt: skip
    table = sg.plan(model, rows=200, epsilons=(1.0,), repeats=1).table
    assert 0 < table["error"].item() < 1

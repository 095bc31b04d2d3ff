"""The curator's preflight: all misfits at once, nothing spent, and nothing said about what fits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.domain.coordinates import transform

BOX = sg.BoxDomain(8.4, 47.3, 8.7, 47.5, crs="EPSG:4326")
DAYS = {"time": "time", "every": "1D", "start": "2026-03-02", "end": "2026-03-05"}


def points(n: int = 2_000) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "lon": rng.uniform(8.4, 8.7, n),
            "lat": rng.uniform(47.3, 47.5, n),
            "time": pd.Timestamp("2026-03-02") + pd.to_timedelta(rng.integers(0, 72, n), unit="h"),
            "user_id": np.arange(n) % 400,
        }
    )


def stream(**options) -> sg.PHDStream:
    return sg.PHDStream.from_options(
        domain=options.pop("domain", BOX), budget=sg.PrivacyBudget(1.0), **options
    )


def test_what_fits_has_no_findings():
    report = stream(unit=sg.PrivacyUnit.user(max_events=5), deletions=False).check(points(), **DAYS)
    assert report.ok
    assert report.findings == ()
    assert report.rows == 2_000
    assert (report.columns["share"] == 1).all()
    report.require()


def swapped(frame):
    return frame.rename(columns={"lon": "lat", "lat": "lon"})


def in_utm(frame):
    xy = transform(frame[["lon", "lat"]].to_numpy(), "EPSG:4326", "EPSG:32632")
    return frame.assign(lon=xy[:, 0], lat=xy[:, 1])


def elsewhere(frame):
    return frame.assign(lon=frame["lon"] + 40)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (swapped, "look swapped"),
        (in_utm, "look like EPSG:32632"),
        (elsewhere, "every row lies outside"),
        (lambda f: f.assign(time=f["time"] - pd.DateOffset(years=1)), "every row lies before the windows"),
        (lambda f: f.assign(time=f["time"] + pd.DateOffset(years=1)), "every row lies after the windows"),
        (lambda f: f.drop(columns="time"), "is not there"),
        (lambda f: f.drop(columns="lat"), "no coordinates"),
        (lambda f: f.head(0), "there are no rows"),
        (lambda f: f.assign(lon=f["lon"].where(f.index > 3)), "4 rows (0.2%)"),
    ],
)
def test_a_wrong_turn_is_a_problem(damage, says):
    made = stream()
    report = made.check(damage(points()), **DAYS)
    assert not report.ok
    assert any(says in str(finding) for finding in report.problems), str(report)
    with pytest.raises(sg.InputError, match=r"\w"):
        report.require()
    assert made.step == 0
    assert made.spent is None


def test_bounds_that_are_swapped_or_of_another_system_are_seen():
    turned = sg.BoxDomain(47.3, 8.4, 47.5, 8.7, crs="EPSG:4326")
    assert "look swapped" in str(stream(domain=turned).check(points()))
    utm = sg.BoxDomain(454_000, 5_238_000, 478_000, 5_262_000, crs="EPSG:32632")
    frame = points().rename(columns={"lon": "x", "lat": "y"})  # x and y are in the domain's system
    assert "look like EPSG:4326" in str(stream(domain=utm).check(frame))


def test_a_few_strays_are_a_note_and_many_a_warning():
    frame = points()
    frame.loc[:9, "lon"] = 20.0
    few = stream().check(frame)
    assert few.ok
    assert few.findings[0].level == "note"
    assert few.verdict == "ready"
    frame.loc[:399, "lon"] = 20.0
    many = stream().check(frame)
    assert many.ok
    assert many.findings[0].level == "warning"
    assert "400 rows (20.0%)" in many.findings[0].text
    for text in (str(many), many._repr_html_()):
        assert "ready, but read the warning" in text


def test_how_to_go_on_without_bad_rows_is_said_unless_all_are_bad():
    frame = points(50)
    frame.loc[[3, 7], "lat"] = np.nan
    assert "--bad-rows drop" in str(stream().check(frame))
    assert "--bad-rows" not in str(stream().check(frame.assign(lat=np.nan)))
    assert "--bad-rows" not in str(stream(reading=sg.Reading(bad_rows="drop")).check(frame))


def test_users_above_the_bound_and_empty_windows():
    unit = sg.PrivacyUnit.user(max_events=4)
    report = stream(unit=unit, deletions=False).check(points(), **DAYS | {"end": "2026-03-09"})
    text = str(report)
    assert report.ok
    assert "400 of 400 users have more than 4 events; 20.0% of all events" in text
    assert "4 of 7 windows" in text


def test_files_that_repeat_and_empty_ones(tmp_path):
    frame = points()
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.sample(frac=1, random_state=1).to_csv(tmp_path / "copy of a.csv", index=False)
    frame.head(0).to_csv(tmp_path / "none.csv", index=False)
    report = stream().check([str(path) for path in sorted(tmp_path.iterdir())])
    assert "holds the same records as" in str(report.problems)
    assert "none.csv is empty" in str(report)


def test_dates_in_another_format(tmp_path):
    frame = points()
    frame["time"] = frame["time"].dt.strftime("%m/%d/%Y %H:%M")
    frame.to_csv(tmp_path / "us.csv", index=False)
    report = stream().check(str(tmp_path / "us.csv"), **DAYS)
    assert not report.ok
    assert report.columns.set_index("column")["share"]["time"] == 0
    good = stream(reading=sg.Reading(time_format="%m/%d/%Y %H:%M"))
    assert good.check(str(tmp_path / "us.csv"), **DAYS).ok


def test_a_table_names_every_column_at_once():
    schema = sg.Schema({"sex": sg.Categorical(["F", "M"]), "age": sg.Numeric(0, 100)})
    budget = sg.PrivacyBudget(1.0)
    frame = pd.DataFrame({"sex": ["F", "M", "X", "F"], "age": ["1", "2", "300", "x"]})
    for product in (
        sg.TabularSynthesizer(schema=schema, budget=budget),
        sg.TabularStream(schema=schema, budget=budget),
    ):
        report = product.check(frame)
        assert {finding.column for finding in report.problems} == {"sex", "age"}
        assert report.columns["share"].tolist() == [0.75, 0.5]
        assert "X" not in str(report)
        assert product.spent is None
        assert product.check(frame.head(2)).ok
        assert "is not there" in str(product.check(frame.drop(columns="age"))) or "missing column" in str(
            product.check(frame.drop(columns="age"))
        )


def test_reports_say_whom_they_are_for():
    report = stream().check(points())
    assert "curator only" in str(report)
    assert "curator only" in report._repr_html_()
    assert report.to_dict()["for_the_curator_only"]


@pytest.mark.parametrize(
    ("bounds", "crs"),
    [
        ((459_000, 4_970_000, 480_000, 5_000_000), "EPSG:4326"),
        ((47.3, 91.0, 47.5, 92.0), "EPSG:4326"),
        ((8.4, 47.3, 8.7, 47.5), "EPSG:32632"),
    ],
)
def test_bounds_outside_the_area_of_use_are_refused(bounds, crs):
    with pytest.raises(sg.errors.DomainError, match="coordinate system"):
        sg.BoxDomain(*bounds, crs=crs)


@pytest.mark.parametrize(
    ("bounds", "crs"),
    [
        ((170, -50, 190, -30), "EPSG:4326"),
        ((454_000, 5_238_000, 478_000, 5_262_000), "EPSG:32632"),
        ((-20_000_000, -20_000_000, 20_000_000, 20_000_000), "EPSG:3857"),
        ((1_000_000, 4_700_000, 2_100_000, 6_200_000), "EPSG:2193"),
        ((900_000, 100_000, 1_100_000, 300_000), "EPSG:2263"),
    ],
)
def test_usual_bounds_are_taken(bounds, crs):
    assert sg.BoxDomain(*bounds, crs=crs).bounds == bounds


def test_a_start_after_the_end_is_refused_before_a_row_is_read():
    class Untouchable:
        def __arrow_c_stream__(self, requested_schema=None):
            raise AssertionError("a row was read")

    with pytest.raises(sg.ConfigError, match="must lie before"):
        next(stream().run(Untouchable(), time="time", every="1D", start="2026-03-05", end="2026-03-02"))
    with pytest.raises(sg.ConfigError, match="must lie before"):
        stream().check(Untouchable(), time="time", every="1D", start="2026-03-05", end="2026-03-02")


def test_ids_that_differ_only_by_how_they_are_written_are_said():
    users = ["7", " 7", "007", "ann", "Ann", "bob", "  "]
    frame = points(7).assign(user_id=users)
    made = stream(
        unit=sg.PrivacyUnit.user(max_events=5), deletions=False, reading=sg.Reading(bad_rows="drop")
    )
    said = [str(finding) for finding in made.check(frame, **DAYS).findings if finding.column == "user_id"]
    assert any("1 of 5 ids differ from another one only by case, and are others" in text for text in said)
    assert any("1 of 5 ids differ from another one only by leading zeros" in text for text in said)
    assert any("1 ids differ from another one only by white space" in text for text in said)
    told = stream(
        unit=sg.PrivacyUnit.user(max_events=5),
        deletions=False,
        reading=sg.Reading(bad_rows="drop", ids=("space", "case", "zeros")),
    ).check(frame, **DAYS)
    assert not any("are others" in str(finding) for finding in told.findings)


def test_a_bound_for_each_period_is_checked_in_each():
    frame = points()
    unit = sg.PrivacyUnit.user(max_events=1, per=1)
    text = str(stream(unit=unit).check(frame, **DAYS))
    day = frame["time"].dt.normalize()
    inside = day < pd.Timestamp(DAYS["end"])
    counts = frame[inside].groupby([frame["user_id"], day]).size()
    above = f"{(counts > 1).sum():,} of {len(counts):,} users in a period have more than 1 events"
    assert above in text
    weeks = sg.PrivacyUnit.user(max_events=4, per="7D")
    assert "400 of 400 users in a period have more than 4 events" in str(
        stream(unit=weeks).check(frame, **DAYS)
    )
    assert "users in a period" not in str(stream(unit=weeks).check(frame))  # without windows, no periods


def test_trips_of_a_user_are_counted_and_not_their_points():
    graph = sg.simulate.city_graph(4, 4, seed=1)
    frame = sg.simulate.city_trips(graph, trips=40, seed=1)
    frame["user_id"] = frame["trip_id"] % 10
    unit = sg.PrivacyUnit.user(max_trajectories=3, key="user_id")
    model = sg.TrajectorySynthesizer(
        domain=sg.RoadDomain.from_graph(graph), budget=sg.PrivacyBudget(1.0), unit=unit
    )
    assert "10 of 10 users have more than 3 trips; 25.0% of all trips are left out" in str(model.check(frame))
    fine = sg.PrivacyUnit.user(max_trajectories=4, key="user_id")
    assert "users have more" not in str(model.clone().set_params(unit=fine).check(frame))


def test_the_bound_is_the_one_that_is_enforced():
    """Where deletions can come, an insertion takes two places: the report says what the release then has."""
    frame, unit = points().drop(columns="time"), sg.PrivacyUnit.user(max_events=4)
    exact = sg.SeededNoise(1)
    for deletions, kept in ((True, 2), (False, 4)):
        made = stream(unit=unit, deletions=deletions, noise=exact)
        left_out = f"{1 - kept / 5:.1%} of all"
        assert left_out in str(made.check(frame))
        counted = made.count(frame).counts
        assert counted.weights[:, 0].sum() == 400 * kept
    assert "--no-deletions" in str(stream(unit=unit).check(frame))
    both = pd.concat([frame.assign(op=1), frame.iloc[:800].assign(op=-1)], ignore_index=True)
    assert "60.0% of all insertions" in str(stream(unit=unit).check(both))

"""Attacks on the way to the mechanism: one added row of a file, from the file to the release.

Each attack told neighbours apart in every run when types were guessed from rows. The same audit runs on a
twin that guesses; it is caught.
"""

from __future__ import annotations

import functools
import io

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.auditing.blackbox import audit
from trajectories.reading.points import read_trips

CONFIDENCE = 1 - 1e-9
RUNS = 300


def pair(tmp_path, header, rows, row):
    """Two files that differ in one row."""
    files = []
    for name, lines in (("less", rows), ("more", [*rows, row])):
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
        files.append(tmp_path / f"{name}.csv")
    return tuple(files)


def march(path, noise, *, epsilon, open_file):
    """The released number of events in March, of a stream by month."""
    stream = sg.PHDStream(
        domain=sg.BoxDomain(0, 0, 1, 1),
        budget=sg.PrivacyBudget(epsilon),
        settings=sg.PointSettings(max_depth=1),
        reading=sg.Reading(time_format="%m/%d/%Y", bad_rows="drop"),
        noise=noise,
    )
    windows = {"time": "day", "every": "MS", "start": "2020-01-01", "end": "2020-06-01", "progress": False}
    before = 0.0
    for release in stream.run(open_file(path), **windows):
        if release.provenance["window_start"].startswith("2020-03"):
            return release.released.sum() - before
        before = release.released.sum()
    raise AssertionError


def guessed(path):
    """The twin: what a reader makes of the file that takes the format which fits all rows."""
    frame = pd.read_csv(io.BytesIO(path.read_bytes()))
    for form in ("%d/%m/%Y", "%m/%d/%Y"):
        days = pd.to_datetime(frame["day"], format=form, errors="coerce")
        if not days.isna().any():
            break
    return frame.assign(day=days)


def test_one_date_does_not_turn_the_dates_of_others(tmp_path):
    """03/05 is the 5th of March for everybody, whether a 13th is among the days or not."""
    files = pair(tmp_path, "x,y,day", ["0.5,0.5,03/05/2020"] * 500, "0.5,0.5,04/13/2020")
    options = {"runs": RUNS, "confidence": CONFIDENCE, "claimed": 0.5, "seed": 1, "classifier": False}
    ours = audit(functools.partial(march, epsilon=0.5, open_file=str), files, **options)
    twin = audit(functools.partial(march, epsilon=0.5, open_file=guessed), files, **options)
    assert not ours.violates
    assert twin.violates
    assert twin.epsilon_lower > 1.5


SCHEMA = sg.Schema({"code": sg.Categorical([1, 2, 3], other=3), "size": sg.Categorical(["s", "l"])})


def ones(path, noise, *, epsilon, open_file):
    """The released number of rows with code 1."""
    table = sg.TabularStream(schema=SCHEMA, budget=sg.PrivacyBudget(epsilon), noise=noise)
    release = table.update(open_file(path))
    return float((release.data["code"] == 1).sum())


def test_one_text_does_not_unsee_the_codes_of_others(tmp_path):
    """A table at ε = 0.1 told these files apart in 600 of 600 runs."""
    files = pair(tmp_path, "code,size", ["1,s"] * 3_000, "x,l")
    options = {"runs": RUNS, "confidence": CONFIDENCE, "claimed": 0.1, "seed": 1, "classifier": False}
    ours = audit(functools.partial(ones, epsilon=0.1, open_file=str), files, **options)
    assert not ours.violates

    def as_guessed(path):
        column = pd.read_csv(path)["code"]  # numbers in one file, text in the other
        seen = [value if value in (1, 2, 3) else 3 for value in column.tolist()]
        return pd.DataFrame({"code": seen, "size": pd.read_csv(path)["size"]})

    twin = audit(functools.partial(ones, epsilon=0.1, open_file=as_guessed), files, **options)
    assert twin.violates


@pytest.mark.parametrize("big", ["10000000000000000000", "9223372036854775808", "1e400", "x"])
def test_one_trip_id_does_not_merge_the_trips_of_others(tmp_path, big):
    """Ids around 2^53, which a column of floats rounds to three."""
    rows = [f"{2**53 + trip},0.{point},0.5" for trip in range(100) for point in (1, 2)]
    less, more = pair(tmp_path, "trip_id,x,y", rows, f"{big},0.3,0.5")
    box = sg.BoxDomain(0, 0, 1, 1)
    trips = [read_trips(path, box, unit=sg.PrivacyUnit.trajectory()) for path in (less, more)]
    assert [found.size for found in trips] == [100, 101]
    assert np.array_equal(trips[0].xy, trips[1].xy[:200])
    rounded = pd.read_csv(more)["trip_id"].astype(float, errors="ignore")
    assert big != "10000000000000000000" or rounded.astype("float64").nunique() < 101  # the twin


def times_by_container(source):
    """The twin: a column with one fraction is one of objects, and numbers among objects are no times."""
    seconds = source["time"]
    return (
        source if len({type(value) for value in seconds}) == 1 else {**source, "time": [None] * len(seconds)}
    )


@pytest.mark.parametrize("twin", [False, True])
def test_one_fraction_among_whole_seconds_keeps_the_trips_of_others(twin):
    """The trips of everybody were dropped for a row at 60.5 seconds: worlds told apart at any epsilon."""
    less = {
        "trip_id": [0, 0, 1, 1, 2, 2],
        "x": [0.1, 0.2] * 3,
        "y": [0.5] * 6,
        "time": [0, 10, 20, 30, 40, 50],
    }
    more = {
        name: [*column, last] for (name, column), last in zip(less.items(), (3, 0.3, 0.5, 60.5), strict=True)
    }
    found = [
        read_trips(
            times_by_container(data) if twin else data,
            sg.BoxDomain(0, 0, 1, 1),
            unit=sg.PrivacyUnit.trajectory(),
            reading=sg.Reading(bad_rows="drop"),
        )
        for data in (less, more)
    ]
    changed = abs(found[1].size - found[0].size)  # a count at epsilon 1 has a loss of 1 for each
    assert (changed > 1) if twin else (changed == 1)
    if not twin:
        assert np.array_equal(found[1].xy[:6], found[0].xy)
        assert np.array_equal(found[1].time[:6], found[0].time)

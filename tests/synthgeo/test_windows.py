"""The public grid of windows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from synthgeo.errors import ConfigError
from synthgeo.sources import open_source
from synthgeo.sources.grid import PrivateGridWarning, make_grid
from tests.synthgeo.source_keys import GridKeys


def test_windows_are_half_open_and_cover_the_grid():
    grid = make_grid("6h", "2015-01-01", "2015-01-02")
    assert grid.size == 4
    times = np.array(
        [
            "2014-12-31T23:59:59.999999",
            "2015-01-01",
            "2015-01-01T05:59:59.999999",
            "2015-01-01T06",
            "2015-01-02",
        ],
        dtype="datetime64[us]",
    )
    assert grid.window_of(times).tolist() == [-1, 0, 0, 1, -1]


def test_windows_of_a_file_share_no_row_and_each_row_is_its_users(tmp_path):
    """A row at an edge is in the later window alone, however it is read; 007 and 7 are two users."""
    times = ["2015-01-01", "2015-01-01 06:00", "2015-01-01 06:00", "2015-01-01 11:59", "2015-01-01 12:00"]
    frame = pd.DataFrame({"lon": 0.5, "lat": 0.5, "time": times, "user": ["7", "007", "7", "8", "7"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    cut = {"time": "time", "every": "6h", "start": "2015-01-01", "end": "2015-01-01 18:00"}
    key, rows, users, counts = GridKeys(), [], [], []
    for _, window in open_source(tmp_path / "a.csv").windows(**cut):
        rows.append(window.read(["lon"]).rows)
        counts.append(int(window.histogram(key, key.columns).weights.sum()))
        users.append(len(set(window.user_events(key, key.columns, "user").users.codes().tolist())))
    assert rows == counts == [1, 3, 1]
    assert users == [1, 3, 1]


def test_last_window_is_cut_at_the_end():
    grid = make_grid("6h", "2015-01-01", "2015-01-01 08:00")
    assert grid.starts.tolist() == [pd.Timestamp("2015-01-01"), pd.Timestamp("2015-01-01 06:00")]
    late = np.array(["2015-01-01T07:59", "2015-01-01T08:00"], dtype="datetime64[us]")
    assert grid.window_of(late).tolist() == [1, -1]


def test_months_start_with_a_part_of_one():
    grid = make_grid("MS", "2015-01-15", "2015-03-10")
    assert [str(start.date()) for start in grid.starts] == ["2015-01-15", "2015-02-01", "2015-03-01"]


def test_days_follow_the_clock_of_the_zone():
    """Clocks go forward on 29 March 2015 in Paris: that day has 23 hours."""
    grid = make_grid("D", "2015-03-28 00:00+01:00", "2015-03-31T00:00+02:00", zoned=True)
    assert np.diff(grid.edges).tolist()[:2] == [86_400_000_000] * 2
    start, end = (pd.Timestamp(day, tz="Europe/Paris") for day in ("2015-03-28", "2015-03-31"))
    paris = make_grid("D", start, end, zoned=True)
    assert (np.diff(paris.edges) // 3_600_000_000).tolist() == [24, 23, 24]


def test_ends_from_the_data_come_with_a_warning_and_cover_the_data():
    span = (np.datetime64("2015-01-01T03:30"), np.datetime64("2015-01-02T12:00"))
    with pytest.warns(PrivateGridWarning, match="start and end .* private data"):
        grid = make_grid("6h", span=span)
    assert str(grid.starts[0]) == "2015-01-01 00:00:00"
    assert grid.window_of(np.array(span)).tolist() == [0, grid.size - 1]
    with pytest.warns(PrivateGridWarning, match="^end of"):
        given_start = make_grid("6h", "2015-01-01 01:00", span=span)
    assert str(given_start.starts[0]) == "2015-01-01 01:00:00"
    assert given_start.window_of(np.array(span)).tolist() == [0, given_start.size - 1]


def test_public_ends_give_no_warning():
    make_grid(
        "6h", "2015-01-01", "2015-01-02", span=(np.datetime64("2014-01-01"), np.datetime64("2016-01-01"))
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": "six hours"}, "must be a positive length of time"),
        ({"every": "-6h"}, "positive"),
        ({"every": "0h"}, "positive"),
        ({"every": None}, "positive"),
        ({"every": "6h", "start": "yesterday or so"}, "start='yesterday or so' is not a time"),
        ({"every": "6h", "end": "2015-01-01"}, "must lie before end"),
        ({"every": "6h", "end": "NaT"}, "end='NaT' is not a time"),
        ({"every": "6h", "start": "2015-01-01T00Z"}, "has no time zone, so start must have none"),
        ({"every": "6h", "zoned": True}, "has a time zone, so start needs one too"),
        ({"every": "1ms", "end": "2035-01-01"}, "more than 10,000,000 windows"),
        ({"every": "6h", "start": None}, "no data to take start from"),
    ],
)
def test_senseless_grids_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        make_grid(**{"start": "2015-01-01", "end": "2015-01-02"} | options)

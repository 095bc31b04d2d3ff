"""Users bounded per public period: what is kept, what is promised, calendars, windows, states."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from streams.periods import Periods
from streams.records import Clock
from streams.starvation import ReleasedTotals, StarvingStreamWarning
from synthgeo.errors import ConfigError, ContributionError
from synthgeo.privacy.contribution import ContributionBounder

BOX = sg.BoxDomain(0, 0, 1, 1)


def unit(m=2, per=3):
    return sg.PrivacyUnit.user(max_events=m, per=per)


def admitted(rows, *, m=2, per=3, deletes=False, bounder=None, first=1, steps=None):
    """Rows (step, user, key, op, step of the insertion) that are kept, batch by batch."""
    bounder = bounder or ContributionBounder(unit(m, per), deletes=deletes)
    kept = []
    for step in range(first, (steps or max(row[0] for row in rows)) + 1):
        batch = [row for row in rows if row[0] == step]
        users = np.array([row[1] for row in batch], dtype=np.int64)
        keys = np.array([row[2] for row in batch], dtype=np.uint64)
        ops = np.array([row[3] for row in batch], dtype=np.int64)
        born = np.array([(row[4] - 1) // per for row in batch], dtype=np.int64)
        mask = bounder.admit(users, keys, ops, period=(step - 1) // per, born=born)
        kept += [row for row, good in zip(batch, mask, strict=True) if good]
    return kept


def test_places_are_counted_anew_in_each_period():
    rows = [(step, 7, step, 1, step) for step in range(1, 10)]
    assert [row[0] for row in admitted(rows)] == [1, 2, 4, 5, 7, 8]


def random_rows(rng, *, deletes, steps=12):
    rows = []
    for step in range(1, steps + 1):
        draws = rng.integers([2, 3], size=(rng.integers(0, 3), 2)).tolist()
        rows += [(step, user, key, 1, step) for user, key in draws]
        came = [row for row in rows if row[3] == 1 and row[0] < step]
        if deletes and came and rng.random() < 0.7:
            gone = came[rng.integers(len(came))]
            rows.append((step, gone[1], gone[2], -1, gone[0]))
    return rows


@pytest.mark.parametrize("deletes", [False, True])
def test_the_rows_of_one_user_and_period_move_at_most_m_admitted_events(deletes):
    """The sensitivity of the bounder, over random streams, users and periods."""
    for seed in range(150):
        rng = np.random.default_rng(seed)
        rows = random_rows(rng, deletes=deletes)
        user, period = int(rng.integers(2)), int(rng.integers(4))
        other = [row for row in rows if row[1] != user or (row[4] - 1) // 3 != period]
        one = admitted(rows, m=2, deletes=deletes, steps=12)
        two = admitted(other, m=2, deletes=deletes, steps=12)
        for row in two:
            one.remove(row)  # everything else is kept as before
        assert len(one) <= 2


def test_a_period_does_not_come_back():
    bounder = ContributionBounder(unit())
    one = np.array([1]), np.array([5], dtype=np.uint64)
    bounder.admit(*one, period=2)
    with pytest.raises(ContributionError, match="period 1 is over"):
        bounder.admit(*one, period=1)


def test_what_is_over_is_forgotten_but_for_open_insertions():
    """The state does not grow with the number of users that were ever seen."""
    rows = [(step, 10 * step + i, 1, 1, step) for step in range(1, 31) for i in range(5)]
    bounder = ContributionBounder(unit())
    admitted(rows, bounder=bounder)
    assert bounder._users.size <= 15
    bounder = ContributionBounder(unit(), deletes=True)
    admitted(rows, bounder=bounder)
    assert bounder._users.size == 150
    bounder.admit(np.array([1]), np.array([1], dtype=np.uint64), period=20, oldest=9)
    assert bounder._users.size == 16


def test_deletes_of_earlier_periods_after_a_state():
    rng = np.random.default_rng(5)
    rows = random_rows(rng, deletes=True, steps=20)
    whole = admitted(rows, m=4, deletes=True, steps=20)
    first = ContributionBounder(unit(4), deletes=True)
    kept = admitted([row for row in rows if row[0] <= 10], bounder=first, steps=10)
    second = ContributionBounder.from_state(*first.to_state())
    late = [row for row in rows if row[0] > 10]
    kept += admitted(late, bounder=second, first=11, steps=20)
    assert kept == whole


def clock(step, start, end, first, tz=None):
    stamps = [pd.Timestamp(text, tz=tz) for text in (start, end, first)]
    begin, stop, origin = (int(stamp.as_unit("us").value // 1000) for stamp in stamps)
    return Clock(step, ((step, begin),), tz, origin, (begin, stop))


def test_calendar_periods_follow_the_local_calendar():
    months = Periods("1MS")
    first = "2024-01-15"
    at = {
        day: months.at(clock(1, day, str(pd.Timestamp(day) + pd.Timedelta("1D")), first, "America/Chicago"))
        for day in ("2024-01-15", "2024-01-31", "2024-02-01", "2024-03-31", "2025-01-01")
    }
    assert list(at.values()) == [0, 0, 1, 2, 12]
    weeks = Periods("7D")  # from the first window on
    assert weeks.at(clock(1, "2024-01-21", "2024-01-22", first)) == 0
    assert weeks.at(clock(1, "2024-01-22", "2024-01-23", first)) == 1


def test_a_window_in_two_periods_is_refused_before_anything_is_spent():
    data = pd.DataFrame(
        {"x": 0.5, "y": 0.5, "user_id": [1, 2], "when": pd.to_datetime(["2024-01-02", "2024-02-01"])}
    )
    stream = sg.PHDStream(
        domain=BOX, budget=sg.PrivacyBudget(1.0), unit=unit(2, "1MS"), noise=sg.SeededNoise(1)
    )
    run = stream.run(data, time="when", every="7D", start="2024-01-01", end="2024-03-01")
    with pytest.raises(ConfigError, match="two periods"):
        list(run)
    assert stream.step == 4
    with pytest.raises(ConfigError, match="need windows"):
        stream.update(data)


def counts(stream, data):
    """Released totals without noise, by step."""
    return [stream.update(batch).total for batch in data]


def test_a_stream_keeps_m_events_of_each_user_in_each_period(tmp_path):
    much, noise = sg.PrivacyBudget(200.0), sg.SeededNoise(1)  # so much that the noise is 0
    stream = sg.PHDStream(
        domain=BOX,
        budget=much,
        unit=unit(2, 3),
        lifetime=1,
        noise=noise,
        settings=sg.PointSettings(max_depth=2),
    )
    batch = pd.DataFrame({"x": [0.2, 0.7, 0.7], "y": 0.3, "user_id": [1, 1, 2]})
    assert counts(stream, [batch] * 4) == [3, 1, 0, 3]
    stream.save(tmp_path / "state")
    again = sg.PHDStream.load(tmp_path / "state")
    assert counts(again, [batch] * 2) == [1, 0]
    assert stream.release.provenance["unit"] == stream.unit.describe()


def test_deletions_belong_to_the_period_of_their_insertion(silence):
    stream = sg.PHDStream(
        domain=BOX,
        budget=sg.PrivacyBudget(1.0),
        unit=unit(4, 2),
        lifetime=6,
        columns=sg.ColumnNames(inserted="since"),
        noise=silence,
        settings=sg.PointSettings(max_depth=1, schedule="once"),
    )
    came = pd.DataFrame({"x": 0.2, "y": 0.3, "user_id": 1, "op": 1, "since": np.nan}, index=range(3))
    gone = came.head(2).assign(op=-1, since=1)
    full = came.head(2)
    # Three come, two places of two: two are kept, and two deletions in a later, full period still count.
    assert counts(stream, [came, came.head(0), pd.concat([full, gone])]) == [2, 2, 2]


def test_tables_per_period(silence):
    schema = sg.Schema({"a": sg.Categorical(["x", "y"])})
    stream = sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(1.0), unit=unit(1, 2), noise=silence)
    batch = pd.DataFrame({"a": ["x", "y"], "user_id": [1, 2]})
    assert counts(stream, [batch] * 4) == [2, 2, 4, 4]
    with pytest.raises(ConfigError, match="need inserted="):
        stream.clone().set_params(deletions=True)


def crowd(step):
    """The same fifty people at every step."""
    rng = np.random.default_rng(step)
    return pd.DataFrame({"x": rng.random(50), "y": rng.random(50), "user_id": range(50)})


@pytest.mark.parametrize("lifetime", [None, 2])
def test_a_stream_that_runs_out_of_users_says_so_once(lifetime, silence):
    made = sg.PrivacyUnit.user(max_events=4)
    stream = sg.PHDStream(
        domain=BOX,
        budget=sg.PrivacyBudget(8.0),
        unit=made,
        lifetime=lifetime,
        deletions=False,
        noise=silence,
        settings=sg.PointSettings(max_depth=2),
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        counts(stream, [crowd(step) for step in range(40)])
    assert [warning.category for warning in found] == [StarvingStreamWarning]
    assert "per=" in str(found[0].message)


def test_a_stream_with_periods_or_new_users_does_not_starve(silence):
    one = {"domain": BOX, "budget": sg.PrivacyBudget(8.0), "noise": silence, "max_depth": 2}
    steady = sg.PHDStream.from_options(unit=unit(4, 4), lifetime=2, **one)
    fresh = sg.PHDStream.from_options(unit=sg.PrivacyUnit.user(max_events=4), lifetime=2, **one)
    for step in range(40):  # a warning would be an error here
        steady.update(crowd(step))
        fresh.update(crowd(step).assign(user_id=lambda rows, step=step: rows["user_id"] + 50 * step))


def test_totals_are_thinned():
    totals = ReleasedTotals()
    for step in range(1, 201):
        totals = totals.seen(step, step)
    assert totals.stride == 4
    assert totals.values[-1] == 200
    assert len(totals.values) < 64


@pytest.mark.parametrize(
    ("per", "words"),
    [
        (28, "one period of 28 steps"),
        ("1MS", "one calendar month"),
        ("7D", "one period of 7 days"),
        (1, "one step"),
    ],
)
def test_the_promise_is_said_in_words(per, words):
    made = unit(5, per)
    assert words in made.describe()
    assert "at most 5 events" in made.describe()
    assert "2ε" in made.describe()
    assert sg.PrivacyUnit.from_dict(made.to_dict()) == made


@pytest.mark.parametrize("per", [0, 1.5, True, "soon", "-1D"])
def test_periods_are_checked(per):
    with pytest.raises(ConfigError, match="per"):
        unit(2, per)


def test_what_is_released_once_has_no_periods():
    schema = sg.Schema({"a": sg.Categorical(["x", "y"])})
    with pytest.raises(ConfigError, match="no periods"):
        sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0), unit=unit())


def test_deletions_need_a_column_that_says_their_period():
    with pytest.raises(ConfigError, match="inserted="):
        sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(1.0), unit=unit(), deletions=True)

"""Borrowing from earlier releases: it helps where the past tells something, and hardly hurts where not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from streams.borrow import RATES, Borrower, Seasons, least_squares_weights, seasons_of
from synthgeo.errors import ConfigError

BOX = sg.BoxDomain(0, 0, 1, 1)
# A binary tree over 64 cells: where the groups of each level begin, and their parents.
TREE = [(np.arange(0, 64, 64 >> level), np.arange(1 << level) // 2) for level in range(1, 7)]
V = 2.0


def mean_squares(rates, seed):
    """Mean squared errors of the fresh counts and of the estimates, by cell and by half, over a stream."""
    rng, borrower = np.random.default_rng(seed), Borrower()
    fresh_wrong, wrong = [], []
    for rate in rates:
        true = rng.poisson(rate)
        fresh = true + rng.laplace(0, np.sqrt(V / 2), rate.size)
        estimate = fresh
        if borrower.steps:
            estimate, spread = borrower.combine(fresh, V, TREE, borrower.means)
            assert spread.max() <= V * (1 + 1e-9)
        borrower.learn(fresh, borrower.means)
        halves = [np.add.reduceat(values - true, [0, 32]) for values in (fresh, estimate)]
        fresh_wrong.append([np.mean((fresh - true) ** 2), np.mean(halves[0] ** 2)])
        wrong.append([np.mean((estimate - true) ** 2), np.mean(halves[1] ** 2)])
    return np.mean(fresh_wrong[5:], axis=0), np.mean(wrong[5:], axis=0)


def together(rates):
    fresh, estimates = np.mean([mean_squares(rates, seed) for seed in range(10)], axis=0)
    return estimates / fresh


def test_a_steady_sparse_stream_is_told_by_its_past():
    cell, half = together([np.full(64, 0.2)] * 60)
    assert cell < 0.25
    assert half < 0.5


@pytest.mark.parametrize("kind", ["jumps", "doubling days"])
def test_a_stream_that_changes_is_hardly_hurt(kind):
    rng = np.random.default_rng(5)
    if kind == "jumps":  # every step is another map
        rates = [rng.exponential(20, 64) for _ in range(60)]
    else:  # the whole goes up and down, the map stays
        rates = [np.linspace(1, 9, 64) * (1 + 3 * (step % 2)) for step in range(60)]
    assert (together(rates) < 1.03).all()


def test_the_same_hour_yesterday_tells_what_the_hour_before_does_not():
    """Mornings and evenings have other maps; each is much the same from day to day."""
    rng = np.random.default_rng(3)
    maps = [rng.exponential(1.5, 64) for _ in range(4)]

    def error(seasonal):
        noise, wrong = np.random.default_rng(4), []
        borrower, seasons = Borrower(), Seasons()
        for step in range(80):
            true = noise.poisson(maps[step % 4])
            fresh = true + noise.laplace(0, 1, 64)
            seasons.enter((f"{step % 4}", f"{step % 28}") if seasonal else (), borrower.steps)
            predictions, estimate = borrower.means, fresh
            if borrower.steps:
                predictions = seasons.predict(borrower.means, lambda season: season.mean)
                estimate, _ = borrower.combine(fresh, V, TREE, predictions)
            borrower.learn(fresh, predictions)
            seasons.learn(fresh, predictions)
            wrong.append(np.mean((estimate - true) ** 2))
        return np.mean(wrong[30:])

    assert error(seasonal=True) < 0.85 * error(seasonal=False)


@pytest.mark.parametrize(
    ("begin", "end", "names"),
    [
        ("2026-03-02 18:00", "2026-03-03 00:00", ("18:00", "Mon 18:00")),
        ("2026-03-08", "2026-03-09", ("Sun 00:00",)),  # 23 hours in Chicago
        ("2026-03-02", "2026-03-09", ()),
        ("2026-03-01", "2026-04-01", ()),
    ],
)
def test_what_kinds_of_windows_there_are(begin, end, names):
    edges = [pd.Timestamp(edge, tz="America/Chicago") for edge in (begin, end)]
    assert seasons_of((edges[0], edges[1])) == names


def test_estimates_add_up_and_a_first_step_is_left_alone():
    borrower, fresh = Borrower(), np.arange(64.0)
    borrower.learn(fresh, borrower.means)
    assert borrower.means.shape == (len(RATES), 64)
    estimate, _ = borrower.combine(fresh + 1, V, TREE, borrower.means)
    assert estimate.sum() == pytest.approx((fresh + 1).sum())  # one error says nothing about the total yet


def test_weights_leave_out_what_does_not_help():
    assert least_squares_weights(np.diag([1.0, 1.0, 2.0])).tolist() == pytest.approx([0.4, 0.4, 0.2])
    dominated = np.array([[1.0, 1.0], [1.0, 4.0]])  # the second is the first and something else
    assert least_squares_weights(dominated).tolist() == [1.0, 0.0]


def cloud(n, seed):
    return np.clip(np.random.default_rng(seed).normal(0.4, 0.1, (n, 2)), 0, 1)


def stream(**options):
    given = {"domain": BOX, "budget": sg.PrivacyBudget(1.0), "noise": sg.SeededNoise(1)}
    return sg.PHDStream.from_options(**given | options)


def test_a_saved_stream_goes_on_the_same(tmp_path):
    s = stream(lifetime=1, max_depth=6)
    for step in range(5):
        s.update(cloud(80, step))
    s.save(tmp_path / "state")
    again = sg.PHDStream.load(tmp_path / "state")
    assert again.choices() == s.choices()
    for step in range(5, 8):
        one, two = s.update(cloud(80, step)), again.update(cloud(80, step))
        np.testing.assert_array_equal(one.released, two.released)
    assert one.provenance["borrow"] is True


def hourly(n=600, seed=1):
    rng = np.random.default_rng(seed)
    when = pd.Timestamp("2026-03-02") + pd.to_timedelta(rng.uniform(0, 72, n), unit="h")
    return pd.DataFrame(
        {"x": rng.random(n), "y": rng.random(n), "a": rng.choice(["p", "q"], n), "when": when}
    )


@pytest.mark.parametrize("kind", ["points", "table"])
def test_a_saved_stream_of_windows_remembers_their_hours(kind, tmp_path):
    given = {"budget": sg.PrivacyBudget(1.0), "noise": sg.SeededNoise(1), "lifetime": 1}
    if kind == "table":
        s = sg.TabularStream.from_options(schema=sg.Schema({"a": sg.Categorical(["p", "q"])}), **given)
    else:
        s = sg.PHDStream.from_options(domain=BOX, max_depth=5, **given)
    grid = {"time": "when", "every": "6h", "start": "2026-03-02", "end": "2026-03-05"}
    windows = [window for _, window in s.windows(hourly(), **grid)]
    for window in windows[:6]:
        s.update(window)
    s.save(tmp_path / "state")
    again = type(s).load(tmp_path / "state")
    for window in windows[6:]:
        pd.testing.assert_frame_equal(s.update(window).to_pandas(), again.update(window).to_pandas())
    memory = s.mechanism.seasons if kind == "points" else s.mechanism.slots[("a",)].seasons
    assert {"00:00", "06:00", "12:00", "18:00", "Tue 06:00"} < set(memory.known)


def test_when_it_borrows():
    def borrows(**options):
        return stream(**options).mechanism.settings().get("borrow", False)

    assert borrows(lifetime=1)
    assert not borrows(lifetime=1, borrow=False)
    assert not borrows(lifetime=1, schedule="every_step")
    assert not borrows(lifetime=7)
    assert not borrows()
    assert borrows(lifetime=7, borrow=True)
    for lifetime in (None, 365):
        with pytest.raises(ConfigError, match="short lifetimes"):
            stream(lifetime=lifetime, borrow=True)
    with pytest.raises(ConfigError, match="borrow"):
        stream(borrow="yes")


def test_a_short_lifetime_borrows_step_by_step():
    """What is borrowed is summed over the window like what is counted, and goes on after saving."""
    s = stream(lifetime=3, borrow=True, max_depth=6)
    totals = [s.update(cloud(200, step)).released.sum() for step in range(20)]
    assert np.abs(np.array(totals[5:]) - 600).max() < 150
    assert s.costs["total"].max() <= 1.0


def test_points_that_persist_borrow_too_and_die_of_age(tmp_path):
    s = stream(lifetime=3, borrow=True, persist=True, max_depth=6)
    first_seen: dict[int, int] = {}
    for step in range(1, 16):
        release = s.update(cloud(150, step))
        ids = release.ids.tolist()
        assert len(set(ids)) == len(ids) == release.total
        for one in ids:
            first_seen.setdefault(one, step)
        assert min(first_seen[one] for one in ids) > step - 3
        stayed = sum(first_seen[one] < step for one in ids)
        assert step == 1 or stayed > 0.3 * release.total
    assert abs(release.total - 450) < 120
    s.save(tmp_path / "state")
    again = sg.PHDStream.load(tmp_path / "state")
    one, two = s.update(cloud(150, 16)), again.update(cloud(150, 16))
    pd.testing.assert_frame_equal(one.to_pandas(), two.to_pandas())


def test_points_of_single_steps_come_closer_to_where_they_come_from():
    """Few points per step from one place: most of them are released near it."""

    def near(borrow):
        found = []
        for seed in range(3):
            s = stream(lifetime=1, borrow=borrow, budget=sg.PrivacyBudget(0.3), noise=sg.SeededNoise(seed))
            for step in range(25):
                release = s.update(cloud(60, 100 * seed + step))
                if step >= 10:
                    found.append(np.mean(np.abs(release.xy - 0.4).max(axis=1) < 0.25))
        return np.mean(found)

    assert near("auto") > near(False) + 0.02

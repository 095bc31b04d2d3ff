"""Tables that expire: exact without noise, costs, states, windows, borrowing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from tabular.over_time.expiring_marginals import ExpiringMarginals
from tests.conftest import Silence

SCHEMA = sg.Schema({"a": sg.Categorical(["x", "y", "z"]), "b": sg.Categorical(["u", "v"])})


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.choice(["x", "y", "z"], n, p=[0.6, 0.3, 0.1])
    b = np.where(rng.random(n) < np.where(a == "x", 0.9, 0.2), "u", "v")
    return pd.DataFrame({"a": a, "b": b})


def stream(kind="TabularStream", **options):
    given = {"schema": SCHEMA, "budget": sg.PrivacyBudget(1.0), "noise": sg.SeededNoise(1)}
    return getattr(sg if kind in sg.__all__ else sg.baselines, kind).from_options(**given | options)


@pytest.mark.parametrize("lifetime", [1, 3])
def test_without_noise_a_release_holds_the_last_steps(lifetime):
    s = stream(lifetime=lifetime, borrow=False, noise=Silence(1))
    batches = [rows(40 + 20 * step, step) for step in range(6)]
    for step, batch in enumerate(batches):
        release = s.update(batch)
        alive = pd.concat(batches[max(0, step + 1 - lifetime) : step + 1])
        assert release.total == len(alive)
        true = alive["a"].value_counts().reindex(["x", "y", "z"]).to_numpy()
        np.testing.assert_allclose(release.marginal("a"), true, atol=1.0)
    assert s.costs["total"].max() <= 1.0


def test_long_lifetimes_release_in_turns_and_stay_good():
    s = stream(lifetime=40, noise=sg.SeededNoise(3))
    totals = [s.update(rows(50, step)).total for step in range(90)]
    assert s.mechanism.longest == 10
    deviation = np.sqrt(40 * 2) / s.mechanism.rows_budget.epsilon
    assert np.abs(np.array(totals[40:]) - 2000).max() < 5 * deviation
    found = s.release.marginal("a") / s.release.total
    np.testing.assert_allclose(found, [0.6, 0.3, 0.1], atol=0.06)


@pytest.mark.parametrize("lifetime", [1, 5])
def test_a_saved_stream_goes_on_the_same(lifetime, tmp_path):
    s = stream(lifetime=lifetime)
    for step in range(4):
        s.update(rows(60, step))
    s.save(tmp_path / "state")
    again = sg.TabularStream.load(tmp_path / "state")
    assert again.choices() == s.choices()
    for step in range(4, 7):
        one, two = s.update(rows(60, step)), again.update(rows(60, step))
        pd.testing.assert_frame_equal(one.data, two.data)


def test_rows_carry_the_window_they_came_in():
    when = pd.Timestamp("2026-03-01") + pd.to_timedelta(np.repeat(np.arange(5), 60), unit="D")
    data = rows(300).assign(when=when)
    grid = {"time": "when", "every": "1D", "start": "2026-03-01", "end": "2026-03-06"}
    *_, last = stream().run(data, lifetime="3D", **grid)
    assert set(last.data["window_start"].dt.day) <= {3, 4, 5}
    assert last.provenance["lifetime"] == 3
    assert last.provenance["window_start"] == "2026-03-05T00:00:00"


def test_borrowing_brings_a_steady_table_closer():
    """Small batches of one distribution: their own noisy counts say little, those before say much."""

    def error(borrow):
        wrong = []
        for seed in range(4):
            little = sg.PrivacyBudget(0.2)
            s = stream(lifetime=1, borrow=borrow, budget=little, noise=sg.SeededNoise(seed))
            releases = [s.update(rows(60, 100 * seed + step)) for step in range(30)]
            shares = [r.marginal("a") / max(r.marginal("a").sum(), 1) for r in releases[10:]]
            wrong += [np.abs(share - [0.6, 0.3, 0.1]).sum() for share in shares]
        return np.mean(wrong)

    assert error("auto") < 0.8 * error(False)


def test_the_baseline_expires_too():
    s = stream("StreamingMWEM", lifetime=2, budget=sg.PrivacyBudget(500.0))
    totals = [s.update(rows(n)).total for n in (30, 50, 20, 10)]
    np.testing.assert_allclose(totals, [30, 80, 70, 30], atol=2)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lifetime": 0}, "lifetime"),
        ({"lifetime": 3, "deletions": True}, "need inserted="),
        ({"lifetime": 3, "schedule": "every_step"}, "no sum covers"),
        ({"inserted": "since"}, "lifetime"),
        ({"lifetime": 8, "borrow": True}, "short lifetimes"),
        ({"lifetime": 1, "borrow": 2}, "borrow"),
    ],
)
def test_what_makes_no_sense_is_refused(options, match):
    with pytest.raises(sg.ConfigError, match=match):
        stream(**options)


ALONE = sg.Schema({"a": sg.Categorical(["x", "y", "z"])})


def dated(n, seed=0, op=1, since=1):
    return rows(n, seed).assign(op=op, since=since)


def test_deletions_inside_a_lifetime_expire_with_their_insertions():
    s = stream(lifetime=3, inserted="since", schema=ALONE, noise=Silence(1))
    first = dated(400, 1)
    assert s.update(first).total == 400
    assert s.update(dated(300, 2, since=2)).total == 700
    gone = first[first["a"] == "x"].assign(op=-1)  # age 2
    release = s.update(gone)
    assert release.total == 700 - len(gone)
    kept = pd.concat([first[first["a"] != "x"], rows(300, 2)])["a"].value_counts()[["x", "y", "z"]]
    np.testing.assert_allclose(release.marginal("a"), kept, atol=1.0)
    # Ages 1 and 2 are one group, so half of the deletions fade out while all of the first rows expire.
    assert s.update(dated(0)).total == pytest.approx(300 - len(gone) / 2, abs=1)
    assert s.update(dated(0)).total <= 1


def test_a_deletion_of_the_same_step_and_one_of_an_expired_row():
    s = stream(lifetime=2, inserted="since", noise=Silence(1))
    some = dated(50)
    assert s.update(pd.concat([some, some[:20].assign(op=-1)])).total == 30
    s.update(dated(0))
    assert s.update(some[:9].assign(op=-1)).total <= 1  # inserted at step 1: expired, and dropped


def test_a_pair_replaces_a_column_once_it_has_counted_the_window():
    s = stream(lifetime=3, borrow=False, noise=Silence(1))
    for step in range(12):
        release = s.update(rows(300 if step != 3 else 0, step))
        if step >= 2:  # while pairs join, and a step is empty
            shares = release.marginal("a") / release.marginal("a").sum()
            np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.08)
    assert list(s.mechanism.slots) == [("a", "b")]


def test_users_who_delete_are_bounded_by_the_period_of_their_insertions():
    unit = sg.PrivacyUnit.user(max_events=4, key="who", per=2)
    s = stream(lifetime=4, inserted="since", unit=unit, noise=Silence(1))
    mine = dated(6).assign(who=7)
    assert s.update(mine).total == 2  # each insertion takes a place for its deletion
    assert s.update(mine.assign(since=2)).total == 2
    assert s.update(mine.assign(since=3)).total == 4
    assert s.update(mine.assign(op=-1)).total == 2


@pytest.mark.parametrize("lifetime", [6, 16])  # marginals of the longer one wait for some steps
def test_a_stream_with_deletions_goes_on_the_same_after_saving(tmp_path, lifetime):
    s = stream(lifetime=lifetime, inserted="since")

    def batch(step):
        return pd.concat([dated(60, step, since=step), dated(20, max(step - 2, 1), -1, max(step - 2, 1))])

    for step in range(1, 6):
        s.update(batch(step))
    s.save(tmp_path / "state")
    again = sg.TabularStream.load(tmp_path / "state")
    for step in range(6, 9):
        pd.testing.assert_frame_equal(s.update(batch(step)).data, again.update(batch(step)).data)
    assert s.costs["total"].max() <= 1.0


def test_without_their_insertions_step_deletions_are_refused():
    for s, batch, match in [
        (stream(lifetime=2), dated(3, op=-1), "deletions=False"),
        (stream(lifetime=2, inserted="since"), dated(3, op=-1).drop(columns="since"), "since"),
        (stream(lifetime=2, inserted="since"), dated(3, op=-1, since=[1, 2, 1]), "row 1"),
    ]:
        with pytest.raises(sg.InputError, match=match):
            s.update(batch)
        assert s.step == 0


class Weighed(Silence):
    """No noise; the scale it would have had, and how many draws there were."""

    scale, draws = np.nan, 0

    def discrete_laplace(self, scale, size=None):
        self.scale, self.draws = float(scale), size
        return super().discrete_laplace(scale, size)


def _sums(monkeypatch, batches):
    """The exact sums that got noise, in order, with the scale of that noise."""
    found, measured = [], ExpiringMarginals._measured

    def watched(self, slot, counts, first, last):
        made = measured(self, slot, counts, first, last)
        assert self.setup.noise.draws == counts.size  # one draw of its own for each cell
        found.append((made.values.copy(), self.setup.noise.scale))
        return made

    with monkeypatch.context() as watching:
        watching.setattr(ExpiringMarginals, "_measured", watched)
        s = stream(lifetime=8, inserted="since", schema=ALONE, noise=Weighed(1))
        for batch in batches:
            s.update(batch)
    return found, s.costs["total"].max()


@pytest.mark.parametrize(("step", "since"), [(1, 1), (4, 4), (4, 2), (5, 1)])
def test_a_row_is_in_one_released_sum_whether_it_comes_or_goes(monkeypatch, step, since):
    """Insertions, deletions of the same step, and of an earlier one."""
    batches = [dated(50, n, since=n) for n in range(1, 13)]
    batches[5] = pd.concat([batches[5], dated(9, 3, op=-1, since=3)])
    more = dated(1, 77, op=1 if step == 1 else -1, since=since)
    other = [pd.concat([b, more]) if n == step else b for n, b in enumerate(batches, start=1)]
    (one, _), (two, dearest) = (_sums(monkeypatch, these) for these in (batches, other))
    assert len(one) == len(two) > 6
    moved = [(np.abs(a - b).sum(), scale) for (a, scale), (b, _) in zip(one, two, strict=True)]
    assert [change for change, _ in moved if change] == [1.0]
    assert 0 < sum(change / scale for change, scale in moved) <= dearest * (1 + 1e-9)


def test_rows_of_a_step_are_released_with_the_noise_they_pay_for():
    class Loud(Silence):
        scales: tuple[float, ...] = ()

        def discrete_laplace(self, scale, size=None):
            self.scales = (*self.scales, float(np.max(scale)))
            return super().discrete_laplace(scale, size) + 1000

    s = stream(lifetime=8, inserted="since", schema=ALONE, noise=Loud(1))
    s.update(dated(50))
    assert s.mechanism.totals() == {1: 1050.0}
    assert 1 / s.mechanism.rows_budget.epsilon in s.mechanism.setup.noise.scales

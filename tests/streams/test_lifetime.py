"""Datasets that expire, and streams without an end: exact without noise, bounded noise, ages, windows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from benchmarks._time_bias import bias, tree_counters
from streams.ages import InsertionAges, age_groups
from streams.periods import Periods
from streams.records import Clock
from streams.spatial import overlay_compiled
from streams.spatial.lasting import Lasting
from streams.spatial.overlay import overlay
from streams.sums import WindowPlan, epoch_of
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from tests.conftest import Silence

BOX = sg.BoxDomain(0, 0, 1, 1)
ONE = sg.PrivacyBudget(1.0)
BITS = 4


def stream(**options):
    return sg.PHDStream.from_options(**({"domain": BOX, "budget": ONE, "noise": sg.SeededNoise(1)} | options))


def cloud(n, seed=0):
    return np.clip(np.random.default_rng(seed).normal(0.4, 0.1, (n, 2)), 0, 1)


def counts_of(xy):
    keys, _ = hierarchy_of(BOX).locate(np.asarray(xy), BITS)
    return np.bincount(keys.astype(int), minlength=1 << BITS)


def released(release):
    """The released counts of the finest cells, of a release whose leaves are these."""
    cells = release.partition
    out = np.zeros(1 << BITS)
    out[(cells.start >> np.uint64(62 - BITS)).astype(int)] = release.released
    return out


class FullTree(Silence):
    """No noise, and a first tree that is split to the bottom."""

    def discrete_laplace(self, scale, size=None):
        return np.full(size or 1, 2**30 if scale > 2**19 else 0, dtype=np.int64)


@pytest.mark.parametrize("lifetime", [1, 2, 7, 60])
def test_without_noise_a_release_counts_the_last_steps(lifetime):
    """Also with blocks (60): a block and its batches, alive or expired, add up to what is alive."""
    s = stream(lifetime=lifetime, borrow=False, schedule="once", max_depth=BITS, noise=FullTree(1))
    batches = [cloud(5 + step % 7, step) for step in range(150)]
    for step, batch in enumerate(batches):
        release = s.update(batch)
        alive = np.concatenate(batches[max(0, step + 1 - lifetime) : step + 1])
        np.testing.assert_allclose(released(release), counts_of(alive), atol=1e-6)
    assert (s.mechanism.plan.block > 1) == (lifetime == 60)


def test_without_noise_nothing_is_lost_when_leaves_move():
    s = stream(lifetime=4, max_depth=10, noise=Silence(1))
    sizes = [200, 0, 50, 400, 3, 90, 0, 10]
    for step, size in enumerate(sizes):
        release = s.update(cloud(size, step))
        assert release.released.sum() == pytest.approx(sum(sizes[max(0, step - 3) : step + 1]))


def frame(xy, op=1, since=1):
    return pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1], "op": op, "since": since})


def test_deletions_inside_a_lifetime_expire_with_their_insertions():
    s = stream(lifetime=3, inserted="since", schedule="once", max_depth=BITS, noise=FullTree(1))
    first, second = cloud(40, 1), cloud(30, 2)
    assert s.update(frame(first)).total == 40
    assert s.update(frame(second)).total == 70
    gone = frame(first[:10], -1, 1)
    np.testing.assert_allclose(released(s.update(gone)), counts_of(np.r_[first[10:], second]))  # age 2
    # Ages 1 and 2 are one group, so half of the ten fade out while all of the first forty expire.
    assert s.update(frame(cloud(0))).released.sum() == pytest.approx(30 - 5)
    assert s.update(frame(cloud(0))).released.sum() == pytest.approx(0)


def test_a_deletion_of_the_same_step_and_one_of_an_expired_event():
    s = stream(lifetime=2, inserted="since", schedule="once", max_depth=BITS, noise=FullTree(1))
    points = cloud(20)
    batch = pd.concat([frame(points), frame(points[:5], -1, 1)], ignore_index=True)
    assert s.update(batch).total == 15
    s.update(frame(cloud(0)))
    assert s.update(frame(points[:8], -1, 1)).total == 0  # inserted at step 1, expired: dropped


@pytest.mark.parametrize(
    ("options", "batch", "error", "text"),
    [
        ({}, frame(cloud(3), -1), sg.InputError, "deletions=False"),
        ({"inserted": "since"}, frame(cloud(3), -1).drop(columns="since"), sg.InputError, "since"),
        ({"inserted": "since"}, frame(cloud(3), -1, [1, 2, 1]), sg.InputError, "row 1"),
        ({"inserted": "since"}, frame(cloud(3), -1, [1, 1, np.nan]), sg.InputError, "row 2"),
        ({"inserted": "since"}, frame(cloud(3), -1, [1, 0.5, 1]), sg.InputError, "row 1"),
    ],
)
def test_deletions_without_their_insertions_step_are_refused(options, batch, error, text):
    s = stream(lifetime=5, **options)
    with pytest.raises(error, match=text):
        s.update(batch)
    assert s.step == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lifetime": 0}, "lifetime"),
        ({"lifetime": 2.0}, "lifetime"),
        ({"lifetime": 5, "t0": 3}, "t0"),
        ({"lifetime": 5, "deletions": True}, "inserted="),
        ({"inserted": "since"}, "lifetime"),
        ({"lifetime": 5, "counter": "kary", "horizon": 9}, "counter"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options, text):
    with pytest.raises(sg.ConfigError, match=text):
        stream(**options)


@pytest.mark.slow
def test_the_noise_of_a_window_is_the_plans_and_stays_so():
    """On one leaf, for every step up to 400: the variance of what was summed up is the closed form."""
    for lifetime in (1, 5, 60, 100):
        s = stream(lifetime=lifetime, max_depth=1, noise=Silence(1))
        for step in range(1, 400):
            s.update(np.empty((0, 2)))
            if step > 2 * lifetime:  # the first batch paid for structure and was in no block
                assert s.mechanism.variance == pytest.approx(s.mechanism.plan.variance(step))


@pytest.mark.slow
@pytest.mark.parametrize("lifetime", [10, 60])
def test_the_released_total_has_the_stated_deviation(lifetime):
    errors = []
    for seed in range(40):
        s = stream(lifetime=lifetime, max_depth=4, noise=sg.SeededNoise(seed))
        for step in range(70):
            release = s.update(cloud(200, step))
        error = s.mechanism.cells.estimate.values.sum() - 200 * min(lifetime, 70)
        errors.append(error / release.expected_error()["standard_deviation"].iloc[0])
    assert 0.7 < np.std(errors) < 1.3
    assert abs(np.mean(errors)) < 3.5 / np.sqrt(40)


def test_long_lifetimes_count_in_blocks_and_short_ones_do_not():
    assert [WindowPlan.of(n, 1.0).block > 1 for n in (1, 7, 30, 60, 365)] == [False, False, False, True, True]
    for lifetime in (60, 365):
        plan, simple = WindowPlan.of(lifetime, 1.0), WindowPlan(lifetime, 1.0)
        mean = np.mean([plan.variance(3 * lifetime + i) for i in range(plan.block)])
        assert mean < 0.8 * simple.variance(3 * lifetime)


def test_the_plan_without_an_end_covers_every_step_once_and_stays_below_single_steps():
    step = 1
    while step < 30_000:
        epoch = epoch_of(step)
        assert epoch.first == step
        assert sum(epoch.shares) == pytest.approx(1.0)
        assert (epoch.variances() <= 2.2 * np.arange(epoch.first, epoch.last + 1)).all()
        assert (epoch.last - epoch.first + 1) % epoch.branching ** (epoch.levels - 1) == 0
        step = epoch.last + 1
    assert epoch_of(10_000).variances().mean() < 3 * epoch_of(1000).variances().mean()


def test_age_groups_cover_a_lifetime():
    for lifetime in (1, 2, 3, 10, 100):
        groups = age_groups(lifetime)
        assert [a for a, _ in groups[1:]] == [b for _, b in groups[:-1]]
        assert (groups[0][0], groups[-1][1]) == (0, lifetime)


def test_a_deletion_is_in_the_group_of_its_age_and_in_its_insertions_period():
    ages = InsertionAges("since", Clock(step=12, period=3), tuple(age_groups(10)), Periods(4))
    inserted = np.array([12, 11, 10, 9, 6, 5, 3, 2, -1])
    every = np.ones(9, dtype=bool)
    assert ages.group(inserted, every).tolist() == [0, 1, 1, 2, 2, 3, 3, -1, -1]  # 2 has expired
    assert ages.group(inserted, ~every).tolist() == [-1] * 9  # insertions have no age
    alive = inserted[:-1]
    assert ages.born(alive, every[:-1]).tolist() == ages.periods.of_steps(alive, ages.clock).tolist()
    assert len(set(ages.born(alive, every[:-1]).tolist())) == 3
    assert ages.born(alive, ~every[:-1]).tolist() == [3] * 8


def test_living_points_die_of_age_at_the_latest():
    s = stream(lifetime=5, persist=True, max_depth=8)
    born: dict[int, int] = {}
    present: set[int] = set()
    for step in range(20):
        release = s.update(cloud(200, step))
        changes = release.changes
        gone, new = (set(changes.loc[changes.op == op, "id"]) for op in (-1, 1))
        born |= dict.fromkeys(new, step)
        assert not new & present
        present = (present - gone) | new
        assert present == set(release.ids)
        assert all(step - born[name] < 5 for name in present)
    assert len(present) == release.total > 500


def windows(days=6, per_day=40):
    times = pd.Timestamp("2026-03-01") + pd.to_timedelta(np.repeat(np.arange(days), per_day), unit="D")
    return pd.DataFrame({"x": 0.3, "y": 0.6, "when": times + pd.Timedelta("5h")})


@pytest.mark.parametrize("persist", [False, True])
def test_points_carry_the_window_they_came_in(persist):
    s = stream(lifetime=3, persist=persist, max_depth=4)
    run = s.run(windows(), time="when", every="1D", start="2026-03-01", end="2026-03-07")
    for number, release in enumerate(run):
        today = pd.Timestamp("2026-03-01") + pd.Timedelta(days=number)
        found = release.to_pandas()["window_start"]
        assert len(found) == release.total
        assert found.between(today - pd.Timedelta(days=2), today).all()
        assert release.provenance["window_start"] == today.isoformat()
        assert "window_start" in release.data
    by_day = found.value_counts()
    assert len(by_day) == 3
    assert by_day.min() > 15


def test_points_that_persist_for_good_carry_their_window_too(tmp_path):
    s = stream(persist=True, max_depth=4)
    dealt = [
        window
        for _, window in s.windows(windows(), time="when", every="1D", start="2026-03-01", end="2026-03-07")
    ]
    for window in dealt[:4]:
        before = s.update(window).to_pandas().set_index("id")["window_start"]
    s.save(tmp_path / "state")
    after = sg.PHDStream.load(tmp_path / "state").update(dealt[4]).to_pandas().set_index("id")["window_start"]
    assert after.dt.normalize().nunique() >= 4
    assert after.max() == pd.Timestamp("2026-03-05")
    both = before.index.intersection(after.index)
    assert len(both) > 20
    assert (before[both] == after[both]).all()


def test_without_a_lifetime_or_without_windows_there_is_no_time_column():
    assert "window_start" not in stream(lifetime=2).update(cloud(50)).to_pandas()
    first = next(iter(stream().run(windows(), time="when", every="1D", start="2026-03-01", end="2026-03-07")))
    assert "window_start" not in first.to_pandas()


def test_deletions_by_time_in_windows(tmp_path):
    """The column holds the time of the insertion, and the windows say which step that is."""
    data = windows(4, 10).assign(op=1, since=pd.NaT)
    day = pd.Timedelta(days=1)
    gone = data.iloc[:4].assign(when=lambda d: d["when"] + day, op=-1, since=lambda d: d["when"] - day)
    both = pd.concat([data, gone], ignore_index=True)
    s = stream(lifetime=4, inserted="since", schedule="once", max_depth=BITS, noise=FullTree(1))
    found = s.run(both, time="when", every="1D", start="2026-03-01", end="2026-03-05")
    assert [release.total for release in found][:2] == [10, 16]
    s.save(tmp_path / "state")
    assert sg.PHDStream.load(tmp_path / "state").mechanism.batches


def test_a_lifetime_in_time_is_a_number_of_windows():
    s = stream(max_depth=2)
    grid = {"time": "when", "every": "1D", "start": "2026-03-01", "end": "2026-03-03"}
    releases = list(s.run(windows(), lifetime="3D", **grid))
    assert s.lifetime == 3
    assert releases[-1].provenance["lifetime"] == 3
    with pytest.raises(sg.ConfigError, match="lifetime of 3 steps"):
        s.run(windows(), lifetime="4D", **grid)
    with pytest.raises(sg.ConfigError, match="whole number of windows"):
        stream().run(windows(), lifetime="36h", **grid)
    used = stream()
    used.update(cloud(3))
    with pytest.raises(sg.ConfigError, match="in use"):
        used.run(windows(), lifetime=2, **grid)


def test_local_days_over_a_change_of_the_clock():
    """An instant is in the window of its local day, of 23 hours when the clock goes forward."""
    when = pd.to_datetime(["2024-03-10 05:30", "2024-03-10 06:30", "2024-03-11 04:30"], utc=True)
    data = pd.DataFrame({"x": 0.5, "y": 0.5, "when": when})
    grid = {
        "time": "when",
        "every": "1D",
        "start": "2024-03-09",
        "end": "2024-03-12",
        "tz": "America/Chicago",
    }
    s = stream(lifetime=1, max_depth=1, noise=FullTree(1), schedule="once")
    releases = list(s.run(data, **grid))
    assert [release.total for release in releases] == [1, 2, 0]
    starts = [release.provenance["window_start"][:19] for release in releases]
    assert starts == ["2024-03-09T00:00:00", "2024-03-10T00:00:00", "2024-03-11T00:00:00"]
    assert str(releases[1].to_pandas()["window_start"].dt.tz) == "America/Chicago"
    with pytest.raises(sg.ConfigError, match=r"Reading\(tz"):
        list(stream().run(data.assign(when=when.tz_localize(None)), **grid))


def test_a_lifetime_is_stated():
    release = stream(lifetime=30).update(cloud(10))
    assert release.provenance["lifetime"] == 30
    assert "lifetime" not in stream().update(cloud(10)).provenance


@pytest.mark.parametrize("kind", ["OfflinePrivTree", "DifferentialPrivTree", "InitialPrivTree"])
def test_baselines_expire_too(kind):
    s = getattr(sg.baselines, kind)(
        domain=BOX, budget=sg.PrivacyBudget(200.0), lifetime=2, noise=sg.SeededNoise(1)
    )
    totals = [s.update(cloud(size, seed)).total for seed, size in enumerate([300, 100, 500, 50, 50])]
    np.testing.assert_allclose(totals, [300, 400, 600, 550, 100], atol=25)


@pytest.mark.parametrize("theta", [0.0, 30.0])
def test_both_ways_to_read_off_counts_agree_bit_for_bit(theta):
    """Coarser, finer and mixed partitions, and some that leave parts of the box out."""
    draw = np.random.default_rng(5)
    found = []
    for seed in range(6):
        s = stream(noise=sg.SeededNoise(seed), theta=theta, max_depth=9)
        cells = s.update(cloud(400, seed)).partition
        kept = draw.random(cells.size) < (1.0 if seed % 2 else 0.8)
        found.append(Partition(cells.prefix[kept], cells.bits[kept], cells.measure[kept]))
    for onto in found:
        for cells in found:
            values, variance = draw.normal(size=(2, cells.size))
            plain, compiled = (f(onto, cells, values, variance) for f in (overlay, overlay_compiled.overlay))
            np.testing.assert_array_equal(plain, compiled)
            assert onto is cells or np.count_nonzero(plain[0])


@pytest.mark.slow
def test_the_noise_of_a_stream_without_end_has_mean_zero():
    """Total and busy cells over 100 runs, within 3.5 standard errors (the seeds are fixed; the benchmark has
    200); what the sums took the place of, tree counters on leaves that stop by their own noise, is far
    outside.
    """
    assert np.abs(bias(Lasting, runs=100)).max() < 3.5
    assert np.abs(bias(tree_counters, runs=100)).max() > 5


def test_a_stream_that_is_loaded_at_each_step_ends_in_the_same_bytes(tmp_path):
    """Equal partitions are written once, whoever made them; else such a state would be larger."""
    kept, loaded = (stream(op="none", max_depth=BITS, lifetime=3, schedule="once") for _ in range(2))
    for step in range(6):
        kept.update(cloud(20, step))
        loaded.update(cloud(20, step))
        loaded.save(tmp_path / "state")
        loaded = sg.PHDStream.load(tmp_path / "state")
    kept.save(tmp_path / "kept")
    loaded.save(tmp_path / "loaded")
    assert (tmp_path / "kept").read_bytes() == (tmp_path / "loaded").read_bytes()

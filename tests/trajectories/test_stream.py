"""Trips over time: each trip once, in the window of its last point; sums, structures and borrowing."""

from __future__ import annotations

from copy import copy

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from audits.trip_streams import COLLIDING
from streams.starvation import StarvingStreamWarning
from synthgeo.errors import StateError
from synthgeo.privacy.users import UserIds
from trajectories.fit.calibrate import SHUT
from trajectories.ground.state_graph import StateGraph
from trajectories.measure.pairs import count_links
from trajectories.over_time.admission import TripBounder
from trajectories.over_time.borrowing import changes, closed, combined, total_of
from trajectories.over_time.counting import carried, link_costs, together
from trajectories.walks.sampler import TripSampler

BOX = sg.BoxDomain(0, 0, 1000, 1000)
MINUTE = pd.Timedelta("1min")


def points(count, first=0, seed=1, start="2026-03-02", every="10min"):
    """Trips of five points, a minute apart, one departing after the other."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(100, 900, (count, 1, 2)) + np.cumsum(rng.normal(0, 40, (count, 5, 2)), axis=1)
    xy = xy.reshape(-1, 2).clip(1, 999)
    leaves = pd.date_range(start, periods=count, freq=every)
    when = np.repeat(leaves.to_numpy(), 5) + np.tile(np.arange(5) * MINUTE.to_timedelta64(), count)
    trip = np.repeat(np.arange(first, first + count), 5)
    return pd.DataFrame({"trip_id": trip, "time": when, "x": xy[:, 0], "y": xy[:, 1]})


def stream(epsilon=1.0, **options):
    given = {"domain": BOX, "budget": sg.PrivacyBudget(epsilon), "noise": sg.SeededNoise(3)}
    return sg.TrajectoryStream.from_options(
        **{**given, "max_depth": 4, "calibration": 0.0, "cleaning": False, **options}
    )


# Which trips are measured.


def test_a_trip_is_admitted_once_whatever_batches_it_comes_in():
    bounder = TripBounder(sg.PrivacyUnit.trajectory())
    ids = UserIds.of(["a", "b", "c"])
    assert bounder.admit(ids, None).tolist() == [True, True, True]
    assert bounder.admit(UserIds.of(["b", "d"]), None).tolist() == [False, True]
    values, arrays = bounder.to_state()
    again = TripBounder.from_state(values, arrays)
    assert again.admit(UserIds.of(["c", "e"]), None).tolist() == [False, True]


def test_users_have_at_most_m_trips_over_all_batches_and_their_own_ids():
    bounder = TripBounder(sg.PrivacyUnit.user(max_trajectories=2))
    one = bounder.admit(UserIds.of([1, 2]), UserIds.of(["u", "u"]))
    two = bounder.admit(UserIds.of([3, 1]), UserIds.of(["u", "v"]))
    assert one.all()
    assert two.tolist() == [False, True]  # trip 1 of v is not trip 1 of u
    new, owner = UserIds.of([4, 5]), UserIds.of(["w", "w"])
    assert copy(bounder).admit(new, owner).all()  # a step that is undone is forgotten
    assert bounder.admit(new, owner).all()


def test_no_user_decides_about_another_whatever_ids_they_have():
    """The folding of (user, trip) that this replaces took these two pairs for one; both can be computed."""
    for (user, trip), (other, its) in (COLLIDING, COLLIDING[::-1]):
        bounder = TripBounder(sg.PrivacyUnit.user(max_trajectories=2))
        assert bounder.admit(UserIds.of([trip]), UserIds.of([user])).all()
        assert bounder.admit(UserIds.of([its]), UserIds.of([other])).all()
        assert not bounder.admit(UserIds.of([its]), UserIds.of([other])).any()
    half = UserIds(
        np.array([3, 4], dtype=np.uint64), np.array([5, 5], dtype=np.uint64)
    )  # of 128 bits 64 agree
    bounder = TripBounder(sg.PrivacyUnit.trajectory())
    assert [bounder.admit(half.take(slice(at, at + 1)), None).item() for at in (0, 1, 0)] == [
        True,
        True,
        False,
    ]


TRIP_ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 3)), max_size=60)


@settings(max_examples=80, deadline=None)
@given(rows=TRIP_ROWS, per=st.sampled_from([1, 2, 3]), bound=st.integers(1, 3), resumed=st.booleans())
def test_a_users_period_decides_about_nothing_else(rows, per, bound, resumed):
    """Rows of (batch, user, trip): a trip may have rows in several batches, and its number starts again."""
    unit = sg.PrivacyUnit.user(max_trajectories=bound, per=per)

    def admitted(gone=None):
        bounder, found = TripBounder(unit), set()
        for batch in range(6):
            own = sorted({row[1:] for row in rows if row[0] == batch and (row[1], batch // per) != gone})
            users, ids = (UserIds.of([pair[side] for pair in own]) for side in (0, 1))
            kept = bounder.admit(ids, users, period=batch // per)
            found |= {(batch, *pair) for pair, keep in zip(own, kept, strict=True) if keep}
            if resumed:
                bounder = TripBounder.from_state(*bounder.to_state())
        return found

    whole = admitted()
    for user, period in {(user, batch // per) for batch, user, _ in rows}:
        of_pair = {one for one in whole if (one[1], one[0] // per) == (user, period)}
        assert admitted((user, period)) == whole - of_pair
        assert 1 <= len(of_pair) <= bound
        assert len({trip for _, _, trip in of_pair}) == len(of_pair)  # each trip once in a period


def test_a_trip_in_batches_of_two_periods_is_a_trip_of_each():
    bounder = TripBounder(sg.PrivacyUnit.user(max_trajectories=2, per=2))
    trip, user = UserIds.of(["t"]), UserIds.of(["u"])
    found = [bool(bounder.admit(trip, user, period=step // 2).item()) for step in range(4)]
    assert found == [True, False, True, False]
    with pytest.raises(sg.errors.ContributionError, match="is over"):
        bounder.admit(UserIds.of(["new"]), user, period=0)
    assert not bounder.seen(UserIds.of(["new"]), user).any()  # a refused batch is not remembered


def test_a_state_of_other_trips_is_refused():
    values, arrays = TripBounder(sg.PrivacyUnit.trajectory()).to_state()
    with pytest.raises(StateError, match="start anew"):
        TripBounder.from_state({"unit": values["unit"]}, arrays)
    with pytest.raises(StateError, match="not in order"):
        TripBounder.from_state(values, {"seen": np.array([2, 0, 1, 0], dtype=np.uint64)})


@pytest.mark.filterwarnings("ignore:the released number of trips fell")
def test_users_have_at_most_m_trips_in_each_period():
    made = stream(200.0, lifetime=1, borrow=False, unit=sg.PrivacyUnit.user(max_trajectories=2, per=2))
    batches = [points(12, first=12 * number).assign(user_id=1) for number in range(4)]
    counted = []
    for batch in batches:
        made.update(batch)
        counted.append(total_of(made.mechanism.latest))
    assert counted == pytest.approx([2, 0, 2, 0], abs=0.5)


@pytest.mark.parametrize("unit", [None, sg.PrivacyUnit.user(max_trajectories=2)])
def test_removing_one_trip_from_all_batches_removes_at_most_one_admitted_trip(unit):
    rng = np.random.default_rng(5)
    bound = 1 if unit is None else 2
    ids, users = rng.integers(0, 12, (4, 9)), rng.integers(0, 4, (4, 9))

    def admitted(gone):
        bounder, out = TripBounder(unit or sg.PrivacyUnit.trajectory()), set()
        for batch, owners in zip(ids, users, strict=True):
            table = pd.DataFrame({"trip": batch, "user": batch % 4 if unit is None else owners})
            table = table.drop_duplicates(["trip"] if unit is None else ["trip", "user"])
            table = table[(table["trip"] if unit is None else table["user"]) != gone]
            own = None if unit is None else UserIds.of(table["user"])
            kept = bounder.admit(UserIds.of(table["trip"]), own)
            out |= set(map(tuple, table[kept].to_numpy().tolist()))
        return out

    whole = admitted(None)
    for gone in range(4):
        rest = admitted(gone)
        assert rest <= whole
        assert len(whole - rest) <= bound


def test_repeated_ids_are_not_counted_again():
    """At ε = 100 the released total says how many trips were counted."""
    made = stream(100.0, lifetime=1)
    assert made.update(points(80)).total == pytest.approx(80, abs=3)
    assert made.update(pd.concat([points(80), points(20, first=80)])).total == pytest.approx(20, abs=3)


@pytest.mark.parametrize("unit", [None, sg.PrivacyUnit.user(max_trajectories=500, key="user_id")])
def test_ids_that_start_anew_with_each_batch_are_told_by_a_check_and_by_the_released_totals(unit):
    """A month that counts its trips from 1 again would be dropped without a word."""
    made = stream(5000.0 if unit else 50.0, lifetime=1, unit=unit)
    first, again, more = (points(count).assign(user_id=9) for count in (200, 200, 260))
    assert "earlier batch" not in str(made.check(first))
    made.update(first)
    found = made.check(more)
    assert "200 of 260 trips have the id of a trip of an earlier batch" in str(found)
    assert str(made.check(more)) == str(found)  # looking remembers nothing
    with pytest.warns(StarvingStreamWarning, match="ids must differ between batches"):
        made.update(again)


def test_ids_may_start_anew_with_each_period():
    made = stream(5000.0, lifetime=1, unit=sg.PrivacyUnit.user(max_trajectories=200, per=1))
    month = points(100).assign(user_id=9)
    for _ in range(2):
        made.update(month)
        assert total_of(made.mechanism.latest) == pytest.approx(100, abs=5)
    assert "100 of 100 trips have the id of a trip of an earlier batch" in str(made.check(month))
    assert "unless a new period begins" in str(made.check(month))


def test_a_batch_of_other_trips_is_no_reason_to_warn(recwarn):
    made = stream(50.0, lifetime=1)
    made.update(points(200))
    made.update(points(60, first=200))
    assert not [w for w in recwarn if w.category is StarvingStreamWarning]


# Windows.


def test_a_trip_is_whole_in_the_window_of_its_last_point():
    frame = points(3, start="2026-03-02 00:57", every="30min")  # the first leaves at 0:57, arrives at 1:01
    made = stream()
    windows = list(made.windows(frame, time="time", every="1h", start="2026-03-02", end="2026-03-02 03:00"))
    rows = [window.read(["trip_id"])["trip_id"].tolist() for _, window in windows]
    assert rows == [[], [0] * 5 + [1] * 5, [2] * 5]


def test_a_run_takes_empty_windows_as_steps_and_says_when_they_began():
    frame = points(30, every="2h")
    releases = list(
        stream(lifetime=1).run(frame, time="time", every="1D", start="2026-03-01", end="2026-03-05")
    )
    assert [release.step for release in releases] == [1, 2, 3, 4]
    assert releases[1].provenance["window_start"].startswith("2026-03-02")


def test_another_column_of_times_is_refused():
    with pytest.raises(sg.ConfigError, match="reads times from 'time'"):
        stream().windows(points(3), time="when", every="1D")


# Counting.


def test_every_trip_pays_epsilon_and_later_ones_nothing_for_structure():
    made = stream(2.0)
    for number in range(3):
        made.update(points(40, first=40 * number, seed=number))
    costs = made.costs
    np.testing.assert_allclose(costs["total"], 2.0)
    assert costs["structure"].tolist()[0] > 0
    assert costs["structure"].tolist()[1:] == [0.0, 0.0]


def test_a_stream_without_a_lifetime_holds_all_and_one_of_two_the_last_two():
    totals = {}
    for lifetime in (None, 2, 1):
        made = stream(100.0, lifetime=lifetime, borrow=False)
        totals[lifetime] = [
            made.update(points(size, first=1000 * number)).total for number, size in enumerate((60, 90, 30))
        ]
    assert totals[None] == pytest.approx([60, 150, 180], abs=6)
    assert totals[2] == pytest.approx([60, 150, 120], abs=6)
    assert totals[1] == pytest.approx([60, 90, 30], abs=6)


def test_sums_add_counts_and_noise():
    made = stream(lifetime=3, borrow=False)
    for number in range(3):
        made.update(points(40, first=40 * number, seed=number))
    batches = made.mechanism.batches
    summed = together(batches)
    for name, (values, variance) in summed.estimate.counts().items():
        np.testing.assert_allclose(values, sum(batch.estimate.counts()[name][0] for batch in batches))
        assert variance == pytest.approx(sum(batch.variances[name] for batch in batches))


def test_a_stream_that_has_grown_finds_another_structure_at_no_cost():
    made = stream(4.0, lifetime=1, max_depth=8)
    made.update(points(20))
    cells = made.model.partition.size
    made.update(points(1500, first=100, every="1min"))
    assert made.model.partition.size == cells  # decided from what was released before
    made.update(points(1500, first=5000, every="1min", seed=2))
    assert made.model.partition.size > cells
    assert made.costs["structure"].tolist()[1:] == [0.0, 0.0]


def test_the_error_to_expect_is_that_of_all_batches_a_release_holds_after_borrowing():
    pairs = {}
    for lifetime, borrow in ((1, False), (3, False), (1, True)):
        made = stream(20.0, lifetime=lifetime, borrow=borrow)
        for number in range(3):
            release = made.update(points(300, first=300 * number))
        found = release.expected_error().set_index("quantity")["standard_deviation"]
        pairs[lifetime, borrow] = found["one block of origin-destination pairs"]
        trips = release.od(gpd.GeoDataFrame(geometry=[shapely.box(0, 0, 1000, 1000)]))
        expected = np.hypot(pairs[lifetime, borrow], np.sqrt(trips["trips"]))
        np.testing.assert_allclose(trips["standard_error"], expected)
    assert 1.7 < pairs[3, False] / pairs[1, False] < 2.0  # the root of 3, and the first batch pays for blocks
    assert pairs[1, True] < 0.9 * pairs[1, False]


def test_a_batch_that_is_carried_over_keeps_its_total():
    made = stream(4.0, lifetime=1)
    made.update(points(300))
    before = made.mechanism.latest
    shape = before.with_counts({name: (np.abs(v), s) for name, (v, s) in before.counts().items()})
    moved = carried(before, shape, round(total_of(shape)))
    assert total_of(moved) == pytest.approx(total_of(before), rel=0.05)


# Borrowing.


def test_borrowing_leaves_a_quarter_of_the_error_of_steady_counts():
    rng = np.random.default_rng(0)
    true = rng.gamma(0.5, 60, 3000)
    estimate, variance = true + rng.laplace(0, 5, true.size), 50.0
    left = None
    for _ in range(6):
        fresh = true + rng.laplace(0, 5, true.size)
        estimate, remains, left = combined(fresh, estimate, variance, left=left)
    error, alone = ((one - true) ** 2 for one in (estimate, fresh))
    assert error.mean() < 0.25 * alone.mean()
    assert 0.5 * error.mean() < remains < 2 * error.mean()


def test_a_closed_street_is_noticed_at_once_and_its_neighbours_go_on_borrowing():
    rng = np.random.default_rng(1)
    true = rng.gamma(0.5, 60, 3000)
    before = true + rng.normal(0, 2, true.size)
    busy = np.argsort(true)[-5:]
    true[busy] = 0.0
    fresh = true + rng.laplace(0, 5, true.size)
    estimate, _, left = combined(fresh, before, 50.0)
    np.testing.assert_allclose(estimate[busy], np.maximum(fresh[busy], 0.0), atol=1e-9)
    assert not left[busy].any()  # what is followed to the end is not told again
    others = np.setdiff1d(np.arange(true.size), busy)
    assert ((estimate - true)[others] ** 2).mean() < 0.5 * ((fresh - true)[others] ** 2).mean()


def test_a_change_that_one_batch_does_not_show_is_found_by_two():
    rng = np.random.default_rng(2)
    fresh = rng.laplace(0, 1, 2000)
    fresh[:1], variance = 5.0 * np.sqrt(2), 2.0
    once = combined(fresh, np.zeros(2000), variance)
    twice = combined(fresh, np.zeros(2000), variance, left=np.where(np.arange(2000) < 1, fresh, 0.0))
    assert once.values[0] < 0.5 * fresh[0]
    assert twice.values[0] == pytest.approx(fresh[0])


def ring(cells):
    """Cells in a circle, driven one way."""
    at = np.arange(cells)
    return StateGraph(
        first=np.arange(cells + 1), to=(at + 1) % cells, metres=np.ones(cells), cell=at,
        size_of=np.ones(cells), xy=np.zeros((cells, 2)), place=at, cells=cells,
    )  # fmt: skip


def test_links_in_a_row_tell_together_that_a_street_is_closed():
    cells, usual = 300, np.full(300, 8.0)
    true = usual.copy()
    true[100:103] = 0.0
    fresh = true + np.random.default_rng(3).laplace(0, 2.0, cells)
    gone = closed([fresh - usual], usual, 8.0, ring(cells))
    np.testing.assert_allclose(gone[100:103], 8.0)  # each alone is 2.8 deviations off
    assert not gone[:99].any()
    assert not gone[104:].any()
    assert combined(fresh, usual, 8.0).values[101] > 4
    assert combined(fresh, usual - gone, 8.0).values[101] < 1


def test_two_batches_tell_of_a_closed_street_what_one_does_not():
    usual, residual = np.full(300, 4.0), np.zeros(300)
    residual[100:103] = -3.0
    assert not closed([residual], usual, 8.0, ring(300)).any()
    np.testing.assert_allclose(closed([residual, residual], usual, 8.0, ring(300))[101], 4.0)


def test_links_that_closed_are_shut_and_open_again_when_they_carry_traffic():
    made = stream(20.0, lifetime=1)
    made.update(points(300))
    latest = made.mechanism.latest
    number, deviation = len(latest.links), np.sqrt(latest.link_variance)
    traffic, before, shut = np.zeros(number), np.zeros(number), np.zeros(number, dtype=bool)
    before[:2], traffic[1], shut[2] = SHUT, 3 * deviation, True
    estimate = latest.with_counts(latest.counts() | {"links": (traffic, latest.link_variance)})
    assert link_costs(before, estimate, shut)[:4].tolist() == [SHUT, 0.0, SHUT, 0.0]


def test_nobody_takes_a_link_that_is_shut_while_there_is_another_way():
    made = stream(50.0, lifetime=1)
    made.update(points(400))
    mechanism = made.mechanism
    graph = mechanism.setup.ground.graph(mechanism.latest.partition)
    link = int(np.argmax(mechanism.latest.links))
    costs = np.zeros(graph.links)
    crossed = []
    for cost in (0.0, SHUT):
        costs[link] = cost
        model = mechanism.setup.fit(mechanism.latest, np.random.default_rng(1), costs)
        walks = TripSampler(model).draw(400, np.random.default_rng(2))
        crossed.append(count_links(graph, walks.states, walks.start, "uniform")[link])
    assert model.link_cost[link] == SHUT
    assert crossed[1] < 0.05 * crossed[0]


def test_noise_closes_few_streets():
    rng = np.random.default_rng(5)
    usual = rng.gamma(0.5, 10, 3000)
    found = [(closed([rng.laplace(0, 2, 3000)], usual, 8.0, ring(3000)) > 0).sum() for _ in range(20)]
    assert np.mean(found) < 6  # a street and its neighbours, once or twice


def test_a_closed_link_takes_from_others_what_passes_both_and_nobody_turns_round():
    # 0 -> 1 -> 2 and 1 -> 3, all both ways.
    first, to = np.array([0, 1, 4, 5, 6]), np.array([1, 0, 2, 3, 1, 1])
    star = StateGraph(
        first=first, to=to, metres=np.ones(6), cell=np.arange(4), size_of=np.ones(4), xy=np.zeros((4, 2)),
        place=np.arange(4), cells=4,
    )  # fmt: skip
    leaves, enters = star.link_ends
    into, on, aside, back = (
        int(np.flatnonzero((leaves == u) & (enters == v))[0]) for u, v in ((0, 1), (1, 2), (1, 3), (1, 0))
    )
    usual, residual = np.zeros(6), np.zeros(6)
    usual[[into, on, aside, back]] = 400.0, 300.0, 100.0, 50.0
    residual[[into, on]] = -300.0
    gone = closed([residual], usual, 2.0, star)
    assert gone[on] == pytest.approx(300.0)
    assert gone[into] >= 300.0  # all that goes on to it
    assert gone[back] == 0


def test_noise_alone_is_taken_for_a_change_a_few_times_in_ten_thousand():
    rng = np.random.default_rng(4)
    size = 400_000
    for number in (1, 2):
        mean = rng.laplace(0, np.sqrt(0.5), (number, size)).mean(axis=0)
        found = changes([(mean, number)], np.full(size, -np.inf), np.ones(size))
        assert 1e-4 < (found != 0).mean() < 6e-4


def test_a_count_loses_at_most_what_it_has():
    fresh, expected = np.full(400, 30.0), np.full(400, 30.0)
    fresh[0] = -40.0
    assert combined(fresh, expected, 2.0).values[0] == pytest.approx(0.0)


def test_what_was_not_counted_stays_uncounted():
    fresh = np.array([1.0, np.nan, 3.0])
    estimate, _, left = combined(fresh, np.array([1.0, np.nan, 2.0]), 1.0)
    assert np.isnan(estimate).tolist() == [False, True, False]
    assert not np.isnan(left).any()


def test_a_loaded_stream_goes_on_as_the_one_that_was_saved(tmp_path):
    made = stream(20.0, lifetime=1, calibration=0.1)
    for number in range(3):
        made.update(points(300, first=1000 * number, seed=number))
    assert made.mechanism.left
    made.save(tmp_path / "state")
    again = sg.TrajectoryStream.load(tmp_path / "state")
    batch = points(300, first=9000, seed=9)
    for one in (made, again):
        one.update(batch)
    np.testing.assert_array_equal(made.model.link_cost, again.model.link_cost)
    for name, values in made.mechanism.left.items():
        np.testing.assert_array_equal(values, again.mechanism.left[name])


# Durable runs.


def test_a_run_of_trips_goes_on_after_it_was_closed(tmp_path):
    made = stream(lifetime=1)
    with sg.StreamRun.open(tmp_path / "run", made) as run:
        first = run.step("march", points(40))
    with sg.StreamRun.open(tmp_path / "run") as run:
        again = run.step("march", points(40))
        pd.testing.assert_frame_equal(again.data.drop(columns="geometry"), first.to_pandas())
        with pytest.raises(sg.errors.LedgerError, match="each would pay twice"):
            run.step("april", points(40))
        run.step("april", points(40, first=40))
        assert run.steps == 2


def test_sampling_from_the_last_release_changes_nothing():
    made, twin = stream(lifetime=1), stream(lifetime=1)
    for one in (made, twin):
        one.update(points(60))
    drawn = made.sample(25, hour=3)
    assert drawn.total == 25
    assert set(drawn.data["time"].dt.hour) <= {3, 4}
    following = [one.update(points(60, first=60)).to_pandas() for one in (made, twin)]
    pd.testing.assert_frame_equal(*following)


# Attributes, clocks and speeds.

SCHEMA = sg.Schema({"vehicle": sg.Categorical(["car", "van"]), "fare": sg.Numeric(0, 20, bins=5)})


def priced(count, first=0, vans=0.5):
    """Trips of vans, which cost 15, and of cars, which cost 5."""
    frame = points(count, first=first, seed=first + 1)
    van = np.random.default_rng(first).random(count) < vans
    frame["vehicle"] = np.where(van, "van", "car")[frame["trip_id"] - first]
    return frame.assign(fare=np.where(frame["vehicle"] == "van", 15.0, 5.0))


def test_attributes_are_those_of_the_batches_that_live():
    made = stream(30.0, lifetime=2, attributes=SCHEMA)
    shares = []
    for number, vans in enumerate((1.0, 1.0, 0.0, 0.0)):
        trips = made.update(priced(150, first=150 * number, vans=vans)).trips
        shares.append((trips["vehicle"] == "van").mean())
        fares = trips.groupby("vehicle")["fare"].median()
        assert number != 2 or fares["van"] > 10 > fares["car"]
    assert shares == pytest.approx([1, 1, 0.5, 0], abs=0.1)
    assert set(made.sample(20, given={"vehicle": "car"}).trips["vehicle"]) == {"car"}
    assert made.costs["total"].tolist() == pytest.approx([30.0] * 4)


def test_a_durable_run_stores_trips_where_they_have_attributes(tmp_path):
    for attributes, parts in ((SCHEMA, ("data", "trips")), (None, ("data",))):
        made = stream(lifetime=1, attributes=attributes)
        frame = priced(60) if attributes else points(60)
        with sg.StreamRun.open(tmp_path / str(len(parts)), made) as run:
            run.step("first", frame)
            stored = run.release("first")
        assert stored.parts == parts
        assert list(stored.layers) == ["trips", "points"][-len(parts) :]
    with sg.StreamRun.view(tmp_path / "2") as view:
        assert {"vehicle", "fare", "metres", "geometry"} <= set(view.release("first").layers["trips"])


def test_columns_that_are_not_used_are_named_once():
    made = stream(lifetime=1)
    with pytest.warns(UserWarning, match="columns vehicle, fare are not used") as seen:
        made.update(priced(60))
    assert len(seen) == 1
    made.update(priced(60, first=60))  # a second warning would be an error
    with pytest.warns(UserWarning, match="columns vehicle, fare are not used") as seen:
        list(stream(lifetime=1).run(priced(60), every="1D", start="2026-03-02", end="2026-03-04"))
    assert len(seen) == 1


def test_attributes_of_a_batch_without_trips_are_noise_and_the_stream_goes_on(tmp_path):
    made = stream(lifetime=1, attributes=SCHEMA)
    made.update(priced(60))
    made.update(priced(60).iloc[:0])
    made.save(tmp_path / "stream")
    again = sg.TrajectoryStream.load(tmp_path / "stream")
    batch = priced(60, first=60)
    pd.testing.assert_frame_equal(made.update(batch).trips, again.update(batch).trips)


def test_clocks_weeks_and_speeds_are_as_in_a_one_off_fit(tmp_path):
    options = {"tz": "America/New_York", "start": "2026-06-01", "max_speed": 20.0, "recording": 0.05}
    made = stream(50.0, **options)
    made.update(points(60))
    made.save(tmp_path / "stream")
    for release in (made.release, made.sample(30), sg.TrajectoryStream.load(tmp_path / "stream").sample(30)):
        time = release.data["time"]
        assert str(time.dt.tz) == "America/New_York"
        assert time.min() >= pd.Timestamp("2026-06-01", tz="America/New_York")
        hours = (release.lines["arrival"] - release.lines["departure"]).dt.total_seconds() / 3600
        assert (release.lines["metres"] / 1000 <= 20.0 * hours * 1.001 + 1e-6).all()
    assert made.release.provenance["shares"]["recording"] == pytest.approx(2.5)
    with pytest.raises(sg.ConfigError, match="attribute_share"):
        stream(attributes=SCHEMA, attribute_share=0.0)


def test_a_stream_that_borrows_counts_its_second_batch_on_finer_cells_that_cost_nothing():
    cells = {}
    for borrow in (True, False):
        made = stream(20.0, lifetime=1, borrow=borrow, max_depth=10)
        for number in range(3):
            made.update(points(300, first=300 * number))
            cells[borrow, number] = made.model.partition.size
        assert made.mechanism.paid()[0] == 0.0  # of the last batch, for structure
    assert cells[False, 0] == cells[False, 1] == cells[False, 2] == cells[True, 0]
    assert cells[True, 1] > 1.5 * cells[True, 0]
    assert cells[True, 2] == cells[True, 1]


def test_windows_of_a_stream_are_cut_by_its_own_column_of_times():
    data = points(90, every="1D").rename(columns={"time": "when"})
    grid = {"every": "1MS", "start": "2026-03-01", "end": "2026-06-01"}
    assert [release.step for release in stream(time="when", lifetime=1).run(data, **grid)] == [1, 2, 3]
    with pytest.raises(sg.ConfigError, match="name the column of times"):
        stream(time=None, times=0.0).run(data, **grid)

"""PrivTree, streams of points, their baselines, and durable runs."""

from __future__ import annotations

import functools
import math
import tempfile
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from shapely.geometry import Polygon, box

import streams.scalar as series
import synthgeo as sg
from audits.registry import EXTREMES, Attacker, Found, case
from audits.stream_attacks import (
    Row,
    depth_reached,
    event_costs,
    first_release,
    lasting_costs,
    period_cost,
    tree_scores,
    window_costs,
)
from audits.stream_twins import (
    Greedy,
    Literal,
    OwnPeriodBounder,
    Peeking,
    Sliding,
    SlidingBounder,
    Spanning,
    TrueTotal,
    Watched,
)
from audits.traced import traced
from streams.counters import LAPLACE_KINDS
from streams.slots import with_slots
from synthgeo.auditing.neighbours import deletion_path, lone_point, user_at_bound
from synthgeo.auditing.whitebox import path_loss, privtree_loss, rule_loss, worst_loss
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.privtree import GRID, SplitRule
from synthgeo.privacy.contribution import ContributionBounder

BOX = sg.BoxDomain(0, 0, 1, 1)
SCHEDULES = ("auto", "every_step", "once", "growing")
COUNTERS = (*LAPLACE_KINDS, "auto")
STEPS = 4


def _domain(name: str) -> Any:
    if name == "PolygonDomain":
        return sg.PolygonDomain(Polygon([(0, 0), (1, 0), (0, 1)]))
    if name == "H3Domain":
        return sg.H3Domain(resolution=5, within=box(8.4, 47.2, 8.8, 47.5))
    return sg.RoadDomain.from_graph(sg.simulate.city_graph(4, 3, seed=1))


# --- PrivTree ---


def _enter_tree(epsilon: float, fanout: int) -> None:
    @case(
        f"PrivTree, fanout {fanout}, worst data, any depth",
        unit="point",
        claimed=epsilon,
        method="exact",
        twin="noise scale halved",
        covers="privtree",
    )
    def attack(attacker: Attacker) -> Found:
        rule = SplitRule(epsilon, fanout)
        return Found(rule_loss(rule), worst_loss(rule.scale / 2 * GRID.one, -(-rule.decay // 2), GRID.one))


for _epsilon in (0.1, 1.0, 5.0):
    _enter_tree(_epsilon, 2)


def _enter_grid(epsilon: float, twin: str) -> None:
    @case(
        "PrivTree, worst path of 20 levels, whole counts and whole noise",
        unit="point",
        claimed=epsilon,
        method="exact",
        twin=twin,
        covers="privtree",
    )
    def attack(attacker: Attacker) -> Found:
        scale = 3 / epsilon
        off = 0.0 if twin == "no bias" else scale * math.log(2)
        return Found(privtree_loss(scale, math.ceil(scale * math.log(2))), privtree_loss(scale, off))


_enter_grid(1.0, "no bias")
_enter_grid(5.0, "PrivTree with an off-grid δ at ε = 5")
_enter_grid(20.0, "PrivTree with an off-grid δ at ε = 20")


# --- the tree of a stream ---


@case(
    "PHDStream, its tree on a deletion path",
    unit="event",
    claimed=1.0,
    method="exact",
    twin="literal PHDStream",
    covers=("PHDStream", "PHDStream every_step"),
)
def deletion(attacker: Attacker) -> Found:
    rule = SplitRule(1.0)
    losses = []
    for kind in (Watched, Literal):
        scores = [
            tree_scores(kind, batch, 20) * GRID.one
            for batch in deletion_path(BOX, levels=20, decay=rule.decay / GRID.one)
        ]
        losses.append(path_loss(*scores, scale=rule.scale * GRID.one, decay=rule.decay))
    return Found(*losses)


@case(
    "PHDStream, its tree on a deletion path: depth reached",
    unit="event",
    claimed=1.0,
    method="black box",
    twin="literal PHDStream",
    covers=("PHDStream", "PHDStream every_step"),
)
def deletion_black_box(attacker: Attacker) -> Found:
    rule = SplitRule(1.0)
    pair, twin_pair = (
        [tree_scores(kind, batch, 10) for batch in deletion_path(BOX, levels=10, decay=rule.decay / GRID.one)]
        for kind in (Watched, Literal)
    )
    decide = functools.partial(depth_reached, rule=rule)
    return attacker.black_box(
        decide, decide, pair, twin_pair=twin_pair, claimed=1.0, runs=300_000, quick=120_000, batched=True
    )


@case(
    "PHDStream every_step, first release on a deletion path",
    unit="event",
    claimed=1.0,
    method="duel",
    twin="literal PHDStream",
    covers=("PHDStream", "PHDStream every_step"),
)
def deletion_release(attacker: Attacker) -> Found:
    options = {"max_depth": 14, "schedule": "every_step", "structure_share": 0.9}
    decay = (
        sg.PHDStream.from_options(
            domain=BOX, budget=sg.PrivacyBudget(1.0), **options
        ).mechanism.structure.rule.decay
        / GRID.one
    )
    one, other = deletion_path(BOX, levels=14, decay=decay)
    run = functools.partial(released, **options)
    with traced():
        return attacker.duels(run, ([one], [other]), twin=functools.partial(run, kind=Literal), seeds=2)


# --- whole streams ---


def released(
    batches: Any,
    noise: Any,
    *,
    kind: Any = sg.PHDStream,
    domain: Any = BOX,
    epsilon: float = 1.0,
    **options: Any,
) -> list[np.ndarray]:
    """Cells and counts of every release."""
    options = {"max_depth": 5, **options}
    stream = kind.from_options(domain=domain, budget=sg.PrivacyBudget(epsilon), noise=noise, **options)
    out = []
    for batch in batches:
        release = stream.update(batch)
        out += [release.partition.start.astype(float), release.partition.bits.astype(float), release.released]
    return out


def event_at(step: int, op: int, domain: Any = BOX, steps: int = STEPS) -> tuple[list[Any], list[Any]]:
    """Inserts and deletes in a few places of the domain; the second stream has one event more at one step."""
    rng = np.random.default_rng(1)
    points = hierarchy_of(domain).sample(
        np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.int64), np.array([9]), rng
    )
    places = points[rng.integers(0, 8, (steps, 12))]
    batches = [
        pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1], "op": rng.choice([1, 1, -1], 12)}) for xy in places
    ]
    event = pd.DataFrame({"x": points[8:, 0], "y": points[8:, 1], "op": [op]})
    other = list(batches)
    other[step] = pd.concat([batches[step], event], ignore_index=True)
    return batches, other


def _any_event(attacker: Attacker, domain: Any = BOX, steps: int = STEPS, **options: Any) -> Found:
    run = functools.partial(released, domain=domain, **options)
    with traced():
        found = [
            attacker.duels(run, event_at(step, op, domain, steps), seeds=2)
            for step in range(steps)
            for op in (1, -1)
        ]
    return Found(max(f.epsilon for f in found), max(f.twin for f in found), sum(f.runs for f in found))


def _enter_stream(name: str, *, covers: tuple[str, ...] = (), epsilon: float = 1.0, **options: Any) -> None:
    @case(
        f"{name}, an event at any step",
        unit="event",
        claimed=epsilon,
        method="duel",
        twin="noise scale halved",
        covers=(name.split()[0], *covers),
    )
    def attack(attacker: Attacker) -> Found:
        return _any_event(attacker, epsilon=epsilon, **options)


for _schedule in SCHEDULES:
    _enter_stream(f"PHDStream {_schedule}", covers=(f"PHDStream {_schedule}",), schedule=_schedule)
_enter_stream("DifferentialPrivTree", kind=sg.baselines.DifferentialPrivTree)
_enter_stream("InitialPrivTree", kind=sg.baselines.InitialPrivTree)
_enter_stream("PHDStream with living points", persist=True)
for _epsilon in EXTREMES:
    for _kind in (sg.PHDStream, sg.baselines.DifferentialPrivTree, sg.baselines.InitialPrivTree):
        _enter_stream(_kind.__name__, epsilon=_epsilon, kind=_kind, steps=2)
_enter_stream("PHDStream, fanout 4", fanout=4, max_depth=3, schedule="every_step")


def _enter_domain(name: str) -> None:
    @case(
        f"PHDStream on a {name}, an event at any step",
        unit="event",
        claimed=1.0,
        method="duel",
        twin="noise scale halved",
        covers=("PHDStream", name),
    )
    def attack(attacker: Attacker) -> Found:
        return _any_event(attacker, domain=_domain(name), steps=2, schedule="every_step")


for _name in ("PolygonDomain", "RoadDomain", "H3Domain"):
    _enter_domain(_name)


@case(
    "DifferentialPrivTree, a point that stays for four steps",
    unit="event",
    claimed=1.0,
    method="duel",
    twin="OfflinePrivTree (says itself that it is not private)",
    covers=("DifferentialPrivTree", "OfflinePrivTree"),
)
def offline(attacker: Attacker) -> Found:
    run = functools.partial(released, max_depth=3)
    with traced():
        return attacker.duels(
            functools.partial(run, kind=sg.baselines.DifferentialPrivTree),
            event_at(0, 1),
            twin=functools.partial(run, kind=sg.baselines.OfflinePrivTree),
            seeds=2,
        )


# --- datasets that expire, and streams without an end ---


def _since(worlds: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
    """The same streams, whose deletions say that their event is of the step before (or of the first)."""
    return tuple(  # type: ignore[return-value]
        [batch.assign(since=max(1, number)) for number, batch in enumerate(world)] for world in worlds
    )


def _enter_lifetime(schedule: str) -> None:
    @case(
        f"PHDStream with a lifetime, {schedule}, an event at any step",
        unit="event",
        claimed=1.0,
        method="duel",
        twin="noise scale halved",
        covers=("PHDStream", "PHDStream lifetime"),
    )
    def attack(attacker: Attacker) -> Found:
        run = functools.partial(released, lifetime=3, inserted="since", schedule=schedule)
        with traced():
            found = [
                attacker.duels(run, _since(event_at(step, op)), seeds=2)
                for step in range(STEPS)
                for op in (1, -1)
            ]
        return Found(max(f.epsilon for f in found), max(f.twin for f in found), sum(f.runs for f in found))


for _schedule in SCHEDULES:
    _enter_lifetime(_schedule)


@case(
    "PHDStream with a lifetime, a point that stays for three steps",
    unit="event",
    claimed=1.0,
    method="duel",
    twin="a batch that is noised again at each slide",
    covers=("PHDStream", "PHDStream lifetime"),
)
def sliding(attacker: Attacker) -> Found:
    run = functools.partial(released, lifetime=3, op="none", max_depth=3)
    with traced():
        return attacker.duels(run, event_at(1, 1), twin=functools.partial(run, kind=Sliding), seeds=2)


@case(
    "PHDStream with a lifetime, sums and blocks of every event time",
    unit="event",
    claimed=1.0,
    method="exact",
    twin="a batch that is noised again at each slide",
    covers=("PHDStream", "PHDStream lifetime"),
)
def window_sums(attacker: Attacker) -> Found:
    return Found(float(window_costs(sg.PHDStream).max()), float(window_costs(Sliding).max()))


@case(
    "PHDStream of single steps, borrowing from the past, an event at any step",
    unit="event",
    claimed=1.0,
    method="duel",
    twin="borrowing that looks at the true batch",
    covers=("PHDStream", "PHDStream borrow"),
)
def borrowing(attacker: Attacker) -> Found:
    run = functools.partial(released, lifetime=1, op="none", max_depth=3)
    with traced():
        found = [
            attacker.duels(run, event_at(step, 1), twin=functools.partial(run, kind=Peeking), seeds=2)
            for step in (1, STEPS - 1)
        ]
    return Found(max(f.epsilon for f in found), max(f.twin for f in found), sum(f.runs for f in found))


@case(
    "PHDStream without an end, sums of every event time",
    unit="event",
    claimed=1.0,
    method="exact",
    twin="every level of the tree over time at full ε",
    covers=("PHDStream", "PHDStream lasting"),
)
def lasting_sums(attacker: Attacker) -> Found:
    return Found(float(lasting_costs(sg.PHDStream).max()), float(lasting_costs(Greedy).max()))


# --- times inside windows ---

_DAY = {"time": "when", "every": "1D", "start": "2026-01-01", "end": "2026-01-04"}


def timed(data: Any, noise: Any, *, epsilon: float = 1.0, share: float = 0.5, **options: Any) -> list[Any]:
    """What is released of three windows whose times are asked for in slots of six hours: cells, counts, and
    the slots' noisy totals and shares.
    """
    budget = sg.PrivacyBudget(epsilon)
    options = {"max_depth": 3, "lifetime": 1, "times": "6h", "times_share": share, **options}
    stream = sg.PHDStream.from_options(domain=BOX, budget=budget, noise=noise, **options)
    out: list[Any] = []
    for release in stream.run(data, progress=False, **_DAY):
        within = stream._now.within
        assert within is not None
        out += [release.partition.start.astype(float), release.released, within.held[release.step].shares]
        out += [usual.totals for usual in within.usual.values()]
    return out


def _at(frame: Any, when: str) -> Any:
    return frame.assign(when=pd.Timestamp(when))


@case(
    "PHDStream with times inside windows, an event at any step",
    unit="event",
    claimed=1.0,
    method="duel",
    twin="counts that keep all of ε beside the slots",
    covers=("PHDStream", "times inside windows"),
)
def slots(attacker: Attacker) -> Found:
    rng = np.random.default_rng(3)
    when = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.uniform(0, 72, 40), unit="h")
    crowd = pd.DataFrame({"x": rng.random(40) / 2, "y": rng.random(40), "when": when})
    found = []
    with traced():
        for day in (1, 2, 3):
            one = pd.DataFrame({"x": [0.9], "y": [0.9], "when": [pd.Timestamp(2026, 1, day, 3)]})
            worlds = (crowd, pd.concat([crowd, one], ignore_index=True))
            twin = functools.partial(timed, epsilon=1.5, share=1 / 3)
            found.append(attacker.duels(timed, worlds, twin=twin, seeds=2))
    return Found(max(f.epsilon for f in found), max(f.twin for f in found), sum(f.runs for f in found))


@case(
    "PHDStream with times inside windows, a user with 23 events, bound 3",
    unit="user",
    claimed=1.0,
    method="duel",
    twin="slots counted before users are bounded",
    covers=("PHDStream", "times inside windows", "user-level points"),
)
def bounded_slots(attacker: Attacker) -> Found:
    one, other = (_at(frame, "2026-01-02T05:00") for frame in user_at_bound(BOX, bound=3, excess=20))
    run = functools.partial(timed, unit=sg.PrivacyUnit.user(max_events=3, key="user_id"))

    def everyone(keys: Any, weights: Any, found: Any, came: Any) -> Any:
        return with_slots(keys, weights, found, np.ones_like(came))

    with traced():
        honest = attacker.largest_duel(run, (one, other), seeds=2)
        with mock.patch("streams.spatial.points.with_slots", everyone):
            broken = attacker.largest_duel(run, (one, other), seeds=2)
    return Found(honest, broken, 4)


# --- counters in a stream: real banks, their draws followed one by one ---


def _enter_counter(counter: str) -> None:
    @case(
        f"PHDStream, structure and counts of every event time, {counter} counters, all schedules",
        unit="event",
        claimed=1.0,
        method="exact",
        twin="a block counter that spans a rebuild",
        covers=("PHDStream", f"PHDStream counter {counter}"),
    )
    def attack(attacker: Attacker) -> Found:
        honest = [event_costs(sg.PHDStream, counter=counter, schedule=s).max() for s in SCHEDULES]
        return Found(
            float(max(honest)), float(event_costs(Spanning, counter=counter, schedule="growing").max())
        )


for _counter in COUNTERS:
    _enter_counter(_counter)


# --- black box, from a batch to released cells ---


@case(
    "PHDStream, first release, an outlier alone in its cell",
    unit="event",
    claimed=1.0,
    method="black box",
    twin="a true total",
    covers="PHDStream",
)
def outlier(attacker: Attacker) -> Found:
    return attacker.black_box(
        first_release,
        functools.partial(first_release, kind=TrueTotal),
        lone_point(BOX, crowd=3),
        claimed=1.0,
        runs=12_000,
        quick=300,
        twin_runs=2000,
    )


@case(
    "PHDStream, a user with 23 events, bound 3",
    unit="user",
    claimed=1.0,
    method="duel",
    twin="no bounding",
    covers=("PHDStream", "ContributionBounder", "user-level points"),
)
def bounded(attacker: Attacker) -> Found:
    unit = sg.PrivacyUnit.user(max_events=3)
    one, other = user_at_bound(BOX, bound=3, excess=20)

    def unbounded(batches: Any, noise: Any) -> list[np.ndarray]:
        return released([batch.drop(columns="user_id") for batch in batches], noise, epsilon=1 / 3)

    with traced():
        return attacker.duels(
            functools.partial(released, unit=unit, deletions=False), ([one], [other]), twin=unbounded
        )


@case(
    "PHDStream, an export that grows, with a declared unique key",
    unit="event, all its rows",
    claimed=1.0,
    method="duel",
    twin="rows are the unit",
    covers=("PHDStream", "ContributionBounder", "unique events"),
)
def growing_export(attacker: Attacker) -> Found:
    """An event stands in every export from its day on, and pays once."""
    without, heavy = user_at_bound(BOX, bound=1, excess=0, key="ride_id")
    pair = [[frame] * 4 for frame in (without, heavy)]

    def by_row(batches: Any, noise: Any) -> list[np.ndarray]:
        return released([batch.drop(columns="ride_id") for batch in batches], noise)

    unit = sg.PrivacyUnit.event(unique="ride_id")
    with traced():
        return attacker.duels(functools.partial(released, unit=unit), pair, twin=by_row)


@case(
    "ContributionBounder, a user who comes every nine steps, one event per ten steps",
    unit="user",
    claimed=1.0,
    method="exact",
    twin="a bound over the last ten steps",
    covers=("ContributionBounder", "user-level periods"),
)
def sliding_bound(attacker: Attacker) -> Found:
    rows = [Row(step, 1, 1, step) for step in range(10, 100, 9)]
    return Found(
        *(period_cost(kind, rows, per=10, bound=1) for kind in (ContributionBounder, SlidingBounder))
    )


@case(
    "ContributionBounder, insertions of one period, deleted in the next two",
    unit="user",
    claimed=1.0,
    method="exact",
    twin="a deletion charged to its own period",
    covers=("ContributionBounder", "user-level periods"),
)
def own_period(attacker: Attacker) -> Found:
    came = [Row(step, key, 1, step) for step, key in ((1, 1), (2, 2), (3, 3), (4, 4))]
    gone = [Row(step, key, -1, key) for step, key in ((5, 1), (6, 2), (9, 3), (10, 4))]
    return Found(
        *(
            period_cost(kind, came + gone, per=4, bound=4, deletes=True)
            for kind in (ContributionBounder, OwnPeriodBounder)
        )
    )


# --- durable runs: a batch that is given again ---


def _answers(value: int, *, durable: bool) -> int:
    """How many different answers a batch gets that is given three times, the run reopened in between."""
    answers = set()

    def make() -> Any:
        return series.LPA(budget=sg.PrivacyBudget(0.1), max_steps=1, noise=sg.SystemNoise())

    with tempfile.TemporaryDirectory() as folder:
        for _ in range(3):
            if durable:
                with sg.StreamRun.open(f"{folder}/run", make()) as run:
                    answers.add(float(run.step("monday", value)))
            else:
                answers.add(float(make().update(value)))
    return len(answers)


@case(
    "StreamRun, a batch given three times",
    unit="event",
    claimed=1.0,
    method="exact",
    twin="noise drawn again for the same batch",
    covers="StreamRun",
)
def durable(attacker: Attacker) -> Found:
    """Each different answer costs ε once. Two of three draws of the twin are equal with probability 0.15, all
    three with 0.004; five batches make the latter 1e-12.
    """
    honest = max(_answers(value, durable=True) for value in range(2))
    return Found(float(honest), float(max(_answers(value, durable=False) for value in range(5))))

"""The long privacy audit: every mechanism beside a broken twin. ``python -m benchmarks.audit`` writes
docs/audit.md.

``--quick`` runs a twentieth of the black-box runs. Broken twins live in ``tests/audit``; this file only calls
them.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import streams.phd
import streams.scalar as series
import synthgeo as sg
import tabular.purse
import tabular.synthesizer
import trajectories.synthesizer
from benchmarks._common import record
from streams.counters import make_bank
from streams.scalar.channel import closed_form, design, leakage
from synthgeo.audit.blackbox import audit
from synthgeo.audit.neighbours import deletion_path, lone_point, loyal_user, user_at_bound
from synthgeo.audit.replay import ReplayError, replayed_selection
from synthgeo.audit.whitebox import counter_costs, geometric_loss, path_loss, privtree_loss, sampler_loss
from synthgeo.partition.privtree import GRID, SplitRule
from synthgeo.privacy.accountant import gaussian_sigma
from tests.audit import test_stream_replay, test_streams, test_tables, test_trips, twins
from tests.audit.stream_twins import Literal, Spanning, TrueTotal, Watched
from tests.audit.traced import TracedBank

PAGE = Path(__file__).parent.parent / "docs" / "audit.md"
CONFIDENCE = 1 - 1e-9
INTRODUCTION = """\
# Audit

We try to break our own promises, and report what we found. This page is written by `make audit`; the same
audits, with fewer runs, are part of `make test`. [Guarantees](guarantees.md) has the proofs.

Each mechanism stands beside a *twin* that is broken in a way that has happened in a paper, in a library, or
in a draft. An audit that does not catch its twin has no power, and its silence about the mechanism would mean
nothing.

- **black box**: the mechanism is run on two neighbouring inputs; an event is learned on one half of the runs
  and measured on the other with exact binomial bounds (`sg.audit`). *Found* is a lower bound on ε that is
  wrong with probability at most 1e-9; it falls short of the true ε when runs are few or the worst case rare.
- **exact**: the worst-case loss, computed from the mechanism's own constants or from its response to single
  draws of noise.
- **replay**: the whole product is run on one input with its answers recorded, and then on the neighbour with
  the same answers forced upon it. *Found* is the largest exact log-likelihood ratio over the transcripts
  tried. Infinity: questions or results differ between the inputs, which gives the unit away.

An audit is not a proof: it shows that a promise is broken, or fails to.

| mechanism | unit | claimed ε | method | runs | found | broken twin | found for the twin | |
|---|---|---|---|---|---|---|---|---|"""
COUNTERS = ("simple", "block", "binary", "kary", "hybrid", "unbounded_block", "unbounded_kary")
BOX = sg.BoxDomain(0, 0, 1, 1)


@dataclass(frozen=True)
class Row:
    """One mechanism: what it claims, what was found, and what was found about its twin."""

    mechanism: str
    unit: str
    claimed: str
    found: float
    method: str
    runs: int
    twin: str
    twin_found: float
    holds: bool
    caught: bool


class Auditor:
    """Black-box audits at a common confidence, with a common factor on the number of runs."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def row(
        self,
        name: str,
        unit: str,
        claimed: Any,
        mechanism: Callable[..., Any],
        twin: Callable[..., Any],
        pair: Any,
        *,
        twin_name: str,
        runs: int,
        batched: bool = True,
        twin_pair: Any = None,
        least: int = 2000,
    ) -> Row:
        runs = max(least, int(runs * self.factor))
        run = functools.partial(
            audit, runs=runs, confidence=CONFIDENCE, claimed=claimed, batched=batched, seed=20, progress=False
        )
        honest = run(mechanism, pair)
        broken = run(twin, pair if twin_pair is None else twin_pair)
        budget = honest.claimed
        claim = f"{budget.epsilon:g}" if budget.is_pure else f"{budget.epsilon:g}, δ = {budget.delta:g}"
        return Row(
            name,
            unit,
            claim,
            honest.epsilon_lower,
            "black box",
            runs,
            twin_name,
            broken.epsilon_lower,
            not honest.violates,
            broken.violates,
        )


def exact(name: str, unit: str, claimed: float, loss: float, twin_name: str, twin_loss: float) -> Row:
    """A row whose numbers are computed, not estimated."""
    return Row(
        name,
        unit,
        f"{claimed:g}",
        loss,
        "exact",
        0,
        twin_name,
        twin_loss,
        loss <= claimed * (1 + 1e-9),
        twin_loss > claimed,
    )


def core(a: Auditor) -> Iterator[Row]:
    """Noise, selection, counters."""
    count = twins.laplace_count
    cases = {
        "half the noise": (functools.partial(count, factor=0.5), (0, 1)),
        "one unit moves two counts": (twins.off_by_one_count, (0, 1)),
        "floating-point Laplace (low bits)": (twins.float_laplace, (0.0, 1.0)),
        "a seed used again": (twins.reused_seed, (0, 1)),
        "noise drawn twice for one batch": (twins.noise_drawn_twice, (0, 1)),
        "zero sensitivity, no noise": (twins.no_noise_at_zero_sensitivity, (0, 1)),
    }
    for twin_name, (twin, pair) in cases.items():
        yield a.row(
            "discrete Laplace",
            "count",
            1.0,
            count,
            twin,
            (0, 1),
            twin_name=twin_name,
            runs=300_000,
            twin_pair=pair,
        )
    bits = 1 / (1 + np.exp(2.0 ** np.arange(9) / 20.0))
    rounded = np.maximum(np.floor(bits * 256), 1) / 256
    carry = math.exp(-(2.0**9) / 20.0)
    yield exact(
        "discrete Laplace, the sampler's tables (scale 20)",
        "grid step",
        0.05,
        sampler_loss(20.0, 5000),
        "thresholds of eight bits",
        geometric_loss(rounded, carry, 5000),
    )
    budget = sg.PrivacyBudget(1.0, 0.01)
    sigma = gaussian_sigma(budget, 1.0)
    yield a.row(
        "discrete Gaussian",
        "count",
        budget,
        functools.partial(twins.gaussian_count, sigma=sigma),
        functools.partial(twins.gaussian_count, sigma=sigma / 2),
        (0, 1),
        twin_name="half the noise",
        runs=300_000,
    )
    up, down = np.r_[0.5, np.full(30, -0.5)], np.r_[-0.5, np.full(30, 0.5)]
    for name, mechanism in (("exponential mechanism", twins.select), ("permute-and-flip", twins.select_flip)):
        yield a.row(
            name,
            "one unit of score",
            2.0,
            functools.partial(mechanism, epsilon=2.0),
            functools.partial(mechanism, epsilon=2.0, monotonic=True),
            (up, down),
            twin_name="Algorithm 13's exponent",
            runs=40_000,
            batched=False,
            least=16_000,
        )
    quiet, first = (0,) * 8, (1, *[0] * 7)
    for kind in COUNTERS:
        honest = functools.partial(twins.counter, kind=kind, epsilon=2.0)
        twin = functools.partial(honest, factor=0.5)
        twin_name = "half the noise"
        if kind == "binary":
            twin, twin_name = functools.partial(twins.log2_binary_counter, epsilon=2.0), "log2 T levels"
        yield a.row(
            f"counter, {kind}",
            "event",
            2.0,
            honest,
            twin,
            (quiet, first),
            twin_name=twin_name,
            runs=150_000,
            least=120_000 if kind == "binary" else 2000,
        )

        def make(noise: Any, kind: str = kind) -> Any:
            return make_bank(kind, epsilon=2.0, noise=noise, horizon=13)

        def thin(noise: Any, kind: str = kind) -> Any:
            return make_bank(kind, epsilon=4.0, noise=noise, horizon=13)

        yield exact(
            f"counter, {kind}, every event time to 20 (horizon 13)",
            "event",
            2.0,
            float(counter_costs(make, 20).max()),
            "half the noise",
            float(counter_costs(thin, 20).max()),
        )


def spatial(a: Auditor) -> Iterator[Row]:
    """PrivTree and the stream of points."""
    for epsilon in (1.0, 5.0, 20.0):
        scale = 3 / epsilon
        yield exact(
            "PrivTree, worst path, counts on the noise's grid",
            "point",
            epsilon,
            privtree_loss(scale, math.ceil(scale * math.log(2))),
            "bias off the grid" if epsilon > 1 else "no bias",
            privtree_loss(scale, scale * math.log(2) if epsilon > 1 else 0.0),
        )
    rule = SplitRule(1.0)
    tree = test_streams.TestTree()
    losses = []
    for kind in (Watched, Literal):
        scores = [
            tree.feed(kind, batch, 20) * GRID.one
            for batch in deletion_path(BOX, levels=20, decay=rule.decay / GRID.one)
        ]
        losses.append(path_loss(*scores, scale=rule.scale * GRID.one, decay=rule.decay))
    yield exact(
        "PHDStream, its tree on a deletion path", "event", 1.0, losses[0], "the printed rule", losses[1]
    )
    pair, twin_pair = (
        [tree.feed(kind, batch, 10) for batch in deletion_path(BOX, levels=10, decay=rule.decay / GRID.one)]
        for kind in (Watched, Literal)
    )
    decide = functools.partial(tree._decisions, rule=rule)
    yield a.row(
        "PHDStream, its tree on a deletion path",
        "event",
        1.0,
        decide,
        decide,
        pair,
        twin_pair=twin_pair,
        twin_name="the printed rule",
        runs=300_000,
        least=150_000,
    )
    counts = test_streams.TestCounts()
    for schedule in ("once", "growing"):
        yield exact(
            f"PHDStream, structure and counts, schedule {schedule}",
            "event",
            1.0,
            float(counts.costs(streams.phd.PHDStream, counter="block", schedule=schedule).max()),
            "a block that spans a rebuild",
            float(counts.costs(Spanning, counter="block", schedule=schedule).max()),
        )
    release = test_streams.TestProduct.release
    yield a.row(
        "PHDStream, first release, an outlier",
        "event",
        1.0,
        release,
        functools.partial(release, kind=TrueTotal),
        lone_point(BOX, crowd=3),
        twin_name="a true total",
        runs=4000,
        batched=False,
    )
    unit = sg.PrivacyUnit.user(max_events=3)
    yield a.row(
        "PHDStream, a user with 20 events above the bound",
        "user",
        1.0,
        functools.partial(release, unit=unit, deletions=False),
        release,
        user_at_bound(BOX, bound=3, excess=20),
        twin_name="no bounding",
        runs=4000,
        batched=False,
    )


def scalar(a: Auditor) -> Iterator[Row]:
    """Scalar series."""
    belief = np.array([0.1, 0.45, 0.45])
    channel = design(belief, 1.0, 1.0 - np.eye(3))
    yield exact(
        "SIP channel, belief 0.1",
        "sequence",
        1.0,
        leakage(channel, belief),
        "the printed closed form",
        leakage(closed_form(belief, 1.0), belief),
    )

    for kind, pair, options in (
        (series.LPA, loyal_user(3), {"horizon": 3}),
        (series.FAST, loyal_user(3), {"horizon": 3, "sampling": 1, "max_samples": 3}),
        (series.BudgetAbsorption, loyal_user(2), {"window": 2}),
        (series.BudgetDistribution, loyal_user(2), {"window": 2}),
        (series.RandomizedResponse, ([0, 0], [1, 1]), {"horizon": 2}),
    ):
        # Absorption and distribution keep half of ε for comparing values, so their twins need to be greedier.
        factor = 6 if "window" in options else 3
        make, greedy = (
            functools.partial(_series, kind=kind, epsilon=epsilon, options=options)
            for epsilon in (2.0, 2.0 * factor)
        )
        yield a.row(
            kind.__name__,
            "window of w" if "window" in options else "user",
            2.0,
            make,
            greedy,
            pair,
            twin_name=f"noise divided by {factor}",
            runs=12_000,
            batched=False,
            least=4000,
        )


def _series(values: Any, noise: Any, *, kind: Any, epsilon: float, options: dict[str, Any]) -> np.ndarray:
    return np.asarray(kind(budget=sg.PrivacyBudget(epsilon), noise=noise, **options).run(values))


def replays(seeds: int) -> Iterator[Row]:
    """Whole products, by replay: the largest log-ratio over transcripts."""
    fit = tabular.synthesizer.fit

    def quick(*args: Any, compiled: bool = False, **options: Any) -> Any:  # noqa: ARG001
        return fit(*args, compiled=False, **{**options, "iterations": 5})

    with (
        mock.patch.object(tabular.synthesizer, "fit", quick),
        mock.patch.object(tabular.purse, "exponential_mechanism", replayed_selection),
    ):
        for name, pair in test_tables.PAIRS.items():
            honest = [abs(test_tables.replay(pair, seed=s)[0]) for s in range(seeds)]
            thin = [
                abs(test_tables.replay(pair, seed=s, noise=test_tables.ThirdOfTheNoise)[0])
                for s in range(seeds)
            ]
            yield _replay_row(
                f"TabularSynthesizer ({name})", "record", honest, "a third of the noise", max(thin)
            )
        _, (one, other) = test_tables.replay(test_tables.PAIRS["rare"], seed=1, kind=test_tables.TrueTotal)
        leaks = math.inf if not np.array_equal(one, other) else 0.0
        yield _replay_row("TabularSynthesizer", "record", honest, "the true total given to the fit", leaks)
    with mock.patch.object(trajectories.synthesizer, "calibrate", lambda blank, *_: blank):
        honest = [abs(test_trips.replay(test_trips.PAIR, seed=s)[0]) for s in range(seeds)]
        thin = [
            abs(test_trips.replay(test_trips.PAIR, seed=s, noise=test_trips.SixthOfTheNoise)[0])
            for s in range(seeds)
        ]
        yield _replay_row("TrajectorySynthesizer", "trip", honest, "a sixth of the noise", max(thin))
    try:
        noise = test_trips.ReplayNoise(1)
        test_trips.pairs_without_empties(test_trips.CROWD, noise)
        noise.rewind()
        test_trips.pairs_without_empties(test_trips.WITH_ONE_MORE, noise)
        skipped = noise.finish()
    except ReplayError:
        skipped = math.inf
    yield _replay_row("TrajectorySynthesizer", "trip", honest, "empty pairs skipped", skipped)
    with mock.patch.object(streams.phd, "make_bank", TracedBank):
        points = test_stream_replay.TestPoints()
        options = {"max_depth": 14, "schedule": "every_step", "structure_share": 0.9}
        decay = sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(1.0), **options).rule.decay / GRID.one
        pair = deletion_path(BOX, levels=14, decay=decay)
        found = [
            points.largest(kind, ([pair[0]], [pair[1]]), seeds=10 * seeds, **options)
            for kind in (sg.PHDStream, Literal)
        ]
        yield _replay_row(
            "PHDStream, first release on a deletion path", "event", [found[0]], "the printed rule", found[1]
        )


def _replay_row(name: str, unit: str, ratios: list[float], twin_name: str, twin_found: float) -> Row:
    found = max(ratios)
    return Row(
        name,
        unit,
        "1",
        found,
        "replay",
        len(ratios),
        twin_name,
        twin_found,
        found <= 1 + 1e-9,
        twin_found > 1,
    )


def page(rows: list[Row], seconds: float) -> str:
    """docs/audit.md."""
    lines = [INTRODUCTION]
    for row in rows:
        verdict = "holds, twin caught" if row.holds and row.caught else "**look here**"
        lines.append(
            f"| {row.mechanism} | {row.unit} | {row.claimed} | {row.method} | {row.runs or ''} "
            f"| {_number(row.found)} | {row.twin} | {_number(row.twin_found)} | {verdict} |"
        )
    held = sum(row.holds for row in rows)
    caught = sum(row.caught for row in rows)
    lines += [
        "",
        f"{held} of {len(rows)} claims not refuted, {caught} of {len(rows)} twins caught, "
        f"in {seconds / 60:.0f} minutes.",
        "",
    ]
    return "\n".join(lines)


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3f}"


def main() -> None:
    """Run everything, print a line each, write the page and the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the runs")
    quick = parser.parse_args().quick
    auditor = Auditor(0.05 if quick else 1.0)
    start = time.perf_counter()
    rows: list[Row] = []
    for part in (core(auditor), spatial(auditor), scalar(auditor), replays(6 if quick else 20)):
        for row in part:
            rows.append(row)
            mark = "ok  " if row.holds and row.caught else "LOOK"
            found = f"{_number(row.found)} of {row.claimed} ({row.method})"
            print(f"{mark} {row.mechanism}: {found}; {row.twin}: {_number(row.twin_found)}", flush=True)
    seconds = time.perf_counter() - start
    PAGE.write_text(page(rows, seconds))
    record("audit", {"quick": quick, "confidence": CONFIDENCE, "seed": 20}, [asdict(row) for row in rows])
    if not all(row.holds and row.caught for row in rows):
        raise SystemExit("a claim was refuted, or a twin escaped: see docs/audit.md")


if __name__ == "__main__":
    main()

"""The long privacy audit: every public mechanism beside a broken twin, and membership inference on products.

``python -m benchmarks.audit`` writes docs/audit.md and benchmarks/results/audit.json. Rows are kept as they
are found: a run that is stopped goes on where it was (``--fresh`` starts again, ``--keep`` adds what a
finished run lacks). ``--quick`` takes the few runs of ``make test``, prints, and writes nothing; ``--page``
writes the page again. The cases are in ``audits``.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from audits.flakes import MOST, of_the_suite
from audits.registry import CONFIDENCE, Attacker, Case, Found, all_cases
from benchmarks import damage, fuzz, mutants, reach, soak
from benchmarks._common import record, recorded
from synthgeo.auditing.membership import MembershipResult, membership_attack, trip_vectors

PAGE = Path(__file__).parent.parent / "docs" / "audit.md"
SEED = 20
CONFIG = {"confidence": CONFIDENCE, "seed": SEED}
INTRODUCTION = """\
# Audit

We try to break our own promises, and report what we found. This page is written by `make audit`; the same
audits, with fewer runs, are part of `make test`. [Guarantees](guarantees.md) has the proofs.

Each mechanism stands beside a *twin* that is broken in a way that has happened in a paper, in a library, or
in a draft. An audit that does not catch its twin has no power, and its silence about the mechanism would
mean nothing. A test lists everything public that draws noise and fails when something has no row here.

- **black box**: the mechanism is run on two neighbouring inputs, *runs* times on each; an event is learned
  on one half of the runs and measured on the other with exact binomial bounds (`sg.auditing.audit`). *Found*
  is a lower bound on ε that is wrong with probability at most 1e-9; it falls short of the true ε when runs
  are few or the worst case rare. *Would show* is the true ε from which so many runs would have refuted the
  claim, nine times in ten, if one event held all there is to see.
- **exact**: the worst-case loss, computed from the mechanism's own constants, from its response to single
  draws of noise, or by running it under every combination of draws.
- **duel**: a whole product is run on both inputs at once. Each time both have put a number under the noise,
  both get the same answer, chosen to favour one of them; each selection is the most telling one. *Found* is
  the exact log-likelihood ratio of such a transcript, the largest of *runs* of them. Infinity: questions or
  results differ between the inputs, which gives the unit away. For this, counters are replaced by ones of the
  same ε whose noise can be followed (the real ones have rows of their own), models are fitted in few
  iterations, and trips stop at their measurements: what follows sees nothing else.

An audit is not a proof: it shows that a promise is broken, or fails to. Where *found* equals the claim, the
promise cannot be improved; where it is lower, either the attack is weak or the mechanism is better than it
says (PrivTree is: [ADR 4](adr/0004-noise-of-privtree.md)).

| mechanism | unit | claimed ε | method | runs | found | would show | broken twin | found for the twin | |
|---|---|---|---|---|---|---|---|---|---|"""
MUTANTS = """## Mutants

Audits and tests are programs too. `make mutants` changes a line on which a promise rests (a scale halved, a
share used twice, `max` for `min`, a bound skipped, noise left out or reused, a true count where a noisy one
belongs), in a copy of the tree, and runs the tests that should notice. A mutant that survives is a hole in
the tests, unless the change breaks no promise. Each is tried again when its module or its tests change."""

REACH = """## What the audits reach

Every line of the products that draws noise, chooses, splits a node or feeds a counter, by function, and how
many of the computed audits above come by it (`python -m benchmarks.reach`)."""
SOAK = """## Kills

`make soak` opens durable runs in a process that makes the next step and is killed: half of the time at a line
drawn at random among those it executes in runs, ledgers, states and streams, half of the time at a random
moment. After each kill the releases are read from outside; at the end journal, spends, ledger and, under a
seed, the bytes of the state are compared with those of a run that nobody touched. It stops at the first
release that is lost or changed, and at the first step or charge that is made twice."""
DAMAGE = """## Damage

One file of a run, a model, a saved stream or a ledger has a bit flipped, a byte changed, its end cut off, its
content gone, zeros in it, more at its end, or is missing. What is opened then is refused with one line, or
tells the same as before."""

FUZZ = """## Fuzzing

`make fuzz-guided` lets atheris look, by coverage, for bytes at which a loader raises anything but one typed
line; checksums within a file are mended before it is read, as a stranger would. *Mended since* are the times
that it found some; the time until then is not counted, and the suite tries such an input again."""

MEMBERSHIP = """
## Membership inference

The attack that practitioners fear: somebody holds a record and asks, by its distance to the closest
synthetic one, whether it was in the input. *Advantage* is the rate of right accusations less that of wrong
ones, on records that were in the input and on others of the same kind; *allowed* is the most that any attack
can have at that ε. The last line of each kind is a "synthesizer" that publishes its input. It is a check of
whole products, far weaker than the audits above. On your own release: `synthgeo membership`
([command line](cli.md)), or `synthgeo.auditing.membership.attack_release`.

| release | ε | advantage | 99 % interval | allowed | |
|---|---|---|---|---|---|"""


def main() -> None:
    """Run everything that is not recorded yet, print a line each, write the page and the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs; print, write nothing")
    parser.add_argument("--fresh", action="store_true", help="do not go on with an unfinished run")
    parser.add_argument("--keep", action="store_true", help="keep a finished run, add the rows it lacks")
    parser.add_argument(
        "--again", action="append", default=[], help="with --keep: not rows whose name has this"
    )
    parser.add_argument("--computed", action="store_true", help="no black boxes, which take long")
    parser.add_argument("--page", action="store_true", help="write the page of the recorded run, no more")
    options = parser.parse_args()
    if options.page:
        before = recorded("audit")
        if before is None or not before["config"]["finished"]:
            raise SystemExit("there is no finished run")
        PAGE.write_text(page(before["results"], before["config"]))
        return
    rows = {} if options.quick or options.fresh else _before(finished=options.keep)
    rows = {name: row for name, row in rows.items() if not any(part in name for part in options.again)}
    attacker = Attacker(quick=options.quick, seed=SEED)
    log = reach.Log()
    for case in all_cases():
        computed = case.method != "black box"
        if options.computed and not computed and case.name not in rows:
            continue
        if case.name not in rows:
            start = time.process_time()
            found = log.attack(case, attacker) if computed and not options.quick else case.attack(attacker)
            rows[case.name] = _row(case, found, time.process_time() - start)
            _keep(rows, options.quick)
        _say(rows[case.name])
    for name, epsilon, attack in memberships():
        key = f"membership: {name} / {epsilon:g}"
        if key not in rows:
            rows[key] = _membership_row(name, epsilon, attack())
            _keep(rows, options.quick)
        print(f"{key}: {rows[key]['advantage']:.3f} of {rows[key]['allowed']:.3f}", flush=True)
    names = [
        case.name for case in all_cases()
    ]  # in the order of the registry; rows of cases that are gone go
    names += [name for name in rows if name.startswith("membership")]
    rows = {name: rows[name] for name in names if name in rows}
    if not options.quick:
        tests, flake = of_the_suite()
        left = [case.mechanism for case in all_cases() if case.name not in rows]
        config = {**CONFIG, "finished": True, "statistical_tests": tests, "flake": flake, "not_run": left}
        record("audit", config, list(rows.values()))
        PAGE.write_text(page(list(rows.values()), config))
    if not all(row["good"] for row in rows.values()):
        raise SystemExit("a claim was refuted, or a twin escaped: look for LOOK above")


def _before(*, finished: bool) -> dict[str, dict[str, Any]]:
    """Rows of an earlier run that was stopped, or also of one that was ``finished``."""
    before = recorded("audit")
    if before is None or before["config"].get("seed") != SEED:
        return {}
    if before["config"].get("finished", True) and not finished:
        return {}
    return {row["name"]: row for row in before["results"]}


def _keep(rows: dict[str, dict[str, Any]], quick: bool) -> None:
    if not quick:
        record("audit", {**CONFIG, "finished": False}, list(rows.values()))


def _row(case: Case, found: Found, seconds: float) -> dict[str, Any]:
    return {
        "name": case.name,
        "mechanism": case.mechanism,
        "unit": case.unit,
        "claimed": case.claimed.to_dict(),
        "method": case.method,
        "runs": found.runs,
        "found": found.epsilon,
        "would_show": found.detectable,
        "twin": case.twin,
        "twin_found": None if math.isinf(found.twin) else found.twin,
        "holds": case.holds(found),
        "caught": case.caught(found),
        "good": case.holds(found) and case.caught(found),
        "seconds": round(seconds, 2),
    }


def _say(row: dict[str, Any]) -> None:
    mark = "ok  " if row["good"] else "LOOK"
    found = f"{row['found']:.3f} of {row['claimed']['epsilon']:g} ({row['method']})"
    print(f"{mark} {row['mechanism']}: {found}; {row['twin']}: {_number(row['twin_found'])}", flush=True)


# --- membership inference ---


def memberships() -> list[tuple[str, float, Any]]:
    """Name, ε and attack of each release."""
    out: list[tuple[str, float, Any]] = []
    for name, attack in (("table (1,000 records)", attack_table), ("trips (400)", attack_trips)):
        out += [(name, epsilon, lambda a=attack, e=epsilon: a(e)) for epsilon in (1.0, 5.0)]
        out.append((f"{name}, the input published", 1.0, lambda a=attack: a(None)))
    return out


def attack_table(epsilon: float | None, *, rows: int = 1000, iterations: int = 300) -> MembershipResult:
    """A table of six columns, each record its own; ``None`` publishes the input."""
    rng = np.random.default_rng(SEED)
    base = rng.integers(0, 8, (2 * rows, 1))
    values = (base + rng.integers(0, 4, (2 * rows, 6))) % 8
    people = pd.DataFrame(values.astype(str), columns=list("abcdef"))
    members, others = people.iloc[:rows], people.iloc[rows:]
    if epsilon is None:
        return membership_attack(members, members, others, budget=sg.PrivacyBudget(1.0))
    budget = sg.PrivacyBudget(epsilon)
    schema = sg.Schema({name: sg.Categorical([str(i) for i in range(8)]) for name in "abcdef"})
    model = sg.TabularSynthesizer(
        schema=schema,
        budget=budget,
        settings=sg.TableSettings(iterations=iterations),
        noise=sg.SeededNoise(SEED),
        progress=False,
    )
    released = model.fit(members).sample(rows).to_pandas()
    return membership_attack(released, members, others, budget=budget)


def attack_trips(epsilon: float | None, *, trips: int = 400) -> MembershipResult:
    """Trips on the roads of a simulated town; ``None`` publishes the input."""
    domain = sg.RoadDomain.from_graph(sg.simulate.city_graph(10, 8, seed=SEED))
    points = sg.simulate.city_trips(domain, trips=2 * trips, coordinates="xy", seed=SEED)
    inside = points["trip_id"] < trips
    members, others = points[inside], points[~inside]
    vectors = [trip_vectors(part) for part in (members, others)]
    if epsilon is None:
        return membership_attack(vectors[0], *vectors, budget=sg.PrivacyBudget(1.0))
    budget = sg.PrivacyBudget(epsilon)
    model = sg.TrajectorySynthesizer(domain=domain, budget=budget, noise=sg.SeededNoise(SEED)).fit(members)
    released = model.sample(trips).data
    frame = pd.DataFrame({"trip_id": released["trip_id"], "x": released.geometry.x, "y": released.geometry.y})
    return membership_attack(trip_vectors(frame), *vectors, budget=budget)


def _membership_row(name: str, epsilon: float, result: MembershipResult) -> dict[str, Any]:
    return {
        "name": f"membership: {name} / {epsilon:g}",
        "release": name,
        "epsilon": epsilon,
        "advantage": result.advantage,
        "interval": list(result.interval),
        "allowed": result.allowed,
        "good": result.violates == ("published" in name),
    }


# --- the page ---


def page(rows: list[dict[str, Any]], config: dict[str, Any]) -> str:
    """docs/audit.md, from what was recorded."""
    cases = [row for row in rows if "mechanism" in row]
    lines = [INTRODUCTION, *(_line(row) for row in cases)]
    held, caught = (sum(row[word] for row in cases) for word in ("holds", "caught"))
    tests, flake = config["statistical_tests"], config["flake"]
    lines += [
        "",
        *_not_run(config.get("not_run", [])),
        f"{held} of {len(cases)} claims not refuted, {caught} of {len(cases)} twins caught, in "
        f"{sum(row['seconds'] for row in cases) / 60:.0f} minutes on one core. Confidence of each black-box "
        "row: 1 - 1e-9.",
        "",
        "The fast part runs in `make test`. Tests that draw random numbers state how likely it is that they "
        f"reject something correct; over the {tests} of them in the whole suite this adds up to {flake:.1e}, "
        f"and a test keeps it below {MOST:.0e}. Seeds are fixed, so a suite that passed passes again.",
        MEMBERSHIP,
    ]
    for row in rows:
        if "release" in row:
            low, high = row["interval"]
            verdict = "caught" if "published" in row["release"] else "within what ε allows"
            lines.append(
                f"| {row['release']} | {row['epsilon']:g} | {row['advantage']:.3f} | {low:.3f} to {high:.3f} "
                f"| {row['allowed']:.3f} | {verdict if row['good'] else '**look here**'} |"
            )
    sections = (
        (REACH, reach.table()),
        (MUTANTS, mutants.table()),
        (SOAK, soak.table()),
        (DAMAGE, damage.table()),
        (FUZZ, fuzz.table()),
    )
    lines += [line for text, table in sections if table for line in ("", text, "", *table)]
    return "\n".join([*lines, ""])


def _not_run(left: list[str]) -> list[str]:
    short = f"{len(left)} audits are too new to have a row, and run in `make test` only: {'; '.join(left)}."
    return [short, ""] if left else []


def _line(row: dict[str, Any]) -> str:
    claimed = f"{row['claimed']['epsilon']:g}"
    if row["claimed"]["delta"]:
        claimed += f", δ = {row['claimed']['delta']:g}"
    shows = "" if row["would_show"] is None else f"{row['would_show']:.2f}"
    verdict = "holds, twin caught" if row["good"] else "**look here**"
    runs = f"{row['runs']:,}" if row["runs"] else ""
    return (
        f"| {row['mechanism']} | {row['unit']} | {claimed} | {row['method']} | {runs} | {row['found']:.3f} "
        f"| {shows} | {row['twin']} | {_number(row['twin_found'])} | {verdict} |"
    )


def _number(value: float | None) -> str:
    return "∞" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()

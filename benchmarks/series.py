"""The scalar mechanisms on simulated and real series: what the figures of four papers claim, checked in words
and numbers, and which mechanism does best where.

``python -m benchmarks.series`` measures every part that has no result yet, ``python -m benchmarks.series fast
sip`` these parts anew; each prints its claims and writes ``benchmarks/results/series_<part>.json``. All of it
takes about fifteen minutes of one core; the pieces of a part are kept as they are finished, in
``unfinished_series_<part>.json``, and a run that was stopped goes on where it was. Real series come from
SYNTHGEO_DATA and from installed packages; what is not there is left out and named. A claim that begins with
"as printed" is the paper's own; where it does not hold, it is not reproduced.

Settings were chosen on these very series: FAST's constants after trying others on them (the part
``constants`` chooses them again with one series left out), and the process variances that the paper's filters
are given, which are orders of magnitude of a step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import synthgeo as sg
from benchmarks import _series_ar1, _series_choice, _series_fast, _series_sampling, _series_sip
from benchmarks._common import RESULTS, record, recorded
from benchmarks._series import Report, linear

S = sg.series


def speed(report: Report, runs: int) -> None:  # noqa: ARG001 - one shape for all
    """Updates a second; CPU time, since the machine may be shared."""
    values = linear(20_000).tolist()
    one, approximate = sg.PrivacyBudget(1.0), sg.PrivacyBudget(1.0, 1e-6)
    rows = []
    for label, count, mechanism in (
        ("FAST", 5000, S.FAST(budget=one, horizon=5000)),
        ("FAST Kalman", 20_000, S.FAST(budget=one, horizon=20_000, filter="kalman")),
        (
            "all samples",
            20_000,
            S.FAST.from_options(budget=one, horizon=20_000, filter="kalman", theta=1e-9, pace=0.0),
        ),
        ("FAST particle", 2000, S.FAST(budget=one, horizon=2000, filter="particle")),
        ("AR(1)", 2000, S.AR1Release(budget=approximate, horizon=2000)),
        ("absorption", 2000, S.BudgetAbsorption(budget=one, window=20)),
        ("counter", 5000, S.ContinualCounter(budget=one, horizon=5000)),
    ):  # fmt: skip
        start = time.process_time()
        for value in values[:count]:
            mechanism.update(value)
        took = time.process_time() - start
        rows.append({"mechanism": label, "updates": count, "seconds": took, "µs each": 1e6 * took / count})
    report.table("Speed of update(), CPU seconds (SystemNoise)", rows)
    report.claim(
        "an update of FAST takes under a millisecond, of FAST-Kalman under 0.02 ms",
        rows[0]["µs each"] < 1000 and max(rows[1]["µs each"], rows[2]["µs each"]) < 20,
        ", ".join(f"{row['mechanism']} {row['µs each']:.1f} µs" for row in rows),
    )


PARTS: dict[str, tuple[Callable[[Report, int], None], ...]] = {
    "fast": _series_fast.PIECES,
    "ar1": _series_ar1.PIECES,
    "sampling": _series_sampling.PIECES,
    "sip": _series_sip.PIECES,
    "choice": (_series_choice.compare,),
    "constants": (_series_choice.leave_one_out,),
    "speed": (speed,),
}


def measure(part: str, runs: int) -> None:
    """The pieces of a part, each kept when it is there; then all of them as one result."""
    file = f"unfinished_series_{part}"
    before = recorded(file)
    done: dict[str, Any] = before["results"] if before and before["config"]["runs"] == runs else {}
    for piece in PARTS[part]:
        if piece.__name__ in done:
            continue
        report, began = Report(), time.process_time()
        piece(report, runs)
        done[piece.__name__] = {**vars(report), "cpu_seconds": time.process_time() - began}
        record(file, {"runs": runs}, done)
    whole = Report()
    for found in done.values():
        whole.tables |= found["tables"]
        whole.claims += found["claims"]
        whole.left_out += found["left_out"]
    whole.record(part, {"runs": runs, "cpu_seconds": round(sum(f["cpu_seconds"] for f in done.values()))})
    (RESULTS / f"{file}.json").unlink()


def main() -> None:
    """Run the parts that are named, or those without a result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--runs", type=int, default=5, help="runs with different noise behind each number")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {min(unknown)!r}")
    for part in options.parts or [p for p in PARTS if not (RESULTS / f"series_{p}.json").exists()]:
        measure(part, options.runs)


if __name__ == "__main__":
    main()

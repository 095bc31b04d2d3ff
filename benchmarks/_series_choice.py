"""Which mechanism for which series: every promise that several mechanisms can keep, on eleven series; and the
constants of FAST chosen with one series left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import synthgeo as sg
from benchmarks._series import Maker, Report, Series, every_series, mean_of, relative_size

S = sg.series
DELTA = 1e-6
Columns = Callable[[Series, float], dict[str, Maker]]


def user(series: Series, epsilon: float) -> dict[str, Maker]:
    """A user who may be in every step, pure ε."""
    budget, length = sg.PrivacyBudget(epsilon), series.values.size
    over = {"budget": budget, "horizon": length}
    known = {**over, "process_variance": series.process_variance}
    return {
        "auto": lambda n: S.auto(**over, noise=n),
        "FAST, guess": lambda n: S.FAST.from_options(**known, noise=n),
        "LPA": lambda n: S.LPA(**over, noise=n),
        "Sampling 10": lambda n: S.Sampling(**over, interval=10, noise=n),
        "KF+PID": lambda n: S.FAST.from_options(**known, filter="kalman", noise=n),
        "DFT (offline)": lambda n: S.DFT(budget=budget, noise=n),
        "DFT, delay 20": lambda n: S.DFT(**over, coefficients=3, delay=20, noise=n),
    }


def user_with_delta(series: Series, epsilon: float) -> dict[str, Maker]:
    """The same with a δ."""
    over = {"budget": sg.PrivacyBudget(epsilon, DELTA), "horizon": series.values.size}
    return {
        "auto": lambda n: S.auto(**over, noise=n),
        "Gaussian": lambda n: S.Gaussian(**over, noise=n),
        "AR1, w = 0.5": lambda n: S.AR1Release.from_options(**over, noise=n),
        "DFT (offline)": lambda n: S.DFT(budget=over["budget"], noise=n),
    }


def few_steps(series: Series, epsilon: float) -> dict[str, Maker]:
    """A user who is in a tenth of the steps, with a δ."""
    steps = {"budget": sg.PrivacyBudget(epsilon, DELTA), "max_steps": series.values.size // 10}
    return {
        "auto": lambda n: S.auto(**steps, noise=n),
        "Gaussian": lambda n: S.Gaussian(**steps, noise=n),
        "subsampled (offline)": lambda n: S.SubsampledRelease(**steps, noise=n),
        "filtered (offline)": lambda n: S.FilteredRelease(**steps, noise=n),
        "DFT (offline)": lambda n: S.DFT(**steps, noise=n),
    }


def window(series: Series, epsilon: float) -> dict[str, Maker]:  # noqa: ARG001 - one shape for all
    """Everything within any 20 steps, pure ε."""
    over = {"budget": sg.PrivacyBudget(epsilon), "window": 20}
    return {
        "auto": lambda n: S.auto(**over, noise=n),
        "uniform": lambda n: S.Uniform(**over, noise=n),
        "sampling": lambda n: S.Sampling(**over, noise=n),
        "absorption": lambda n: S.BudgetAbsorption(**over, noise=n),
        "distribution": lambda n: S.BudgetDistribution(**over, noise=n),
    }


def event(series: Series, epsilon: float) -> dict[str, Maker]:
    """One event, pure ε."""
    budget = sg.PrivacyBudget(epsilon / 100)
    return {
        "auto": lambda n: S.auto(budget=budget, unit=sg.PrivacyUnit.event(), noise=n),
        "LPA": lambda n: S.LPA(budget=budget, max_steps=1, noise=n),
        "binary tree": lambda n: S.ContinualCounter(
            budget=budget, horizon=series.values.size, counter="binary", output="steps", noise=n
        ),
    }


PROMISES: dict[str, Columns] = {
    "a user in every step, pure ε": user,
    "a user in every step, δ = 1e-6": user_with_delta,
    "a user in a tenth of the steps, δ = 1e-6": few_steps,
    "any 20 steps, pure ε": window,
    "one event, pure ε (a hundredth of it)": event,
}


def compare(report: Report, runs: int) -> None:
    """Mean error over the mean value, of every mechanism that can keep a promise."""
    found = every_series(report)
    summary = []
    for promise, columns in PROMISES.items():
        rows: list[dict[str, Any]] = []
        for epsilon in (0.1, 1.0, 10.0):
            for name, series in found.items():
                row: dict[str, Any] = {"series": name, "epsilon": epsilon}
                for label, make in columns(series, epsilon).items():
                    row[label] = mean_of(relative_size, series.values, make, runs)
                rows.append(row)
        report.table(f"Which mechanism: {promise}", rows)
        labels = [label for label in rows[0] if label not in ("series", "epsilon", "auto", "FAST, guess")]
        online = [label for label in labels if "offline" not in label and "delay" not in label]
        ratios = {
            (r["series"], r["epsilon"]): r["auto"] / min(r["auto"], *(r[o] for o in online)) for r in rows
        }
        worst = max(ratios, key=ratios.__getitem__)
        means = {o: float(np.exp(np.mean([np.log(r[o] / r["auto"]) for r in rows]))) for o in labels}
        lost = {o: sum(r["auto"] > r[o] for r in rows) for o in labels}
        summary += [
            {
                "promise": promise,
                "mechanism": o,
                "times auto's error": means[o],
                "beats auto in": lost[o],
                "of": len(rows),
            }
            for o in labels
        ]
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        report.claim(
            f"auto is within 10 % of the best online mechanism in the geometric mean ({promise})",
            mean <= 1.1,
            f"mean {mean:.3f}, worst {ratios[worst]:.2f} ({worst[0]} at ε = {worst[1]:g})",
        )
    report.table("Every mechanism beside auto: mean of the ratio of errors, and how often it wins", summary)


#: The constants of FAST that were chosen by trying: where they are, and what else was tried.
CONSTANTS: dict[str, tuple[str, tuple[float, ...]]] = {
    "move expected at first": ("streams.scalar.fast._FIRST_MOVE", (0.1, 0.03, 0.3)),
    "decades around it": ("streams.scalar.fast._DECADES", (1.5, 1.0, 2.0)),
    "least samples": ("streams.scalar.fast._LEAST_SAMPLES", (4, 2, 8)),
    "share of a hidden first value": ("streams.scalar.fast._FIRST_SHARE", (0.1, 0.05, 0.2)),
    "noise that hides it": ("streams.scalar.fast._HIDDEN", (5.0, 2.0, 10.0)),
}


def leave_one_out(report: Report, runs: int) -> None:
    """Choose each constant on all series but one, and look at that one."""
    found = every_series(report, longest=504)
    metric = sg.series.metrics.relative_error
    rows = []
    simple: dict[tuple[str, float], float] = {}
    for name, series in found.items():
        for epsilon in (0.01, 0.1, 1.0):
            over = {"budget": sg.PrivacyBudget(epsilon), "horizon": series.values.size}
            known = {**over, "filter": "kalman", "sampling": 10, "process_variance": series.process_variance}
            simple[name, epsilon] = min(
                mean_of(metric, series.values, lambda n, o=over: S.LPA(**o, noise=n), runs),
                mean_of(metric, series.values, lambda n, o=known: S.FAST.from_options(**o, noise=n), runs),
            )
    for title, (where, values) in CONSTANTS.items():
        ratios: dict[float, dict[str, float]] = {value: {} for value in values}
        for value in values:
            with mock.patch(where, value):
                for name, series in found.items():
                    logs = []
                    for epsilon in (0.01, 0.1, 1.0):
                        over = {"budget": sg.PrivacyBudget(epsilon), "horizon": series.values.size}
                        ours = mean_of(
                            metric, series.values, lambda n, o=over: S.FAST.from_options(**o, noise=n), runs
                        )
                        logs.append(np.log(ours / simple[name, epsilon]))
                    ratios[value][name] = float(np.mean(logs))
        for name in found:
            others = {v: np.mean([r for n, r in ratios[v].items() if n != name]) for v in values}
            chosen = min(others, key=others.__getitem__)
            rows.append(
                {
                    "constant": title,
                    "left out": name,
                    "chosen on the others": chosen,
                    "ratio with it": float(np.exp(ratios[chosen][name])),
                    "with ours": float(np.exp(ratios[values[0]][name])),
                }
            )
    report.table("FAST's constants chosen with one series left out: ratio to the better of LPA and KF", rows)
    gains = [row["with ours"] / row["ratio with it"] for row in rows]
    report.claim(
        "the constants in use do as well on each series as those chosen without it (within 5 %)",
        max(gains) < 1.05 and min(gains) > 0.95,
        f"ratio of the errors {min(gains):.3f} to {max(gains):.3f}; "
        + ", ".join(
            f"{title}: {sum(r['chosen on the others'] == values[0] for r in rows if r['constant'] == title)} of {len(found)} choose {values[0]:g}"
            for title, (_, values) in CONSTANTS.items()
        ),
    )

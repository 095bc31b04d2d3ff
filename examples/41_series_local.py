"""No curator: each person perturbs their own on/off series before anybody sees it.

    python examples/41_series_local.py

A phone reports every quarter of an hour whether its owner is at home. Randomised response forgets that people
stay where they are; Sequence Information Privacy uses it, value by value or in batches. Prints how many
reports are wrong, and leaves examples/out/41_series_local.png.
"""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import numpy as np

import synthgeo as sg

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"

STAYS = [[0.95, 0.05], [0.1, 0.9]]  # public: how often people leave and come back
PRIOR = [0.4, 0.6]
STEPS = 96
PEOPLE = 3 if os.environ.get("SYNTHGEO_EXAMPLE_SIZE") == "small" else 20


def one_day(rng: np.random.Generator) -> list[int]:
    """A day of one person, from the model."""
    day = [int(rng.uniform() < PRIOR[1])]
    while len(day) < STEPS:
        day.append(int(rng.uniform() < STAYS[day[-1]][1]))
    return day


def main() -> None:
    rng = np.random.default_rng(11)
    days = [one_day(rng) for _ in range(PEOPLE)]
    rows = {}
    for each in (0.2, 0.5, 1.0):
        budget = sg.PrivacyBudget(each * STEPS)
        model = {"budget": budget, "horizon": STEPS, "prior": PRIOR, "transition": STAYS}
        wrong = {}
        for name, make in (
            ("randomised response", lambda b=budget: sg.series.RandomizedResponse(budget=b, horizon=STEPS)),
            ("SIP, at once", lambda m=model: sg.series.SIPInstant(**m)),
            ("SIP, hourly batches", lambda m=model: sg.series.SIPBatched(**m, batch=4)),
        ):
            wrong[name] = np.mean([np.mean(make().run(day) != np.array(day)) for day in days])
        rows[each] = wrong
        print(
            f"ε = {each:g} a report: "
            + ", ".join(f"{name} {share:.1%} wrong" for name, share in wrong.items())
        )
    sip = sg.series.SIPInstant(budget=sg.PrivacyBudget(1.0), horizon=STEPS, prior=PRIOR, transition=STAYS)
    print(sip.guarantee.describe())
    OUT.mkdir(exist_ok=True)
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, marker in zip(wrong, "osd", strict=True):
        axis.plot(list(rows), [100 * row[name] for row in rows.values()], f"{marker}-", label=name)
    axis.set(xlabel="ε a report", ylabel="reports that are wrong (%)", ylim=(0, None))
    axis.set_title("Good: low. At 50 % a report says nothing.", fontsize=9)
    axis.legend()
    figure.savefig(OUT / "41_series_local.png", dpi=110)
    print(f"ε = 1 of Sequence Information Privacy is {sip.local_epsilon:g} of local differential privacy")


if __name__ == "__main__":
    main()

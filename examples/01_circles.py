"""A stream whose mass moves: two circles with deletions, true and synthetic side by side.

    python examples/01_circles.py

Leaves examples/out/01_circles.png. The picture shows simulated "true" data; with real data it would be for
the curator only.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

import synthgeo as sg

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"


def main() -> None:
    events = sg.simulate.circles(steps=150, points=500, deletion=True, seed=7)
    stream = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(epsilon=1.0))
    looks = [10, 50, 100, 149]
    figure, axes = plt.subplots(
        2, len(looks), figsize=(14, 7), layout="constrained", sharex=True, sharey=True
    )
    for step, batch in events.groupby("step"):
        release = stream.update(batch)
        if step in looks:
            column = looks.index(step)
            so_far = events[events["step"] <= step]
            there = so_far.groupby(["x", "y"])["op"].sum()
            true = np.array(there[there > 0].index.to_list())
            release.plot(true=true, ax=axes[:, column])
    figure.suptitle(
        f"Points move from the outer to the inner circle; ε = {stream.budget.epsilon:g} for each event"
    )
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / "01_circles.png", dpi=110)
    release.to_parquet(OUT / "01_circles.parquet")
    print(release.cells.head())
    print(release.expected_error().to_string(index=False))
    print(f"wrote {OUT / '01_circles.png'}; no event paid more than {stream.costs['total'].max():g}")


if __name__ == "__main__":
    main()

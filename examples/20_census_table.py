"""A census table, released once, and questions that its model answers under conditions.

    python examples/20_census_table.py

The people are made up here; the schema is what a census office would publish before the first form comes
back. Leaves examples/out/20_census_table.png and .parquet; the picture shows the true table beside the
synthetic one, so with real people it would be for the curator only.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

import synthgeo as sg

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"


def people(count: int, seed: int) -> pd.DataFrame:
    """A private table: age, schooling, work and income that depend on each other, some incomes missing."""
    rng = np.random.default_rng(seed)
    age = rng.gamma(9, 5, count).clip(0, 99)
    school = np.where(age < 25, rng.integers(0, 3, count), rng.integers(1, 5, count))
    works = (age > 18) & (age < 67) & (rng.random(count) < 0.5 + 0.1 * school)
    income = np.where(works, rng.lognormal(9.6 + 0.2 * school, 0.5), rng.lognormal(8.5, 0.4)).clip(0, 200_000)
    income[rng.random(count) < 0.05] = np.nan
    levels = np.array(["none", "primary", "secondary", "bachelor", "master"], dtype=object)
    return pd.DataFrame({"age": age, "school": levels[school], "works": works, "income": income})


def main() -> None:
    private = people(30_000, seed=1)
    schema = sg.Schema(
        {
            "age": sg.Numeric(0, 100, bins=20),
            "school": sg.Ordinal(["none", "primary", "secondary", "bachelor", "master"]),
            "works": sg.Categorical([False, True]),
            "income": sg.Numeric(0, 200_000, bins=[0, 5e3, 1e4, 2e4, 3e4, 5e4, 1e5, 2e5], missing=True),
        },
        impossible=[{"age": (0, 15), "school": ["bachelor", "master"]}],
    )
    # The schema is public knowledge, so rows that contradict it are refused: here, made-up ones are
    # dropped first.
    private = private[~((private["age"] < 15) & private["school"].isin(["bachelor", "master"]))]

    model = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0, delta=1e-6)).fit(private)
    release = model.sample()
    print(release.data.head().to_string(index=False))
    print(f"{len(release.data)} synthetic rows; protects {release.provenance['unit']}, {release.spent}")

    young = model.sample(5_000, given={"age": (20, 35), "works": True}).data
    print("income of working people of 20 to 35, synthetic median:", round(young["income"].median(), -2))
    print(release.expected_error().to_string(index=False))

    OUT.mkdir(exist_ok=True)
    release.to_parquet(OUT / "20_census_table.parquet")
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for table, name, style in ((private, "true (curator only)", "-"), (release.data, "synthetic", "--")):
        axes[0].hist(table["age"], bins=np.arange(0, 101, 5), histtype="step", ls=style, label=name)
        working = table[table["works"]].groupby("school", observed=True)["income"].median()
        axes[1].plot(working.reindex(schema.columns["school"].values), f"o{style}", label=name)
    axes[0].set(xlabel="age (years)", ylabel="people")
    axes[1].set(xlabel="school", ylabel="median income of those who work")
    axes[0].legend()
    figure.supxlabel("Good: the dashed lines lie on the solid ones.", fontsize=9)
    figure.savefig(OUT / "20_census_table.png", dpi=110)


if __name__ == "__main__":
    main()

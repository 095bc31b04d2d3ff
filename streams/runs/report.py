"""The report of a durable run: what it spent, on which batch, when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from streams.runs.journal import Journal, budget_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.unit import PrivacyUnit


@dataclass(frozen=True)
class RunReport:
    """What a run spent, on which batch, when, and by which version and configuration. Public facts only.

    ``steps`` has a row for each batch; ``epsilon`` and ``delta`` are what that batch added to the stream's
    spend, ``epsilon_total`` and ``delta_total`` the spend after it. A stream that protects events has spent
    all of its ε with its first release and adds nothing later: every event is in one batch, and pays once.
    ``releasable`` is False where nothing of the run may be published (seeded noise, a baseline without a
    promise), and None where that is not known.
    """

    mechanism: str
    unit: PrivacyUnit
    budget: PrivacyBudget
    spent: PrivacyBudget | None
    created: str
    interrupted: int
    configuration: dict[str, Any]
    releasable: bool | None
    steps: pd.DataFrame

    @classmethod
    def of(cls, journal: Journal) -> RunReport:
        """The report of a run, from its journal."""
        facts, totals = journal.facts, journal.totals()
        names = ["number", "batch", "time", "epsilon", "delta", "release", "version"]
        rows = pd.DataFrame.from_records(map(tuple, journal.steps(*names)), columns=names)
        spends = np.diff(np.array(totals, dtype=np.float64).reshape(-1, 2), axis=0)
        table = pd.DataFrame(
            {
                "step": rows["number"],
                "batch": rows["batch"],
                "time": rows["time"],
                "epsilon": spends[:, 0],
                "delta": spends[:, 1],
                "epsilon_total": rows["epsilon"],
                "delta_total": rows["delta"],
                "release": "releases/" + rows["release"],
                "version": rows["version"],
            }
        )
        return cls(
            mechanism=facts["mechanism"],
            unit=PrivacyUnit.from_dict(facts["unit"]),
            budget=PrivacyBudget(**facts["budget"]),
            spent=budget_of(totals[-1]),
            created=facts["created"],
            interrupted=journal.interrupted(),
            configuration=journal.statement(),
            releasable=journal.releasable(),
            steps=table,
        )

    @property
    def why_not(self) -> str:
        """Why nothing of this run may be published."""
        return str(self.configuration.get("not_releasable_because", "made with seeded noise"))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "mechanism": self.mechanism,
            "unit": self.unit.describe(),
            "budget": self.budget.to_dict(),
            "spent": None if self.spent is None else self.spent.to_dict(),
            "created": self.created,
            "interrupted": self.interrupted,
            "configuration": self.configuration,
            "releasable": self.releasable,
            "steps": self.steps.to_dict(orient="records"),
        }

    def __str__(self) -> str:
        spent = "nothing" if self.spent is None else f"ε = {self.spent.epsilon:g}, δ = {self.spent.delta:g}"
        lines = [
            f"{self.mechanism}, protecting {self.unit.describe()}",
            f"spent {spent} of ε = {self.budget.epsilon:g}, δ = {self.budget.delta:g}",
            f"{len(self.steps)} steps",
            f"{self.interrupted} attempts were interrupted before anything was released",
        ]
        if self.releasable is False:
            lines.insert(0, f"DO NOT PUBLISH: {self.why_not}")
        if len(self.steps):
            lines.append(self.steps.to_string(index=False))
        return "\n".join(lines)

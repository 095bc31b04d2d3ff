"""What a durable run gives back of earlier steps: stored releases, and the report of the whole run."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd

from streams.runs.directory import ERROR_FILE
from streams.runs.journal import RunBook, budget_of
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.release import Release


class StoredRelease(Release):
    """A release read back from a run's directory. Parts (``data``, ``cells``, ...) load when asked for."""

    def __init__(
        self, *, step: int, spent: PrivacyBudget | None, provenance: dict[str, Any], folder: Path
    ) -> None:
        super().__init__(step=step, spent=spent, provenance=provenance)
        self.folder = folder

    @property
    def parts(self) -> tuple[str, ...]:
        """What the run stored of this release."""
        return tuple(sorted(path.stem for path in self.folder.glob("*.parquet")))

    def part(self, name: str) -> pd.DataFrame:
        """One stored part as a frame, with geometry where it has one."""
        if name not in self.parts:
            raise ConfigError(
                f"this run stores {', '.join(self.parts)}, not {name!r}; see parts= of StreamRun.open"
            )
        import pyarrow.parquet as pq

        path = self.folder / f"{name}.parquet"
        if b"geo" in (pq.read_schema(path).metadata or {}):
            import geopandas as gpd

            return gpd.read_parquet(path)
        return pd.read_parquet(path)

    def _build(self) -> pd.DataFrame:
        return self.part("data")

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The leaf cells with their released counts, where the run stores them."""
        return self.part("cells")

    @cached_property
    def changes(self) -> pd.DataFrame:
        """Synthetic inserts and deletes, where the run stores them."""
        return self.part("changes")

    def redraw(self, turn: int) -> Self:  # noqa: ARG002
        """Not possible: the files hold one synthetic dataset, not what it was drawn from."""
        raise ConfigError("a stored release is one dataset; draw again from the release that step returned")

    def expected_error(self) -> pd.DataFrame:
        """What the noise alone does to the released numbers, as it was stored with the release."""
        path = self.folder / ERROR_FILE
        if not path.exists():
            raise ConfigError("this release was stored without its expected error")
        return pd.DataFrame(**json.loads(path.read_text()))


@dataclass(frozen=True)
class RunReport:
    """What a run spent, on which batch, when, and by which version and configuration. Public facts only.

    ``steps`` has a row for each batch; ``epsilon`` and ``delta`` are what that batch added to the stream's
    spend, ``epsilon_total`` and ``delta_total`` the spend after it. A stream that protects events has spent
    all of its ε with its first release and adds nothing later: every event is in one batch, and pays once.
    """

    mechanism: str
    unit: PrivacyUnit
    budget: PrivacyBudget
    spent: PrivacyBudget | None
    created: str
    interrupted: int
    configuration: dict[str, Any]
    steps: pd.DataFrame

    @classmethod
    def of(cls, book: RunBook) -> RunReport:
        """The report of a run, from its ledger."""
        rows, totals, facts = book.steps(), book.totals(), book.facts
        spends = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(totals)]
        table = pd.DataFrame(
            {
                "step": [row["number"] for row in rows],
                "batch": [row["batch"] for row in rows],
                "time": [row["time"] for row in rows],
                "epsilon": [spend[0] for spend in spends],
                "delta": [spend[1] for spend in spends],
                "epsilon_total": [row["epsilon"] for row in rows],
                "delta_total": [row["delta"] for row in rows],
                "release": [f"releases/{row['release']}" for row in rows],
                "version": [row["version"] for row in rows],
            }
        )
        latest = rows[-1]["provenance"] if rows else None
        return cls(
            mechanism=facts["mechanism"],
            unit=PrivacyUnit.from_dict(facts["unit"]),
            budget=PrivacyBudget(**facts["budget"]),
            spent=budget_of(totals[-1]),
            created=facts["created"],
            interrupted=book.interrupted(),
            configuration=(json.loads(latest) if latest else facts["statement"]) or {},
            steps=table,
        )

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
        if len(self.steps):
            lines.append(self.steps.to_string(index=False))
        return "\n".join(lines)

"""Releases on disk: how a run writes what a step put out, and how it reads it back."""

from __future__ import annotations

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from streams.runs.journal import budget_of
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.release import Release

VALUE_FILE = "value.json"
ERROR_FILE = "expected_error.json"


class StoredRelease(Release):
    """A release read back from a run's directory. Parts (``data``, ``cells``, ...) load when asked for."""

    def __init__(
        self, *, step: int, spent: PrivacyBudget | None, provenance: dict[str, Any], folder: Path
    ) -> None:
        super().__init__(step=step, spent=spent, provenance=provenance)
        self.folder = folder
        self.product = _product_of(provenance)

    @property
    def layers(self) -> dict[str, pd.DataFrame]:
        """The stored dataset by name; trips have a row for each too, where the run stores that."""
        if self.product != "trips":
            return super().layers
        for name in ("trips", "lines"):
            if name in self.parts:
                return {"trips": self.part(name), "points": self.data}
        return {"points": self.data}

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


def _product_of(provenance: dict[str, Any]) -> str:
    """The kind of dataset, from what its statement says about it."""
    if "schema" in provenance:
        return "table"
    return "trips" if "shares" in provenance else "points"


def write_release(folder: Path, result: Any, parts: tuple[str, ...]) -> None:
    """Write what a step put out: Parquet for each part of a release, JSON for a number."""
    folder.mkdir(mode=0o700)
    if hasattr(result, "provenance"):
        from synthgeo.release import write_parquet, write_tables

        for part in parts:
            if part != "data" and not hasattr(result, part):
                raise ConfigError(f"a {type(result).__name__} has no {part!r} to store; choose other parts")
            path = folder / f"{part}.parquet"
            if part == "data":
                write_tables(result.tables(), path)
            else:
                write_parquet(getattr(result, part), path, result.provenance)
        errors = result.expected_error().to_dict(orient="split", index=False)
        (folder / ERROR_FILE).write_text(json.dumps(errors, indent=1) + "\n")
        return
    value = result.tolist() if isinstance(result, np.generic | np.ndarray) else result
    if isinstance(value, float) and math.isnan(value):
        value = {"nan": True}
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise ConfigError(
            f"a run cannot store what this stream releases: {type(result).__name__}"
        ) from problem
    (folder / VALUE_FILE).write_text(text + "\n")


def read_release(folder: Path, row: Any) -> Any:
    """What ``write_release`` wrote: a number, or a release with what the journal's ``row`` says of it."""
    if (folder / VALUE_FILE).exists():
        value = json.loads((folder / VALUE_FILE).read_text())
        return math.nan if value == {"nan": True} else value
    return StoredRelease(
        step=row["number"],
        spent=budget_of((row["epsilon"], row["delta"])),
        provenance=json.loads(row["provenance"]),
        folder=folder,
    )

"""What a run is asked, and what it answers; what it needs from outside: a ledger, a cluster, an answer."""

from __future__ import annotations

import json
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthgeo.errors import ConfigError, InputError
from synthgeo.release_file.arrivals import Cluster

if TYPE_CHECKING:
    from synthgeo.preflight import CheckReport
    from synthgeo.privacy.budget import PrivacyBudget
    from synthgeo.privacy.ledger import Ledger
    from synthgeo.release_file.file import ReleaseFile
    from synthgeo.sources.declared import Reading

Confirm = Callable[["CheckReport"], bool]
WITHDRAWN = "withdrawn.json"


def in_words(budget: PrivacyBudget | None) -> str:
    """A budget in words."""
    if budget is None:
        return "nothing"
    return f"ε = {budget.epsilon:g}" + (f", δ = {budget.delta:g}" if budget.delta else "")


@dataclass(frozen=True)
class Ran:
    """What a run did. ``why`` says why there was nothing to do, where nothing was new.

    ``late`` counts rows of windows that were released before they came: they are left out. It is private.
    """

    folder: Path
    new: int
    steps: int
    spent: PrivacyBudget | None
    releasable: bool | None
    why: str | None = None
    late: int = 0
    stopped: bool = False
    why_not: str | None = None

    def __str__(self) -> str:
        if self.why is not None:
            return self.why
        ending = "stopped on request: " if self.stopped else ""
        return f"{ending}{self.new} new, {self.steps} in all; spent {in_words(self.spent)}; {self.folder}"


class Never:
    """Nobody asks the run to stop."""

    def __bool__(self) -> bool:
        return False

    def wait(self, seconds: float) -> None:
        """Sleep."""
        clock.sleep(seconds)


@dataclass(frozen=True)
class Options:
    """How a run is made, beside what its file says."""

    confirm: Confirm | None = None
    check: bool = True
    watch: Path | None = None
    idle: float | None = None
    poll: float = 2.0
    settle: float = 2.0
    allow_repeat: bool = False
    allow_clock_back: bool = False
    stop: Any = field(default_factory=Never)
    tell: Callable[[dict[str, Any]], None] = lambda facts: None  # noqa: ARG005


@contextmanager
def ledger_of(file: ReleaseFile, *, read_only: bool = False) -> Iterator[Ledger | None]:
    """The dataset's ledger, which has to be there: making one needs a cap, which is a decision."""
    from synthgeo.privacy.ledger import Ledger

    if file.privacy.ledger is None:
        yield None
        return
    path = file.path_of(file.privacy.ledger)
    if not path.exists():
        raise file.error(
            ("privacy", "ledger"), f"there is no ledger {path}; make one with: synthgeo ledger create"
        )
    with Ledger.open(path, read_only=read_only) as ledger:
        yield ledger


def cluster_of(file: ReleaseFile) -> Cluster | None:
    """The cluster that [engine] names."""
    return Cluster.of(file.engine.scheduler, file.engine.spark, file.engine.timeout)


def looks(reading: Reading, options: Options) -> bool:
    """Whether the data are looked at before a first release: not where nobody could answer what is found."""
    return options.check and (options.confirm is not None or not reading.unattended)


def confirmed(report: CheckReport, confirm: Confirm | None) -> None:
    """Go on where there is no problem, or where somebody says so; ``InputError`` otherwise."""
    if report.ok:
        return
    if confirm is None:
        report.require()
    elif not confirm(report):
        raise InputError("stopped before anything was spent")


def withdrawn(file: ReleaseFile) -> str | None:
    """When and why a release was withdrawn; None for one that stands."""
    path = file.folder / WITHDRAWN
    if not path.exists():
        return None
    facts = json.loads(path.read_text(encoding="utf-8"))
    return f"withdrawn on {facts['withdrawn']}: {facts['reason']}"


def check_standing(file: ReleaseFile) -> None:
    """``ConfigError`` for a release that was withdrawn."""
    found = withdrawn(file)
    if found is not None:
        raise ConfigError(f"{found}; what it spent stays spent, and another folder makes another release")

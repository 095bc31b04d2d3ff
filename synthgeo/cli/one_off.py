"""What ``table fit`` and ``trips fit`` share: the plan, the last words of a fit and of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from synthgeo.cli.output import emit, say, show_facts, words
from synthgeo.errors import ConfigError


def show_plan(synthesizer: Any, files: Sequence[Any], *, as_json: bool, **facts: Any) -> None:
    """What a fit would read and spend. Nothing private is read for it."""
    ledger = synthesizer.ledger
    plan = {
        "files": [str(file) for file in files],
        **facts,
        "would spend": words(synthesizer.budget),
        "protects": synthesizer.unit.describe(),
        "ledger left": None if ledger is None else words(ledger.remaining),
    }
    if as_json:
        emit({"plan": plan | {"budget": synthesizer.budget.to_dict()}})
    else:
        show_facts("would fit", plan)


def check_out(out: Path | None) -> Path:
    """The file for the model: asked for before anything is spent."""
    if out is None:
        raise ConfigError("give --out, the file for the model")
    return out


def save(synthesizer: Any, out: Path, *, as_json: bool) -> None:
    """Write the fitted model and say what it cost."""
    synthesizer.save(out)
    budget = synthesizer.budget
    facts = {"model": str(out), "spent": budget.to_dict(), "protects": synthesizer.unit.describe()}
    if as_json:
        emit(facts)
    else:
        show_facts("fitted", facts | {"spent": words(budget)})


def show_sample(out: Path, *, releasable: bool, as_json: bool, **facts: Any) -> None:
    """Say what was written, and whether it may be published."""
    shown = {"written": str(out), **facts, "releasable": releasable}
    if as_json:
        emit(shown)
    else:
        show_facts("sampled", shown)
    if not releasable:
        say("warning: made with seeded noise; do not publish this")

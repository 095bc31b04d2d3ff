"""What commands share that spend once: the plan, the file to write, the last words of a fit and a sample."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli.output import emit, say, show_facts, warn_not_publishable, words
from synthgeo.errors import ConfigError
from synthgeo.release_file.once import DELIVERED, fit_kept

SEEDED = "made with seeded noise, which anybody who knows the seed can subtract"
Force = Annotated[bool, typer.Option("--force", help="Replace the file that --out names.")]


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


def check_out(
    out: Path | None, *, force: bool, what: str = "model", option: str = "--out", paid: bool = True
) -> Path:
    """The file to write, asked for and tried before anything is spent.

    What is there is not replaced without ``force``: a model was ``paid`` for.
    """
    if out is None:
        raise ConfigError(f"give {option}, the file for the {what}")
    if out.is_dir():
        raise ConfigError(f"{option}: {out} is a folder; give the file to write")
    if out.exists() and not force:
        why = ", and may have been paid for" if paid else ""
        raise ConfigError(f"{option}: {out} exists already{why}; --force replaces it")
    try:
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as problem:
        raise ConfigError(f"{option}: cannot write to {out.parent}: {problem.strerror}") from None
    return out


def fit_and_save(synthesizer: Any, out: Path, fit: Callable[[], Any], *, as_json: bool) -> None:
    """Fit, write the model and say what it cost."""
    if not fit_kept(synthesizer, out, fit):
        say(f"{out}: {DELIVERED}")
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
        warn_not_publishable()

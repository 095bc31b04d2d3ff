"""What commands share that spend once: the plan, the file to write, the last words of a fit and a sample."""

from __future__ import annotations

import glob
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli.output import emit, say, show_facts, warn_not_publishable, words
from synthgeo.errors import ConfigError, StateError

SEEDED = "made with seeded noise, which anybody who knows the seed can subtract"
_FORGOTTEN_SECONDS = 3600.0
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
    """Fit, write the model and say what it cost.

    With a ledger, the model is on disk before the ledger commits the fit, and gets its name then. When a
    command was killed in between, the same command again delivers what was committed, or fits on the same
    charge.
    """
    ledger = synthesizer.ledger
    if ledger is None:
        fit()
        _save(synthesizer, out)
    elif delivered(ledger, out, synthesizer.budget, synthesizer.unit):
        say(f"{out}: the model of a fit that was interrupted after it was paid for; nothing was fitted now")
    else:
        stored: list[Path] = []

        def store(key: str) -> None:
            stored.append(waiting(out, key))
            try:
                synthesizer.save(stored[0])
            except OSError as problem:
                raise StateError(
                    f"{out}: {problem.strerror}; nothing was released: the same command, when there is room, "
                    "costs nothing more"
                ) from problem

        synthesizer.before_commit = store
        fit()
        stored[0].replace(out)
    budget = synthesizer.budget
    facts = {"model": str(out), "spent": budget.to_dict(), "protects": synthesizer.unit.describe()}
    if as_json:
        emit(facts)
    else:
        show_facts("fitted", facts | {"spent": words(budget)})


def waiting(out: Path, key: str) -> Path:
    """Where a result waits until the ledger commits it."""
    return out.with_name(f".{out.name}.{key}.paid")


def delivered(ledger: Any, out: Path, budget: Any, unit: Any) -> bool:
    """Give a result its name that a killed command left after it was committed; whether there was one."""
    for path in out.parent.glob(f".{glob.escape(out.name)}.*.paid"):
        key = path.name[len(out.name) + 2 : -len(".paid")]
        if not ledger.last_step(key):  # never committed: nobody may see it
            if time.time() - path.stat().st_mtime > _FORGOTTEN_SECONDS:
                path.unlink()
            continue
        entry = ledger.find(key)
        if (entry.budget, entry.unit) != (budget, unit):
            raise ConfigError(f"{path} was paid for by another command that was interrupted: move it away")
        path.replace(out)
        return True
    return False


def _save(synthesizer: Any, out: Path) -> None:
    """Write a model; if that cannot be where it should, it is put where that is possible."""
    try:
        synthesizer.save(out)
    except (OSError, KeyboardInterrupt) as problem:
        reason = getattr(problem, "strerror", None) or "interrupted"
        raise StateError(f"{out}: {reason}; {_rescued(synthesizer, out)}") from problem


def _rescued(synthesizer: Any, out: Path) -> str:
    """Put a model that is paid for in some folder that takes it; where it is, in words."""
    name = f"rescued-{secrets.token_hex(4)}-{out.name}"
    in_memory = Path("/dev/shm")  # noqa: S108  the last resort; files there are 0600 too
    for folder in (out.parent, Path.cwd(), Path.home(), Path(tempfile.gettempdir()), in_memory):
        with suppress(OSError, RuntimeError):
            synthesizer.save(folder / name)
            return f"the model, which is paid for, is in {(folder / name).resolve()}: move it to a safe place"
    return "the model, which is paid for, could not be written anywhere and is lost"


def show_sample(out: Path, *, releasable: bool, as_json: bool, **facts: Any) -> None:
    """Say what was written, and whether it may be published."""
    shown = {"written": str(out), **facts, "releasable": releasable}
    if as_json:
        emit(shown)
    else:
        show_facts("sampled", shown)
    if not releasable:
        warn_not_publishable()

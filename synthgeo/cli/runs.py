"""Durable runs from the command line: the loop over batches, the plan, status and verification."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthgeo.cli.batches import Arrivals, Stop, connect
from synthgeo.cli.output import emit, say, show_facts, show_table, words
from synthgeo.errors import ConfigError
from synthgeo.progress import track

if TYPE_CHECKING:
    from streams.runs.stored import RunReport


def go_on(
    directory: Path,
    stream: Any,
    arrivals: Arrivals,
    *,
    ledger: Any,
    as_json: bool,
    parts: tuple[str, ...] | None = None,
) -> None:
    """Open the run, or begin it with ``stream``, and give it every batch; a signal ends it between steps."""
    if peek(directory) is None:
        _check_columns(stream, arrivals)
    from streams.runs.run import StreamRun

    stop, client = Stop(), connect(arrivals.scheduler)
    try:
        with StreamRun.open(directory, stream, parts=parts, ledger=ledger) as run:
            _run_batches(run, arrivals, stop, as_json=as_json)
    finally:
        stop.restore()
        if client is not None:
            client.close()


def _run_batches(run: Any, arrivals: Arrivals, stop: Stop, *, as_json: bool) -> None:
    done, known = 0, set(run.batches)
    batches = arrivals.batches(stop, run.batches)
    shown = None if not as_json else False
    for batch in track(batches, label="batches", total=arrivals.total, enabled=shown):
        if stop:
            break
        release = run.step(batch.name, batch.data, content_hash=batch.content_hash)
        repeated = batch.name in known
        done += not repeated
        step = run.batches.index(batch.name) + 1 if repeated else run.steps
        if as_json:
            facts = {"batch": batch.name, "step": step, "repeated": repeated}
            emit(facts | {"releasable": bool(getattr(release, "releasable", True))})
        elif repeated:
            say(f"{batch.name}: done before, as step {step}")
        else:
            say(f"{batch.name}: step {step}")
        if stop:
            break
    ending = "stopped on request" if stop else "done"
    say(f"{ending}: {done} new of {run.steps} steps, spent {words(run.spent)}; {run.directory}")


def _check_columns(stream: Any, arrivals: Arrivals) -> None:
    """Refuse wrong column names before a new run fixes its settings and charges its ledger."""
    from synthgeo.sources import open_source

    for file in arrivals.files[:1]:
        source = open_source(str(file))
        stream.check_columns(source)
        source.require([name for name in (arrivals.time,) if name is not None])


def peek(directory: Path) -> RunReport | None:
    """The report of a run, also while another process works on it; None where there is no run."""
    from streams.runs.directory import RunDirectory
    from streams.runs.journal import RunBook
    from streams.runs.stored import RunReport

    path = RunDirectory(directory).ledger
    if not path.exists():
        return None
    book = RunBook(path)
    try:
        return RunReport.of(book)
    finally:
        book.close()


def show_plan(
    directory: Path, facts: dict[str, Any], names: list[str], ledger: Any, *, as_json: bool
) -> None:
    """What a run would do and spend. Nothing private is read for it."""
    report = peek(directory)
    done = [] if report is None else list(report.steps["batch"])
    waiting = [name for name in names if name not in set(done)]
    plan = {
        "run": str(directory),
        "exists": report is not None,
        "steps_done": len(done),
        "spent": None if report is None or report.spent is None else report.spent.to_dict(),
        "batches": waiting,
        **facts,
    }
    if ledger is not None:
        left = ledger.remaining
        plan["ledger"] = {"dataset": ledger.dataset, "left": None if left is None else left.to_dict()}
    if as_json:
        emit({"plan": plan})
        return
    shown = plan | {"spent": words(None if report is None else report.spent), "batches": len(waiting)}
    show_facts("would run (nothing is read, nothing is spent)", shown)
    for name in waiting[:20]:
        print(f"    {name}")
    if len(waiting) > 20:
        print(f"    ... and {len(waiting) - 20} more")


def show_status(directory: Path, *, as_json: bool) -> None:
    """What a run has spent on which batch, when."""
    report = peek(directory)
    if report is None:
        raise ConfigError(f"there is no run in {directory}")
    if as_json:
        emit(report.to_dict())
        return
    show_facts(
        f"{report.mechanism} in {directory}",
        {
            "protects": report.unit.describe(),
            "spent": f"{words(report.spent)} of {words(report.budget)}",
            "steps": len(report.steps),
            "interrupted": report.interrupted,
            "created": report.created,
        },
    )
    if len(report.steps):
        columns = ["step", "batch", "time", "epsilon", "epsilon_total", "release"]
        show_table(columns, report.steps[columns].itertuples(index=False))


def verify(directory: Path, *, as_json: bool) -> None:
    """Check every release on disk against the ledger."""
    from streams.runs.run import StreamRun

    with StreamRun.open(directory) as run:
        count = run.verify()
    if as_json:
        emit({"run": str(directory), "releases": count, "verified": True})
    else:
        print(f"{directory}: {count} releases, all as the ledger remembers them")

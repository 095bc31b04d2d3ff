"""Durable runs from the command line: the loop over batches, the plan, status and verification."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from synthgeo.cli import check
from synthgeo.cli.batches import Arrivals
from synthgeo.cli.held import held
from synthgeo.cli.options import given, lifetime_of
from synthgeo.cli.output import emit, say, show_facts, show_table, warn_not_publishable, words
from synthgeo.cli.plan import planned
from synthgeo.cli.reading import OPTIONS
from synthgeo.errors import ConfigError, LedgerError
from synthgeo.progress import track
from synthgeo.release_file.arrivals import Stop, connected, read

if TYPE_CHECKING:
    from streams.runs.view import RunView


def look(directory: Path) -> RunView | None:
    """A run to look at, also while another process works on it; None where there is no run."""
    from streams.runs.run import StreamRun

    return held(StreamRun.view(directory)) if (directory / "ledger.sqlite").exists() else None


_NEWEST = 1000  # releases whose files a quick check reads
SETTINGS = {
    "epsilon",
    "delta",
    "user",
    "max_events",
    "per",
    "lifetime",
    "inserted",
    "times",
    "times_share",
    "no_borrow",
    "no_deletions",
    "counter",
    "schedule",
    "seed",
    *OPTIONS,
}


def common_options(stream: Any) -> dict[str, Any]:
    """The options that a stream of any kind was made with."""
    return {
        "epsilon": stream.budget.epsilon,
        "delta": stream.budget.delta,
        "user": stream.unit.key,
        "max_events": stream.unit.max_contributions if stream.unit.is_user else None,
        "per": stream.unit.per,
        "lifetime": stream.lifetime,
        "inserted": stream.columns.inserted,
        "times": stream.times,
        "times_share": getattr(stream.settings, "times_share", None),
        "no_borrow": getattr(stream.settings, "borrow", None) is False,
        "no_deletions": not stream.deletions,
        "counter": getattr(stream.settings, "counter", None),
        "schedule": getattr(stream.settings, "schedule", None),
        "noise": stream.noise,
        "reading": stream.reading,
    }


def borrow_of(no_borrow: bool) -> str | bool:
    """What a stream is told about borrowing from the past."""
    return False if no_borrow else "auto"


class RunSettings:
    """The options that a run is to have: those that are given and, where it exists, its own for the others.

    ``run`` is the run that exists, to look at, or None. It has to agree with what is given, which
    ``StreamRun.open`` compares.
    """

    def __init__(
        self,
        context: typer.Context,
        directory: Path,
        mechanism: str,
        options_of: Callable[[Any], dict[str, Any]],
    ) -> None:
        self._given = given(context)
        self.run = look(directory)
        self._mechanism = mechanism
        self._options_of = options_of

    @cached_property
    def known(self) -> dict[str, Any]:
        """The options of the run that exists."""
        assert self.run is not None
        if self.run.mechanism != self._mechanism:
            raise LedgerError(
                f"{self.run.directory} is a run of {self.run.mechanism}, whose settings are others; "
                "it goes on without options"
            )
        return self._options_of(self.run.stream())

    def kept(self, names: set[str]) -> bool:
        """Whether the run has its own values for these options and none is given."""
        return self.run is not None and not self._given & names

    def needed(self, names: set[str]) -> bool:
        """Whether there is anything to be made of these options: a new run, or one to compare with."""
        return not self.kept(names)

    def __call__(self, name: str, value: Any) -> Any:
        return self.known[name] if self.kept({name}) else value

    def lifetime(self, value: str | None, arrivals: Arrivals) -> int | None:
        """The lifetime in steps; a time is counted in the windows that the run has or will have."""
        every = arrivals.every
        if every is None and self.run is not None:
            every = self.run.remembered.get("batches", {}).get("every")
        return lifetime_of(self("lifetime", value), every)

    def reading(self, declared: Any) -> Any:
        """How text is read: as the run remembers, but for what is given."""
        if self.run is None:
            return declared
        given = {name: getattr(declared, name) for name in OPTIONS if name in self._given}
        return self.known["reading"].but(**given)


def go_on(
    directory: Path,
    before: RunView | None,
    stream: Any,
    arrivals: Arrivals,
    *,
    ledger: Any,
    as_json: bool,
    parts: tuple[str, ...] | None = None,
    allow_repeat: bool = False,
    allow_clock_back: bool = False,
    no_check: bool = False,
) -> None:
    """Open the run, or begin it with ``stream``, and give it every batch; a signal ends it between steps.

    ``before`` is the run as it is, if it exists.
    """
    from streams.runs.run import StreamRun

    if planned(stream if before is None or stream is not None else before.stream(), as_json=as_json):
        return
    if check.only():
        cut = arrivals if before is None else arrivals.as_before(before)
        made = before.stream() if stream is None and before is not None else stream
        check.show(_report(made, cut, all_files=True), as_json=as_json)
        return
    if before is None:
        _check_rows(stream, arrivals, no_check=no_check)
    else:
        arrivals = arrivals.as_before(before)
        if not no_check:
            _check_further_files(before.stream(), arrivals)
        before.close()
    stop = Stop()
    try:
        with (
            connected(arrivals.cluster),
            StreamRun.open(
                directory,
                stream,
                parts=parts,
                ledger=ledger,
                allow_clock_back=allow_clock_back,
                remember={"batches": arrivals.facts()},
            ) as run,
        ):
            _run_batches(run, arrivals, stop, as_json=as_json, allow_repeat=allow_repeat)
    finally:
        stop.restore()


def _run_batches(run: Any, arrivals: Arrivals, stop: Stop, *, as_json: bool, allow_repeat: bool) -> None:
    done = 0
    shown = None if not as_json else False
    for batch in track(arrivals.batches(stop, run), label="batches", total=arrivals.total, enabled=shown):
        if stop:
            break
        repeated = run.knows(batch.name, batch.data)
        if not repeated:
            run.step(batch.name, batch.data, allow_repeat=allow_repeat)
            done += 1
        step = run.step_of(batch.name)
        if as_json:
            facts = {"batch": batch.name, "step": step, "repeated": repeated}
            emit(facts | {"releasable": run.releasable is not False})
        else:
            say(f"{batch.name}: " + (f"done before, as step {step}" if repeated else f"step {step}"))
        unattended = run.reading is not None and run.reading.unattended
        if not repeated and not unattended and _is_empty_file(run, batch.data):
            say(f"{batch.name}: the file is empty; it is a step all the same, as skipping it would tell")
        if stop:
            break
    ending = "stopped on request" if stop else "done"
    say(f"{ending}: {done} new of {run.steps} steps, spent {words(run.spent)}; {run.directory}")
    if run.releasable is False:
        warn_not_publishable(run.why_not)


def _is_empty_file(run: Any, data: Any) -> bool:
    """Whether a batch is a file without rows. Windows are not looked at: that would read them once more."""
    from synthgeo.sources import open_source

    if not isinstance(data, Path):
        return False
    source = open_source(str(data), reading=run.reading)
    return all(chunk.rows == 0 for chunk in islice(source.chunks(source.columns[:1]), 1))


def _check_rows(stream: Any, arrivals: Arrivals, *, no_check: bool) -> None:
    """Refuse wrong names and bad rows before a new run fixes its settings and is charged; ask about others.

    Files on a cluster are not read here, and those of a watched folder have not come.
    """
    from synthgeo.sources import open_source

    sources = [open_source(str(file), reading=stream.reading) for file in arrivals.files]
    for source in sources:
        stream.check_columns(source)
        source.require([name for name in (arrivals.time, arrivals.wave) if name is not None])
    if arrivals.cluster is not None or not sources:
        return
    skip = check.skipped(stream.reading, no_check=no_check)
    report = None if skip else _report(stream, arrivals, all_files=False)
    if skip and not no_check:
        _check_further_files(stream, arrivals)
    if report is None or not report.ok:
        for source in sources:
            stream.check_rows(source, time=arrivals.time)
    if report is not None:
        check.ask(report)


def _check_further_files(stream: Any, arrivals: Arrivals) -> None:
    """Look for files that repeat, where windows are cut out of all of them: a row that is in two files is in
    one window twice. Attended use is refused, and unattended use tells the curator.
    """
    from synthgeo.preflight import repeated_files
    from synthgeo.sources import open_source

    if arrivals.time is None or arrivals.cluster is not None or len(arrivals.files) < 2:
        return
    kinds = stream.kinds(open_source(str(arrivals.files[0]), reading=stream.reading))
    kinds = {**kinds, arrivals.time: "time"}
    for finding in repeated_files(arrivals.files, kinds, stream.reading):
        if finding.level == "problem":
            stream.reading.remark(f"{finding.text} (--no-check takes them as they are)")


def _report(stream: Any, arrivals: Arrivals, *, all_files: bool) -> Any:
    """What does not fit. A run finds batches that repeat by itself, so files are compared for ``all_files``,
    for windows, in which a row may come twice at once, and of a panel, of which each may be a wave.
    """
    files = [str(file) for file in arrivals.files]
    if not files:
        raise ConfigError("check needs input files; those of a watched folder have not come")
    apart = all_files or arrivals.time is not None or getattr(stream, "same_persons", False)
    data = files if apart else read(arrivals.files, None, stream.reading)
    if arrivals.wave is not None:
        return stream.check(data, wave=arrivals.wave, names=arrivals.waves)
    windows = {name: getattr(arrivals, name) for name in ("time", "every", "start", "end")}
    return stream.check(data, **windows)


def show_plan(
    directory: Path,
    run: RunView | None,
    facts: dict[str, Any],
    arrivals: Arrivals,
    ledger: Any,
    *,
    as_json: bool,
) -> None:
    """What a run would do and spend. Nothing private is read for it."""
    names = (arrivals if run is None else arrivals.as_before(run)).planned()
    done: set[str] = set() if run is None else set(run.batches)
    spent = None if run is None else run.spent
    waiting = [name for name in names if name not in done]
    plan = {
        "run": str(directory),
        "exists": run is not None,
        "steps_done": len(done),
        "spent": None if spent is None else spent.to_dict(),
        "batches": waiting,
        **facts,
    }
    if ledger is not None:
        left = ledger.remaining
        plan["ledger"] = {"dataset": ledger.dataset, "left": None if left is None else left.to_dict()}
    if as_json:
        emit({"plan": plan})
        return
    shown = plan | {"spent": words(spent), "batches": len(waiting)}
    show_facts("would run (nothing is read, nothing is spent)", shown)
    for name in waiting[:20]:
        print(f"    {name}")
    if len(waiting) > 20:
        print(f"    ... and {len(waiting) - 20} more")


def show_status(directory: Path, *, last: int, as_json: bool) -> None:
    """What a run has spent on which batch, when."""
    from streams.runs.run import StreamRun

    with StreamRun.view(directory) as run:
        report, remarks = run.report(), run.remarks
    if as_json:
        emit(report.to_dict() | ({"for_the_curator_only": remarks} if remarks else {}))
        return
    show_facts(
        f"{report.mechanism} in {directory}",
        {
            "protects": report.unit.describe(),
            "spent": f"{words(report.spent)} of {words(report.budget)}",
            "steps": len(report.steps),
            "interrupted": report.interrupted,
            "created": report.created,
            "may be published": {True: "yes", False: "NO", None: "not known"}[report.releasable],
        },
    )
    if report.releasable is False:
        warn_not_publishable(report.why_not)
    columns = ["step", "batch", "time", "epsilon", "epsilon_total", "release"]
    shown = report.steps[columns].tail(last or len(report.steps))
    if len(shown) < len(report.steps):
        print(f"  the last {len(shown)} of them:")
    if len(shown):
        show_table(columns, shown.itertuples(index=False))
    if remarks:
        print("  for the curator only, what unattended steps saw in their batches:")
    for batch, texts in list(remarks.items())[-(last or len(remarks)) :]:
        print(f"    {batch}: {'; '.join(texts)}")


def verify(directory: Path, *, deep: bool, as_json: bool) -> None:
    """Check a run's ledger, state and releases."""
    from streams.runs.run import StreamRun

    with StreamRun.view(directory) as run:
        count = run.verify(newest=None if deep else _NEWEST)
    if as_json:
        emit({"run": str(directory), "releases": count, "verified": True, "read": count if deep else _NEWEST})
    elif deep or count <= _NEWEST:
        print(f"{directory}: {count} releases, all as the ledger remembers them")
    else:
        print(f"{directory}: {count} releases, all there; the last {_NEWEST} were read (--deep reads all)")


def compact(directory: Path, keep_every: int, *, as_json: bool) -> None:
    """Remove stored releases but for every so many."""
    from streams.runs.run import StreamRun

    with StreamRun.open(directory) as run:
        removed = run.compact(keep_every=keep_every)
        steps = run.steps
    if as_json:
        emit({"run": str(directory), "steps": steps, "removed": removed})
    else:
        print(f"{directory}: {removed} releases removed; all {steps} steps stay in the ledger")

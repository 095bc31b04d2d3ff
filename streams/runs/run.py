"""Durable runs: a stream that survives crashes without noising a batch twice or forgetting what it spent.

**The protocol.** The stream lives in the run; after each step its state is a file. One step is

    1  intent    the ledger records which batch is about to be taken (one transaction)
    2  compute   the stream takes the batch, in memory
    3  write     release, then state, to ``pending/``; every file and folder is synced
    4  decide    the ledger records the step: spend, hashes of the files (one transaction): the commit
    5  publish   state, then release, are renamed to their places; folders are synced
    6  finish    the ledger marks the step done; the old state is removed

The decision comes before anything is visible: until 4 is on disk the release exists only in memory and in
``pending/``. Steps 5 and 6 add nothing that could be decided otherwise, so they can be repeated. That is why
a redo is sound: with fresh noise, a second answer to the same batch would be a second release, but the first
one was never seen by anybody, and it is deleted first.

| killed | found when reopened | what is done |
|---|---|---|
| during creation | no ledger | creation starts again |
| before 1 | nothing new | nothing |
| between 1 and 4 | an intent, perhaps pending files | files deleted, intent marked undone: give it again |
| during 4 | SQLite keeps all of a transaction or none of it | the row above, or the row below |
| between 4 and 5, during 5 | the decision; files pending or in place | hashes checked, files moved |
| between 5 and 6 | all but the mark | hashes checked, mark set |

With seeded noise the generator is part of the state, so a redo repeats the same draws, and a run with any
number of crashes ends in the same bytes as one without.

**It fails closed.** A state file that is not the one the ledger remembers, a ledger whose chain of hashes is
broken, a state or release newer than the ledger's last step (a ledger that lost its end): each is a
``StateError`` on opening, and the run does not go on. There is no way to go on from an older state, since
that would answer batches twice.

What it cannot see: a whole directory restored from an older copy. Keep one copy of a run, and back it up to
be read, not to be resumed.
"""

from __future__ import annotations

import hmac
import json
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from streams.runs.directory import (
    VALUE_FILE,
    RunDirectory,
    hashes_of,
    make_durable,
    read_value,
    write_release,
)
from streams.runs.journal import RunBook, budget_of, numbers_of
from streams.runs.protocol import Stream, check_parts, check_stream, class_of, marks_of
from synthgeo.errors import BudgetExhausted, ConfigError, InputError, LedgerError, StateError, SynthGeoError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources.fingerprint import content_hash as fingerprint
from synthgeo.sources.fingerprint import file_hash

if TYPE_CHECKING:
    from streams.runs.stored import RunReport
    from synthgeo.privacy.ledger import Ledger

_ROUNDING = 1 - 1e-12  # of sums of many small spends


class StreamRun:
    """A stream with a directory: every step is recorded, crash-safe and done once.

    Open one with ``StreamRun.open``.

    Guarantee
    ---------
    That of the stream, kept over crashes: each batch is answered once, nothing is visible before its spend is
    on disk, and the state that a release came from is never used for another batch. The module's docstring
    has the protocol.
    """

    def __init__(
        self, folder: RunDirectory, book: RunBook, made: type[Any], *, allow_clock_back: bool
    ) -> None:
        self._folder = folder
        self._book = book
        self._class = made
        self._allow_clock_back = allow_clock_back
        self._pid = os.getpid()
        self._usable = True
        self._clean = True  # False while the stream in memory may be ahead of the one on disk
        self._parts = tuple(book.facts["parts"])
        self.mechanism: str = book.facts["mechanism"]
        self.budget = PrivacyBudget(**book.facts["budget"])
        self.unit = PrivacyUnit.from_dict(book.facts["unit"])
        self._stream: Stream = self._recover("undone")

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        stream: Any = None,
        *,
        parts: tuple[str, ...] | None = None,
        ledger: Ledger | None = None,
        allow_clock_back: bool = False,
    ) -> Self:
        """Start a run with ``stream``, or go on with the run that is there.

        The run works on a copy: ``stream`` itself stays as it is. To go on, give a fresh stream with the same
        settings (checked), or none for the toolkit's own streams. ``parts`` says what to store of each
        release ("data", "cells", "changes"; default: data). ``ledger`` (or the stream's own) is charged the
        stream's whole budget, once in the run's life.
        """
        folder = RunDirectory(directory)
        if parts is not None:
            check_parts(parts)
        if stream is not None:
            check_stream(stream)
        elif not folder.ledger.exists():
            raise ConfigError(f"there is no run in {folder.path}: give the stream to start one")
        folder.prepare()
        folder.lock()
        book: RunBook | None = None
        unpaid = False
        try:
            fresh = not folder.ledger.exists()
            if fresh:
                _create(folder, stream, parts or ("data",))
            book = RunBook(folder.ledger)
            made = class_of(book.facts["mechanism"]) if stream is None else type(stream)
            if made.__name__ != book.facts["mechanism"]:
                raise LedgerError(
                    f"{folder.path} is a run of {book.facts['mechanism']}, not of {made.__name__}"
                )
            if parts is not None and list(parts) != book.facts["parts"]:
                raise LedgerError(f"{folder.path} stores {book.facts['parts']}, not {list(parts)}")
            run = cls(folder, book, made, allow_clock_back=allow_clock_back)
            if stream is not None:
                run._check_settings(stream)
            # The copy that runs knows no ledger, so the run charges the one that the stream was given.
            ledger = ledger if ledger is not None else getattr(stream, "ledger", None)
            if ledger is not None:
                unpaid = fresh
                ledger.charge(f"{run.mechanism} run", run.budget, run.unit, key=f"run {book.facts['run']}")
        except BaseException as problem:
            if book is not None:
                book.close()
            if unpaid:
                folder.ledger.unlink()  # a run that cannot be paid for is not begun
            folder.unlock()
            if isinstance(problem, OSError):
                raise LedgerError(f"cannot open the run in {folder.path}: {problem.strerror}") from problem
            raise
        return run

    @property
    def directory(self) -> Path:
        """Where the run lives."""
        return self._folder.path

    @property
    def steps(self) -> int:
        """How many steps are done."""
        return self._book.count()

    @property
    def batches(self) -> list[str]:
        """Names of the batches done, in order."""
        return [row["batch"] for row in self._book.steps()]

    @property
    def spent(self) -> PrivacyBudget | None:
        """What the stream has spent, by the ledger."""
        return budget_of(self._book.spent())

    def step(self, batch_id: str, batch: Any, *, content_hash: str | None = None) -> Any:
        """Give the stream its next batch and return the release, when all of it is on disk.

        A batch id seen before returns the stored release (a ``StoredRelease``, or the number), if the content
        is the same, else raises ``LedgerError``. ``content_hash`` replaces the fingerprint for inputs that
        have none.
        """
        self._check_usable()
        if not isinstance(batch_id, str) or not 0 < len(batch_id) <= 200:
            raise ConfigError(f"batch_id must be a text of 1 to 200 characters, got {batch_id!r}")
        marks = marks_of(batch)
        content = self._salted(content_hash or fingerprint(batch))
        known = self._book.of_batch(batch_id)
        if known is not None:
            if known["content"] != content:
                raise LedgerError(
                    f"batch {batch_id!r} was step {known['number']}, with other content; refused"
                )
            return self._stored(known)
        time = self._book.now(allow_clock_back=self._allow_clock_back)
        self._clean = False
        try:
            self._intend(batch_id, time)
            result = self._compute(batch)
            if marks_of(batch) != marks:
                raise LedgerError(
                    f"a file of batch {batch_id!r} changed while it was read; nothing was released"
                )
            row = self._write(batch_id, content, time, result)
            self._decide(row)
            self._publish(row)
            self._finish(row)
        except BaseException as problem:
            self._undo(problem)
            if isinstance(problem, OSError):
                raise LedgerError(
                    f"batch {batch_id!r} was interrupted ({problem.strerror}); earlier steps stand; try again"
                ) from problem
            raise
        self._clean = True
        return result

    def release(self, batch_id: str) -> Any:
        """The stored release of a batch."""
        row = self._book.of_batch(batch_id)
        if row is None:
            raise LedgerError(f"no step was made for batch {batch_id!r}")
        return self._stored(row)

    def report(self) -> RunReport:
        """What was spent on which batch, when, by which version and configuration."""
        from streams.runs.stored import RunReport

        return RunReport.of(self._book)

    def verify(self) -> int:
        """Check ledger, state and every release on disk; the number of releases, or ``StateError``."""
        self._book.check()
        rows = self._book.steps()
        problems = []
        for row in rows:
            try:
                self._folder.check(
                    self._folder.releases / row["release"], json.loads(row["hashes"])["release"]
                )
            except StateError as problem:
                problems.append(str(problem))
        problems += [f"{name} is not in the ledger" for name in self._folder.unknown_beyond(len(rows))]
        try:
            self._check_state(rows[-1] if rows else None)
        except StateError as problem:
            problems.append(str(problem))
        if problems:
            more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
            raise StateError("; ".join(problems[:3]) + more)
        return len(rows)

    def close(self) -> None:
        """Let go of the directory. What was committed is on disk already."""
        if self._usable and self._pid == os.getpid():
            self._book.close()
            self._folder.unlock()
        self._usable = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<run of {self.mechanism} in {self._folder.path}: {self.steps} steps, spent {self.spent}>"

    # The protocol, one method a step.

    def _intend(self, batch_id: str, time: str) -> None:
        self._book.intend(batch_id, time)

    def _compute(self, batch: Any) -> Any:
        return self._stream.update(batch)

    def _write(self, batch_id: str, content: str, time: str, result: Any) -> dict[str, Any]:
        """Release first: drawing its points may move a seeded generator, which the state has to remember."""
        from synthgeo import __version__

        number = self.steps + 1
        release = self._folder.pending / self._folder.release_name(number, batch_id)
        state = self._folder.pending / self._folder.state_name(number)
        write_release(release, result, self._parts)
        make_durable(release)
        self._stream.save(state)
        make_durable(state)
        epsilon, delta = self._check_spend(number)
        statement = getattr(result, "provenance", None)
        return {
            "batch": batch_id,
            "content": content,
            "time": time,
            "epsilon": epsilon,
            "delta": delta,
            "release": release.name,
            "state": state.name,
            "hashes": json.dumps({"release": hashes_of(release), "state": hashes_of(state)}, sort_keys=True),
            "provenance": None if statement is None else json.dumps(statement),
            "version": __version__,
        }

    def _decide(self, row: dict[str, Any]) -> None:
        self._book.decide(row)

    def _publish(self, row: Any, *, check: bool = False) -> None:
        hashes = json.loads(row["hashes"]) if check else {}
        folder = self._folder
        for name, place in (("state", folder.state), ("release", folder.releases)):
            folder.publish(folder.pending / row[name], place / row[name], hashes.get(name))

    def _finish(self, row: Any) -> None:
        self._book.finish(row["batch"])
        self._folder.clear_states_before(self._book.count())

    # Recovery.

    def _recover(self, outcome: str) -> Stream:
        """Bring the directory to the end of its last decided step, and the stream with it."""
        for row in self._book.unfinished():
            self._publish(row, check=True)
            self._finish(row)
        self._folder.clear_pending()
        self._book.give_up(outcome)
        last = self._book.last()
        number = 0 if last is None else last["number"]
        newer = self._folder.unknown_beyond(number)
        if newer:
            raise StateError(
                f"{self._folder.path} holds {newer[0]}, but its ledger ends at step {number}: "
                "the ledger lost entries, or is an old copy; the run cannot go on"
            )
        state = self._check_state(last)
        self._folder.clear_states_before(number)
        return cast("Stream", self._class.load(state))

    def _check_state(self, row: Any) -> Path:
        if row is None:
            state, hashes = self._folder.state / self._folder.state_name(0), {"": self._book.facts["initial"]}
        else:
            state, hashes = self._folder.state / row["state"], json.loads(row["hashes"])["state"]
        self._folder.check(state, hashes)
        return state

    def _undo(self, problem: BaseException) -> None:
        """After a failed step: back to the last decided state, or closed if even that cannot be reached."""
        try:
            refused = isinstance(problem, InputError | ConfigError | BudgetExhausted)
            self._stream = self._recover("refused" if refused else "undone")
            self._clean = True
        except (SynthGeoError, OSError):
            self.close()

    # Small questions.

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise LedgerError("this run was opened by another process (a fork?); open it here")
        if not self._usable or not self._clean:
            raise LedgerError(
                f"this run is closed, or was interrupted; close it and open {self._folder.path} again"
            )

    def _check_settings(self, stream: Any) -> None:
        """A stream given to go on with must be fresh, with the settings of the one the run began with."""
        probe = self._folder.pending / "probe"
        stream.save(probe)
        found = file_hash(probe)
        self._folder.clear_pending()
        last = self._book.last()
        known = {self._book.facts["initial"]} | (
            set() if last is None else {json.loads(last["hashes"])["state"][""]}
        )
        if found not in known:
            raise LedgerError(
                f"{self._folder.path} was started with other settings than this {self.mechanism} has; "
                "open it without a stream to go on with its own"
            )

    def _salted(self, content: str) -> str:
        return hmac.new(self._book.salt, content.encode(), "sha256").hexdigest()

    def _check_spend(self, number: int) -> tuple[float, float]:
        before, after = self._book.spent(), numbers_of(self._stream.spent)
        budget = budget_of(after)
        less = after[0] < before[0] * _ROUNDING or after[1] < before[1] * _ROUNDING
        if less or (budget is not None and not self.budget.covers(budget)):
            raise LedgerError(
                f"step {number} would bring the stream's spend from {before} to {after}; refused"
            )
        return after

    def _stored(self, row: Any) -> Any:
        folder = self._folder.releases / row["release"]
        self._folder.check(folder, json.loads(row["hashes"])["release"])
        if (folder / VALUE_FILE).exists():
            return read_value(folder)
        from streams.runs.stored import StoredRelease

        spent = budget_of((row["epsilon"], row["delta"]))
        statement = json.loads(row["provenance"])
        return StoredRelease(step=row["number"], spent=spent, provenance=statement, folder=folder)


def _create(folder: RunDirectory, stream: Any, parts: tuple[str, ...]) -> None:
    """A first state, and then the ledger, which makes the directory a run."""
    from synthgeo import __version__

    if folder.unknown_beyond(0):
        raise StateError(f"{folder.path} holds the states or releases of a run, but no ledger; refused")
    folder.make_room()
    pending = folder.pending / folder.state_name(0)
    stream.save(pending)
    make_durable(pending)
    initial = file_hash(pending)
    pending.replace(folder.state / folder.state_name(0))
    make_durable(folder.state / folder.state_name(0))
    statement = getattr(stream, "provenance", None)
    RunBook.start(
        folder.ledger,
        {
            "mechanism": type(stream).__name__,
            "budget": stream.budget.to_dict(),
            "unit": stream.unit.to_dict(),
            "start": numbers_of(stream.spent),
            "parts": list(parts),
            "initial": initial,
            "statement": statement() if callable(statement) else None,
            "version": __version__,
        },
    )

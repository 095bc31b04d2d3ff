"""Durable runs: a stream that survives crashes without noising a batch twice or forgetting what it spent.

**The protocol.** The stream lives in the run; after each step its state is a file. One step is

    1  intent    the journal records which batch is about to be taken (one transaction)
       reserve   the ledger of the dataset, if there is one, is charged at the first step, and reserves it
    2  compute   the stream takes the batch, in memory
    3  write     release, then state, to ``pending/``; every file and folder is synced
    4  decide    the journal records the step: spend, hashes of the files (one transaction)
       commit    the ledger makes the step the last one, if nobody else has reserved it since
    5  publish   state, then release, are renamed to their places; folders are synced
    6  finish    the journal marks the step done; the old state is removed

Decision and commit come before anything is visible: until 4 is on disk the release exists only in memory and
in ``pending/``. Steps 5 and 6 add nothing that could be decided otherwise, so they can be repeated. That is
why a redo is sound: with fresh noise, a second answer to the same batch would be a second release, but the
first one was never seen by anybody, and it is deleted first.

The ledger is the one place that says which step is next, over all copies of the folder. A reservation that
was abandoned is taken over without a charge. Of two copies that both decided the same step the ledger lets
one commit: the other's result is never moved out of ``pending/``, and that copy does not open again.

| killed | found when reopened | what is done |
|---|---|---|
| during creation | no journal | creation starts again |
| before 1 | nothing new | nothing |
| between 1 and 4 | an intent, perhaps pending files | files deleted, intent marked undone: give it again |
| between the reservation and 4 | the same, and a reservation | the same; it is taken over, uncharged |
| during 4 | SQLite keeps all of a transaction or none of it | the row above, or the row below |
| between 4 and the commit | the decision; files pending | it is committed now, if no copy did; else refused |
| between the commit and 5, during 5 | the decision; files pending or in place | hashes checked, files moved |
| between 5 and 6 | all but the mark | hashes checked, mark set |

With seeded noise the generator is part of the state, so a redo repeats the same draws, and a run with any
number of crashes ends in the same bytes as one without.

**It fails closed.** A state file that is not the one the journal remembers, a journal whose chain of hashes
is broken, a state or release newer than the journal's last step (a journal that lost its end): each is a
``StateError`` on opening, and the run does not go on. There is no way to go on from an older state, since
that would answer batches twice.

**One writer.** The folder is locked, and before each answer and each decision the journal is compared with
what this process knows of it: whoever has written to it in between is noticed, and nothing is released.

A whole directory restored from an older copy cannot be seen from inside. The dataset's ledger, kept
elsewhere, refuses it; a run that has a ledger never opens without it, and its states open nowhere else. That
a run without a ledger has no copy that goes on is the curator's word.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import numpy as np

from streams.runs.directory import RunDirectory, hashes_of, make_durable
from streams.runs.identity import content_of, counts_first, marks_of, reads_records
from streams.runs.journal import Journal, budget_of, numbers_of
from streams.runs.stored import write_release
from streams.runs.view import RunView, check_parts, class_of, open_view
from synthgeo import validate
from synthgeo.errors import BudgetExhausted, ConfigError, InputError, LedgerError, StateError, SynthGeoError
from synthgeo.hashing import file_hash
from synthgeo.preflight import REPEATED
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.ledger import Reservation
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources import Reading, Source
from synthgeo.sources.declared import CURATOR
from synthgeo.sources.fingerprint import RowSample
from synthgeo.state import keep_in_run, states_of_run

if TYPE_CHECKING:
    from synthgeo.privacy.ledger import Ledger

_COMPARED = 100  # steps, at least: the last ones
_NAMED = 3  # batches in a message
_ROUNDING = 1 - 1e-12  # of sums of many small spends


class Runnable(Protocol):
    """What a run can drive."""

    @property
    def budget(self) -> PrivacyBudget: ...
    @property
    def spent(self) -> PrivacyBudget | None: ...
    @property
    def unit(self) -> PrivacyUnit: ...
    def update(self, batch: Any) -> Any: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Any: ...


class StreamRun(RunView):
    """A stream with a directory: every step is recorded, crash-safe and done once.

    Open one with ``StreamRun.open``, or look at one with ``StreamRun.view``.

    Guarantee
    ---------
    That of the stream, kept over crashes: each batch is answered once, nothing is visible before its spend is
    on disk, and the state that a release came from is never used for another batch. The module's docstring
    has the protocol.
    """

    def __init__(
        self,
        folder: RunDirectory,
        journal: Journal,
        made: type[Any],
        ledger: Ledger | None,
        *,
        allow_clock_back: bool,
    ) -> None:
        super().__init__(folder, journal)
        self._class = made
        self._allow_clock_back = allow_clock_back
        self._ledger = ledger
        self._pid = os.getpid()
        self._usable = True
        self._told: list[str] = []  # to the curator, of the step under way
        self._samples: dict[int, RowSample] | None = None  # of the last steps
        self._clean = True  # False while the stream in memory may be ahead of the one on disk
        self._check_ledger()
        self._stream: Runnable = self._recover("undone")

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        stream: Any = None,
        *,
        parts: tuple[str, ...] | None = None,
        ledger: Ledger | None = None,
        allow_clock_back: bool = False,
        remember: Mapping[str, Any] | None = None,
    ) -> Self:
        """Start a run with ``stream``, or go on with the run that is there.

        The run works on a copy: ``stream`` itself stays as it is. To go on, give a fresh stream with the same
        settings (checked), or none for the toolkit's own streams. ``parts`` says what to store of each
        release ("data", "cells", "changes", "trips"; default: data, and trips where they have attributes).

        ``ledger`` (or the stream's own) is charged the stream's whole budget, once in the run's life: before
        the first step is made. A run that has a ledger remembers it, and does not open without it.

        ``remember`` holds plain values for whoever begins the run, such as how its batches are cut; they are
        ``remembered`` for its life.
        """
        folder = RunDirectory(directory)
        if parts is not None:
            check_parts(parts)
        if stream is not None:
            _check_stream(stream)
            # The copy that runs knows no ledger, so the run charges the one that the stream was given.
            ledger = ledger if ledger is not None else getattr(stream, "ledger", None)
        if folder.journal.exists():
            Journal.recognise(folder.journal)  # anything else is refused before it is touched
        elif stream is None:
            raise ConfigError(f"there is no run in {folder.path}: give the stream to start one")
        elif ledger is not None:
            ledger.check(_product(type(stream)), stream.budget, stream.unit)
        folder.prepare()
        folder.lock()
        journal: Journal | None = None
        try:
            folder.clear_remains()
            if not folder.journal.exists():
                stored = getattr(stream, "stored_parts", ("data",)) if parts is None else parts
                _create(folder, stream, stored, ledger, dict(remember or {}))
            journal = Journal(folder.journal)
            mechanism = journal.facts["mechanism"]
            made = class_of(mechanism) if stream is None else type(stream)
            if made.__name__ != mechanism:
                raise LedgerError(f"{folder.path} is a run of {mechanism}, not of {made.__name__}")
            if parts is not None and list(parts) != journal.facts["parts"]:
                raise LedgerError(f"{folder.path} stores {journal.facts['parts']}, not {list(parts)}")
            run = cls(folder, journal, made, ledger, allow_clock_back=allow_clock_back)
            if stream is not None:
                run._check_settings(stream)
        except BaseException as problem:
            if journal is not None:
                journal.close()
            folder.unlock()
            if isinstance(problem, OSError):
                raise LedgerError(f"cannot open the run in {folder.path}: {problem.strerror}") from problem
            raise
        return run

    @staticmethod
    def view(directory: str | os.PathLike[str]) -> RunView:
        """The run in a directory, to look at: writes nothing, and needs no lock."""
        return open_view(directory)

    @property
    def reading(self) -> Reading | None:
        """How the run's stream reads text; None for a stream of numbers."""
        return getattr(self._stream, "reading", None)

    def windows(self, data: Any, **grid: Any) -> Iterator[tuple[Any, Source]]:
        """Data cut by a public grid of windows, as the run's stream cuts it (``Runnable.windows``)."""
        stream: Any = self._stream
        found: Iterator[tuple[Any, Source]] = stream.windows(data, **grid)
        return found

    def step(
        self,
        batch_id: str,
        batch: Any,
        *,
        content_hash: str | None = None,
        allow_repeat: bool = False,
    ) -> Any:
        """Give the stream its next batch and return the release, when all of it is on disk.

        A batch id seen before returns the stored release (a ``StoredRelease``, or the number; None where
        ``compact`` removed it), if the content is the same, else raises ``LedgerError``. Records seen before
        under another batch id are refused, since each of them would pay twice, and so is a batch of whose
        rows more than ``REPEATED`` were in earlier ones. ``allow_repeat`` takes them: they are new ones that
        look the same. A unit with a unique key takes them too: an event is counted once. An empty batch is a
        step like any other. ``content_hash`` replaces the fingerprint for inputs that have none.

        Where the stream's reading is unattended, all of this is an ordinary step, of which the curator is
        told (``remarks``): a refusal would depend on private rows.
        """
        self._check_usable()
        _check_batch_id(batch_id)
        self._journal.check_head()
        marks = marks_of(batch)
        known = self._journal.of_batch(batch_id)
        if known is not None:
            self._check_same(known, batch, marks, content_hash)
            return None if self._removed()(known["number"]) else self._stored(known)
        self._told = []
        content, counted, sample = self._count(batch_id, batch, content_hash, allow_repeat=allow_repeat)
        time = self._journal.now(allow_clock_back=self._allow_clock_back)
        if counted is None and self._ledger is not None and hasattr(self._stream, "rehearse"):
            self._stream.rehearse(batch)
        self._clean = False
        try:
            self._intend(batch_id, time)
            reservation = self._reserve(content)
            result = self._compute(batch, counted)
            if marks_of(batch) != marks:
                raise LedgerError(
                    f"a file of batch {batch_id!r} changed while it was read; nothing was released"
                )
            row = self._write(batch_id, content, time, result) | {"marks": self._seen(marks)}
            self._decide(row, self._notes(sample))
            self._commit(reservation)
            self._publish(row)
            self._finish(row)
            self._remember(sample)
        except BaseException as problem:
            self._undo(problem)
            if isinstance(problem, OSError):
                raise LedgerError(
                    f"batch {batch_id!r} was interrupted ({problem.strerror}); earlier steps stand; try again"
                ) from problem
            raise
        self._clean = True
        return result

    def knows(self, batch_id: str, batch: Any, *, content_hash: str | None = None) -> bool:
        """Whether a batch was taken before; ``LedgerError`` if other content was, under its id.

        It is what ``step`` asks first; the stored release is not read for it.
        """
        self._check_usable()
        known = self._journal.of_batch(batch_id)
        if known is not None:
            self._check_same(known, batch, marks_of(batch), content_hash)
        return known is not None

    def compact(self, *, keep_every: int) -> int:
        """Remove stored releases, but for every ``keep_every``-th and the last; how many were removed.

        A release is three files or so, and a run of years has as many releases as steps. The journal keeps
        for each of them what tells its batch from others and what was spent, under a chain that is sealed
        anew; statements and hashes of files that are gone go too.
        """
        self._check_usable()
        self._journal.check_head()
        validate.whole(keep_every, "keep_every", low=1)
        through, before = self._compaction()
        if keep_every % before:
            raise ConfigError(
                f"keep_every must be a multiple of {before}: the releases between were removed before"
            )
        through = max(through, self.steps - 1)
        self._journal.keep_note("compacted", {"through": through, "keep_every": keep_every})
        self._journal.summarise(self._removed())
        removed, rows = self._removed(), self._journal.steps("number", "release")
        return sum(self._folder.remove_release(name) for number, name in rows if removed(number))

    def close(self) -> None:
        """Let go of the directory. What was committed is on disk already."""
        if self._usable and self._pid == os.getpid():
            self._journal.close()
            self._folder.unlock()
        self._usable = False

    # The protocol, one method for each of its steps.

    def _check_same(self, known: Any, batch: Any, marks: Any, given: str | None) -> None:
        """``LedgerError`` unless a batch that is known by its name is the one that was taken."""
        if marks and known["marks"] == self._seen(marks):  # the very same files: not read again
            return
        if known["content"] != self._salted_content(batch, given):
            number = known["number"]
            problem = f"batch {known['batch']!r} was step {number}, with other content"
            if not self._unattended:
                raise LedgerError(f"{problem}; refused")
            said = self._journal.notes("remarks").get(number, [])
            if problem not in said:
                self._journal.keep_note(f"remarks {number}", [*said, problem])

    def _count(
        self, batch_id: str, batch: Any, given: str | None, *, allow_repeat: bool
    ) -> tuple[str, Any, RowSample | None]:
        """The salted identity of a new batch, its counts where one pass gives both, and a sample of its rows.

        ``LedgerError`` if its records were taken before, in attended use.
        """
        stream: Any = self._stream
        counted, known = None, None
        if counts_first(stream):
            counted = stream.count(batch, identify=self._rows_key)
            known = counted.identity
        if known is not None and given is None:
            content = self._journal.salted(known.fingerprint)
        else:
            content = self._salted_content(batch, given)
        sample = None if known is None or getattr(stream, "same_persons", False) else known.sample
        if known is not None and not known.records:  # empty batches come as they come
            if self._unattended:
                self._told.append("no row of this batch can be used")
        elif reads_records(stream) and not allow_repeat and not self.unit.unique:
            self._look_for_repeats(batch_id, content, sample)
        return content, counted, sample

    def _look_for_repeats(self, batch_id: str, content: str, sample: RowSample | None) -> None:
        """Refuse a batch whose rows were taken before, or tell the curator of it in unattended use.

        It looks at samples of rows alone and drops none: an equal row may be another person's.
        """
        before = self._journal.of_content(content)
        if before is not None:
            problem = f"holds the records of batch {before['batch']!r}, step {before['number']}"
        else:
            share, steps = (0.0, []) if sample is None else self._repeated(sample)
            if share <= REPEATED:
                return
            names = self._journal.batches()
            named = ", ".join(repr(names[step - 1]) for step in steps[:_NAMED]) or "earlier batches"
            problem = f"holds rows of {named} again (some {share:.0%} of the rows)"
        if not self._unattended:
            raise LedgerError(
                f"batch {batch_id!r} {problem}, and each would pay twice; refused (if they are new ones that "
                "look the same: allow_repeat=True)"
            )
        self._told.append(f"this batch {problem}; each of these rows has paid twice")

    def _repeated(self, sample: RowSample) -> tuple[float, list[int]]:
        """The share of a batch's rows that the last steps have had, and which of these steps had many."""
        known = self._known_samples()
        each = {step: max(sample.repeated(old), old.repeated(sample)) for step, old in known.items()}
        share = max([sample.repeated(RowSample.together(list(known.values()))), *each.values()])
        return share, sorted(
            (step for step in each if each[step] > REPEATED / 4), key=lambda step: -each[step]
        )

    def _known_samples(self) -> dict[int, RowSample]:
        if self._samples is None:
            self._samples = {
                number: RowSample(
                    np.array(note["hashes"], np.int64), np.array(note["counts"], np.int64), note["limit"]
                )
                for number, note in self._journal.notes("rows").items()
            }
        return self._samples

    def _notes(self, sample: RowSample | None) -> dict[str, Any]:
        """What the curator is told of the next step, and the sample of its rows."""
        number = self.steps + 1
        notes: dict[str, Any] = {f"remarks {number}": self._told} if self._told else {}
        if sample is not None:
            hashes, counts = sample.hashes.tolist(), sample.counts.tolist()
            notes[f"rows {number}"] = {"hashes": hashes, "counts": counts, "limit": sample.limit}
        return notes

    def _remember(self, sample: RowSample | None) -> None:
        """Tell the curator of the step that was decided, and compare later ones with its rows."""
        number = self.steps
        for text in self._told:
            CURATOR.info("step %d: %s", number, text)
        if sample is None:
            return
        known = self._known_samples()
        known[number] = sample
        if len(known) > 2 * _COMPARED:  # now and then
            self._journal.forget_notes("rows", number - _COMPARED)
            self._samples = {step: known[step] for step in known if step >= number - _COMPARED}

    @property
    def _unattended(self) -> bool:
        return self.reading is not None and self.reading.unattended

    def _salted_content(self, batch: Any, given: str | None) -> str:
        if given is None:
            given = content_of(self._stream, batch, key=self._rows_key)
        return self._journal.salted(given)

    @property
    def _rows_key(self) -> bytes:
        """What rows are hashed under: equal fingerprints of other rows cannot be computed without it."""
        return self._journal.salted("rows").encode()

    def _seen(self, marks: Any) -> str | None:
        """Which files a batch was, salted; None where it was none."""
        return self._journal.salted(json.dumps(marks)) if marks else None

    def _intend(self, batch_id: str, time: str) -> None:
        self._journal.intend(batch_id, time)

    def _compute(self, batch: Any, counted: Any) -> Any:
        if counted is None:
            return self._stream.update(batch)
        return cast("Any", self._stream).take(counted)

    def _write(self, batch_id: str, content: str, time: str, result: Any) -> dict[str, Any]:
        """Release first: drawing its points may move a seeded generator, which the state has to remember."""
        from synthgeo import __version__

        number = self.steps + 1
        release = self._folder.pending / self._folder.release_name(number, batch_id)
        state = self._folder.pending / self._folder.state_name(number)
        write_release(release, result, self._parts)
        make_durable(release)
        self._stream.save(state)
        if self._ledger is not None:
            keep_in_run(state)
        make_durable(state)
        epsilon, delta = self._check_spend(number)
        statement = getattr(result, "provenance", None)
        hashes = {"release": hashes_of(release), "state": hashes_of(state)}
        return {
            "batch": batch_id,
            "content": content,
            "time": time,
            "epsilon": epsilon,
            "delta": delta,
            "release": release.name,
            "state": state.name,
            "hashes": json.dumps(hashes, sort_keys=True),
            "provenance": None if statement is None else json.dumps(statement),
            "version": __version__,
        }

    def _reserve(self, content: str, *, token: str | None = None, step: int | None = None) -> Any:
        """Reserve the next step in the dataset's ledger, which charges it at the first; None without one.

        The journal knows the token before the ledger does, so that a decided step can be committed later.
        """
        if self._ledger is None:
            return None
        token, step = token or secrets.token_hex(16), step or self.steps + 1
        self._journal.keep_note("reserved", {"step": step, "token": token})
        reservation = self._ledger.reserve(
            _product(self._class), self.budget, self.unit,
            key=self._key, step=step, content_hash=content, token=token,
        )  # fmt: skip
        self._note_charge()
        return reservation

    def _note_charge(self) -> None:
        if self._journal.note("charged") is None:
            ledger = cast("Ledger", self._ledger)
            note = {"ledger": ledger.identity, "dataset": ledger.dataset}
            self._journal.keep_note("charged", note)

    def _commit(self, reservation: Any) -> None:
        if self._ledger is None:
            return
        try:
            self._ledger.commit(reservation)
        except BaseException:
            self.close()  # whether it is committed is for the next opening to find out
            raise

    def _decide(self, row: dict[str, Any], notes: dict[str, Any]) -> None:
        self._journal.decide(row, notes)

    def _publish(self, row: Any, *, check: bool = False) -> None:
        hashes = json.loads(row["hashes"]) if check else None
        for name, place in (("state", self._folder.state), ("release", self._folder.releases)):
            self._folder.publish(row[name], place, hashes)

    def _finish(self, row: Any) -> None:
        self._journal.finish(row["batch"])
        self._folder.clear_states_before(self._journal.count())

    # Recovery.

    def _recover(self, outcome: str) -> Runnable:
        """Bring the directory to the end of its last decided step, and the stream with it."""
        self._journal.check_head()
        for row in self._journal.unfinished():
            self._commit_again(row)
            self._publish(row, check=True)
            self._finish(row)
        self._folder.clear_pending()
        self._journal.give_up(outcome)
        last = self._journal.last()
        number = 0 if last is None else last["number"]
        newer = [name for step, name in self._folder.in_place() if step > number]
        if newer:
            raise StateError(
                f"{self._folder.path} holds {newer[0]}, but its ledger ends at step {number}: "
                "the ledger lost entries, or is an old copy; the run cannot go on"
            )
        state = self._check_state(last)
        self._folder.clear_states_before(number)
        with states_of_run():
            return cast("Runnable", self._class.load(state))

    def _commit_again(self, row: Any) -> None:
        """Commit a decided step that may not be; ``LedgerError`` if another copy of the run committed it."""
        note = self._journal.note("reserved")
        if self._ledger is None or note is None or note["step"] != row["number"]:
            return  # decided before the run had a ledger
        if not self._ledger.committed(Reservation(self._key, note["step"], note["token"])):
            self._commit(self._reserve(row["content"], token=note["token"], step=row["number"]))

    def _undo(self, problem: BaseException) -> None:
        """After a failed step: back to the last decided state, or closed if even that cannot be reached."""
        if not self._usable:
            return
        try:
            refused = isinstance(problem, InputError | ConfigError | BudgetExhausted)
            self._stream = self._recover("refused" if refused else "undone")
            self._samples, self._clean = None, True
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
        wrong = "other settings"
        if hasattr(stream, "choices"):
            mine, theirs = cast("Any", self._stream).choices(), stream.choices()
            differ = [name for name in mine if mine[name] != theirs.get(name)]
            same = mine == theirs and getattr(stream, "step", 0) in (0, self.steps)
            wrong = f"other settings ({', '.join(differ)})" if differ else wrong
        else:
            probe = self._folder.pending / "probe"
            stream.save(probe)
            last = self._journal.last()
            known = {self._journal.facts["initial"]}
            known |= set() if last is None else {json.loads(last["hashes"])["state"][""]}
            same = file_hash(probe) in known
            self._folder.clear_pending()
        if not same:
            raise LedgerError(
                f"{self._folder.path} was started with {wrong} than this {self.mechanism} has; "
                "open it without a stream to go on with its own"
            )

    @property
    def _key(self) -> str:
        return f"run {self._journal.facts['run']}"

    def _check_ledger(self) -> None:
        """Refuse to open without the run's ledger, or with another one, or where copies went on."""
        ledger, paid = self._ledger, self._journal.note("charged")
        owed = self._owed
        if ledger is None:
            if owed is not None:
                raise LedgerError(
                    f"the run in {self._folder.path} belongs to the ledger of {owed['dataset']!r}: "
                    "open it with that ledger"
                )
            return
        if owed is not None and owed["identity"] != ledger.identity:
            raise LedgerError(
                f"the run in {self._folder.path} belongs to another ledger, of {owed['dataset']!r}"
            )
        known, unfinished = ledger.last_step(self._key), len(self._journal.unfinished())
        if known is None and paid is not None:
            raise LedgerError(
                f"the run in {self._folder.path} was charged to the ledger of {ledger.dataset!r}, which "
                "does not know it: that ledger is an older copy"
            )
        if known is None and self.steps:  # what was released is paid for now, not with the next release
            ledger.adopt(_product(self._class), self.budget, self.unit, key=self._key, step=self.steps)
            self._note_charge()
            return
        known = known or 0
        if known > self.steps:
            raise LedgerError(
                f"the run in {self._folder.path} is at step {self.steps}, but the ledger of "
                f"{ledger.dataset!r} knows its step {known}: this folder is an older copy, and its next "
                "steps would pay twice"
            )
        if known < self.steps - unfinished:
            raise LedgerError(
                f"the run in {self._folder.path} is at step {self.steps}, but the ledger of "
                f"{ledger.dataset!r} ends at its step {known}: that ledger is an older copy"
            )

    def _check_spend(self, number: int) -> tuple[float, float]:
        before, after = self._journal.spent(), numbers_of(self._stream.spent)
        budget = budget_of(after)
        less = after[0] < before[0] * _ROUNDING or after[1] < before[1] * _ROUNDING
        if less or (budget is not None and not self.budget.covers(budget)):
            raise LedgerError(
                f"step {number} would bring the stream's spend from {before} to {after}; refused"
            )
        return after

    def _stream_class(self) -> type[Any]:
        return self._class


def _create(
    folder: RunDirectory, stream: Any, parts: tuple[str, ...], ledger: Any, remember: dict[str, Any]
) -> None:
    """A first state, and then the journal, which makes the directory a run."""
    from synthgeo import __version__

    if folder.in_place() and folder.in_place()[-1][0] > 0:
        raise StateError(f"{folder.path} holds the states or releases of a run, but no ledger; refused")
    folder.clear_pending()
    pending = folder.pending / folder.state_name(0)
    stream.save(pending)
    make_durable(pending)
    initial = file_hash(pending)
    pending.replace(folder.state / folder.state_name(0))
    make_durable(folder.state / folder.state_name(0))
    statement, noise = getattr(stream, "provenance", None), getattr(stream, "noise", None)
    Journal.start(
        folder.journal,
        {
            "mechanism": type(stream).__name__,
            "budget": stream.budget.to_dict(),
            "unit": stream.unit.to_dict(),
            "start": numbers_of(stream.spent),
            "parts": list(parts),
            "initial": initial,
            "statement": statement() if callable(statement) else None,
            "releasable": None
            if noise is None
            else bool(noise.releasable and getattr(stream, "is_private", True)),
            "ledger": None if ledger is None else {"dataset": ledger.dataset, "identity": ledger.identity},
            "remember": remember,
            "version": __version__,
        },
    )


def _product(made: type[Any]) -> str:
    return f"{made.__name__} run"


def _check_stream(stream: Any) -> None:
    """``ConfigError`` unless a run can drive this object."""
    missing = [
        name for name in ("update", "save", "load", "spent", "budget", "unit") if not hasattr(stream, name)
    ]
    if missing:
        raise ConfigError(f"a {type(stream).__name__} cannot be run: it has no {', '.join(missing)}")


def _check_batch_id(batch_id: Any) -> None:
    good = isinstance(batch_id, str) and 0 < len(batch_id) <= 200
    if not good or not batch_id.isprintable():  # a lone surrogate or a control character is not printable
        raise ConfigError(f"batch_id must be a text of 1 to 200 printable characters, got {batch_id!r}")

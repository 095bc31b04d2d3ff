"""A durable run to look at: what it spent and released, also while it is going on, or from a copy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from streams.runs.directory import RunDirectory
from streams.runs.journal import Journal, budget_of
from synthgeo.errors import ConfigError, LedgerError, StateError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.state import states_of_run

if TYPE_CHECKING:
    from streams.runs.report import RunReport

T = TypeVar("T")


class RunView:
    """What can be asked of a run without changing it. Open one with ``StreamRun.view``.

    It needs no lock and writes nothing: it works while another process has the run open, and on a copy that
    cannot be written.
    """

    def __init__(self, folder: RunDirectory, journal: Journal) -> None:
        self._folder = folder
        self._journal = journal
        try:
            self._parts = check_parts(tuple(journal.facts["parts"]))
            self.mechanism = str(journal.facts["mechanism"])
            self.budget = PrivacyBudget(**journal.facts["budget"])
            self.unit = PrivacyUnit.from_dict(journal.facts["unit"])
        except (ConfigError, KeyError, TypeError, ValueError) as problem:
            journal.close()
            raise StateError(f"{journal.path}: not the journal of a run ({problem})") from problem

    @property
    def directory(self) -> Path:
        """Where the run lives."""
        return self._folder.path

    @property
    def parts(self) -> tuple[str, ...]:
        """What is stored of each release."""
        return self._parts

    @property
    def steps(self) -> int:
        """How many steps are done."""
        return self._journal.count()

    @property
    def batches(self) -> list[str]:
        """Names of the batches done, in order."""
        return self._journal.batches()

    @property
    def spent(self) -> PrivacyBudget | None:
        """What the stream has spent, by the journal."""
        return budget_of(self._journal.spent())

    @property
    def releasable(self) -> bool | None:
        """Whether what the run releases may be published; None where that is not known."""
        return self._journal.releasable()

    @property
    def why_not(self) -> str:
        """Why nothing of this run may be published."""
        return str(self._journal.statement().get("not_releasable_because", "made with seeded noise"))

    @property
    def remembered(self) -> Mapping[str, Any]:
        """What the run was told to remember when it began; see ``StreamRun.open``."""
        return dict(self._journal.facts.get("remember") or {})

    def step_of(self, batch_id: str) -> int | None:
        """The step that a batch was; None if it was none."""
        row = self._journal.of_batch(batch_id)
        return None if row is None else int(row["number"])

    def release(self, batch_id: str) -> Any:
        """The stored release of a batch."""
        row = self._journal.of_batch(batch_id)
        if row is None:
            raise LedgerError(f"no step was made for batch {batch_id!r}")
        return self._stored(row)

    @property
    def remarks(self) -> dict[str, list[str]]:
        """What unattended steps saw in their batches, by batch. For the curator only."""
        found, names = self._journal.notes("remarks"), self._journal.batches()
        return {names[number - 1]: found[number] for number in sorted(found) if number <= len(names)}

    def report(self) -> RunReport:
        """What was spent on which batch, when, by which version and configuration."""
        from streams.runs.report import RunReport

        return RunReport.of(self._journal)

    def stream(self) -> Any:
        """The stream as of the last step: a copy, so whatever is done to it does not touch the run.

        It holds private sums. Its ``release`` is what the run has released; anything else that it puts out
        is not paid for. Where the run has a ledger it takes no step.
        """

        def loaded(state: Path) -> Any:
            with states_of_run():
                stream = self._stream_class().load(state)
            if self._owed is not None and hasattr(stream, "owe"):
                stream.owe(self._owed["identity"])
            return stream

        return self._last_state(lambda state: loaded(self._committed(state)))

    @property
    def _owed(self) -> dict[str, str] | None:
        """Identity and dataset of the ledger that the run belongs to; None where it has none."""
        paid = self._journal.note("charged")
        if paid is not None:
            return {"identity": paid["ledger"], "dataset": paid["dataset"]}
        owed: dict[str, str] | None = self._journal.facts.get("ledger")
        return owed

    def _committed(self, path: Path) -> Path:
        """``LedgerError`` for what is decided and still pending, where a ledger has to commit it first."""
        if path.parent == self._folder.pending and self._owed is not None:
            raise LedgerError(
                f"the last step of {self._folder.path} may not be committed: open the run with its ledger"
            )
        return path

    def verify(self, *, newest: int | None = None) -> int:
        """Check journal, state and every release on disk; the number of steps, or ``StateError``.

        ``newest`` reads the files of so many releases only, the last ones; of the others it looks whether
        they are there.
        """
        there = self._folder.in_place()  # before the journal is read: a step is decided before it is visible
        self._journal.check()
        rows = self._journal.steps("number", "release", "hashes")
        read_from = 0 if newest is None else len(rows) - newest
        removed, names = self._removed(), {name for _, name in there}
        problems = []
        for number, name, hashes in rows:
            if removed(number) or (number <= read_from and name in names):
                continue
            try:
                self._folder.check(self._folder.place(self._folder.releases, name), json.loads(hashes))
            except StateError as problem:
                problems.append(str(problem))
        problems += [f"{name} is not in the ledger" for number, name in there if number > len(rows)]
        try:
            self._last_state(lambda state: state)
        except StateError as problem:
            problems.append(str(problem))
        if problems:
            more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
            raise StateError("; ".join(problems[:3]) + more)
        return len(rows)

    def close(self) -> None:
        """Let go of the directory."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<run of {self.mechanism} in {self._folder.path}: {self.steps} steps, spent {self.spent}>"

    def _stream_class(self) -> type[Any]:
        return class_of(self.mechanism)

    def _last_state(self, use: Callable[[Path], T]) -> T:
        """What ``use`` makes of the last state's file; again, if a writer moved on in between."""
        while True:
            row = self._journal.last()
            try:
                return use(self._check_state(row))
            except StateError:
                now = self._journal.last()
                if (row and row["number"]) == (now and now["number"]):
                    raise

    def _check_state(self, row: Any) -> Path:
        """The file of the state after the step of ``row``; ``StateError`` if it is not whole."""
        if row is None:
            name, hashes = self._folder.state_name(0), {"state": {"": self._journal.facts["initial"]}}
        else:
            name, hashes = row["state"], json.loads(row["hashes"])
        path = self._folder.place(self._folder.state, name)
        self._folder.check(path, hashes)
        return path

    def _check_release(self, row: Any) -> Path:
        """The folder of a step's release; ``StateError`` if it is not whole."""
        path = self._folder.place(self._folder.releases, row["release"])
        self._folder.check(path, json.loads(row["hashes"]))
        return path

    def _removed(self) -> Callable[[int], bool]:
        """Tells of a step whether its release was removed by ``compact``."""
        through, keep_every = self._compaction()
        return lambda step: step <= through and step % keep_every != 0

    def _compaction(self) -> tuple[int, int]:
        """Up to which step releases were removed, and every how many one was kept."""
        note = self._journal.note("compacted") or {"through": 0, "keep_every": 1}
        return int(note["through"]), int(note["keep_every"])

    def _stored(self, row: Any) -> Any:
        from streams.runs.stored import read_release

        if self._removed()(row["number"]):
            raise LedgerError(
                f"the release of batch {row['batch']!r} was removed when the run was compacted; the step "
                "stands"
            )
        return read_release(self._committed(self._check_release(row)), row)


def open_view(directory: str | os.PathLike[str]) -> RunView:
    """The run in a directory, to look at; ``ConfigError`` if there is none."""
    folder = RunDirectory(directory)
    if not folder.journal.exists():
        raise ConfigError(f"there is no run in {os.fspath(directory)}")
    return RunView(folder, Journal(folder.journal, read_only=True))


def check_parts(parts: Any) -> tuple[str, ...]:
    """``ConfigError`` unless these can be names of a release's parts."""
    good = isinstance(parts, tuple | list) and all(isinstance(p, str) and p.isidentifier() for p in parts)
    if not good or not parts:
        raise ConfigError(f'parts must be names like ("data", "cells"), got {parts!r}')
    return tuple(parts)


def class_of(name: str) -> type[Any]:
    """One of the toolkit's own streams by name; never an arbitrary import."""
    import synthgeo
    from streams import scalar  # late: it brings much with it

    found = next(
        (getattr(m, name) for m in (synthgeo, synthgeo.baselines, scalar) if name in m.__all__), None
    )
    if isinstance(found, type) and hasattr(found, "update") and hasattr(found, "load"):
        return found
    raise ConfigError(f"this is a run of {name}, which is not one of the toolkit's streams: give the stream")

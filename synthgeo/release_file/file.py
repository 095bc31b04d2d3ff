"""``sg.ReleaseFile``: one file describes a release, and every verb takes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from synthgeo.errors import ConfigError
from synthgeo.release_file import products, text
from synthgeo.release_file.arrivals import connected, expand
from synthgeo.release_file.sections import (
    SECTIONS,
    About,
    Columns,
    Data,
    Engine,
    Place,
    Privacy,
    Publish,
    Time,
)

if TYPE_CHECKING:
    import pandas as pd

    from synthgeo.planning import Plan
    from synthgeo.preflight import CheckReport
    from synthgeo.publishing.folder import Published
    from synthgeo.release_file.asked import Ran
    from synthgeo.release_file.status import Status


class ReleaseFile:
    """Everything public about one release. Make one with ``load``, ``loads`` or ``from_product``.

    A file that says what no release can be is refused with its section, key and line, before anything is read
    or spent. The attributes ``data``, ``columns``, ``privacy``, ``place``, ``time``, ``engine`` and
    ``publishing`` are its sections; ``values`` holds what is stated.

    >>> file = ReleaseFile.loads('''
    ... kind = "points"
    ... [data]
    ... files = "pickups/*.csv"
    ... [privacy]
    ... epsilon = 1.0
    ... [place]
    ... bounds = [0, 0, 1, 1]
    ... ''')
    >>> file.product()
    <PHDStream: ε = 1 for one event (one insertion or deletion); 0 steps taken>
    """

    def __init__(
        self,
        source: str,
        *,
        path: str | os.PathLike[str] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._place = text.TextPlace("the release file" if self.path is None else self.path.name, source)
        found = text.parse(source, self._place.name)
        for dotted, value in (changes or {}).items():
            text.set_value(found, dotted, value)
        self.text = text.edited(source, changes) if changes else source
        self.values = text.checked(found, self._place)
        self.about: About = self._section("", About)
        self.data: Data = self._section("data", Data)
        self.columns: Columns = self._section("columns", Columns)
        self.privacy: Privacy = self._section("privacy", Privacy, epsilon=None)
        self.place: Place = self._section("place", Place)
        self.time: Time = self._section("time", Time)
        self.engine: Engine = self._section("engine", Engine)
        self.publishing: Publish = self._section("publish", Publish)
        self._check_sense()

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, changes: Mapping[str, Any] | None = None) -> Self:
        """Read a release file. ``changes`` maps ``section.key`` to values that are to hold instead."""
        try:
            source = Path(path).read_text(encoding="utf-8")
        except OSError as problem:
            raise ConfigError(f"cannot read the release file {path}: {problem.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{Path(path).name} is not a release file: not UTF-8 text") from None
        return cls(source, path=path, changes=changes)

    @classmethod
    def loads(cls, source: str, *, path: str | os.PathLike[str] | None = None) -> Self:
        """Read the text of a release file; paths in it begin at the folder of ``path``, or here."""
        return cls(source, path=path)

    @classmethod
    def from_product(
        cls, product: Any, *, path: str | os.PathLike[str] | None = None, **sections: Any
    ) -> Self:
        """The file that describes a product. ``sections`` say what a product does not know: ``data=...``,
        ``time=...``, ``title=...``; and ``place`` for a domain that is no box.
        """
        if getattr(product, "ledger", None) is not None and "ledger" not in sections.get("privacy", {}):
            raise ConfigError("a product does not tell where its ledger is: give privacy={'ledger': path}")
        return cls(text.written(products.values_of(product, sections)), path=path)

    def but(self, changes: Mapping[str, Any]) -> Self:
        """The same file with some ``section.key`` changed (None: taken out); comments stay."""
        return type(self)(text.edited(self.text, changes), path=self.path)

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the text, as it stands, to ``path`` or to where it came from."""
        target = self.path if path is None else Path(path)
        if target is None:
            raise ConfigError("give the path to write to")
        target.write_text(self.text, encoding="utf-8")
        return target

    def canonical(self) -> str:
        """The same statements in the order of the declarations, without comments."""
        return text.written(self.values)

    @property
    def kind(self) -> str:
        """What it releases."""
        return str(self.about.kind)

    @property
    def title(self) -> str | None:
        """The title of the release."""
        return self.about.title

    @property
    def has_steps(self) -> bool:
        """Whether it releases step by step, in a durable run."""
        return self.kind in ("points", "panel") or text.has_steps(self.values)

    @property
    def has_windows(self) -> bool:
        """Whether its steps are windows of time."""
        return self.time.every not in (None, "file")

    @cached_property
    def folder(self) -> Path:
        """Where the run or the model is kept: private."""
        stem = "release" if self.path is None else self.path.stem
        return self.path_of(self.about.folder or f"runs/{stem}")

    def path_of(self, name: str) -> Path:
        """A path of the file: it begins at the file's own folder."""
        return (Path.cwd() if self.path is None else self.path.parent) / name

    def files(self) -> list[Path]:
        """The files that [data] names, in order of their names."""
        return self.files_of(self.data.files)

    def files_of(self, patterns: Any) -> list[Path]:
        """The files that texts or globs name."""
        if patterns is None:
            raise self.error(("data",), "give files, the data")
        listed = [patterns] if isinstance(patterns, str) else list(patterns)
        return expand([str(self.path_of(one)) for one in listed])

    def error(self, path: Sequence[str], problem: str) -> ConfigError:
        """The error about what stands at ``path``, with its line."""
        return self._place.error(tuple(path), problem)

    def product(self, *, ledger: Any = None) -> Any:
        """The stream or synthesizer that makes the release. Private files are not read for it.

        It charges ``ledger``; ``run`` gives it the one that the file names.
        """
        return products.product_of(self, ledger=ledger)

    def check(self, *, now: Any = None) -> CheckReport:
        """Everything in the data that does not fit, at once. For the curator only; spends nothing."""
        from synthgeo.release_file import once, steps

        return steps.check(self, now) if self.has_steps else once.check_once(self)

    def plan(self, *, rows: int, steps: int = 1, **options: Any) -> Plan:
        """The error to expect at which ε; reads no data. Takes what ``sg.plan`` takes."""
        from synthgeo.release_file.status import plan

        return plan(self, rows=rows, steps=steps, **options)

    def run(
        self,
        *,
        now: Any = None,
        confirm: Callable[[CheckReport], bool] | None = None,
        **options: Any,
    ) -> Ran:
        """Release what is new; again tomorrow, and the day after. Does nothing where nothing is new, and says
        why.

        The data are looked at before a first release: where something does not fit, ``confirm`` decides, and
        without it ``InputError`` says what it is. ``now`` is the clock, for tests.
        """
        from synthgeo.release_file import asked, once, steps

        wanted = asked.Options(confirm=confirm, **options)
        asked.check_standing(self)
        with asked.ledger_of(self) as ledger, connected(asked.cluster_of(self)):
            if self.has_steps:
                return steps.run_steps(self, ledger, wanted, now)
            if wanted.watch is not None:
                raise ConfigError('a folder is watched for a run whose steps are files: every = "file"')
            return once.run_once(self, ledger, wanted)

    def status(self, *, now: Any = None) -> Status:
        """What is released, until when, what it cost, and what the next step will cost."""
        from synthgeo.release_file.status import status

        return status(self, now=now)

    def verify(self) -> int:
        """Read every stored release: is it the one that was recorded? How many there are."""
        from synthgeo.release_file.status import verify

        return verify(self)

    def conditioned(self) -> Any:
        """The schema whose columns a sample can be given conditions on."""
        found = products.schema_of(self, "parent" if self.kind == "households" else "schema")
        if found is None:
            raise self.error((), f"{self.kind} without [schema.NAME] have no columns for conditions")
        return found

    def sample(self, number: int | None = None, **options: Any) -> Any:
        """A synthetic dataset: drawn from the model, or of a run the last release drawn anew. Free."""
        from synthgeo.release_file.released import sample

        return sample(self, number, **options)

    def publish(
        self, directory: str | os.PathLike[str] | None = None, *, overwrite: bool = False
    ) -> Published:
        """Write what may be handed on, with its data card, to a folder of its own."""
        from synthgeo.release_file.released import publish

        return publish(self, directory, overwrite=overwrite)

    def withdraw(self, reason: str, *, published: str | os.PathLike[str] | None = None) -> Path:
        """Mark the release as one that should not have been published, and the folder ``published`` too.

        It is neither run nor published again. What it spent stays spent.
        """
        from synthgeo.release_file.released import withdraw

        return withdraw(self, reason, published)

    def evaluate(
        self, metrics: Sequence[str] | None = None, *, real: Any = None, repeats: int = 5
    ) -> pd.DataFrame:
        """Compare the release with the private data. For the curator only."""
        from synthgeo.release_file.released import evaluate

        return evaluate(self, metrics, real=real, repeats=repeats)

    def report(self, path: str | os.PathLike[str], *, public: bool = False, real: Any = None) -> Path:
        """Write an HTML page about the release: for the curator, or ``public`` for everybody."""
        from synthgeo.release_file.released import report

        return report(self, path, public=public, real=real)

    def _section(self, name: str, kind: type[Any], **usual: Any) -> Any:
        own = SECTIONS[name]
        assert own is kind
        given = self.values if name == "" else self.values.get(name, {})
        known = {one: given[one] for one in kind.__dataclass_fields__ if one in given}
        return kind(**(usual | known))

    def _check_sense(self) -> None:
        """Refuse statements that contradict each other."""
        reading, time, columns = self.data.reading or {}, self.time, self.columns
        if self.privacy.epsilon is None:
            raise self.error(("privacy",), "give [privacy] epsilon, the privacy budget")
        products.budget_of(self)
        if "tz" in reading and time.tz not in (None, reading["tz"]):
            raise self.error(("time", "tz"), f"tz is {time.tz!r}, but [data] reading says {reading['tz']!r}")
        if columns.wave is not None and time.every is not None:
            raise self.error(("time", "every"), "every does not go with [columns] wave: both cut the rows")
        if self.has_windows:
            self._check_windows()
        else:
            for name in ("start", "end", "wait"):
                if getattr(time, name) is not None:
                    raise self.error(("time", name), f"{name} goes with windows: every = ...")
        if (columns.wave is None) != (time.waves is None):
            raise self.error(
                ("columns" if time.waves is None else "time",), "[columns] wave and [time] waves go together"
            )
        if self.engine.scheduler is not None and self.engine.spark is not None:
            raise self.error(("engine", "spark"), "give scheduler or spark, not both")
        if self.engine.timeout is not None and self.engine.scheduler is None and self.engine.spark is None:
            raise self.error(("engine", "timeout"), "timeout goes with scheduler or spark")
        if isinstance(self.data.files, dict) != (self.kind == "households") and self.data.files is not None:
            raise self.error(
                ("data", "files"),
                "files = { parents = ..., children = ... } is for households, and only for them",
            )
        if self.kind == "series" and columns.value is None:
            raise self.error(("columns",), "give [columns] value, the column of numbers")
        if self.kind == "od" and (columns.origin is None or columns.destination is None):
            raise self.error(("columns",), "give [columns] origin and destination, two columns each")
        if (columns.departure is None) != (columns.arrival is None):
            raise self.error(("columns",), "give both departure and arrival, or neither")
        try:
            products.reading_of(self)
        except ConfigError as problem:
            raise self.error(("data", "reading"), str(problem)) from None
        products.unit_of(self)

    def _check_windows(self) -> None:
        from synthgeo.sources.grid import check_grid

        time = self.time
        if self.columns.time is None and self.kind != "trips":
            raise self.error(
                ("columns",), f"windows of {time.every} need [columns] time, the column of times"
            )
        if time.start is None:
            raise self.error(("time",), "windows need start, a public date: the data do not tell it")
        try:
            check_grid(str(time.every), time.start, time.end)
        except ConfigError as problem:
            raise self.error(("time", "every"), str(problem)) from None

    def __repr__(self) -> str:
        return f"<release file of {self.kind}{'' if self.path is None else f', {self.path.name}'}>"


__all__ = ["ReleaseFile"]

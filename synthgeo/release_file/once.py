"""Releases that are made once: a table, households, trips, a series. The model is paid for, so it is kept."""

from __future__ import annotations

import json
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthgeo.errors import ConfigError, InputError, LedgerError, StateError
from synthgeo.release_file.arrivals import read
from synthgeo.release_file.products import budget_of, columns_for_fit, noise_of, reading_of

if TYPE_CHECKING:
    from synthgeo.preflight import CheckReport
    from synthgeo.privacy.ledger import Ledger
    from synthgeo.release_file.file import ReleaseFile
    from synthgeo.release_file.running import Options, Ran

MODEL, SERIES, STATEMENT, RECORD = "release.model", "released.csv", "statement.json", "release.toml"
# What a release that was made once cannot take back.
_FIXED = ("kind", "columns", "privacy", "place", "time", "schema", "parent", "child", "rules", "method")


def made(file: ReleaseFile) -> Path | None:
    """The file of the release, if it was made."""
    path = file.folder / (SERIES if file.kind == "series" else MODEL)
    return path if path.exists() else None


def run_once(file: ReleaseFile, ledger: Ledger | None, options: Options) -> Ran:
    """Make the release, unless it was made."""
    from synthgeo.release_file.running import Ran, confirmed, looks

    found = made(file)
    if found is not None:
        check_same(file)
        return Ran(
            file.folder, 0, 1, budget_of(file), noise_of(file).releasable,
            f"the release is made, in {found}; nothing new: another one needs another folder, and pays again",
        )  # fmt: skip
    if file.folder.exists() and (file.folder / "ledger.sqlite").exists():
        raise LedgerError(f"{file.folder} holds a run that goes step by step; this file releases once")
    if looks(reading_of(file), options) and file.engine.scheduler is None and file.engine.spark is None:
        confirmed(check_once(file), options.confirm)
    _prepare(file.folder)
    if file.kind == "series":
        spent, releasable = _release_series(file, ledger)
    else:
        product = file.product(ledger=ledger)
        _fit(file, product)
        _save(product, file.folder / MODEL)
        spent, releasable = product.budget, product.noise.releasable
    _private(file.folder / RECORD, file.canonical())
    return Ran(file.folder, 1, 1, spent, releasable, why_not=None if releasable else "made with seeded noise")


def check_same(file: ReleaseFile) -> None:
    """``LedgerError`` where the file says something else than the release that was made from it."""
    from synthgeo.release_file.text import parse

    record = file.folder / RECORD
    if not record.exists():
        return
    before = parse(record.read_text(encoding="utf-8"), record.name)
    now = parse(file.canonical(), "the release file")
    for section in _FIXED:
        if before.get(section) != now.get(section):
            what = section if section == "kind" else f"[{section}]"
            raise LedgerError(
                f"{what} changed since the release in {file.folder} was made: it cannot be made anew for "
                "what was spent; another folder makes another release"
            )


def check_once(file: ReleaseFile) -> CheckReport:
    """Everything in the data that does not fit."""
    if file.kind == "series":
        return _check_series(file)
    product = file.product()
    if file.kind == "households":
        found: CheckReport = product.check(*_tables(file))
        return found
    paths = [str(path) for path in file.files()]
    options = columns_for_fit(file.columns) if file.kind in ("trips", "od") else {}
    report: CheckReport = product.check(paths, **options)
    return report


def _tables(file: ReleaseFile) -> list[list[str]]:
    if file.data.files is None:
        raise file.error(("data",), "give files = { parents = ..., children = ... }")
    return [
        [str(path) for path in file.files_of(file.data.files[table])] for table in ("parents", "children")
    ]


def _fit(file: ReleaseFile, product: Any) -> None:
    if file.kind == "households":
        product.fit(*_tables(file))
    elif file.kind in ("trips", "od"):
        from synthgeo.release_file.running import cluster_of

        product.fit(read(file.files(), cluster_of(file), reading_of(file)), **columns_for_fit(file.columns))
    else:
        product.fit([str(path) for path in file.files()])


def _prepare(folder: Path) -> None:
    """The folder, for the owner only, tried before anything is spent."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise ConfigError(f"cannot write to {folder}: {problem.strerror}") from None


def _save(product: Any, out: Path) -> None:
    """Write the model. It is paid for: if it cannot be written where it should, it is put where it can."""
    try:
        product.save(out)
    except (OSError, KeyboardInterrupt) as problem:
        reason = getattr(problem, "strerror", None) or "interrupted"
        raise StateError(f"{out}: {reason}; {_rescued(product, out)}") from problem


def _rescued(product: Any, out: Path) -> str:
    name = f"rescued-{secrets.token_hex(4)}-{out.name}"
    in_memory = Path("/dev/shm")  # noqa: S108  the last resort; files there are 0600 too
    for folder in (out.parent, Path.cwd(), Path.home(), Path(tempfile.gettempdir()), in_memory):
        with suppress(OSError, RuntimeError):
            product.save(folder / name)
            return f"the model, which is paid for, is in {(folder / name).resolve()}: move it to a safe place"
    return "the model, which is paid for, could not be written anywhere and is lost"


def _private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _series(file: ReleaseFile) -> tuple[Any, dict[str, Any]]:
    """The numbers, and the public columns beside them."""
    from synthgeo.sources import open_source
    from synthgeo.sources.values import as_words, finite

    column, keep = str(file.columns.value), file.columns.keep or []
    source = open_source([str(path) for path in file.files()], reading=reading_of(file))
    chunk = source.read(list(dict.fromkeys([column, *keep])), check=lambda chunk: finite(chunk, column))
    return finite(chunk, column), {name: as_words(chunk, name) for name in keep}


def _check_series(file: ReleaseFile) -> CheckReport:
    """Values that are no numbers, and a mechanism that cannot be made for this many."""
    from synthgeo.preflight import CheckReport, preflight
    from synthgeo.sources import open_source
    from synthgeo.sources.values import finite

    column = str(file.columns.value)
    source = open_source([str(path) for path in file.files()], reading=reading_of(file))
    kinds = {column: "number"} | dict.fromkeys(file.columns.keep or [], "text")
    report = preflight(source, kinds, [lambda chunk: finite(chunk, column)])
    if report.ok:
        try:
            _rehearse(file, _series(file)[0])
        except InputError as problem:
            return CheckReport.of_problem(problem)
    return report


def _rehearse(file: ReleaseFile, values: Any, noise: Any = None) -> Any:
    """The release with seeded noise, thrown away: whatever is wrong shows before the ledger is charged."""
    from streams.scalar.release import release_series
    from synthgeo.privacy.noise import SeededNoise

    options = dict(file.values.get("method", {}))
    try:
        return release_series(values, budget=budget_of(file), noise=noise or SeededNoise(0), **options)
    except ConfigError as problem:
        raise file.error(("method",), str(problem)) from problem


def _release_series(file: ReleaseFile, ledger: Ledger | None) -> tuple[Any, bool]:
    from streams.runs.identity import fingerprint_of

    values, keep = _series(file)
    if ledger is not None:
        unit = _rehearse(file, values).unit
        name = f"series {file.values.get('method', {}).get('mechanism', 'fast')}"
        ledger.charge(name, budget_of(file), unit, content_hash=fingerprint_of(values))
    release = _rehearse(file, values, noise_of(file))
    frame = release.to_frame()
    for number, (name, column) in enumerate(keep.items()):
        frame.insert(number, name, column)
    _private(file.folder / STATEMENT, json.dumps(release.provenance, indent=2, default=str) + "\n")
    part = file.folder / f".{SERIES}"
    _private(part, frame.to_csv(index=False))
    part.rename(file.folder / SERIES)
    return release.spent, release.releasable

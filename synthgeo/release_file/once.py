"""Releases that are made once: a table, households, trips, a series. The model is paid for, so it is kept."""

from __future__ import annotations

import glob
import json
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthgeo.errors import ConfigError, InputError, LedgerError, StateError
from synthgeo.release_file.arrivals import read
from synthgeo.release_file.asked import Options, Ran, cluster_of, confirmed, looks
from synthgeo.release_file.products import budget_of, columns_for_fit, noise_of, reading_of

if TYPE_CHECKING:
    from synthgeo.preflight import CheckReport
    from synthgeo.privacy.ledger import Ledger
    from synthgeo.release_file.file import ReleaseFile

MODEL, SERIES, STATEMENT, RECORD = "release.model", "released.csv", "statement.json", "release.toml"
DELIVERED = "the model of a fit that was interrupted after it was paid for; nothing was fitted now"
_FORGOTTEN_SECONDS = 3600.0
# What a release that was made once cannot take back.
_FIXED = ("kind", "columns", "privacy", "place", "time", "schema", "parent", "child", "rules", "method")


def made(file: ReleaseFile) -> Path | None:
    """The file of the release, if it was made."""
    path = file.folder / (SERIES if file.kind == "series" else MODEL)
    return path if path.exists() else None


def run_once(file: ReleaseFile, ledger: Ledger | None, options: Options) -> Ran:
    """Make the release, unless it was made."""
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
    _private(file.folder / RECORD, file.canonical())
    if file.kind == "series":
        spent, releasable = _release_series(file, ledger)
    else:
        product = file.product(ledger=ledger)
        if not fit_kept(product, file.folder / MODEL, lambda: _fit(file, product)):
            options.tell({"said": DELIVERED})
        spent, releasable = product.budget, product.noise.releasable
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


def fit_kept(product: Any, out: Path, fit: Callable[[], Any]) -> bool:
    """Fit and keep the model. False where a killed command had paid for it already and it only got its name.

    With a ledger, the model is on disk before the ledger commits the fit, and gets its name then. When a
    command was killed in between, the same command again delivers what was committed, or fits on the same
    charge.
    """
    ledger = product.ledger
    if ledger is None:
        fit()
        _save(product, out)
        return True
    if delivered(ledger, out, product.budget, product.unit):
        return False
    stored: list[Path] = []

    def store(key: str) -> None:
        stored.append(waiting(out, key))
        try:
            product.save(stored[0])
        except OSError as problem:
            raise StateError(
                f"{out}: {problem.strerror}; nothing was released: the same command, when there is room, "
                "costs nothing more"
            ) from problem

    product.before_commit = store
    fit()
    stored[0].replace(out)
    return True


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


def _save(product: Any, out: Path) -> None:
    """Write a model; if that cannot be where it should, it is put where that is possible."""
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
    from streams.runs.directory import make_durable
    from streams.runs.identity import fingerprint_of
    from synthgeo.release import write_csv

    values, keep = _series(file)
    out, budget = file.folder / SERIES, budget_of(file)
    unit = _rehearse(file, values).unit
    reservation = None
    if ledger is not None:
        if delivered(ledger, out, budget, unit):
            return budget, noise_of(file).releasable
        name = f"series {file.values.get('method', {}).get('mechanism', 'fast')}"
        content = fingerprint_of(values)
        reservation = ledger.reserve(name, budget, unit, key=ledger.new_key(), content_hash=content)
    release = _rehearse(file, values, noise_of(file))
    frame = release.to_frame()
    for number, (name, column) in enumerate(keep.items()):
        frame.insert(number, name, column)
    _private(file.folder / STATEMENT, json.dumps(release.provenance, indent=2, default=str) + "\n")
    stored = waiting(out, "unpaid" if reservation is None else reservation.key)
    _private(stored, "")
    write_csv(frame, stored)
    make_durable(stored)
    if ledger is not None and reservation is not None:
        ledger.commit(reservation)
    stored.replace(out)
    return release.spent, release.releasable

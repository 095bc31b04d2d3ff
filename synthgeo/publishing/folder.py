"""``publish``: releases become a folder that can be handed on as it is.

README.md, data-card.html    the data card, in words
*.parquet, *.gpkg, ...       the synthetic data, in the formats that were asked for
statement.json               the promise, the columns and the files, for machines
registry-entry.yaml          a draft for the registry of privacy deployments
SHA256SUMS                   checksums of all of these
"""

from __future__ import annotations

import ctypes
import datetime as dt
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from synthgeo import validate
from synthgeo.domain.coordinates import crs_text
from synthgeo.errors import ConfigError
from synthgeo.hashing import file_hash
from synthgeo.publishing import card, registry, writers
from synthgeo.publishing.card import Description
from synthgeo.publishing.dictionary import column_dictionary
from synthgeo.publishing.frames import period, published_frames
from synthgeo.publishing.signing import CHECKSUMS
from synthgeo.release import Release
from synthgeo.schema import Schema
from synthgeo.state import sync_folder


@dataclass(frozen=True)
class Published:
    """What was written where, and what the registry of deployments still wants to be told."""

    folder: Path
    files: tuple[str, ...]
    rows: dict[str, int]
    missing: tuple[str, ...]


def check_target(directory: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """The folder to make; ``ConfigError`` if it holds something, or cannot be made."""
    target = Path(directory).absolute()
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target} is a file; give a folder to publish to")
    if target.is_dir() and any(target.iterdir()):
        if not overwrite:
            raise ConfigError(f"{target} is not empty; give another folder, or overwrite it")
        if not (target / CHECKSUMS).exists():
            raise ConfigError(f"{target} was not made by publish, so it is not overwritten")
    if not target.parent.is_dir():
        raise ConfigError(f"there is no folder {target.parent}")
    return target


def publish(
    releases: Sequence[Release],
    directory: str | os.PathLike[str],
    *,
    formats: Any = ("geoparquet", "csv"),
    crs: Any = None,
    description: Description | None = None,
    schema: Schema | None = None,
    overwrite: bool = False,
) -> Published:
    """Write the synthetic data of ``releases``, with its data card, to a folder that anybody may read.

    The folder appears as a whole or not at all, and replaces another (``overwrite``) in the same way: nobody
    finds a part of it, or nothing. Files have mode 0644.
    """
    chosen = writers.check_formats(formats)
    for release in releases:
        if not release.releasable:
            why = release.provenance.get("not_releasable_because", "it is not releasable")
            raise ConfigError(f"this may not be published: {why}")
    validate.instance(overwrite, "overwrite", bool)
    target = check_target(directory, overwrite=overwrite)
    frames = published_frames(releases, crs)
    writers.check_fits(frames, chosen)
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        made = _fill(folder, releases, frames, chosen, description or Description(), schema)
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        _put(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    files = tuple(sorted(path.name for path in target.iterdir()))
    return Published(target, files, {name: len(frame) for name, frame in frames.items()}, tuple(made))


def _put(folder: Path, target: Path) -> None:
    """Give a finished folder its name, in place of what has it now."""
    for path in (*folder.iterdir(), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    if not target.exists():
        folder.rename(target)
    elif _exchange(folder, target):
        shutil.rmtree(folder)
    else:  # two renames: the closest that this system has
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.")) / target.name
        target.rename(aside)
        try:
            folder.rename(target)
        except BaseException as problem:
            try:
                aside.rename(target)
            except OSError:
                raise ConfigError(
                    f"{target} could not be replaced; what was there is in {aside}"
                ) from problem
            aside.parent.rmdir()
            raise
        shutil.rmtree(aside.parent)
    sync_folder(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap the names of two folders at once; False where the system cannot."""
    swap = getattr(ctypes.CDLL(None), "renameat2", None)  # of Linux
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return swap is not None and not swap(here, os.fsencode(one), here, os.fsencode(other), exchange)


def withdraw(directory: str | os.PathLike[str], *, withdrawn: str, reason: str) -> None:
    """Say in a published folder, its card and its statement that it should not have been published.

    The checksums are written anew; a signature no longer holds, and is removed.
    """
    folder = Path(directory)
    if not (folder / CHECKSUMS).exists():
        raise ConfigError(f"{folder} was not made by publish")
    notice = f"WITHDRAWN on {withdrawn}: {reason}. Do not use or pass on this folder."
    _write_json(folder / "WITHDRAWN.json", {"withdrawn": withdrawn, "reason": reason})
    readme, page = folder / "README.md", folder / "data-card.html"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(f"**{notice}**\n\n{text}", encoding="utf-8")
    marked = f"<body>\n<p><strong>{escape(notice)}</strong></p>"
    text = page.read_text(encoding="utf-8").replace("<body>", marked, 1)
    page.write_text(text, encoding="utf-8")
    statement = json.loads((folder / "statement.json").read_text(encoding="utf-8"))
    _write_json(folder / "statement.json", statement | {"withdrawn": withdrawn, "reason": reason})
    kept = [path for path in folder.iterdir() if path.name != CHECKSUMS and path.suffix != ".sig"]
    for path in folder.glob("*.sig"):
        path.unlink()
    sums = [f"{file_hash(path)}  {path.name}\n" for path in sorted(kept, key=lambda path: path.name)]
    (folder / CHECKSUMS).write_text("".join(sums), encoding="utf-8")


def _fill(
    folder: Path,
    releases: Sequence[Release],
    frames: dict[str, pd.DataFrame],
    formats: Sequence[str],
    description: Description,
    schema: Schema | None,
) -> list[str]:
    """Write everything; what the registry's entry lacks."""
    last = releases[-1]
    schema = getattr(last, "schema", None) if schema is None else schema
    statement = last.provenance
    schemas = {"children": getattr(last, "child_schema", None)}
    dictionary = {
        name: column_dictionary(frame, schemas.get(name, schema), key=statement.get("key"))
        for name, frame in frames.items()
    }
    paths = writers.write(
        frames, folder, formats, name=last.product, statement=statement, dictionary=dictionary
    )
    title = description.title or f"Synthetic {card.THINGS[last.product]}"
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    error = _expected_error(last)
    rows = {name: len(frame) for name, frame in frames.items()}
    files = pd.DataFrame(
        [(path.name, _KINDS[path.suffix], f"{path.stat().st_size:,}") for path in paths],
        columns=["file", "format", "bytes"],
    )
    sections = card.data_card(
        product=last.product,
        provenance=statement,
        description=description,
        title=title,
        files=files,
        dictionary=dictionary,
        counts=rows,
        steps=[release.step for release in releases],
        period=period(releases),
        crs=_crs_of(frames),
        expected_error=error,
        published=today,
    )
    (folder / "README.md").write_text(card.markdown(sections), encoding="utf-8")
    (folder / "data-card.html").write_text(card.html(sections), encoding="utf-8")
    errors = None if error is None else json.loads(error.to_json(orient="records"))
    entry = registry.registry_entry(
        product=last.product,
        provenance=statement,
        description=description,
        title=title,
        published=today,
        total=last.total,
        many="step" in statement,
        expected_error=errors,
    )
    lacking = registry.missing(entry)
    head = f"# Fill in before you send this in: {', '.join(lacking)}\n" if lacking else ""
    (folder / "registry-entry.yaml").write_text(head + registry.yaml_text(entry), encoding="utf-8")
    _write_json(
        folder / "statement.json",
        {
            "title": title,
            "published": today,
            "statements": [release.provenance for release in releases],
            "rows": rows,
            "columns": {name: table.to_dict(orient="records") for name, table in dictionary.items()},
            "schema": None if schema is None else schema.to_json(),
            "expected_error": errors,
            "declared_after_looking": list(description.after_looking),
            "files": {path.name: file_hash(path) for path in paths},
        },
    )
    names = sorted(path.name for path in folder.iterdir())
    sums = [f"{file_hash(folder / name)}  {name}\n" for name in names]
    (folder / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    return lacking


_KINDS = {".parquet": "Parquet", ".gpkg": "GeoPackage", ".csv": "CSV", ".xlsx": "Excel"}


def _expected_error(release: Release) -> pd.DataFrame | None:
    try:
        return release.expected_error()
    except ConfigError:  # stored without it
        return None


def _crs_of(frames: dict[str, pd.DataFrame]) -> str | None:
    for frame in frames.values():
        crs = getattr(frame, "crs", None)
        if crs is not None:
            return f"{crs_text(crs)} ({crs.name})" if crs.to_authority() else str(crs.name)
    return None


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")

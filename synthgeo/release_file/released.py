"""What was released: drawn, handed on, compared with the private data, shown on a page."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthgeo.errors import ConfigError, InputError
from synthgeo.release_file.asked import WITHDRAWN, check_standing
from synthgeo.release_file.once import SERIES, made
from synthgeo.release_file.products import reading_of

if TYPE_CHECKING:
    import pandas as pd

    from synthgeo.publishing.folder import Published
    from synthgeo.release_file.file import ReleaseFile

_MODELS = {
    "table": "TabularSynthesizer",
    "households": "HouseholdSynthesizer",
    "trips": "TrajectorySynthesizer",
    "od": "TrajectorySynthesizer",
}
_NAMED = ("x", "y", "crs", "trip", "time")
SEEDED = "made with seeded noise, which anybody who knows the seed can subtract"


def model(file: ReleaseFile) -> Any:
    """The fitted model of a release that was made once."""
    import synthgeo as sg

    found = made(file)
    if found is None:
        raise ConfigError(f"nothing is released in {file.folder} yet: run makes the release")
    if file.kind == "series":
        raise ConfigError(f"the release of a series is {found}: there is no model to draw from")
    return getattr(sg, _MODELS[file.kind]).load(found)


def last_release(file: ReleaseFile) -> tuple[Any, dict[str, str]]:
    """The release as of the last step, drawn anew, and the columns that its run reads."""
    from streams.runs.run import StreamRun

    if not file.has_steps:
        columns = {name: getattr(file.columns, name) for name in _NAMED}
        return model(file).sample(), {name: one for name, one in columns.items() if one is not None}
    if not (file.folder / "ledger.sqlite").exists():
        raise ConfigError(f"nothing is released in {file.folder} yet: run makes the release")
    with StreamRun.view(file.folder) as run:
        if not run.steps:
            raise ConfigError(f"the run in {file.folder} has released nothing yet")
        stream = run.stream()  # checks that the state is the one the journal remembers
    names = _NAMED if file.kind == "trips" else _NAMED[:3]
    found = {name: getattr(stream.columns, name) for name in names}
    return stream.release, {name: column for name, column in found.items() if column is not None}


def sample(file: ReleaseFile, number: int | None = None, **options: Any) -> Any:
    """A synthetic dataset. Of a run it is that of the last release, whose size is released too."""
    if file.has_steps:
        if number is not None or options:
            raise ConfigError(
                "a run has released how much there is: its sample takes no number and no conditions"
            )
        return last_release(file)[0]
    return model(file).sample(number, **options)


def publish(file: ReleaseFile, directory: str | os.PathLike[str] | None, *, overwrite: bool) -> Published:
    """Write what may be handed on to a folder."""
    from synthgeo.publishing.folder import check_target
    from synthgeo.publishing.folder import publish as write
    from synthgeo.publishing.writers import check_formats

    wanted = file.publishing
    check_standing(file)
    stem = "release" if file.path is None else file.path.stem
    target = Path(directory) if directory is not None else file.path_of(f"{stem}-public")
    formats = check_formats(wanted.formats or ["geoparquet", "csv"])
    check_target(target, overwrite=overwrite)
    releases, schema = _steps(file) if file.has_steps else _drawn(file)
    return write(
        releases,
        target,
        formats=formats,
        crs=wanted.crs,
        description=wanted.description(file.about),
        schema=schema,
        overwrite=overwrite,
    )


def withdraw(file: ReleaseFile, reason: str, published: Any = None) -> Path:
    """Mark a release as one that should not have been published; and a folder that ``publish`` made of it."""
    import datetime as dt

    from synthgeo.publishing.folder import withdraw as mark

    if not file.status().numbers["released"]:
        raise ConfigError(f"nothing is released in {file.folder}: there is nothing to withdraw")
    if not reason.strip():
        raise ConfigError("say why it is withdrawn")
    facts = {"withdrawn": dt.datetime.now(tz=dt.UTC).date().isoformat(), "reason": reason.strip()}
    if published is not None:
        mark(published, **facts)
    path = file.folder / WITHDRAWN
    path.touch(mode=0o600)
    path.write_text(json.dumps(facts, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _drawn(file: ReleaseFile) -> tuple[list[Any], Any]:
    fitted = model(file)
    if not fitted.noise.releasable:
        raise ConfigError(f"this may not be published: {SEEDED}")
    if file.publishing.steps is not None:
        raise file.error(("publish", "steps"), "steps are those of a run; this is released once")
    release = fitted.sample(file.publishing.rows)
    return [release], getattr(release, "schema", None)


def _steps(file: ReleaseFile) -> tuple[list[Any], Any]:
    """The stored releases of a run, and its schema where it is one of tables."""
    from streams.runs.run import StreamRun

    if file.publishing.rows is not None:
        raise file.error(
            ("publish", "rows"), "rows are for what is released once: a run has stored its releases"
        )
    if not (file.folder / "ledger.sqlite").exists():
        raise ConfigError(f"nothing is released in {file.folder} yet: run makes the release")
    with StreamRun.view(file.folder) as run:
        if run.releasable is False:
            raise ConfigError(f"this may not be published: {run.why_not}")
        batches = run.batches
        if not batches:
            raise ConfigError("this run has released nothing yet")
        stream = run.stream()
        usual = "all" if getattr(stream, "lifetime", None) == 1 else "last"
        numbers = _numbers(file, file.publishing.steps or usual, len(batches))
        releases = [run.release(batches[number - 1]) for number in numbers]
    return releases, getattr(stream, "schema", None)


def _numbers(file: ReleaseFile, steps: Any, most: int) -> list[int]:
    """The steps that are handed on."""
    if steps in ("last", "all"):
        return [most] if steps == "last" else list(range(1, most + 1))
    listed = steps if isinstance(steps, list) else [steps]
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in listed) or not listed:
        raise file.error(("publish", "steps"), f"steps is last, all, or a list of numbers; got {steps!r}")
    if min(listed) < 1 or max(listed) > most:
        raise file.error(("publish", "steps"), f"this run has the steps 1 to {most}")
    return sorted(set(listed))


def evaluate(
    file: ReleaseFile, metrics: Sequence[str] | None, *, real: Any = None, repeats: int = 5
) -> pd.DataFrame:
    """Metrics of the release beside the private data. For the curator only."""
    import synthgeo as sg

    release, named = last_release(file)
    return sg.evaluate(truth_of(file, release, named, real), release, metrics or None, repeats=repeats)


def report(
    file: ReleaseFile, path: str | os.PathLike[str], *, public: bool = False, real: Any = None
) -> Path:
    """An HTML page about the release."""
    import synthgeo as sg
    from synthgeo.release_file.asked import ledger_of

    release, named = last_release(file)
    truth = None if public else truth_of(file, release, named, real)
    title = file.title or "Synthetic data report"
    with ledger_of(file, read_only=True) as ledger:
        return sg.report(truth, release, path, public=public, ledger=ledger, title=title)


def truth_of(file: ReleaseFile, release: Any, named: dict[str, str], real: Any = None) -> Any:
    """The private data that a release stands for: ``real``, or the file's own, as its metrics want them."""
    from synthgeo.sources import open_source

    if file.kind in ("households", "series", "panel"):
        raise ConfigError(f"{file.kind} have no metrics that compare them with the data yet")
    paths = file.files() if real is None else file.files_of(real)
    source = open_source([str(path) for path in paths], reading=reading_of(file))
    if real is None and file.has_windows:
        from synthgeo.release_file.steps import released_rows

        source = released_rows(file, source)
    return real_data(source, release, **named)


def real_data(source: Any, release: Any, *, trip: str = "trip_id", time: str = "time", **named: str) -> Any:
    """Rows as the metrics of this kind of release want them; ``named`` are the columns of coordinates."""
    import pandas as pd

    from synthgeo.domain.coordinates import find_coordinates
    from synthgeo.sources import values

    if "op" in source.columns and (values.operations(source.read(["op"]), "op") == -1).any():
        raise InputError("give the points that are there now, not the events that led there", column="op")
    if release.product == "table":
        return values.as_frame(source, release.schema.kinds)
    geometry = source.geometry if not named else None
    crs = source.crs if geometry is not None else named.get("crs")
    reader = find_coordinates(
        source.columns, release.domain, x=named.get("x"), y=named.get("y"), crs=crs, geometry=geometry
    )
    xy = reader(source.read(reader.columns, check=reader))
    frame = pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1]})
    if release.product == "trips":
        frame.insert(0, "trip_id", values.as_words(source.read([trip]), trip))
        if source.has(time):
            frame["time"] = values.times(source.read([time]), time, seconds=True)
    return frame


__all__ = [
    "SERIES",
    "evaluate",
    "last_release",
    "model",
    "publish",
    "real_data",
    "report",
    "sample",
    "truth_of",
]

"""``synthgeo publish``: what may be handed on, from a run or a model, in a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from synthgeo.cli import one_off
from synthgeo.cli.described import Set, is_release_file, load, only_options
from synthgeo.cli.options import Config, Json
from synthgeo.cli.output import emit, say, show_facts
from synthgeo.cli.runs import look
from synthgeo.errors import ConfigError

if TYPE_CHECKING:
    from synthgeo.publishing.folder import Published

# The models that can be published, by the kind in their file.
_MODELS = {
    "tabular-synthesizer": "TabularSynthesizer",
    "household-synthesizer": "HouseholdSynthesizer",
    "TrajectorySynthesizer": "TrajectorySynthesizer",
}


def publish(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(help="A release file; or the folder of a run, or the file of a model.")
    ],
    to: Annotated[Path | None, typer.Option("--to", help="The folder to make.")] = None,
    formats: Annotated[
        str, typer.Option("--formats", help="Some of geoparquet,gpkg,csv,xlsx.")
    ] = "geoparquet,csv",
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps", help="Of a run: last, all, or numbers such as 1,5. Default: all if lifetime is 1."
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", help="Of a model: how many rows or trips to draw.")
    ] = None,
    crs: Annotated[
        str | None, typer.Option("--crs", help="Coordinate system of the geometries; default: EPSG:4326.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the data card.")] = None,
    summary: Annotated[str | None, typer.Option("--summary", help="What the data is about.")] = None,
    curator: Annotated[str | None, typer.Option("--curator", help="Who publishes it.")] = None,
    curator_type: Annotated[
        str | None, typer.Option("--curator-type", help="Government, Industry or Nonprofit.")
    ] = None,
    contact: Annotated[str | None, typer.Option("--contact", help="Whom to ask.")] = None,
    license_: Annotated[str | None, typer.Option("--license", help="Under what licence.")] = None,
    region: Annotated[str | None, typer.Option("--region", help="What region it is about.")] = None,
    sector: Annotated[
        str | None,
        typer.Option("--sector", help="Technology, Healthcare, Education, Government, Energy or Finance."),
    ] = None,
    use: Annotated[str | None, typer.Option("--use", help="What it is meant for.")] = None,
    period: Annotated[str | None, typer.Option("--period", help="What time it is about.")] = None,
    after_looking: Annotated[
        list[str] | None,
        typer.Option(
            "--after-looking",
            help="A declaration that was made after looking at the private data; may be repeated.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that publish made.")] = False,
    as_json: Json = False,
    changes: Set = None,
    config: Config = None,
) -> None:
    """Write just what may be published, readable by anybody: data, data card, statement and checksums.

    From a run it takes the stored releases, from a model it draws a sample. Costs no privacy. Refuses what
    is not releasable.
    """
    del config
    if is_release_file(source):
        only_options(context, "to", "force", "as_json", "changes")
        _show(load(source, changes).publish(to, overwrite=force), as_json=as_json)
        return
    if changes:
        raise ConfigError("--set goes with a release file")
    from synthgeo.publishing.card import Description
    from synthgeo.publishing.folder import check_target
    from synthgeo.publishing.folder import publish as write
    from synthgeo.publishing.writers import check_formats

    if to is None:
        raise ConfigError("give --to, the folder to make")
    about = Description(
        title=title,
        summary=summary,
        curator=curator,
        curator_type=curator_type,
        contact=contact,
        license=license_,
        region=region,
        sector=sector,
        use=use,
        period=period,
        after_looking=tuple(after_looking or ()),
    )
    chosen = check_formats([name.strip() for name in formats.split(",") if name.strip()])
    check_target(to, overwrite=force)
    releases, schema = _of_run(source, steps, rows) if source.is_dir() else _of_model(source, steps, rows)
    made = write(releases, to, formats=chosen, crs=crs, description=about, schema=schema, overwrite=force)
    _show(made, as_json=as_json)


def _show(made: Published, *, as_json: bool) -> None:
    """What was written."""
    facts = {"folder": str(made.folder), "rows": made.rows, "files": list(made.files)}
    if as_json:
        emit(facts | {"registry_lacks": list(made.missing)})
        return
    rows = ", ".join(f"{number:,} in {name}" for name, number in made.rows.items())
    show_facts("published", facts | {"rows": rows, "files": ", ".join(made.files)})
    if made.missing:
        say(f"the registry's entry is a draft; it lacks {', '.join(made.missing)}")


def _of_run(folder: Path, steps: str | None, rows: int | None) -> tuple[list[Any], Any]:
    """The stored releases of a run, and its schema where it is one of tables."""
    if rows is not None:
        raise ConfigError("--rows is for models; a run has stored what it released")
    run = look(folder)
    if run is None:
        raise ConfigError(f"there is no run in {folder}")
    with run:
        if run.releasable is False:
            raise ConfigError(f"this may not be published: {run.why_not}")
        batches = run.batches
        if not batches:
            raise ConfigError("this run has released nothing yet")
        stream = run.stream()
        default = "all" if getattr(stream, "lifetime", None) == 1 else "last"
        numbers = _numbers(steps or default, len(batches))
        releases = [run.release(batches[number - 1]) for number in numbers]
    if not all(hasattr(release, "layers") for release in releases):
        raise ConfigError(f"a run of {run.mechanism} releases numbers; its CSV can be handed on as it is")
    return releases, getattr(stream, "schema", None)


def _numbers(steps: str, most: int) -> list[int]:
    if steps in ("last", "all"):
        return [most] if steps == "last" else list(range(1, most + 1))
    try:
        numbers = sorted({int(part) for part in steps.split(",")})
    except ValueError:
        raise ConfigError(f"--steps must be last, all, or numbers such as 1,5; got {steps!r}") from None
    if numbers[0] < 1 or numbers[-1] > most:
        raise ConfigError(f"--steps: this run has the steps 1 to {most}")
    return numbers


def _of_model(path: Path, steps: str | None, rows: int | None) -> tuple[list[Any], Any]:
    """A sample of a model, and its schema where it is one of tables."""
    import synthgeo as sg
    from synthgeo.state import kind_of

    if steps is not None:
        raise ConfigError("--steps is for runs; a model has none")
    if not path.exists():
        raise ConfigError(f"there is no run and no model {path}")
    kind = kind_of(path)
    if kind not in _MODELS:
        raise ConfigError(f"{path} holds a {kind}, which is private and cannot be published")
    model = getattr(sg, _MODELS[kind]).load(path)
    if not model.noise.releasable:
        raise ConfigError(f"this may not be published: {one_off.SEEDED}")
    release = model.sample(rows)
    return [release], getattr(release, "schema", None)

"""``synthgeo evaluate``, ``report`` and ``audit``: how good a release is, and whether its promise holds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli.described import Set, is_release_file, load, only_options
from synthgeo.cli.one_off import Force, check_out
from synthgeo.cli.options import Json, LedgerPath, X, XyCrs, Y, ledger_of
from synthgeo.cli.output import emit, say, show_facts, show_table
from synthgeo.errors import ConfigError, InputError
from synthgeo.extras import require
from synthgeo.state import kind_of

What = Annotated[
    Path, typer.Argument(help="A release file; or a run's folder, or a model that ``fit`` wrote.")
]
Real = Annotated[
    list[str] | None,
    typer.Option("--real", help="The private data that the release stands for; globs. Of a file: its own."),
]
Trip = Annotated[
    str | None, typer.Option("--trip", help="Column that tells trips apart, where it is not the run's own.")
]
Time = Annotated[
    str | None, typer.Option("--time", help="Column of times of trips, where it is not the run's own.")
]
NOTICE = "for the curator only: computed from private data"
REFUTED = 9
_NAMED = ("x", "y", "crs", "trip", "time")


def evaluate(
    context: typer.Context,
    what: What,
    real: Real = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="Only these metrics.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", help="Synthetic datasets to draw.")] = 5,
    x: X = None,
    y: Y = None,
    xy_crs: XyCrs = None,
    trip: Trip = None,
    time: Time = None,
    as_json: Json = False,
    changes: Set = None,
    reading: Any = None,
) -> None:
    """Compare a release with the private data. The result is not private: it is for the curator only.

    For tables, floor is the same metric between two random halves of the private table.
    """
    import synthgeo as sg

    if is_release_file(what):
        only_options(context, "real", "metric", "repeats", "as_json", "changes")
        found = load(what, changes).evaluate(metric or None, real=_from_here(real), repeats=repeats)
        _show(found, as_json=as_json)
        return
    if not real:
        raise ConfigError("give --real, the private data to compare with")
    release, named = release_of(what)
    truth = real_data(real, release, reading=reading, **(named | named_columns(x, y, xy_crs, trip, time)))
    _show(sg.evaluate(truth, release, metric or None, repeats=repeats), as_json=as_json)


def _from_here(real: list[str] | None) -> list[str] | None:
    """Paths as they are given here: a release file's own begin at its folder."""
    return None if real is None else [str(Path(path).absolute()) for path in real]


def _show(found: Any, *, as_json: bool) -> None:
    """The metrics."""
    floor = ["floor"] if "floor" in found else []
    rows = found[["metric", "value", "low", "high", *floor, "goal"]]
    if as_json:
        emit({"notice": NOTICE, "metrics": json.loads(rows.to_json(orient="records"))})
        return
    show_table(rows.columns, rows.itertuples(index=False), title=NOTICE)


def report(
    context: typer.Context,
    what: What,
    out: Annotated[Path, typer.Option("--out", help="The HTML page to write.")],
    force: Force = False,
    real: Annotated[
        list[str] | None, typer.Option("--real", help="The private data, for the curator's page; globs.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Only what may be published; takes nothing from --real.")
    ] = False,
    x: X = None,
    y: Y = None,
    xy_crs: XyCrs = None,
    trip: Trip = None,
    time: Time = None,
    ledger: LedgerPath = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "Synthetic data report",
    changes: Set = None,
    reading: Any = None,
) -> None:
    """Write one self-contained HTML page about a release: for the curator, or with --public for everybody."""
    import synthgeo as sg

    if is_release_file(what):
        only_options(context, "out", "force", "real", "public", "changes")
        check_out(out, force=force, what="page", paid=False)
        page = load(what, changes).report(out, public=public, real=_from_here(real))
        say(f"{page}: {'may be published' if public else NOTICE}")
        return
    if not public and not real:
        raise ConfigError("give --real, the private data to compare with, or --public")
    check_out(out, force=force, what="page", paid=False)
    release, named = release_of(what)
    named |= named_columns(x, y, xy_crs, trip, time)
    truth = None if public else real_data(real or [], release, reading=reading, **named)
    page = sg.report(
        truth, release, out, public=public, ledger=ledger_of(ledger, read_only=True), title=title
    )
    say(f"{page}: {'may be published' if public else NOTICE}")


def audit(
    mechanism: Annotated[str, typer.Argument(help="What to attack: noise, counter or stream.")],
    epsilon: Annotated[float, typer.Option("--epsilon", help="The claim to attack.")] = 1.0,
    counter: Annotated[
        str, typer.Option("--counter", help="Kind of counter, for counter and stream.")
    ] = "auto",
    runs: Annotated[int | None, typer.Option("--runs", help="Runs on each of the two inputs.")] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Of the bound that is reported.")] = 0.999,
    workers: Annotated[int, typer.Option("--workers", help="Processes.")] = 1,
    seed: Annotated[int | None, typer.Option("--seed", help="Makes the audit repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Attack a mechanism on two neighbouring inputs: a lower bound on the ε that it really has.

    It can show that a promise is broken, never that it holds. Exit code 9: the claim is refuted.
    """
    import synthgeo as sg
    from synthgeo.cli.audit import attack_of

    attack = attack_of(mechanism, epsilon, counter)
    try:
        require("sklearn", extra="audit")
    except ConfigError as missing:
        say(f"boosted trees are not among the attacks: {missing}")
    result = sg.auditing.audit(
        attack.mechanism,
        neighbours=attack.neighbours,
        runs=runs or attack.runs,
        claimed=epsilon,
        confidence=confidence,
        batched=attack.batched,
        workers=workers,
        seed=seed,
    )
    if as_json:
        emit({"mechanism": mechanism, **result.to_dict()})
    else:
        show_facts(
            f"{mechanism}: {'BROKEN' if result.violates else 'not refuted'}",
            {
                "claimed": f"ε = {epsilon:g}",
                "really at least": f"ε = {result.epsilon_lower:.3f}, with confidence {confidence:g}",
                "would have shown": f"ε = {result.detectable_epsilon:.3f} and more"
                if math.isfinite(result.detectable_epsilon)
                else "nothing: too few --runs for so large a claim",
                "runs": result.runs,
            },
        )
    if result.violates:
        raise typer.Exit(REFUTED)


def release_of(path: Path) -> tuple[Any, dict[str, str]]:
    """The release of a run as of its last step, or of a fitted model; drawn anew, which costs nothing.

    With it, the columns that a run was told to read.
    """
    if path.is_dir():
        return _of_run(path)
    if not path.exists():
        raise ConfigError(f"there is no run and no model {path}")
    import synthgeo as sg

    if kind_of(path) == "TrajectorySynthesizer":
        return sg.TrajectorySynthesizer.load(path).sample(), {}
    return sg.TabularSynthesizer.load(path).sample(), {}


def named_columns(
    x: str | None, y: str | None, crs: str | None, trip: str | None = None, time: str | None = None
) -> dict[str, str]:
    """The columns that were named."""
    given = {"x": x, "y": y, "crs": crs, "trip": trip, "time": time}
    return {name: value for name, value in given.items() if value is not None}


def _of_run(folder: Path) -> tuple[Any, dict[str, str]]:
    from streams.runs.run import StreamRun
    from trajectories.stream import TrajectoryStream

    with StreamRun.view(folder) as run:
        if not run.steps:
            raise ConfigError(f"the run in {folder} has released nothing yet")
        stream = run.stream()  # checks that the state is the one the journal remembers
        if not hasattr(type(stream), "release"):
            raise ConfigError(f"a run of {run.mechanism} releases numbers; evaluate compares datasets")
    names = _NAMED if isinstance(stream, TrajectoryStream) else _NAMED[:3]
    found = {name: getattr(stream.columns, name) for name in names}
    named = {name: column for name, column in found.items() if column is not None}
    return stream.release, named


def real_data(
    patterns: list[str],
    release: Any,
    *,
    reading: Any = None,
    trip: str = "trip_id",
    time: str = "time",
    **named: str,
) -> Any:
    """The private data as the metrics of this kind of release want it; ``named`` are ``coordinates_of``'s."""
    import pandas as pd

    from synthgeo.domain.coordinates import find_coordinates
    from synthgeo.release_file.arrivals import expand
    from synthgeo.sources import open_source, values

    source = open_source([str(file) for file in expand(patterns)], reading=reading)
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

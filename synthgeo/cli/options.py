"""Options that several commands share, and what they are turned into."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from synthgeo.cli.held import held
from synthgeo.cli.output import remark
from synthgeo.errors import ConfigError

if TYPE_CHECKING:
    from synthgeo.domain.box import SpatialDomain
    from synthgeo.privacy.budget import PrivacyBudget
    from synthgeo.privacy.ledger import Ledger
    from synthgeo.privacy.noise import Noise
    from synthgeo.privacy.unit import PrivacyUnit


def _load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make a TOML file's values the defaults of the command's options."""
    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{path.name}: not a TOML file ({str(problem)[:200]})") from None
    except (ValueError, RecursionError, OSError) as problem:  # a zone of 99 hours, 5000 digits, deep lists
        raise ConfigError(
            f"{path.name}: not a TOML file that can be read ({type(problem).__name__})"
        ) from None
    known = {str(parameter.name) for parameter in context.command.params}
    values = {name.replace("-", "_"): value for name, value in values.items()}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigError(
            f"{path.name}: unknown setting {unknown[0][:100]!r}; known are {', '.join(sorted(known))}"
        )
    context.default_map = {name: _as_option(value) for name, value in values.items()}
    return path


def _as_option(value: Any) -> Any:
    """A TOML value as the command line would have it: numbers of a list in one text, dates as text."""
    if isinstance(value, list) and value and not isinstance(value[0], str):
        return ",".join(str(item) for item in value)
    if isinstance(value, dict | list | bool | int | float | str):
        return value
    return value.isoformat()


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file with values for this command's options; flags win.",
        callback=_load_config,
        is_eager=True,
        exists=True,
        dir_okay=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the plan and the spend; read and spend nothing.")
]
Epsilon = Annotated[float | None, typer.Option("--epsilon", help="The privacy budget ε.")]
Delta = Annotated[float, typer.Option("--delta", help="The privacy budget δ; 0 is pure ε.")]
Seed = Annotated[
    int | None,
    typer.Option("--seed", help="Seeded noise, for tests and teaching: the result must not be published."),
]
Bounds = Annotated[
    str | None, typer.Option("--bounds", help="The domain as a box: minx,miny,maxx,maxy (public).")
]
Crs = Annotated[str | None, typer.Option("--crs", help="The box's coordinate system, such as EPSG:4326.")]
Land = Annotated[
    Path | None,
    typer.Option("--land", help="The domain as polygons: a GeoJSON, GeoPackage or GeoParquet file."),
]
Roads = Annotated[Path | None, typer.Option("--roads", help="The domain as roads: an osmnx GraphML file.")]
H3 = Annotated[
    int | None,
    typer.Option("--h3", help="Cut the box or the land into cells of H3 of this resolution, 0 to 15."),
]
MaxDistance = Annotated[
    float, typer.Option("--max-distance", help="Metres from the roads beyond which a point is outside.")
]
User = Annotated[
    str | None,
    typer.Option("--user", help="Protect users: the column that tells them apart. Needs --max-events."),
]
MaxEvents = Annotated[
    int | None,
    typer.Option(
        "--max-events", help="Keep at most this many events of each user, over all time or --per period."
    ),
]
Per = Annotated[
    str | None,
    typer.Option("--per", help="Bound users in each public period: a number of steps, or 1MS for months."),
]
Inserted = Annotated[
    str | None, typer.Option("--inserted", help="Column that says of a deletion when its event came.")
]
Times = Annotated[
    str | None,
    typer.Option("--times", help="Times inside windows, from noisy counts of slots: hour, minute."),
]
TimesShare = Annotated[float, typer.Option("--times-share", help="The part of ε that these times cost.")]
NoDeletions = Annotated[
    bool,
    typer.Option("--no-deletions", help="Rows only insert: each takes one place of a user's bound, not two."),
]
NoBorrow = Annotated[
    bool,
    typer.Option("--no-borrow", help="Release each step from its own counts alone, not from earlier ones."),
]
Lifetime = Annotated[
    str | None,
    typer.Option(
        "--lifetime", help="Release the last so many steps only: 30, or with --every a time such as 30D."
    ),
]
X = Annotated[str | None, typer.Option("--x", help="Column of x, where the name does not say it.")]
Y = Annotated[str | None, typer.Option("--y", help="Column of y, where the name does not say it.")]
XyCrs = Annotated[
    str | None,
    typer.Option(
        "--xy-crs", help="Coordinate system of these columns, where it is not the domain's: EPSG:4326."
    ),
]
LedgerPath = Annotated[
    Path | None, typer.Option("--ledger", help="Ledger of the dataset, charged with the whole budget.")
]


def given(context: typer.Context) -> set[str]:
    """Names of the options that were given, on the command line or in the TOML file."""
    sources = {str(p.name): context.get_parameter_source(str(p.name)) for p in context.command.params}
    return {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}


def budget_of(epsilon: float | None, delta: float) -> PrivacyBudget:
    """The budget, which nobody may forget to give."""
    from synthgeo.privacy.budget import PrivacyBudget

    if epsilon is None:
        raise ConfigError("give --epsilon, the privacy budget")
    return PrivacyBudget(epsilon, delta)


def noise_of(seed: int | None) -> Noise:
    """The operating system's noise, or seeded noise that marks the result as not for publication."""
    from synthgeo.privacy.noise import SeededNoise, SystemNoise

    return SystemNoise() if seed is None else SeededNoise(seed)


def unit_of(user: str | None, max_events: int | None, per: str | int | None = None) -> PrivacyUnit:
    """One event, or a user with a bound."""
    from synthgeo.privacy.unit import PrivacyUnit

    if (user is None) != (max_events is None):
        raise ConfigError("give --user and --max-events together, or neither")
    if user is None or max_events is None:
        if per is not None:
            raise ConfigError("--per goes with --user and --max-events")
        return PrivacyUnit.event()
    return PrivacyUnit.user(max_events=max_events, per=number_or_text(per), key=user)


def number_or_text(value: str | int | None) -> str | int | None:
    """A number of steps where the text is one, else the text: a length of time."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


def lifetime_of(value: str | int | None, every: str | None) -> int | None:
    """A lifetime in steps: given as a number of them, or as a time that is a whole number of windows."""
    value = number_or_text(value)
    if not isinstance(value, str):
        return value
    if every is None:
        raise ConfigError(f"--lifetime {value} is a time: give --every too, or a number of steps")
    from synthgeo.sources.grid import windows_in

    return windows_in(value, every)


def domain_of(
    bounds: str | None,
    crs: str | None,
    land: Path | None,
    roads: Path | None,
    max_distance: float,
    h3: int | None = None,
) -> SpatialDomain:
    """The public domain: a box, land, or roads; or the cells of H3 over a box or land."""
    if h3 is not None:
        from synthgeo.domain.h3 import H3Domain

        if roads is not None:
            raise ConfigError("--h3 goes with --bounds or --land: roads are cut along themselves")
        return H3Domain(resolution=h3, within=domain_of(bounds, crs, land, None, max_distance))
    if sum(choice is not None for choice in (bounds, land, roads)) != 1:
        raise ConfigError("give the domain once: --bounds, --land or --roads")
    if bounds is not None:
        from synthgeo.domain.box import BoxDomain

        if crs is None:
            remark(
                "warning: no --crs, so what is written does not say which coordinate system its points are in"
            )
        return BoxDomain(*_four_numbers(bounds), crs=crs)
    if crs is not None:
        raise ConfigError("--crs goes with --bounds; files know their own coordinate system")
    if land is not None:
        from synthgeo.domain.polygon import PolygonDomain

        return PolygonDomain(_read_land(land))
    from synthgeo.domain.roads import RoadDomain

    assert roads is not None
    if not roads.exists():
        raise ConfigError(f"--roads: there is no file {roads}")
    return RoadDomain.from_graphml(roads, max_distance=max_distance)


def _four_numbers(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 4:
        raise ConfigError(f"--bounds must be four numbers, minx,miny,maxx,maxy; got {text!r}")
    return numbers


def _read_land(path: Path) -> Any:
    import geopandas as gpd

    if not path.exists():
        raise ConfigError(f"--land: there is no file {path}")
    try:
        return gpd.read_parquet(path) if path.suffix in (".parquet", ".geoparquet") else gpd.read_file(path)
    except Exception as problem:  # readers of many formats, no common base
        raise ConfigError(f"--land: {path.name} cannot be read ({problem})") from problem


def ledger_of(path: Path | None, *, read_only: bool = False) -> Ledger | None:
    """The dataset's ledger, which has to be there: making one needs a cap, which is a decision."""
    if path is None:
        return None
    from synthgeo.privacy.ledger import Ledger

    if not path.exists():
        raise ConfigError(f"--ledger: there is no ledger {path}; make one with: synthgeo ledger create")
    return held(Ledger.open(path, read_only=read_only))

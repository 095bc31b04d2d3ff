"""The preflight of trips: everything that does not fit, at once, before anything is spent."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from synthgeo import ragged
from synthgeo.arrays import Floats
from synthgeo.domain.box import SpatialDomain
from synthgeo.errors import ConfigError, InputError
from synthgeo.maps import plot_lines
from synthgeo.preflight import CheckReport, Finding, Places, Probe, Users, UsersOfTrips, preflight
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.schema import Schema
from synthgeo.sources import Source, open_source
from synthgeo.sources.declared import Reading
from synthgeo.sources.windows import Ids, KnownTimes
from tabular.discovery import trial_schema
from trajectories.reading.points import (
    PointColumns,
    Trips,
    column_of_times,
    coordinates_of_trips,
    metres_per_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 10_000_000  # that are put together to trips for their figures
_FEW = 0.05  # of the trips
_OUR_COLUMNS = ("user_id", "seq", "geometry")  # that our own files of trips have
_OF_TIMES = ("time", "date", "stamp")  # in names of columns
_FAST = 216.0  # km/h, above which cleaning takes a step for a bad fix


@dataclass(frozen=True)
class TripCheck(CheckReport):
    """What a preflight of trips found: also ``figures`` of whole trips, and a picture of them."""

    figures: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["what", "value"]), repr=False)
    trips: Trips | None = field(default=None, repr=False)
    domain: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        if not len(self.figures):
            return super().__str__()
        shown = self.figures.to_string(index=False, float_format=lambda value: f"{value:,.4g}")
        return f"{super().__str__()}\n{shown}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return super().to_dict() | {"figures": self.figures.to_dict(orient="records")}

    def plot(self, *, ax: Any = None, trips: int = 2000) -> Axes:
        """The first ``trips`` of the private trips on a map of the domain. For the curator only."""
        if self.trips is None:
            raise ConfigError("there are no trips to show: the rows could not be put together to trips")
        shown = self.trips.start[: trips + 1]
        title = f"{len(shown) - 1:,} private trips (for the curator only)"
        return plot_lines(self.domain, self.trips.xy, shown, ax=ax, title=title, true=True)


def trip_figures(trips: Trips, domain: SpatialDomain, clean: Callable[[Trips], Trips]) -> pd.DataFrame:
    """Figures of private trips: how many, where, how often recorded, how fast, and what cleaning leaves of
    them. For the curator only.
    """
    inside = domain.contains(trips.xy)
    kept = clean(replace(trips, record=np.arange(trips.size)))
    points = np.zeros(trips.size, dtype=np.int64)
    assert kept.record is not None
    points[kept.record] = np.diff(kept.start)
    cut = (points > 0) & (points < np.diff(trips.start))
    off = "points off the network" if domain.kind == "roads" else "points outside the domain"
    rows: list[tuple[str, float]] = [
        ("trips", trips.size),
        ("points of a trip, median", float(np.median(np.diff(trips.start)))),
        (f"{off}, share", float(1 - inside.mean())),
        ("trips with such a point, share", float(1 - ragged.minima(inside, trips.start, True).mean())),
        ("trips cut or thinned by cleaning, share", float(cut.mean())),
        ("trips of which nothing is left, share", float((points == 0).mean())),
    ]
    inner = np.ones(len(trips.xy), dtype=bool)
    inner[trips.start[:-1]] = False
    metres = trips.steps(metres_per_unit(domain))[inner]
    if trips.time is None:
        return _figures([*rows, *_spread("distance between points, m", metres)])
    seconds = np.diff(trips.time, prepend=0.0)[inner]
    speed = 3.6 * metres[seconds > 0] / seconds[seconds > 0]
    rows += _spread("gap between points, s", seconds) + _spread("speed between points, km/h", speed)
    rows.append(
        (f"steps above {_FAST:.0f} km/h, share", float((speed > _FAST).mean()) if len(speed) else 0.0)
    )
    return _figures(rows)


def _spread(what: str, values: Floats) -> list[tuple[str, float]]:
    """Median, 99th hundredth and largest of some values; nothing of none."""
    shown = (("median", 0.5), ("99 %", 0.99), ("largest", 1.0)) if len(values) else ()
    return [(f"{what}, {name}", float(np.quantile(values, at))) for name, at in shown]


def _figures(rows: list[tuple[str, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["what", "value"])


def _remarks(figures: pd.DataFrame) -> list[Finding]:
    """Warnings where cleaning takes much away."""
    found = dict(zip(figures["what"], figures["value"], strict=True))
    texts = {
        "trips cut or thinned by cleaning, share": "of the trips are cut or thinned by cleaning",
        "trips of which nothing is left, share": "of the trips have nothing left after cleaning",
        f"steps above {_FAST:.0f} km/h, share": f"of the steps are faster than {_FAST:.0f} km/h",
    }
    return [
        Finding("warning", f"{found[name]:.1%} {text}")
        for name, text in texts.items()
        if found.get(name, 0.0) > _FEW
    ]


def check_trips(
    data: Any,
    domain: SpatialDomain,
    *,
    unit: PrivacyUnit,
    trip: str,
    time: str | bool | None,
    x: str | None,
    y: str | None,
    crs: Any,
    ends: tuple[tuple[str, str], ...],
    moments: tuple[str, ...],
    reading: Reading,
    clean: Callable[[Trips], Trips],
    attributes: Schema | None = None,
) -> CheckReport:
    """The report on points of trips, or on trips that are known by their ``ends``. For the curator only."""
    source = open_source(data, reading=reading)
    try:
        if ends:
            readers = [coordinates_of_trips(source, domain, *pair, crs) for pair in ends]
        else:
            readers = [coordinates_of_trips(source, domain, x, y, crs)]
            found = column_of_times(source, time)
            moments = () if found is None else (found,)
    except InputError as problem:  # columns are missing
        return CheckReport.of_problem(problem)
    ids = [*([] if ends else [trip]), *([] if unit.key is None else [unit.key])]
    kinds = dict.fromkeys(ids, "id") | dict.fromkeys(moments, "time")
    for reader in readers:
        kinds |= reader.kinds
    uses: list[Any] = [*readers, *map(Ids, ids), *map(KnownTimes, moments)]
    probes: list[Probe] = [Places(reader, domain) for reader in readers]
    if unit.key is not None:
        bound = unit.max_contributions
        users = (
            Users(unit.key, bound, "trips") if ends else UsersOfTrips(unit.key, bound, trip=trip)
        )  # one row is one trip where its ends are known
        probes.append(users)
    if attributes is not None:
        kinds |= attributes.kinds
        uses.append(trial_schema(attributes).encode)
    report = preflight(source, kinds, uses, probes, files=data if isinstance(data, list) else [])
    if ends or not report.ok or report.rows > _MOST_ROWS:
        return report
    columns = PointColumns.of(source, domain, unit=unit, trip=trip, time=time, x=x, y=y, crs=crs)
    trips = columns.read(open_source(data, reading=reading)).trips
    figures = trip_figures(trips, domain, clean)
    findings = (*report.findings, *_remarks(figures))
    return TripCheck(report.rows, findings, report.columns, figures, trips, domain)


def warn_of_unused(
    source: Source, used: Iterable[str | None], unit: PrivacyUnit, *, timeless: bool = False
) -> None:
    """Warn of columns that nothing will be released of; where times were not found, also of one that is
    called like them.
    """
    known = {*used, *_OUR_COLUMNS, unit.key}
    columns = [name for name in source.columns if not name.startswith("__index_level_")]  # of pandas
    unused = [name for name in columns if name not in known]
    times = [name for name in unused if timeless and any(word in name.lower() for word in _OF_TIMES)]
    if unused:
        hint = f"; time={times[0]!r} would say when trips are" if times else ""
        warnings.warn(
            f"columns {', '.join(unused)} are not used; attributes=, a Schema, would release them too{hint}",
            stacklevel=3,
        )


__all__ = ["TripCheck", "check_trips", "trip_figures", "warn_of_unused"]

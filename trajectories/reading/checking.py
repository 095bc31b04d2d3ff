"""The preflight of trips: everything that does not fit, at once, before anything is spent."""

from __future__ import annotations

from typing import Any

from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import InputError
from synthgeo.preflight import CheckReport, Places, Probe, Users, UsersOfTrips, preflight
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.sources import open_source
from synthgeo.sources.declared import Reading
from synthgeo.sources.windows import Ids, KnownTimes
from trajectories.reading.points import column_of_times, coordinates_of_trips


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
    reading: Reading | None,
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
    return preflight(source, kinds, uses, probes, files=data if isinstance(data, list) else [])

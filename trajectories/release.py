"""Synthetic trips: points, lines and edges, and files of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

from synthgeo.arrays import Floats, Ints, Points
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import parse_crs
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.maps import plot_lines
from synthgeo.polylines import Polylines
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import laplace_variance
from synthgeo.ragged import owners_of, ranks_of
from synthgeo.release import Release, in_crs, write_csv, write_parquet
from trajectories.measure.measured import (
    BY_HOUR_SHARE,
    COUNT_SHARE,
    DEPARTURES_SHARE,
    PACES_SHARE,
    ZONES_SHARE,
)
from trajectories.walks.bridges import Walks
from trajectories.walks.pacing import Timetable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_COUNTS = {
    "links": "crossings from one cell to the next",
    "pairs": "one block of origin-destination pairs",
    "lengths": "one bucket of length and diameter",
    "departures": "departures in four hours of one day of the week",
    "paces": "one bucket of length and pace",
    "by_hour": "slow trips, or fast ones, in one hour of the day",
    "zones": "trips between two zones in four hours",
}


@dataclass(frozen=True, eq=False)
class DrawnTrips:
    """Walks and what they became: lines, the number of gaps between points, departures and timetables; and
    whether gaps are even in time, not in metres.
    """

    walks: Walks
    lines: Polylines
    gaps: Ints
    departure: pd.DatetimeIndex | None
    timetable: Timetable | None
    even: bool
    attributes: pd.DataFrame | None = None

    def ends(self) -> Points:
        """First and last point of each trip, one after the other."""
        rows = np.column_stack([self.lines.offsets[:-1], self.lines.offsets[1:] - 1]).ravel()
        return self.lines.xy[rows]

    def take(self, index: Ints, attributes: pd.DataFrame | None = None) -> DrawnTrips:
        """The trips at these positions, with these attributes."""
        return DrawnTrips(
            self.walks.take(index), self.lines.take(index), self.gaps[index],
            None if self.departure is None else self.departure[index],
            None if self.timetable is None else self.timetable.take(index), self.even, attributes,
        )  # fmt: skip


class TrajectoryRelease(Release):
    """Synthetic trips. ``data`` has one row per point, ``lines`` one per trip, ``edges`` one per road
    edge that is driven.

    Coordinates of frames are in the domain's CRS, those of files in ``crs``: longitude and latitude where the
    data came so, else the domain's. Times, where they were measured, are in the synthesizer's time zone,
    in the week that was asked for.
    """

    product = "trips"

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        size: int,
        drawn: DrawnTrips | Callable[[], DrawnTrips],
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        first_id: int = 0,
        again: Callable[[], TrajectoryRelease] | None = None,
        step: int = 1,
        crs: Any = None,
    ) -> None:
        super().__init__(step=step, spent=spent, provenance=provenance)
        self.domain = domain
        self.crs = parse_crs(crs)
        self._size = size
        self._given = drawn
        self._first_id = first_id
        self._again = again

    @cached_property
    def _drawn(self) -> DrawnTrips:
        """The trips; a stream's are drawn when they are first asked for."""
        return self._given() if callable(self._given) else self._given

    @property
    def _walks(self) -> Walks:
        return self._drawn.walks

    @property
    def _lines(self) -> Polylines:
        return self._drawn.lines

    @property
    def _gaps(self) -> Ints:
        return self._drawn.gaps

    @property
    def _departure(self) -> pd.DatetimeIndex | None:
        return self._drawn.departure

    def redraw(self, turn: int) -> TrajectoryRelease:  # noqa: ARG002
        """As many other trips from the same model, under the same conditions."""
        if self._again is None:
            raise ConfigError("these trips are not connected to their model: draw from the model itself")
        return self._again()

    @property
    def total(self) -> int:
        """Number of synthetic trips."""
        return self._size

    @cached_property
    def _points(self) -> tuple[Floats, Ints, Floats | None]:
        """Points, their offsets, and seconds since departure: even in metres, or in seconds."""
        table = self._drawn.timetable
        if table is not None and self._drawn.even:
            return table.evenly(self._lines, self._gaps)
        xy, start = self._lines.cut(self._gaps)
        if table is None:
            return xy, start, None
        trip = owners_of(start)
        metres = self._lines.lengths[trip] * ranks_of(np.diff(start)) / self._gaps[trip]
        return xy, start, table.seconds_at(trip, metres)

    @property
    def xy(self) -> Floats:
        """All points, trip after trip."""
        return self._points[0]

    @property
    def start(self) -> Ints:
        """Where each trip's points begin in ``xy``, and the end."""
        return self._points[1]

    @property
    def vertices(self) -> tuple[Floats, Ints, Floats | None]:
        """The vertices of ``lines``, their offsets, and at each the seconds since departure where times were
        measured.
        """
        lines, table = self._lines, self._drawn.timetable
        seconds = None if table is None else table.seconds_at(owners_of(lines.offsets), lines.along)
        return lines.xy, lines.offsets, seconds

    def _build(self) -> gpd.GeoDataFrame:
        columns = self.point_columns() | {"x": self.xy[:, 0], "y": self.xy[:, 1]}
        return gpd.GeoDataFrame(columns, geometry=shapely.points(self.xy), crs=self.domain.crs)

    def point_columns(self) -> dict[str, Any]:
        """Columns of ``data`` that do not say where: trip and place in it and, where measured, time."""
        _, start, seconds = self._points
        trip, place = owners_of(start), ranks_of(np.diff(start))
        columns: dict[str, Any] = {"trip_id": trip + self._first_id, "seq": place}
        if self._departure is not None and seconds is not None:
            columns["time"] = _later(self._departure[trip], seconds)
        return columns

    def expected_error(self) -> pd.DataFrame:
        """Standard deviation of the noise in each kind of count that was measured, in trips; of a stream, in
        the counts of all batches that the release holds, after borrowing.
        """
        if "deviations" in self.provenance:
            stated = self.provenance["deviations"]
            known = [(words, stated[name]) for name, words in _COUNTS.items() if name in stated]
            return pd.DataFrame(known, columns=["quantity", "standard_deviation"])
        shares = self.provenance["shares"]
        measured = {
            "links": shares.get("transitions"),
            "pairs": None,
            "lengths": shares.get("lengths"),
            "departures": shares.get("times", 0.0) * DEPARTURES_SHARE,
            "paces": shares.get("times", 0.0) * PACES_SHARE,
            "by_hour": shares.get("times", 0.0) * BY_HOUR_SHARE,
            "zones": shares.get("times", 0.0) * ZONES_SHARE,
        }
        deviations = {
            name: math.sqrt(laplace_variance(1 / epsilon)) if epsilon else None
            for name, epsilon in measured.items()
        }
        deviations["pairs"] = self._pair_deviation
        rows = [(_COUNTS[name], deviation) for name, deviation in deviations.items() if deviation is not None]
        return pd.DataFrame(rows, columns=["quantity", "standard_deviation"])

    @property
    def _pair_deviation(self) -> float:
        """Of the noise in the count of one block of pairs."""
        stated = self.provenance.get("deviations", {}).get("pairs", self.provenance.get("pair_deviation"))
        if stated is not None:
            return float(stated)
        return math.sqrt(laplace_variance(1 / (self.provenance["shares"]["pairs"] * COUNT_SHARE)))

    @cached_property
    def lines(self) -> gpd.GeoDataFrame:
        """One LineString per trip, with its length in metres, and departure and arrival where times were
        measured.
        """
        columns: dict[str, Any] = {
            "trip_id": np.arange(self.total) + self._first_id,
            "metres": self._lines.lengths,
        }
        table = self._drawn.timetable
        if self._departure is not None and table is not None:
            columns["departure"] = self._departure
            columns["arrival"] = _later(self._departure, table.duration)
        return gpd.GeoDataFrame(columns, geometry=self._lines.shapes(), crs=self.domain.crs)

    @property
    def attributes(self) -> pd.DataFrame:
        """What else was recorded of each trip, one row for each; no columns where nothing was."""
        found = self._drawn.attributes
        return pd.DataFrame(index=pd.RangeIndex(self.total)) if found is None else found

    @cached_property
    def trips(self) -> gpd.GeoDataFrame:
        """One row for each trip: its line, its length, departure and arrival where times were measured, and
        its attributes.
        """
        lines, attributes = self.lines, self.attributes
        clash = {name: f"{name}_" for name in attributes.columns if name in lines.columns}
        columns = [lines.drop(columns="geometry"), attributes.rename(columns=clash)]
        return gpd.GeoDataFrame(pd.concat(columns, axis=1), geometry=lines.geometry, crs=self.domain.crs)

    def od(self, zones: Any, *, by: str | None = None) -> pd.DataFrame:
        """The origin-destination table of these trips: origin, destination, trips and the standard error to
        expect of each number; with ``by="hour"`` also the hour of departure.

        ``zones`` is a GeoDataFrame of polygons, labelled by its index, or a resolution of H3; an end in no
        zone has no label. Pairs without a trip are left out. The error is that of the noise in one block of
        pairs and of drawing so many trips: the least to expect.
        """
        from trajectories.formats import od_table

        if by not in (None, "hour"):
            raise ConfigError(f"by must be 'hour' or None, got {by!r}")
        if by is not None and self._departure is None:
            raise ConfigError("these trips have no times: fit with a time column and times > 0")
        hours = None if by is None or self._departure is None else self._departure.hour.to_numpy()
        return od_table(self.domain, self._drawn.ends(), zones, hours=hours, deviation=self._pair_deviation)

    def to_crs(self, crs: Any = None) -> gpd.GeoDataFrame:
        """``data`` in another coordinate system, by default that of files (``self.crs``): with columns lon
        and lat where it is one of degrees.
        """
        from trajectories.formats import in_crs

        wanted = self._crs_of_files(crs)
        return self.data if wanted is None else in_crs(self, wanted)

    def _crs_of_files(self, crs: Any) -> Any:
        """What was asked for, or the default; None for the domain's own."""
        wanted = self.crs if crs is None else parse_crs(crs)
        return None if wanted == self.domain.crs else wanted

    def to_parquet(self, path: str | os.PathLike[str], *, crs: Any = None) -> None:
        """Write the points as GeoParquet, by default in ``self.crs``, provenance in the file's metadata."""
        write_parquet(self.to_crs(crs), path, self.provenance)

    def to_csv(self, path: str | os.PathLike[str], *, crs: Any = None) -> None:
        """Write the points as CSV, by default in ``self.crs``, and the provenance beside it."""
        write_csv(pd.DataFrame(self.to_crs(crs).drop(columns="geometry")), path)
        self._write_provenance(path)

    def to_geojson(self, path: str | os.PathLike[str]) -> None:
        """Write a line for each trip as GeoJSON with its attributes; with times, coordinates are [lon, lat,
        0, seconds since 1970], which kepler.gl shows as moving trips. The provenance stands beside it.
        """
        from trajectories.formats import write_geojson

        write_geojson(self, path)
        self._write_provenance(path)

    def to_gpx(self, path: str | os.PathLike[str]) -> None:
        """Write GPX 1.1, a track for each trip, and the provenance beside it."""
        from trajectories.formats import write_gpx

        write_gpx(self, path)
        self._write_provenance(path)

    def to_trips_layer(self, path: str | os.PathLike[str]) -> None:
        """Write the data of deck.gl's TripsLayer (path and timestamps of each trip) as JSON, and the
        provenance beside it.
        """
        from trajectories.formats import write_trips_layer

        write_trips_layer(self, path)
        self._write_provenance(path)

    @cached_property
    def edges(self) -> pd.DataFrame:
        """Road edges of each trip in order: row of ``domain.edges`` and the graph's (u, v, key)."""
        if not isinstance(self.domain, RoadDomain):
            raise ConfigError("only trips on roads have edges: this domain has none")
        network, walks = self.domain.network, self._walks
        trip = walks.walk
        return pd.DataFrame(
            {
                "trip_id": trip + self._first_id,
                "seq": ranks_of(np.diff(walks.start)),
                "edge": walks.states,
                "u": network.edge_u[walks.states],
                "v": network.edge_v[walks.states],
                "key": network.edge_key[walks.states],
            }
        )

    @property
    def layers(self) -> dict[str, pd.DataFrame]:
        """One row per trip, with its attributes, and one per point."""
        return {"trips": self.trips, "points": self.data}

    def to_gpkg(self, path: str | os.PathLike[str], *, crs: Any = None) -> None:
        """Write a GeoPackage with the layers ``trips`` (lines, with attributes) and ``points``, and the
        provenance beside it.
        """
        in_crs(self.trips, self._crs_of_files(crs)).to_file(path, layer="trips", driver="GPKG")
        self.to_crs(crs).to_file(path, layer="points", driver="GPKG")
        self._write_provenance(path)

    def lines_to_parquet(self, path: str | os.PathLike[str], *, crs: Any = None) -> None:
        """Write ``trips`` as GeoParquet, provenance in the file's metadata."""
        write_parquet(in_crs(self.trips, self._crs_of_files(crs)), path, self.provenance)

    def trips_to_csv(self, path: str | os.PathLike[str], *, crs: Any = None) -> None:
        """Write one row for each trip as CSV, and the provenance beside it: where it starts and ends, its
        length, departure and arrival where times were measured, and its attributes.
        """
        frame = in_crs(self.trips, self._crs_of_files(crs))
        degrees = frame.crs is not None and frame.crs.is_geographic
        table = pd.DataFrame(frame.drop(columns="geometry"))
        for at, place in ((0, "start"), (-1, "end")):
            ends = shapely.get_coordinates(shapely.get_point(frame.geometry.to_numpy(), at))
            for axis, name in enumerate(("lon", "lat") if degrees else ("x", "y")):
                table.insert(table.columns.get_loc("metres"), f"{place}_{name}", ends[:, axis])
        write_csv(table, path)
        self._write_provenance(path)

    def to_movingpandas(self) -> Any:
        """A movingpandas TrajectoryCollection, with the provenance as its attribute. Needs that package, and
        times.
        """
        if self._departure is None:
            raise ConfigError("these trips have no times: fit with a time column and times > 0")
        mpd = require("movingpandas", extra="movingpandas")
        frame = gpd.GeoDataFrame(self.data.drop(columns=["x", "y"]), crs=self.domain.crs)
        frame["time"] = frame["time"].dt.tz_localize(None)
        collection = mpd.TrajectoryCollection(frame, traj_id_col="trip_id", t="time")
        collection.provenance = dict(self.provenance)
        return collection

    def plot(self, *, ax: Any = None, trips: int = 2000) -> Axes:
        """The first ``trips`` lines on a map of the domain."""
        shown = min(trips, self.total)
        some = "" if shown == self.total else f"{shown:,} of "
        label = f"{some}{self.total:,} synthetic trips"
        title = label if self.releasable else f"{label} (not releasable)"
        return plot_lines(
            self.domain, self._lines.xy, self._lines.offsets[: shown + 1], ax=ax, title=title
        )  # fmt: skip


def _later(instants: pd.DatetimeIndex, seconds: Floats) -> pd.DatetimeIndex:
    """So many seconds after, to the millisecond: an hour that clocks skip or repeat does not count twice."""
    return instants + pd.to_timedelta(np.rint(1000 * seconds).astype(np.int64), unit="ms")


__all__ = ["DrawnTrips", "TrajectoryRelease"]

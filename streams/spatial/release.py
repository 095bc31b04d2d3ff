"""The release of a spatial stream: synthetic points, and the cells with the counts they come from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from streams.birth_times import BirthTimes, luck_of
from streams.spatial.persistent_points import LivingPoints
from synthgeo.arrays import Floats, Ints, Points
from synthgeo.domain.box import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import generator
from synthgeo.release import Release, arrow_table, in_crs

if TYPE_CHECKING:
    import geopandas as gpd
    from matplotlib.axes import Axes

#: Points that are drawn at once: they take some 350 bytes each until they are written.
PIECE = 1 << 18


def _wkb(xy: Points) -> pa.Array:
    """Points as well-known binary, without an object for each."""
    parts = np.empty(len(xy), dtype=[("order", "u1"), ("kind", "<u4"), ("x", "<f8"), ("y", "<f8")])
    parts["order"], parts["kind"], parts["x"], parts["y"] = 1, 1, xy[:, 0], xy[:, 1]
    ends = np.arange(len(xy) + 1, dtype=np.int32) * parts.itemsize
    return pa.Array.from_buffers(pa.binary(), len(xy), [None, pa.py_buffer(ends), pa.py_buffer(parts)])


@dataclass(frozen=True, eq=False)
class PointSnapshot:
    """What a release of points may know: leaves, their non-negative released counts, and their noise."""

    partition: Partition
    released: Floats
    deviation: Floats
    totals: dict[int, float] = field(default_factory=dict)  # of the steps that it holds, where known


class PointRelease(Release):
    """Synthetic points as of one step.

    ``xy`` places each cell's points uniformly on the domain (area, or road length) when first asked for;
    ``data`` wraps them in a GeoDataFrame; ``cells`` are the leaf geometries with their released counts.
    """

    product = "points"

    def __init__(
        self,
        *,
        step: int,
        spent: PrivacyBudget | None,
        provenance: dict[str, Any],
        domain: SpatialDomain,
        partition: Partition,
        released: Floats,
        counts: Ints,
        deviation: Floats,
        seed: int,
        living: LivingPoints | None = None,
        changes: pd.DataFrame | None = None,
        times: BirthTimes | None = None,
    ) -> None:
        super().__init__(step=step, spent=spent, provenance=provenance)
        self.domain = domain
        self.partition = partition
        self.released = released
        self.counts = counts
        self._deviation = deviation
        self._seed = seed
        self._living = living
        self._changes = changes
        self._times = times

    @property
    def total(self) -> int:
        """How many synthetic points there are: the released total, rounded without bias."""
        return int(self.counts.sum())

    @cached_property
    def xy(self) -> Points:
        """The synthetic points in the domain's CRS, shape (n, 2)."""
        if self._living is not None:
            return self._living.xy
        return np.concatenate([self._drawn(number) for number in range(self._numbers)])

    @property
    def _numbers(self) -> int:
        """How many pieces there are."""
        return max(1, -(-self.total // PIECE))

    def _drawn(self, number: int) -> Points:
        """The points of one piece, which may begin and end inside a cell."""
        cells, ends = self.partition, np.cumsum(self.counts)
        low, high = number * PIECE, (number + 1) * PIECE
        counts = np.clip(ends, low, high) - np.clip(ends - self.counts, low, high)
        rng = generator(self._seed, number)
        return hierarchy_of(self.domain).sample(cells.prefix, cells.bits, counts, rng)

    @property
    def ids(self) -> Ints:
        """An id for each point: stable from step to step with ``persist=True``, else 0, 1, 2, ..."""
        return np.arange(self.total) if self._living is None else self._living.ids

    @property
    def changes(self) -> pd.DataFrame:
        """Synthetic inserts (+1) and deletes (-1) since the last step: ``op``, ``id``, ``x``, ``y``."""
        if self._changes is None:
            raise ConfigError("changes are kept by living datasets: make the stream with persist=True")
        return self._changes

    def redraw(self, turn: int) -> Self:
        """Other points from the same counts."""
        other = copy(self)
        for name in ("xy", "data", "times"):
            other.__dict__.pop(name, None)
        other._seed, other._living = self._seed ^ turn, None  # noqa: SLF001 - a copy of itself
        return other

    def _build(self) -> gpd.GeoDataFrame:
        return self._frame(self.xy, self.ids, self.times)

    def tables(self) -> Iterator[pa.Table]:
        """The points in tables of at most ``PIECE``, each drawn when it is asked for."""
        if "data" in self.__dict__ or self._numbers == 1:
            yield arrow_table(self.data, self.provenance)
            return
        like = self._frame(np.zeros((1, 2)), np.zeros(1, dtype=np.int64), self._times_of(0, stop=1))
        schema = arrow_table(like, self.provenance, bounds=False).schema
        for number in range(self._numbers):
            rows = slice(number * PIECE, (number + 1) * PIECE)
            if self._living is None:
                xy, ids = self._drawn(number), np.arange(*rows.indices(self.total))
            else:
                xy, ids = self._living.xy[rows], self._living.ids[rows]
            columns = {"id": ids, **self._times_of(number), "geometry": _wkb(xy)}
            arrays = [pa.array(columns[field.name], field.type) for field in schema]
            yield pa.Table.from_arrays(arrays, schema=schema)

    def _frame(self, xy: Points, ids: Ints, times: dict[str, Any]) -> gpd.GeoDataFrame:
        import geopandas as gpd

        points = gpd.points_from_xy(xy[:, 0], xy[:, 1])
        return gpd.GeoDataFrame({"id": ids, **times}, geometry=points, crs=self.domain.crs)

    @cached_property
    def times(self) -> dict[str, Any]:
        """``window_start`` of the window that each point came in, where the stream was cut into windows and
        has a lifetime, or keeps its points; else nothing. Also ``time``, inside the window, where the stream
        was asked for it.

        Points that persist know their window and keep their time; the others are dealt out to the windows in
        proportion to the released totals of these.
        """
        parts = [self._times_of(number) for number in range(self._numbers)]
        return {name: parts[0][name].append([part[name] for part in parts[1:]]) for name in parts[0]}

    def _times_of(self, number: int, stop: int | None = None) -> dict[str, Any]:
        """The times of one piece."""
        if self._times is None:
            return {}
        rows = slice(number * PIECE, (number + 1) * PIECE)
        if self._living is not None:
            return self._times.columns(self._living.born[rows][:stop], luck_of(self._living.ids[rows][:stop]))
        rng = generator(self._seed ^ 1, number)
        steps = self._times.draw(len(range(*rows.indices(self.total))), rng)
        return self._times.columns(steps[:stop], rng.random(steps.size)[:stop])

    @cached_property
    def cells(self) -> gpd.GeoDataFrame:
        """Leaf geometries with the released count (``estimate``), the points drawn (``count``) and the
        noise's standard deviation; with an ``H3Domain`` also the name of each ``cell`` in H3.
        """
        import geopandas as gpd

        cells = self.partition
        columns: dict[str, Any] = {
            "count": self.counts,
            "estimate": self.released,
            "deviation": self._deviation,
            "measure": cells.measure,
        }
        hierarchy = hierarchy_of(self.domain)
        names = hierarchy.names(cells.prefix, cells.bits)
        if names is not None:
            columns = {"cell": names, **columns}
        geometry = hierarchy.geometry(cells.prefix, cells.bits)
        return gpd.GeoDataFrame(columns, geometry=geometry, crs=self.domain.crs)

    def expected_error(self) -> pd.DataFrame:
        """Standard deviation that the noise alone gives to the total and to a typical cell, before rounding
        at zero.
        """
        variance = self._deviation**2
        return pd.DataFrame(
            {
                "quantity": ["total", "one cell (mean)", "one cell (largest)"],
                "released": [
                    float(self.released.sum()),
                    float(self.released.mean()),
                    float(self.released.max()),
                ],
                "standard_deviation": [
                    float(np.sqrt(variance.sum())),
                    float(np.sqrt(variance.mean())),
                    float(np.sqrt(variance.max())),
                ],
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """Columns ``id``, ``x``, ``y`` in the domain's CRS, and ``window_start`` and ``time`` where known."""
        return pd.DataFrame({"id": self.ids, "x": self.xy[:, 0], "y": self.xy[:, 1], **self.times})

    def to_numpy(self) -> np.ndarray:
        """The points, shape (n, 2)."""
        return self.xy

    def to_geojson(self, path: str | os.PathLike[str], *, crs: Any = None) -> None:
        """Write GeoJSON in longitude and latitude where the CRS is known (or in ``crs``, which readers may
        not expect), with the provenance beside it.
        """
        wanted = "EPSG:4326" if crs is None and self.domain.crs is not None else crs
        in_crs(self.data, wanted).to_file(path, driver="GeoJSON")
        self._write_provenance(path)

    def plot(self, *, true: Any = None, ax: Any = None) -> Axes | np.ndarray:
        """Draw points and partition over the domain. ``true`` puts the curator's points beside it: that
        picture is private.
        """
        from synthgeo.maps import plot_points

        return plot_points(self, true=true, ax=ax)

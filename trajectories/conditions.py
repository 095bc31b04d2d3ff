"""Where a synthetic trip is asked to start or end: a point, an area, or cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import ConfigError, DomainError
from synthgeo.hierarchy.base import hierarchy_of
from trajectories.model import TripModel
from trajectories.points import metres_per_unit


def states_in(model: TripModel, where: Any) -> NDArray[np.bool_]:
    """States that match: the road (both directions) or cell nearest to a point; those whose middle lies in
    a geometry;
    those of cells given by number."""
    if isinstance(where, shapely.Geometry):
        if isinstance(where, shapely.Point):
            return _at_point(model, np.array([where.x, where.y]))
        return _in_area(model, where)
    values = np.atleast_1d(np.asarray(where))
    if values.dtype.kind in "iu" and not isinstance(where, tuple):
        if values.size == 0 or values.min() < 0 or values.max() >= model.graph.cells:
            raise DomainError(f"cells must be numbers from 0 to {model.graph.cells - 1}")
        return np.isin(model.graph.cell, values)
    if values.shape == (2,) and values.dtype.kind in "iuf":
        return _at_point(model, values.astype(np.float64))
    raise ConfigError("start and end take a point (x, y), a shapely geometry, or an array of cell numbers")


def _at_point(model: TripModel, xy: NDArray[np.float64]) -> NDArray[np.bool_]:
    mask = np.zeros(model.graph.size, dtype=bool)
    if isinstance(model.domain, RoadDomain):
        roads = model.domain
        edge = int(roads.nearest(xy[None], max_distance=roads.max_distance)[0][0])
        if edge < 0:
            raise DomainError(f"no road within {roads.max_distance:g} m of {xy.tolist()}")
        mask[edge] = True
        if roads.opposite[edge] >= 0:
            mask[roads.opposite[edge]] = True
        return mask
    keys, inside = hierarchy_of(model.domain).locate(xy[None], model.bits)
    cell = model.partition.cell_of(keys, model.bits)
    if not inside[0] or cell[0] < 0:
        raise DomainError(f"{xy.tolist()} is outside the domain")
    mask[cell[0]] = True
    return mask


def _in_area(model: TripModel, area: shapely.Geometry) -> NDArray[np.bool_]:
    shapely.prepare(area)
    xy = model.graph.xy / metres_per_unit(model.domain)
    mask: NDArray[np.bool_] = shapely.contains_xy(area, xy)
    if not mask.any() and not isinstance(
        model.domain, RoadDomain
    ):  # smaller than a cell: the cells it touches
        shapes = hierarchy_of(model.domain).geometry(model.partition.prefix, model.partition.bits)
        mask = shapely.intersects(shapes, area)
    if not mask.any():
        raise DomainError("nothing of the domain lies in the area that was asked for")
    return mask


__all__ = ["states_in"]

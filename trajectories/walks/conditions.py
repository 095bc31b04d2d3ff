"""Where a synthetic trip is asked to start or end: a point, an area, or cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely

from synthgeo.arrays import Bools, Points
from synthgeo.errors import ConfigError, DomainError
from trajectories.model import TripModel


def wanted_states(model: TripModel, where: Any) -> Bools:
    """States that match: the road (both directions) or cell nearest to a point; those whose middle lies in
    a geometry, or that it touches where it holds no middle; those of cells given by number.
    """
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


def _at_point(model: TripModel, xy: Points) -> Bools:
    mask = np.zeros(model.graph.size, dtype=bool)
    mask[model.ground.states_at(model.partition, xy)] = True
    return mask


def _in_area(model: TripModel, area: shapely.Geometry) -> Bools:
    mask = model.ground.states_in(model.graph, model.partition, area)
    if not mask.any():
        raise DomainError("nothing of the domain lies in the area that was asked for")
    return mask


__all__ = ["wanted_states"]

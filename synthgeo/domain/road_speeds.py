"""Free-flow speeds of roads, from what a map says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from synthgeo.arrays import Floats

if TYPE_CHECKING:
    from synthgeo.domain.road_network import RoadNetwork

# km/h where the map tells the kind of road and no limit.
_USUAL = {
    "motorway": 90, "trunk": 70, "primary": 45, "secondary": 40, "tertiary": 35,
    "unclassified": 30, "residential": 25, "living_street": 10, "service": 15,
}  # fmt: skip
_FALLBACK = 30.0


def edge_speeds(network: RoadNetwork) -> Floats:
    """Free-flow speed of each edge in km/h, from ``maxspeed``, else ``highway``, else a usual one."""
    limits = network.tags.get("maxspeed", [None] * network.size)
    kinds = network.tags.get("highway", [None] * network.size)
    return np.array([_speed(limit, kind) for limit, kind in zip(limits, kinds, strict=True)])


def _speed(limit: Any, kind: Any) -> float:
    text = limit[0] if isinstance(limit, list) and limit else limit
    number, _, unit = str(text).strip().partition(" ")
    if number.replace(".", "", 1).isdigit() and float(number) > 0:
        return float(number) * (1.609 if unit == "mph" else 1.0)
    name = kind[0] if isinstance(kind, list) and kind else kind
    return float(_USUAL.get(str(name).removesuffix("_link"), _FALLBACK))


__all__ = ["edge_speeds"]

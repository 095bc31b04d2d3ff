"""The ground that trips move on: roads, or a plane. One interface (``base.Ground``), two kinds."""

from __future__ import annotations

from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.roads import RoadDomain
from trajectories.ground.base import Ground
from trajectories.ground.plane import PlaneGround
from trajectories.ground.roads import RoadGround


def ground_of(domain: SpatialDomain, bits: int) -> Ground:
    """The ground of a domain whose finest cells have keys of ``bits`` bits."""
    return RoadGround(domain, bits) if isinstance(domain, RoadDomain) else PlaneGround(domain, bits)


__all__ = ["Ground", "ground_of"]

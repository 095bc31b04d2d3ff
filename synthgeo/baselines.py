"""Baselines to compare with. ``OfflinePrivTree`` is **not private**; the others are.

``Accumulated`` makes a stream from any algorithm that runs once.

``sg.baselines.InitialPrivTree(...)`` and its siblings take what the product they stand beside takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from synthgeo.extras import lazy

if TYPE_CHECKING:
    from streams.accumulated import Accumulated
    from streams.spatial.baselines import DifferentialPrivTree, InitialPrivTree, OfflinePrivTree
    from tabular.stream import StreamingMWEM

__getattr__ = lazy(
    __name__,
    {
        "Accumulated": "streams.accumulated",
        "OfflinePrivTree": "streams.spatial.baselines",
        "DifferentialPrivTree": "streams.spatial.baselines",
        "InitialPrivTree": "streams.spatial.baselines",
        "StreamingMWEM": "tabular.stream",
    },
)

__all__ = [
    "Accumulated",
    "DifferentialPrivTree",
    "InitialPrivTree",
    "OfflinePrivTree",
    "StreamingMWEM",
]

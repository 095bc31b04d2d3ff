"""What calls give back: releases to load or annotate, plans, checks and accounts.

Nobody constructs them. ``sg.results.PointRelease.load(path)`` reads a saved release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from synthgeo.extras import lazy

if TYPE_CHECKING:
    from streams.spatial.release import PointRelease
    from synthgeo.planning import Plan
    from synthgeo.preflight import CheckReport
    from synthgeo.privacy.accountant import Accountant
    from synthgeo.release import Release
    from tabular.households import HouseholdRelease
    from tabular.panel import PanelRelease
    from tabular.release import TableRelease
    from tabular.workload import Workload
    from trajectories.release import TrajectoryRelease

__getattr__ = lazy(
    __name__,
    {
        "Release": "synthgeo.release",
        "PointRelease": "streams.spatial.release",
        "TableRelease": "tabular.release",
        "HouseholdRelease": "tabular.households",
        "PanelRelease": "tabular.panel",
        "TrajectoryRelease": "trajectories.release",
        "Workload": "tabular.workload",
        "Plan": "synthgeo.planning",
        "CheckReport": "synthgeo.preflight",
        "Accountant": "synthgeo.privacy.accountant",
    },
)

__all__ = [
    "Accountant",
    "CheckReport",
    "HouseholdRelease",
    "PanelRelease",
    "Plan",
    "PointRelease",
    "Release",
    "TableRelease",
    "TrajectoryRelease",
    "Workload",
]

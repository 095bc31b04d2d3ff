"""Metrics that compare a release with the private data. For the curator only: nothing here is private.

``available()`` lists what ``sg.evaluate`` computes; the functions behind it are here one by one. Nothing that
releases imports this package; an import contract says so.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synthgeo.evaluation.registry import Metric, available, register
    from synthgeo.evaluation.rides import RideScores, hotspot_gain, mobility_scores, ride_scores
    from synthgeo.evaluation.spatial import (
        Paths,
        RangeQueries,
        random_rectangles,
        range_counts,
        range_query_error,
        relative_error,
    )
    from synthgeo.evaluation.tables import (
        WorkloadErrors,
        column_errors,
        efficacy,
        group_errors,
        marginal_counts,
        pair_errors,
        propensity,
        sdmetrics_metadata,
        table_scores,
        total_variation,
        train_on_synthetic,
        wasserstein,
        workload_errors,
    )
    from synthgeo.evaluation.trajectories import (
        TripScores,
        bucket_divergence,
        divergence,
        path_query_error,
        pattern_error,
        pattern_f1,
        popularity_tau,
        read_paths,
        start_end_error,
        trip_floor,
        trip_scores,
        trips_touching,
    )

# Where each name is. They load when first used: some compile code.
_WHERE = {
    "registry": ("Metric", "available", "register"),
    "rides": ("RideScores", "hotspot_gain", "mobility_scores", "ride_scores"),
    "spatial": (
        "Paths",
        "RangeQueries",
        "random_rectangles",
        "range_counts",
        "range_query_error",
        "relative_error",
    ),
    "tables": (
        "WorkloadErrors",
        "column_errors",
        "efficacy",
        "group_errors",
        "marginal_counts",
        "pair_errors",
        "propensity",
        "sdmetrics_metadata",
        "table_scores",
        "total_variation",
        "train_on_synthetic",
        "wasserstein",
        "workload_errors",
    ),
    "trajectories": (
        "TripScores",
        "bucket_divergence",
        "divergence",
        "path_query_error",
        "pattern_error",
        "pattern_f1",
        "popularity_tau",
        "read_paths",
        "start_end_error",
        "trip_floor",
        "trip_scores",
        "trips_touching",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Metric",
    "Paths",
    "RangeQueries",
    "RideScores",
    "TripScores",
    "WorkloadErrors",
    "available",
    "bucket_divergence",
    "column_errors",
    "divergence",
    "efficacy",
    "group_errors",
    "hotspot_gain",
    "marginal_counts",
    "mobility_scores",
    "pair_errors",
    "path_query_error",
    "pattern_error",
    "pattern_f1",
    "popularity_tau",
    "propensity",
    "random_rectangles",
    "range_counts",
    "range_query_error",
    "read_paths",
    "register",
    "relative_error",
    "ride_scores",
    "sdmetrics_metadata",
    "start_end_error",
    "table_scores",
    "total_variation",
    "train_on_synthetic",
    "trip_floor",
    "trip_scores",
    "trips_touching",
    "wasserstein",
    "workload_errors",
]

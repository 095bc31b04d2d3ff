"""synthgeo: differentially private synthetic datasets from private data collected over time.

``import synthgeo as sg`` is the only import a user needs. Names load when first used, so the import itself is
cheap and an extra that is not installed hurts only whoever asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from synthgeo.errors import (
    BudgetExhausted,
    ConfigError,
    InputError,
    SynthGeoError,
)
from synthgeo.extras import load_part

__version__ = "0.2.0.dev0"

# Public name -> module that defines it. The contract of the package: add here, never rename.
_WHERE = {
    "PrivacyBudget": "synthgeo.privacy.budget",
    "PrivacyUnit": "synthgeo.privacy.unit",
    "SystemNoise": "synthgeo.privacy.noise",
    "SeededNoise": "synthgeo.privacy.noise",
    "Ledger": "synthgeo.privacy.ledger",
    "BoxDomain": "synthgeo.domain.box",
    "H3Domain": "synthgeo.domain.h3",
    "PolygonDomain": "synthgeo.domain.polygon",
    "RoadDomain": "synthgeo.domain.roads",
    "Schema": "synthgeo.schema",
    "Categorical": "synthgeo.schema",
    "Ordinal": "synthgeo.schema",
    "Numeric": "synthgeo.schema",
    "Date": "synthgeo.schema",
    "DateTime": "synthgeo.schema",
    "TimeOfDay": "synthgeo.schema",
    "Duration": "synthgeo.schema",
    "Identifier": "synthgeo.schema",
    "Location": "synthgeo.schema",
    "plan": "synthgeo.planning",
    "Reading": "synthgeo.sources.declared",
    "ReleaseFile": "synthgeo.release_file.file",
    "ColumnNames": "synthgeo.sources.declared",
    "PointSettings": "streams.spatial.settings",
    "TableSettings": "tabular.settings",
    "TripSettings": "trajectories.setup",
    "cluster_timeout": "synthgeo.sources.cluster",
    "PHDStream": "streams.spatial.phd",
    "StreamRun": "streams.runs.run",
    "TabularStream": "tabular.stream",
    "TabularSynthesizer": "tabular.once",
    "HouseholdSynthesizer": "tabular.households",
    "PanelStream": "tabular.panel",
    "all_k_way": "tabular.workload",
    "TrajectorySynthesizer": "trajectories.synthesizer",
    "TrajectoryStream": "trajectories.stream",
    "evaluate": "synthgeo.evaluation.registry",
    "report": "synthgeo.reporting.page",
}

# Public name -> module that *is* the name.
_MODULES = {
    "baselines": "synthgeo.baselines",
    "auditing": "synthgeo.auditing",
    "results": "synthgeo.results",
    "errors": "synthgeo.errors",
    "simulate": "synthgeo.simulate",
    "series": "streams.scalar",
    "metrics": "synthgeo.evaluation",
    "bounds": "synthgeo.privacy.bounds",
}

if TYPE_CHECKING:
    from streams import scalar as series
    from streams.runs.run import StreamRun
    from streams.spatial.phd import PHDStream
    from streams.spatial.settings import PointSettings
    from synthgeo import auditing, baselines, errors, results, simulate
    from synthgeo import evaluation as metrics
    from synthgeo.domain.box import BoxDomain
    from synthgeo.domain.h3 import H3Domain
    from synthgeo.domain.polygon import PolygonDomain
    from synthgeo.domain.roads import RoadDomain
    from synthgeo.evaluation.registry import evaluate
    from synthgeo.planning import plan
    from synthgeo.privacy import bounds
    from synthgeo.privacy.budget import PrivacyBudget
    from synthgeo.privacy.ledger import Ledger
    from synthgeo.privacy.noise import SeededNoise, SystemNoise
    from synthgeo.privacy.unit import PrivacyUnit
    from synthgeo.release_file.file import ReleaseFile
    from synthgeo.reporting.page import report
    from synthgeo.schema import (
        Categorical,
        Date,
        DateTime,
        Duration,
        Identifier,
        Location,
        Numeric,
        Ordinal,
        Schema,
        TimeOfDay,
    )
    from synthgeo.sources.cluster import cluster_timeout
    from synthgeo.sources.declared import ColumnNames, Reading
    from tabular.households import HouseholdSynthesizer
    from tabular.once import TabularSynthesizer
    from tabular.panel import PanelStream
    from tabular.settings import TableSettings
    from tabular.stream import TabularStream
    from tabular.workload import all_k_way
    from trajectories.setup import TripSettings
    from trajectories.stream import TrajectoryStream
    from trajectories.synthesizer import TrajectorySynthesizer


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(load_part(_WHERE[name]), name)
    elif name in _MODULES:
        value = load_part(_MODULES[name])
    else:
        raise AttributeError(f"module 'synthgeo' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "BoxDomain",
    "BudgetExhausted",
    "Categorical",
    "ColumnNames",
    "ConfigError",
    "Date",
    "DateTime",
    "Duration",
    "H3Domain",
    "HouseholdSynthesizer",
    "Identifier",
    "InputError",
    "Ledger",
    "Location",
    "Numeric",
    "Ordinal",
    "PHDStream",
    "PanelStream",
    "PointSettings",
    "PolygonDomain",
    "PrivacyBudget",
    "PrivacyUnit",
    "Reading",
    "ReleaseFile",
    "RoadDomain",
    "Schema",
    "SeededNoise",
    "StreamRun",
    "SynthGeoError",
    "SystemNoise",
    "TableSettings",
    "TabularStream",
    "TabularSynthesizer",
    "TimeOfDay",
    "TrajectoryStream",
    "TrajectorySynthesizer",
    "TripSettings",
    "all_k_way",
    "auditing",
    "baselines",
    "bounds",
    "cluster_timeout",
    "errors",
    "evaluate",
    "metrics",
    "plan",
    "report",
    "results",
    "series",
    "simulate",
]

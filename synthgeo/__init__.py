"""synthgeo: differentially private synthetic datasets from private data collected over time.

``import synthgeo as sg`` is the only import a user needs. Names load when first used, so the import itself is
cheap and an extra that is not installed hurts only whoever asks for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from synthgeo.errors import (
    BudgetExhausted,
    ClusterError,
    ConfigError,
    ContributionError,
    DomainError,
    InputError,
    LedgerError,
    StateError,
    SynthGeoError,
)

__version__ = "0.2.0.dev0"

# Public name -> module that defines it. The contract of the package: add here, never rename.
_WHERE = {
    "PrivacyBudget": "synthgeo.privacy.budget",
    "PrivacyUnit": "synthgeo.privacy.unit",
    "SystemNoise": "synthgeo.privacy.noise",
    "SeededNoise": "synthgeo.privacy.noise",
    "Accountant": "synthgeo.privacy.accountant",
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
    "Release": "synthgeo.release",
    "CheckReport": "synthgeo.preflight",
    "plan": "synthgeo.planning",
    "Plan": "synthgeo.planning",
    "Reading": "synthgeo.sources.declared",
    "ReleaseFile": "synthgeo.release_file.file",
    "ColumnNames": "synthgeo.sources.declared",
    "PointSettings": "streams.spatial.settings",
    "TableSettings": "tabular.settings",
    "TripSettings": "trajectories.setup",
    "cluster_timeout": "synthgeo.sources.cluster",
    "PHDStream": "streams.spatial.phd",
    "OfflinePrivTree": "streams.spatial.baselines",
    "DifferentialPrivTree": "streams.spatial.baselines",
    "InitialPrivTree": "streams.spatial.baselines",
    "PointRelease": "streams.spatial.release",
    "StreamRun": "streams.runs.run",
    "Accumulated": "streams.accumulated",
    "TabularStream": "tabular.stream",
    "TabularSynthesizer": "tabular.once",
    "HouseholdSynthesizer": "tabular.households",
    "HouseholdRelease": "tabular.households",
    "PanelStream": "tabular.panel",
    "PanelRelease": "tabular.panel",
    "StreamingMWEM": "tabular.stream",
    "all_k_way": "tabular.workload",
    "Workload": "tabular.workload",
    "TableRelease": "tabular.release",
    "TrajectorySynthesizer": "trajectories.synthesizer",
    "TrajectoryRelease": "trajectories.release",
    "TrajectoryStream": "trajectories.stream",
    "evaluate": "synthgeo.evaluation.registry",
    "report": "synthgeo.reporting.page",
    "audit": "synthgeo.auditing.blackbox",
    "AuditResult": "synthgeo.auditing.blackbox",
    "attack_release": "synthgeo.auditing.membership",
    "membership_attack": "synthgeo.auditing.membership",
    "MembershipResult": "synthgeo.auditing.membership",
    "duel": "synthgeo.auditing.duel",
    "DuelResult": "synthgeo.auditing.duel",
}

# Public name -> module that *is* the name.
_MODULES = {
    "simulate": "synthgeo.simulate",
    "series": "streams.scalar",
    "metrics": "synthgeo.evaluation",
    "bounds": "synthgeo.privacy.bounds",
}

# ADR 1: the sibling packages have generic names, so another distribution may have installed one of them.
_MARKER = "__synthgeo_part__"

if TYPE_CHECKING:
    from streams import scalar as series
    from streams.accumulated import Accumulated
    from streams.runs.run import StreamRun
    from streams.spatial.baselines import DifferentialPrivTree, InitialPrivTree, OfflinePrivTree
    from streams.spatial.phd import PHDStream
    from streams.spatial.release import PointRelease
    from streams.spatial.settings import PointSettings
    from synthgeo import evaluation as metrics
    from synthgeo import simulate
    from synthgeo.auditing.blackbox import AuditResult, audit
    from synthgeo.auditing.duel import DuelResult, duel
    from synthgeo.auditing.membership import MembershipResult, attack_release, membership_attack
    from synthgeo.domain.box import BoxDomain
    from synthgeo.domain.h3 import H3Domain
    from synthgeo.domain.polygon import PolygonDomain
    from synthgeo.domain.roads import RoadDomain
    from synthgeo.evaluation.registry import evaluate
    from synthgeo.planning import Plan, plan
    from synthgeo.preflight import CheckReport
    from synthgeo.privacy import bounds
    from synthgeo.privacy.accountant import Accountant
    from synthgeo.privacy.budget import PrivacyBudget
    from synthgeo.privacy.ledger import Ledger
    from synthgeo.privacy.noise import SeededNoise, SystemNoise
    from synthgeo.privacy.unit import PrivacyUnit
    from synthgeo.release import Release
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
    from tabular.households import HouseholdRelease, HouseholdSynthesizer
    from tabular.once import TabularSynthesizer
    from tabular.panel import PanelRelease, PanelStream
    from tabular.release import TableRelease
    from tabular.settings import TableSettings
    from tabular.stream import StreamingMWEM, TabularStream
    from tabular.workload import Workload, all_k_way
    from trajectories.release import TrajectoryRelease
    from trajectories.setup import TripSettings
    from trajectories.stream import TrajectoryStream
    from trajectories.synthesizer import TrajectorySynthesizer


def _load(module: str) -> Any:
    package = module.partition(".")[0]
    if package != "synthgeo" and getattr(importlib.import_module(package), _MARKER, None) != __version__:
        raise ConfigError(
            f"the top-level package {package!r} that Python found is not the one that synthgeo {__version__} "
            "installed: another distribution owns that name; install synthgeo into an environment of its own"
        )
    return importlib.import_module(module)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(_load(_WHERE[name]), name)
    elif name in _MODULES:
        value = _load(_MODULES[name])
    else:
        raise AttributeError(f"module 'synthgeo' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Accountant",
    "Accumulated",
    "AuditResult",
    "BoxDomain",
    "BudgetExhausted",
    "Categorical",
    "CheckReport",
    "ClusterError",
    "ColumnNames",
    "ConfigError",
    "ContributionError",
    "Date",
    "DateTime",
    "DifferentialPrivTree",
    "DomainError",
    "DuelResult",
    "Duration",
    "H3Domain",
    "HouseholdRelease",
    "HouseholdSynthesizer",
    "Identifier",
    "InitialPrivTree",
    "InputError",
    "Ledger",
    "LedgerError",
    "Location",
    "MembershipResult",
    "Numeric",
    "OfflinePrivTree",
    "Ordinal",
    "PHDStream",
    "PanelRelease",
    "PanelStream",
    "Plan",
    "PointRelease",
    "PointSettings",
    "PolygonDomain",
    "PrivacyBudget",
    "PrivacyUnit",
    "Reading",
    "Release",
    "ReleaseFile",
    "RoadDomain",
    "Schema",
    "SeededNoise",
    "StateError",
    "StreamRun",
    "StreamingMWEM",
    "SynthGeoError",
    "SystemNoise",
    "TableRelease",
    "TableSettings",
    "TabularStream",
    "TabularSynthesizer",
    "TimeOfDay",
    "TrajectoryRelease",
    "TrajectoryStream",
    "TrajectorySynthesizer",
    "TripSettings",
    "Workload",
    "__version__",
    "all_k_way",
    "attack_release",
    "audit",
    "bounds",
    "cluster_timeout",
    "duel",
    "evaluate",
    "membership_attack",
    "metrics",
    "plan",
    "report",
    "series",
    "simulate",
]

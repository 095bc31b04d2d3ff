"""Scalar time series: the mechanisms to publish totals beside a synthetic dataset, and the baselines people
know.

All have one shape: ``update(value)`` for online mechanisms, ``run(series)``, ``spent``, ``guarantee``,
``save`` and ``load``.
"""

from streams.scalar import metrics
from streams.scalar.ar1_process import (
    AR1Process,
    expected_squared_error,
    least_weight,
    paper_squared_error,
    suggest_weight,
)
from streams.scalar.autoregressive import AR1Release, AR1Settings, GeometricWeights
from streams.scalar.base import Guarantee
from streams.scalar.channels import learn_chain, temporal_leakage
from streams.scalar.fast import FAST, FASTSettings
from streams.scalar.filters import FilterBank, KalmanFilter, ParticleFilter
from streams.scalar.fourier import DFT
from streams.scalar.local import RandomizedResponse, UnaryEncoding
from streams.scalar.local_baselines import TemporalResponse, ToPS, WindowResponse
from streams.scalar.perturbation import LPA, ContinualCounter, Gaussian, Sampling, Uniform
from streams.scalar.release import MECHANISMS, Advice, SeriesRelease, advise, auto, release_series
from streams.scalar.sip import SIPBatched, SIPInstant, composed_leakage
from streams.scalar.subsampling import FilteredRelease, SubsampledRelease
from streams.scalar.window import BudgetAbsorption, BudgetDistribution

__all__ = [
    "DFT",
    "FAST",
    "LPA",
    "MECHANISMS",
    "AR1Process",
    "AR1Release",
    "AR1Settings",
    "Advice",
    "BudgetAbsorption",
    "BudgetDistribution",
    "ContinualCounter",
    "FASTSettings",
    "FilterBank",
    "FilteredRelease",
    "Gaussian",
    "GeometricWeights",
    "Guarantee",
    "KalmanFilter",
    "ParticleFilter",
    "RandomizedResponse",
    "SIPBatched",
    "SIPInstant",
    "Sampling",
    "SeriesRelease",
    "SubsampledRelease",
    "TemporalResponse",
    "ToPS",
    "UnaryEncoding",
    "Uniform",
    "WindowResponse",
    "advise",
    "auto",
    "composed_leakage",
    "expected_squared_error",
    "learn_chain",
    "least_weight",
    "metrics",
    "paper_squared_error",
    "release_series",
    "suggest_weight",
    "temporal_leakage",
]

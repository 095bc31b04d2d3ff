"""One call from a series to a release, for the command line and for scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from streams.scalar.autoregressive import AR1Release
from streams.scalar.base import Mechanism, read_series
from streams.scalar.baselines import Sampling, Uniform
from streams.scalar.choose import auto
from streams.scalar.counting import ContinualCounter
from streams.scalar.fast import FAST
from streams.scalar.fourier import DFT
from streams.scalar.local_baselines import TemporalResponse, ToPS, WindowResponse
from streams.scalar.perturbation import LPA, Gaussian
from streams.scalar.response import RandomizedResponse, UnaryEncoding
from streams.scalar.sip import SIPBatched, SIPInstant
from streams.scalar.subsampling import FilteredRelease, SubsampledRelease
from streams.scalar.window import BudgetAbsorption, BudgetDistribution
from synthgeo.arrays import Floats
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit

MECHANISMS: dict[str, type[Mechanism]] = {
    "lpa": LPA,
    "gaussian": Gaussian,
    "dft": DFT,
    "fast": FAST,
    "ar1": AR1Release,
    "counter": ContinualCounter,
    "absorption": BudgetAbsorption,
    "distribution": BudgetDistribution,
    "subsampled": SubsampledRelease,
    "filtered": FilteredRelease,
    "uniform": Uniform,
    "sampling": Sampling,
    "sip": SIPInstant,
    "sip-batched": SIPBatched,
    "randomized-response": RandomizedResponse,
    "unary-encoding": UnaryEncoding,
    "temporal-response": TemporalResponse,
    "window-response": WindowResponse,
    "tops": ToPS,
}

# The length of a series is a public number of time steps, so it may stand in for the horizon.
_BY_LENGTH: tuple[Callable[..., Mechanism], ...] = (
    auto,
    LPA,
    Gaussian,
    FAST,
    AR1Release,
    ContinualCounter,
    SIPInstant,
    SIPBatched,
    RandomizedResponse,
    UnaryEncoding,
    TemporalResponse,
    ToPS,
)


@dataclass(frozen=True)
class SeriesRelease:
    """A released series and the statement that goes with it."""

    values: Floats
    spent: PrivacyBudget | None
    unit: PrivacyUnit
    provenance: dict[str, Any]

    @property
    def releasable(self) -> bool:
        """Whether this may be published."""
        return bool(self.provenance["releasable"])

    def to_frame(self, index: Any = None) -> pd.DataFrame:
        """The released values as a frame with one column, ``released``."""
        return pd.DataFrame({"released": self.values}, index=index)

    def plot(self, true: Any = None, ax: Any = None) -> Any:
        """Draw the released series; with ``true`` beside it the picture says that it is for the curator."""
        axis = require("matplotlib.pyplot", extra="report").subplots(figsize=(10, 4))[1] if ax is None else ax
        if true is not None:
            axis.plot(read_series(true), color="0.6", label="true: for the curator only")
        axis.plot(self.values, lw=1, label=f"released, {self.provenance['mechanism']}")
        axis.set_xlabel("step")
        axis.legend()
        return axis


def maker_of(mechanism: str) -> Callable[..., Mechanism]:
    """The mechanism of that name; "auto" chooses by what it is given."""
    makers: dict[str, Callable[..., Mechanism]] = {"auto": auto, **MECHANISMS}
    if mechanism.lower() not in makers:
        raise ConfigError(f"unknown mechanism {mechanism!r}; there are {', '.join(makers)}")
    return makers[mechanism.lower()]


def release_series(
    values: Any, *, mechanism: str = "fast", budget: PrivacyBudget, noise: Noise | None = None, **options: Any
) -> SeriesRelease:
    """Release a whole series with the mechanism of that name (see ``MECHANISMS``), or with the one that
    ``auto`` chooses.

    ``options`` are the mechanism's own. Where it has a ``horizon`` and neither that nor ``max_steps`` or
    ``window`` is given, the length of the series is taken.
    """
    kind = maker_of(mechanism)
    series = read_series(values)
    bounds = ("horizon", "max_steps", "window")
    if kind in _BY_LENGTH and all(options.get(name) is None for name in bounds):
        options["horizon"] = max(1, series.size)
    try:
        made = getattr(kind, "from_options", kind)(budget=budget, noise=noise, **options)
    except TypeError as problem:
        line = re.sub(rf"{kind.__name__}(\.__init__)?\(\) ", "", str(problem))
        raise ConfigError(f"{mechanism}: {line}") from problem
    released = made.run(series)
    return SeriesRelease(released, made.spent, made.unit, made.provenance())

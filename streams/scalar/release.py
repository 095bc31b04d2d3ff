"""One call from a series to a release, and the choice of its mechanism from public facts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from streams.scalar.autoregressive import AR1Release
from streams.scalar.base import Missing, SeriesMechanism, read_series
from streams.scalar.fast import FAST, FASTSettings
from streams.scalar.fourier import DFT
from streams.scalar.local import RandomizedResponse, States, UnaryEncoding, read_states
from streams.scalar.local_baselines import TemporalResponse, ToPS, WindowResponse
from streams.scalar.perturbation import LPA, ContinualCounter, Gaussian, Sampling, Uniform
from streams.scalar.sip import SIPBatched, SIPInstant
from streams.scalar.subsampling import FilteredRelease, SubsampledRelease
from streams.scalar.window import BudgetAbsorption, BudgetDistribution
from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit

# Which mechanism for a series: chosen from public facts alone, with what to expect of it.
#
# The choice follows the measurements of ``benchmarks/series.py`` (part ``choice``): ten series, three
# budgets, five promises. ``docs/how-to/series.md`` tells it in words.

# Without a horizon, the error of totals is told for this many steps.
_TOLD_AFTER = 365
_OUTPUTS: tuple[Literal["values", "totals"], ...] = ("values", "totals")


@dataclass(frozen=True)
class Advice:
    """A mechanism for a series, why it was chosen, and the root mean squared error to expect of a value.

    ``expected_error`` is None for local mechanisms, whose error depends on the states.
    """

    kind: type[SeriesMechanism]
    options: dict[str, Any] = field(repr=False)
    why: str
    expected_error: float | None = None

    def make(self, noise: Noise | None = None) -> SeriesMechanism:
        """The mechanism, fresh."""
        return self.kind(**self.options, noise=noise)


def advise(
    *,
    budget: PrivacyBudget,
    unit: PrivacyUnit | None = None,
    horizon: int | None = None,
    window: int | None = None,
    max_steps: int | None = None,
    output: Literal["values", "totals"] = "values",
    scale: float | None = None,
    change: float | None = None,
    states: States | None = None,
    prior: Any = None,
    transition: Any = None,
    delay: int = 0,
    sensitivity: float = 1,
    grid_bits: int = 0,
    missing: Missing = "refuse",
    nonnegative: bool = False,
) -> Advice:
    """What ``auto`` makes of the same facts, and why. Reads no data.

    Who is protected: with ``window`` everything within so many successive steps, with ``max_steps`` or
    ``unit`` a user who is in so many steps (or one event), else a user who may be in every one of ``horizon``
    steps. ``scale`` is the expected size of a value and ``change`` that of its change from step to step:
    public guesses, which sharpen the choice and the expected error. ``states`` (with ``prior`` and
    ``transition`` where a chain is known) asks for a *local* mechanism, which the person runs; ``delay`` is
    how many values may wait.

    >>> advice = advise(budget=PrivacyBudget(1.0), window=24, scale=500, change=20)
    >>> advice.kind.__name__, round(advice.expected_error, 1)
    ('FAST', 20.6)
    """
    who = _who(unit, horizon, window, max_steps)
    for name, value in (("scale", scale), ("change", change)):
        if value is not None:
            validate.positive(value, name)
    if states is not None or transition is not None:
        return _local(budget, who, states, prior, transition, delay, missing)
    if prior is not None or delay:
        raise ConfigError("prior= and delay= are for local mechanisms: give states= too")
    shared: dict[str, Any] = {
        "budget": budget,
        "sensitivity": sensitivity,
        "grid_bits": grid_bits,
        "missing": missing,
        "nonnegative": nonnegative,
    }
    if validate.one_of(output, "output", _OUTPUTS) == "totals":
        return _totals(who, horizon, shared)
    options: dict[str, Any] = {**shared, **who}
    if change is not None:
        options["settings"] = FASTSettings(process_variance=change**2)
    made = FAST(**options)
    error = made.expected_error(change)
    return Advice(FAST, options, _reason(made, error, scale, change), error)


def auto(
    *,
    budget: PrivacyBudget,
    unit: PrivacyUnit | None = None,
    horizon: int | None = None,
    window: int | None = None,
    max_steps: int | None = None,
    output: Literal["values", "totals"] = "values",
    scale: float | None = None,
    change: float | None = None,
    states: States | None = None,
    prior: Any = None,
    transition: Any = None,
    delay: int = 0,
    sensitivity: float = 1,
    grid_bits: int = 0,
    missing: Missing = "refuse",
    nonnegative: bool = False,
    noise: Noise | None = None,
) -> SeriesMechanism:
    """The mechanism that suits a series, chosen from public facts; ``advise`` explains facts and choice.

    Single values: ``FAST``. Totals: ``ContinualCounter``. One person's states: ``SIPInstant`` or
    ``SIPBatched`` where a chain is known, else ``RandomizedResponse``. The guarantee is the mechanism's own.

    >>> auto(budget=PrivacyBudget(1.0), horizon=365, nonnegative=True).guarantee.describe()
    'user-level, pure, central: one user, who may be in every step'
    """
    advice = advise(
        budget=budget,
        unit=unit,
        horizon=horizon,
        window=window,
        max_steps=max_steps,
        output=output,
        scale=scale,
        change=change,
        states=states,
        prior=prior,
        transition=transition,
        delay=delay,
        sensitivity=sensitivity,
        grid_bits=grid_bits,
        missing=missing,
        nonnegative=nonnegative,
    )
    return advice.make(noise)


def _who(
    unit: PrivacyUnit | None, horizon: int | None, window: int | None, max_steps: int | None
) -> dict[str, int]:
    """Whom the promise is for, as the mechanisms want it said."""
    if sum(fact is not None for fact in (unit, window, max_steps)) > 1:
        raise ConfigError(
            "say whom to protect by one of window=, max_steps= and unit= (or by horizon= alone)"
        )
    if window is not None:
        return {"window": validate.whole(window, "window", low=1)}
    steps = None if horizon is None else validate.whole(horizon, "horizon", low=1)
    if unit is not None:
        validate.instance(unit, "unit", PrivacyUnit)
        if unit.of != "event":
            raise ConfigError("a series protects an event, or a user with a bound on their events")
        max_steps = unit.max_contributions
    if max_steps is None:
        if steps is None:
            raise ConfigError("say whom to protect: horizon=, window=, max_steps= or unit=")
        return {"horizon": steps}
    most = validate.whole(max_steps, "max_steps", low=1)
    return {"max_steps": most} if steps is None or most < steps else {"horizon": steps}


def _totals(who: dict[str, int], horizon: int | None, shared: dict[str, Any]) -> Advice:
    if "window" in who:
        raise ConfigError("totals hold every step since the start: protect an event or a user, not a window")
    most = who.get("max_steps", who.get("horizon"))
    options = {**shared, "max_steps": most, "horizon": horizon}
    made = ContinualCounter(**options)
    after = horizon or _TOLD_AFTER
    why = f"totals by a {made.kind} counter, whose noise grows slowly with the steps (told for step {after})"
    return Advice(ContinualCounter, options, why, made.expected_error(after))


def _local(
    budget: PrivacyBudget,
    who: dict[str, int],
    states: States | None,
    prior: Any,
    transition: Any,
    delay: int,
    missing: Missing,
) -> Advice:
    validate.together(prior=prior, transition=transition)
    waiting = validate.whole(delay, "delay", low=0)
    options: dict[str, Any] = {"budget": budget, "missing": missing, **who}
    if states is not None:
        options["states"] = states
    if "max_steps" in who:
        raise ConfigError(
            "a local mechanism protects a whole series, or each window: give horizon= or window="
        )
    if transition is None:
        if "horizon" not in who:
            raise ConfigError("without a chain, a local mechanism protects a whole series: give horizon=")
        return Advice(RandomizedResponse, options, "nothing is known about how states follow each other")
    options |= {"prior": prior, "transition": transition}
    count = len(transition) if states is None else read_states(states).shape[0]
    batch = min(waiting + 1, int(math.log(SIPBatched.MOST_SEQUENCES + 0.5, count)))
    if batch <= 1 or missing == "public" or who.get("window", batch) % batch:
        return Advice(SIPInstant, options, "a known chain: each value through the best channel at once")
    why = f"a known chain, and {batch} values may be released together"
    return Advice(SIPBatched, {**options, "batch": batch}, why)


def _reason(made: FAST, error: float, scale: float | None, change: float | None) -> str:
    learns = "learns how fast the series moves" if change is None else "is told how fast the series moves"
    why = f"every step alone would have noise of scale {made.scale:.3g}; it {learns}, samples and filters"
    if scale is not None and error > scale:
        why += f". An error of {error:.3g} exceeds values of {scale:.3g}: raise ε, allow a δ, or protect less"
    return why


MECHANISMS: dict[str, type[SeriesMechanism]] = {
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
_BY_LENGTH: tuple[Callable[..., SeriesMechanism], ...] = (
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


def maker_of(mechanism: str) -> Callable[..., SeriesMechanism]:
    """The mechanism of that name; "auto" chooses by what it is given."""
    makers: dict[str, Callable[..., SeriesMechanism]] = {"auto": auto, **MECHANISMS}
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

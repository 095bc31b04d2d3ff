"""Mechanisms for scalar series."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any
from unittest import mock

import numpy as np
from scipy.optimize import brentq

import streams.scalar as series
from audits.coupling import binomial_epsilon, coupled_shifts
from audits.enumerate_law import exact_loss
from audits.pool import copy_of, many
from audits.registry import EXTREMES, Attacker, Found, case
from streams.scalar.accounting import gaussian_delta
from synthgeo.auditing.duels import gaussian_epsilon
from synthgeo.auditing.neighbours import border_event, loyal_user
from synthgeo.auditing.whitebox import ImpulseNoise, linear_costs
from synthgeo.privacy.accountant import approximate_dp_of_zcdp, zcdp_of
from synthgeo.privacy.budget import PrivacyBudget

PURE = PrivacyBudget(2.0)
LOOSE = PrivacyBudget(1.0, 0.02)
TIGHT = PrivacyBudget(1.0, 1e-5)


def _linear(make: Any, pair: Any, *, delta: float = 0.0) -> float:
    """Exact ε of a mechanism that adds noise to a linear map of the series."""
    quiet, loud = (np.asarray(make(noise=ImpulseNoise()).run(values)) for values in pair)
    cost = linear_costs(lambda noise: make(noise=noise).run(pair[0]), [loud - quiet], gaussian=delta > 0)
    return gaussian_epsilon(float(cost[0]), delta) if delta else float(cost[0])


# --- exact: whole series with noise that is added to a linear map ---

LINEAR = {
    "LPA": (functools.partial(series.LPA, horizon=6), loyal_user(6), PURE),
    "Gaussian": (functools.partial(series.Gaussian, horizon=6), loyal_user(6), TIGHT),
    "Uniform": (functools.partial(series.Uniform, window=6), loyal_user(6), PURE),
    "Sampling": (functools.partial(series.Sampling, horizon=6, interval=2), loyal_user(6), PURE),
    # The worst user of a transform: a row of its basis. In one step only, all cosines move at once.
    # An event at step 1 is in the most nodes of a tree.
    "ContinualCounter (binary)": (
        functools.partial(series.ContinualCounter, horizon=6, counter="binary"),
        border_event(6, 1),
        PURE,
    ),
    "ContinualCounter (k-ary, steps)": (
        functools.partial(series.ContinualCounter, horizon=6, counter="kary", output="steps"),
        border_event(6, 1),
        PURE,
    ),
    "ContinualCounter (a user in six steps)": (
        functools.partial(series.ContinualCounter, horizon=6, counter="simple", max_steps=6),
        loyal_user(6),
        PURE,
    ),
    "ContinualCounter (Toeplitz)": (
        functools.partial(series.ContinualCounter, horizon=6),
        border_event(6, 1),
        TIGHT,
    ),
    "DFT": (functools.partial(series.DFT, coefficients=1), loyal_user(8), PURE),
    "DFT (Gaussian)": (functools.partial(series.DFT, coefficients=1), loyal_user(8), TIGHT),
    "DFT (blocks)": (
        functools.partial(series.DFT, horizon=8, delay=3, coefficients=1),
        loyal_user(8),
        PURE,
    ),
    "DFT (Gaussian blocks)": (
        functools.partial(series.DFT, horizon=8, delay=3, coefficients=1),
        loyal_user(8),
        TIGHT,
    ),
}


def _enter_linear(name: str, epsilon: float | None = None) -> None:
    make, pair, budget = LINEAR[name]
    budget = budget if epsilon is None else PrivacyBudget(epsilon, budget.delta)
    unit = "event" if pair[1].sum() == 1 else "window of w" if name == "Uniform" else "user"
    worst = "an event at the first step" if unit == "event" else "a user in every step"

    @case(
        f"series.{name}, {worst}",
        unit=unit,
        claimed=budget,
        method="exact",
        twin="noise scale halved",
        covers=f"series.{name.split()[0]}",
    )
    def attack(attacker: Attacker) -> Found:
        half = PrivacyBudget(2 * budget.epsilon, budget.delta)
        if not budget.is_pure:  # half of σ is four times ρ
            half = _four_times(budget)
        return Found(
            *(_linear(functools.partial(make, budget=b), pair, delta=budget.delta) for b in (budget, half))
        )


def _four_times(budget: PrivacyBudget) -> PrivacyBudget:
    return PrivacyBudget(approximate_dp_of_zcdp(4 * zcdp_of(budget), budget.delta), budget.delta)


for _name in LINEAR:
    for _epsilon in (None, *EXTREMES):
        _enter_linear(_name, _epsilon)


@case(
    "series.DFT, raw coefficients",
    unit="user",
    claimed=1.0,
    method="exact",
    twin="Laplace noise of scale d on raw coefficients (Fan and Xiong's listing)",
    covers="series.DFT",
)
def raw_coefficients(attacker: Attacker) -> Found:
    honest = _linear(functools.partial(series.DFT, coefficients=2, budget=PrivacyBudget(1.0)), loyal_user(24))
    first = np.array([24.0, 0.0, 0.0])  # a user in every one of 24 steps
    listing = linear_costs(lambda noise: np.zeros(3) + noise.discrete_laplace(3.0, 3), [first])
    return Found(honest, float(listing[0]))


# --- black box: adaptive mechanisms, against the worst user, with the numbers that tell most ---

BLACK_BOX = {
    "LPA": (functools.partial(series.LPA, horizon=2), loyal_user(2), PURE, 120_000),
    "FAST (Kalman)": (
        functools.partial(series.FAST.from_options, horizon=2, filter="kalman", sampling=1, max_samples=2),
        loyal_user(2),
        PURE,
        120_000,
    ),
    "FAST (adaptive sampling)": (
        functools.partial(series.FAST.from_options, horizon=4, filter="kalman", max_samples=2),
        loyal_user(4),
        PURE,
        60_000,
    ),
    "FAST (learnt sampling)": (
        functools.partial(
            series.FAST.from_options, horizon=2, max_samples=2
        ),  # without the second reading: its law is computed
        loyal_user(2),
        PURE,
        20_000,
    ),
    "Uniform": (functools.partial(series.Uniform, window=2), loyal_user(2), PURE, 120_000),
    "Sampling": (functools.partial(series.Sampling, window=2), loyal_user(2), PURE, 120_000),
    "DFT": (functools.partial(series.DFT, coefficients=1), loyal_user(4), PURE, 60_000),
    "Gaussian": (functools.partial(series.Gaussian, horizon=2), loyal_user(2), LOOSE, 120_000),
    "AR1Release (Gaussian)": (
        functools.partial(series.AR1Release, horizon=3, weights=0.5),
        loyal_user(3),
        LOOSE,
        120_000,
    ),
}


def _enter_black_box(name: str) -> None:
    make, pair, budget, runs = BLACK_BOX[name]
    twin_budget = PrivacyBudget(2 * budget.epsilon) if budget.is_pure else _four_times(budget)

    @case(
        f"series.{name}",
        unit="window of w" if "Budget" in name or name in ("Uniform", "Sampling") else "user",
        claimed=budget,
        method="black box",
        twin="noise scale halved",
        covers=f"series.{name.split()[0]}",
    )
    def attack(attacker: Attacker) -> Found:
        honest, half = (
            functools.partial(many, make=functools.partial(make, budget=b)) for b in (budget, twin_budget)
        )
        return attacker.black_box(
            honest,
            half,
            pair,
            claimed=budget,
            runs=runs,
            quick=3000 if budget.is_pure else 12_000,
            batched=True,
            twin_runs=30_000,
        )


for _name in BLACK_BOX:
    _enter_black_box(_name)


# --- mechanisms that take long to calibrate: made once, copied for each run ---


@functools.cache
def _template(kind: str, epsilon: float) -> Any:
    budget = PrivacyBudget(epsilon, LOOSE.delta)
    if kind == "binomial":
        return series.AR1Release(budget=budget, horizon=2, mechanism="binomial", weights=1.0)
    if kind == "filtered":
        return series.FAST(budget=budget, horizon=2)
    return series.SubsampledRelease(budget=budget, max_steps=2, rate=0.5)


def _enter_template(name: str, kind: str, pair: Any, runs: int, quick: int) -> None:
    @case(
        f"series.{name}",
        unit="user",
        claimed=LOOSE,
        method="black box",
        twin="noise scale halved",
        covers=(f"series.{name.split()[0]}", *(["Noise.words"] if kind == "binomial" else [])),
    )
    def attack(attacker: Attacker) -> Found:
        honest, half = (
            functools.partial(many, make=functools.partial(copy_of, _template(kind, epsilon)))
            for epsilon in (1.0, _four_times(LOOSE).epsilon)
        )
        return attacker.black_box(
            honest, half, pair, claimed=LOOSE, runs=runs, quick=quick, batched=True, twin_runs=20_000
        )


_enter_template("AR1Release (binomial)", "binomial", loyal_user(2), 60_000, 8000)
_enter_template("FAST (Gaussian)", "filtered", loyal_user(2), 40_000, 8000)
_enter_template("SubsampledRelease", "subsampled", loyal_user(2), 60_000, 8000)


def _over_samples(make: Any, pair: Any, delta: float) -> float:
    """Exact ε at ``delta`` of a release of random steps: the mean δ over which steps were drawn, all of them
    Gaussian with known noise.
    """
    length = len(pair[0])
    chances, rhos = [], []
    for size in range(length + 1):
        for chosen in itertools.combinations(range(length), size):
            made = make(noise=ImpulseNoise())
            rate = made._exact_rate
            chances.append(rate**size * (1 - rate) ** (length - size))
            rhos.append(_sampled_rho(make, pair, np.array(chosen, dtype=np.intp)) if size else 0.0)

    def excess(epsilon: float) -> float:
        deltas = [gaussian_delta(epsilon, math.sqrt(2 * rho)) for rho in rhos]
        return float(np.dot(chances, deltas)) - delta

    return float(brentq(excess, 0.0, 50.0)) if excess(0.0) > 0 else 0.0


def _sampled_rho(make: Any, pair: Any, chosen: np.ndarray) -> float:
    def run(noise: Any, values: Any = pair[0]) -> np.ndarray:
        made = make(noise=noise)
        with mock.patch.object(made, "_draw_steps", return_value=chosen):
            return np.asarray(made.run(values))

    change = run(ImpulseNoise(), pair[1]) - run(ImpulseNoise())
    return float(linear_costs(run, [change], gaussian=True)[0])


def _enter_sampled(
    name: str, make: Any, user: Any, twin: str, twin_make: Any, budget: PrivacyBudget = LOOSE
) -> None:
    @case(
        f"series.{name}, over all samples of steps",
        unit="user",
        claimed=budget,
        method="exact",
        twin=twin,
        covers=f"series.{name.split()[0]}",
    )
    def attack(attacker: Attacker) -> Found:
        return Found(*(_over_samples(m, user, budget.delta) for m in (make, twin_make)))


def _sampled(kind: Any, **options: Any) -> Any:
    return functools.partial(copy_of, kind(rate=0.5, **options))


# The audit takes the noise as continuous, which it nearly is where σ is not small: no large ε here.
for _budget in (LOOSE, *(PrivacyBudget(epsilon, LOOSE.delta) for epsilon in (0.1, 0.5))):
    for _kind, _options in ((series.SubsampledRelease, {}), (series.FilteredRelease, {"bandwidth": 0.7})):
        _enter_sampled(
            _kind.__name__,
            _sampled(_kind, budget=_budget, max_steps=4, **_options),
            loyal_user(4),
            "noise scale halved",
            _sampled(_kind, budget=_four_times(_budget), max_steps=4, **_options),
            _budget,
        )
_enter_sampled(
    "SubsampledRelease (a user in 6 steps)",
    _sampled(series.SubsampledRelease, budget=LOOSE, max_steps=6),
    loyal_user(6),
    "calibrated for a user in one step",
    _sampled(series.SubsampledRelease, budget=LOOSE, max_steps=1),
)


# --- prediction from earlier releases: how far each draw is shifted for the worlds to release the same ---


def _shifts(kind: str, budget: PrivacyBudget, *, thin: float = 1.0) -> list[tuple[int, float]]:
    steps = 6 if kind == "gaussian" else 2
    template = series.AR1Release(budget=budget, horizon=steps, mechanism=kind, weights=0.5)  # type: ignore[arg-type]
    draws = [0, 3, -2, 5, 1, 0][:steps]
    found = coupled_shifts(functools.partial(copy_of, template), loyal_user(steps)[::-1], draws)
    return [(shift, sigma * thin) for shift, sigma in found]


def _enter_predicted(budget: PrivacyBudget) -> None:
    @case(
        "series.AR1Release (Gaussian), a user in six steps",
        unit="user",
        claimed=budget,
        method="exact",
        twin="noise scale halved",
        covers="series.AR1Release",
    )
    def predicted(attacker: Attacker) -> Found:
        def epsilon(thin: float) -> float:
            rho = sum((shift / sigma) ** 2 / 2 for shift, sigma in _shifts("gaussian", budget, thin=thin))
            return gaussian_epsilon(rho, budget.delta)

        return Found(epsilon(1.0), epsilon(0.5))


for _epsilon in (TIGHT.epsilon, *EXTREMES):
    _enter_predicted(PrivacyBudget(_epsilon, TIGHT.delta))


@case(
    "series.AR1Release (binomial), a user in two steps",
    unit="user",
    claimed=LOOSE,
    method="exact",
    twin="noise scale halved",
    covers="series.AR1Release",
)
def predicted_binomial(attacker: Attacker) -> Found:
    return Found(
        *(binomial_epsilon(_shifts("binomial", LOOSE, thin=thin), LOOSE.delta) for thin in (1.0, 0.5))
    )


# What AR1Release can be told beyond weights: each costs what its guarantee says.
VARIANTS: dict[str, dict[str, Any]] = {
    "skipping": {"weights": [1.0, 0.5, 0.0, 0.5, 0.0, 0.5]},
    "known process": {"weights": 0.5, "process": series.AR1Process(0.0, 4.0, 0.5)},
    "history": {"weights": 0.5, "history": [0.0, 2.0, 1.0]},
    "sensitivities by step": {"weights": 0.5, "sensitivity": [1.0, 1.0, 2.0, 1.0, 3.0, 1.0]},
    "all releases": {"weights": 0.5, "predictor": "all"},
    "geometric mixture": {"weights": 0.5, "mixture": "geometric", "history": [9.0, 7.0, 8.0]},
}


def _enter_variant(name: str) -> None:
    options = VARIANTS[name]
    # Under the geometric mixture one more of nothing moves a value most: sqrt is steepest at 0.
    quiet, loud = loyal_user(6)
    loud = quiet + np.array(options.get("sensitivity", 1.0), dtype=np.int64)

    @case(
        f"series.AR1Release ({name}), a user in six steps",
        unit="user",
        claimed=TIGHT,
        method="exact",
        twin="noise scale halved",
        covers="series.AR1Release",
    )
    def attack(attacker: Attacker) -> Found:
        template = series.AR1Release.from_options(budget=TIGHT, horizon=6, **options)
        # A skipped step draws nothing and releases the same in both worlds: it is left out.
        read = [t for t in range(6) if template._whole_weight(t + 1) > 0]

        def epsilon(thin: float) -> float:
            found = coupled_shifts(
                functools.partial(copy_of, template), (loud, quiet), [0, 3, -2, 5, 1, 0], read=read
            )
            rho = sum((shift / (sigma * thin)) ** 2 / 2 for shift, sigma in found)
            return gaussian_epsilon(rho, TIGHT.delta)

        return Found(epsilon(1.0), epsilon(0.5))


for _name in VARIANTS:
    _enter_variant(_name)


class _ByValues(series.AR1Release):
    """Broken: takes the n-th value for step n, as if there were no gaps."""

    def _release(self, steps: int) -> float:
        step, self.step = self.step, self._queries
        try:
            return super()._release(steps)
        finally:
            self.step = step


_UNEVEN = [1.0, 1.0, 1000.0, 1.0, 30.0, 1.0]
GAPS: dict[str, dict[str, Any]] = {
    "weights by step": {"weights": [1.0, 1.0, 1.0, 0.001, 0.5, 1.0], "sensitivity": [1, 1, 1, 1000, 2, 1]},
    "geometric mixture": {"mixture": "geometric", "sensitivity": _UNEVEN, "history": [9.0, 7.0, 8.0]},
}


def _enter_gap(name: str) -> None:
    options = GAPS[name]
    gap = np.array([True, False, False, False, False, False])
    quiet = np.where(gap, np.nan, 0.0)
    loud = quiet + np.array(options["sensitivity"])

    @case(
        f"series.AR1Release ({name}), a gap and a user in the other five steps",
        unit="user",
        claimed=TIGHT,
        method="exact",
        twin="steps counted by values read",
        covers="series.AR1Release",
    )
    def attack(attacker: Attacker) -> Found:
        def epsilon(kind: Any) -> float:
            template = kind.from_options(budget=TIGHT, horizon=6, missing="public", **options)
            make = functools.partial(copy_of, template)
            found = coupled_shifts(
                make, (loud, quiet), [0, 3, -2, 5, 1, 0], read=np.flatnonzero(~gap).tolist()
            )
            return gaussian_epsilon(sum((shift / sigma) ** 2 / 2 for shift, sigma in found), TIGHT.delta)

        return Found(epsilon(series.AR1Release), epsilon(_ByValues))


for _name in GAPS:
    _enter_gap(_name)


# --- FAST: filters and controllers are post-processing; given their randomness, the law is the draws' ---


def _enter_fast(
    name: str,
    steps: int,
    *,
    claimed: float = 2.0,
    reaches: tuple[int, ...] = (12, 12),
    max_samples: int | None = 2,
    **options: Any,
) -> None:
    @case(
        f"series.FAST ({name}), its law",
        unit="user",
        claimed=claimed,
        method="exact",
        twin="noise scale halved",
        covers="series.FAST",
        within=1e-3,  # what the draws left out can do
    )
    def exact(attacker: Attacker) -> Found:
        def run(values: Any, noise: Any, *, epsilon: float) -> Any:
            budget = PrivacyBudget(epsilon)
            return series.FAST.from_options(
                budget=budget, max_samples=max_samples, noise=noise, **options
            ).run(values)

        return Found(
            *(
                exact_loss(functools.partial(run, epsilon=e), loyal_user(steps), reaches=reaches)
                for e in (claimed, 2 * claimed)
            )
        )


_enter_fast("Kalman", 2, horizon=2, filter="kalman", sampling=1)
for _epsilon in (1.0, 5.0):  # the law of a smaller ε is too wide to run through
    _enter_fast("Kalman", 2, claimed=_epsilon, horizon=2, filter="kalman", sampling=1)
_enter_fast("particle", 2, horizon=2, sampling=1, filter="particle", particles=50)
_enter_fast("adaptive sampling", 4, horizon=4, filter="kalman")
_enter_fast("learnt sampling", 4, horizon=4)
_enter_fast("learnt sampling, a guess", 4, horizon=4, process_variance=3.0)
# Three draws: the first value, the same again where noise hides it, the second value.
_enter_fast("first value read again", 2, claimed=8.0, reaches=(5, 30, 6), max_samples=None, horizon=2)
_enter_fast("within windows", 2, window=2)
_enter_fast("a user in two steps", 2, max_steps=2)


# --- w-event mechanisms: small enough to run under every combination of draws ---


def _enter_law(name: str, kind: Any, claimed: float) -> None:
    @case(
        f"series.{name}, its law over two steps",
        unit="window of w",
        claimed=claimed,
        method="exact",
        twin="noise scale halved",
        covers=f"series.{name}",
        within=1e-3,  # what the draws left out can do
    )
    def exact(attacker: Attacker) -> Found:
        def run(values: Any, noise: Any, *, epsilon: float, window: int) -> Any:
            return kind(budget=PrivacyBudget(epsilon), window=window, noise=noise).run(values)

        def worst(epsilon: float) -> float:
            # w = 1: the second step alone differs; w = 2: both do.
            cases = ((([0, 0], [0, 1]), 1), (([0, 0], [1, 1]), 2))
            return max(
                exact_loss(functools.partial(run, epsilon=epsilon, window=window), pair, reaches=(5, 12, 12))
                for pair, window in cases
            )

        return Found(worst(claimed), worst(2 * claimed))


def _enter_window(name: str, kind: Any) -> None:
    @case(
        f"series.{name}",
        unit="window of w",
        claimed=PURE,
        method="black box",
        twin="a quarter of the noise",
        covers=f"series.{name}",
    )
    def attack(attacker: Attacker) -> Found:
        honest, greedy = (
            functools.partial(many, make=functools.partial(kind, budget=PrivacyBudget(e), window=1))
            for e in (2.0, 8.0)
        )
        pair = ([0, 0], [0, 1])
        return attacker.black_box(
            honest, greedy, pair, claimed=PURE, runs=60_000, quick=3000, batched=True, twin_runs=20_000
        )


def _flattened(run: Any, values: Any, noise: Any, count: int) -> np.ndarray:
    """Runs of a mechanism over vectors, one a row."""
    return np.asarray(run(values, noise, count)).reshape(count, -1)


def _enter_vectors(name: str, kind: Any) -> None:
    @case(
        f"series.{name} (vectors of two)",
        unit="window of w",
        claimed=PURE,
        method="black box",
        twin="an eighth of the noise",
        covers=f"series.{name}",
    )
    def attack(attacker: Attacker) -> Found:
        honest, greedy = (
            functools.partial(
                _flattened,
                functools.partial(
                    many, make=functools.partial(kind, budget=PrivacyBudget(e), window=1, dimensions=2)
                ),
            )
            for e in (2.0, 16.0)
        )
        pair = ([[0, 0], [0, 0]], [[0, 0], [0, 1]])
        return attacker.black_box(
            honest, greedy, pair, claimed=PURE, runs=40_000, quick=3000, batched=True, twin_runs=20_000
        )


def _rounded_loss(kind: Any, d: int, bits: int, *, twin: bool) -> float:
    """Exact loss of two vectors 1 apart in L1 whose numbers all cross a grid step, at the second step.

    The noise of the comparison and of the publication is seen; where threshold and output lie beyond both
    worlds' numbers, the loss is how far each is moved, over its scale.
    """

    class Seen(ImpulseNoise):
        def discrete_laplace(self, scale: Any, size: Any = None) -> Any:
            scales.append(float(scale))
            return np.full(size, 2**40 if size == 1 else 0, dtype=np.int64)  # every comparison publishes

    near = np.zeros(d)
    near[0] = 5 - 2.0**-40
    far = np.full(d, -(2.0**-45))
    far[0] = near[0] + 1 - (d - 1) * 2.0**-45
    released = []
    for vector in (near, far):
        scales: list[float] = []
        made = kind(budget=PURE, window=1, dimensions=d, grid_bits=bits, noise=Seen())
        if twin:
            made._step_sensitivity = 2**bits  # of one number
        released.append(made.run([np.zeros(d), vector]) * 2.0**bits)
    distance = [np.abs(steps[1] - steps[0]).sum() for steps in released]
    moved = np.abs(released[1][1] - released[0][1]).sum()
    return float(abs(distance[1] - distance[0]) / scales[1] + moved / scales[2])


def _enter_rounded(kind: Any, d: int, bits: int) -> None:
    @case(
        f"series.{kind.__name__} (vectors of {d} rounded to 2^-{bits})",
        unit="window of w",
        claimed=PURE,
        method="exact",
        twin="noise for one rounded number",
        covers=f"series.{kind.__name__}",
    )
    def attack(attacker: Attacker) -> Found:
        return Found(*(_rounded_loss(kind, d, bits, twin=twin) for twin in (False, True)))


for _kind in (series.BudgetAbsorption, series.BudgetDistribution):
    _enter_rounded(_kind, 1000, 10)
_enter_vectors("BudgetAbsorption", series.BudgetAbsorption)
_enter_vectors("BudgetDistribution", series.BudgetDistribution)
for _epsilon in (2.0, 3.0, 5.0):  # the law of a smaller ε is too wide to run through
    _enter_law("BudgetAbsorption", series.BudgetAbsorption, _epsilon)
    _enter_law("BudgetDistribution", series.BudgetDistribution, _epsilon)
_enter_window("BudgetAbsorption", series.BudgetAbsorption)
_enter_window("BudgetDistribution", series.BudgetDistribution)

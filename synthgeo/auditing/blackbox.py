"""``audit``: a statistical lower bound on the ε that a mechanism really has."""

from __future__ import annotations

import math
import multiprocessing
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy import stats

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.auditing.events import Event, Rows, best_event, views, with_low_bits
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise, SeededNoise, SystemNoise
from synthgeo.progress import track

# Runs that share one noise source. Fixed, so that a seed gives the same audit whatever the number of workers.
_SINGLE_CHUNK = 64
_BATCH_CHUNK = 1 << 15
MIN_RUNS = 200


@dataclass(frozen=True)
class AuditResult:
    """What an audit found. ``epsilon_lower`` is a lower bound on the true ε, wrong with probability 1 -
    confidence.
    """

    epsilon_lower: float
    delta_lower: float | None
    claimed: PrivacyBudget | None
    confidence: float
    runs: int
    event: str
    hits: tuple[int, int]
    measured: int
    detectable_epsilon: float
    seed: int | None
    seconds: float

    @property
    def violates(self) -> bool:
        """Whether the claim is refuted, at the stated confidence. False proves nothing: see
        ``detectable_epsilon``.
        """
        return self.claimed is not None and self.epsilon_lower > self.claimed.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON. ``detectable_epsilon`` is None where nothing could have been caught."""
        seen = self.detectable_epsilon if math.isfinite(self.detectable_epsilon) else None
        return {**asdict(self), "detectable_epsilon": seen, "violates": self.violates}

    def __str__(self) -> str:
        claim = "nothing claimed" if self.claimed is None else f"claimed {self.claimed.epsilon:g}"
        verdict = "BROKEN" if self.violates else "not refuted"
        return (
            f"epsilon >= {self.epsilon_lower:.3f} ({claim}: {verdict}), "
            f"wrong with probability {1 - self.confidence:.2g}; "
            f"event [{self.event}] hit {self.hits[0]} and {self.hits[1]} times in {self.measured} runs each; "
            + (
                f"a true epsilon of {self.detectable_epsilon:.2f} would have shown"
                if math.isfinite(self.detectable_epsilon)
                else "no epsilon could have shown with so few runs"
            )
        )


def audit(
    mechanism: Callable[..., Any],
    neighbours: tuple[Any, Any],
    *,
    runs: int = 20_000,
    confidence: float = 0.999,
    claimed: PrivacyBudget | float | None = None,
    features: Callable[[Any], Any] | None = None,
    batched: bool = False,
    classifier: bool = True,
    workers: int = 1,
    seed: int | None = None,
    progress: bool | None = None,
) -> AuditResult:
    """Try to tell two neighbouring inputs apart by a mechanism's outputs; bound its ε from below.

    ``mechanism(data, noise)`` is run ``runs`` times on each of the two inputs, every time with fresh noise,
    and returns a number, an array of fixed length, or a label. ``features`` may turn an output into such
    numbers. With ``batched=True`` the call is ``mechanism(data, noise, count)`` and returns ``count``
    independent outputs, one a row.

    A quarter of the runs fits scores that separate the inputs (values, histograms of log-ratios, a linear
    one, boosted trees where scikit-learn is installed), a quarter chooses the event, and half measures it,
    with exact binomial (Clopper-Pearson) bounds: the one number that is reported comes from runs that nothing
    was chosen on. A claim with a δ is audited at that δ; ``delta_lower`` bounds the δ at the claimed ε.

    ``seed`` makes the audit repeatable, for any number of ``workers`` (processes; the mechanism must be
    picklable).

    >>> noisy_count = lambda count, noise, n: count + noise.discrete_laplace(1.0, n)[:, None]
    >>> result = audit(noisy_count, (0, 1), runs=100_000, claimed=1.0, batched=True, seed=1)
    >>> 0.9 < result.epsilon_lower <= 1.0, result.violates
    (True, False)
    >>> audit(noisy_count, (0, 2), runs=100_000, claimed=1.0, batched=True, seed=1).violates
    True
    """
    budget = _claim(claimed)
    _check(neighbours, runs, confidence, workers, seed)
    start = time.perf_counter()
    tasks = [
        _AuditTask(mechanism, data, world, index, count, batched, features, seed)
        for world, data in enumerate(neighbours)
        for index, count in enumerate(_chunks(runs, _BATCH_CHUNK if batched else _SINGLE_CHUNK))
    ]
    worlds: tuple[list[Any], list[Any]] = ([], [])
    for task, outputs in zip(
        tasks, track(_run(tasks, workers), label="audit", total=len(tasks), enabled=progress), strict=True
    ):
        worlds[task.world].append(outputs)
    first, second = _to_rows(*worlds)

    fit, choose = runs // 4, runs // 2
    fitted = views(first[:fit], second[:fit], classifier=classifier)
    learn = first[fit:choose], second[fit:choose]
    measured = runs - choose
    delta = 0.0 if budget is None else budget.delta
    event = best_event(
        fitted, *learn, lambda a, b, n: epsilon_bound(a, b, n, confidence=confidence, delta=delta)
    )
    hits = _hits(event, first[choose:], second[choose:])
    lower = float(epsilon_bound(*hits, measured, confidence=confidence, delta=delta))
    delta_lower = None
    if budget is not None:
        epsilon = budget.epsilon
        telling = best_event(
            fitted, *learn, lambda a, b, n: delta_bound(a, b, n, confidence=confidence, epsilon=epsilon)
        )
        delta_hits = _hits(telling, first[choose:], second[choose:])
        delta_lower = float(delta_bound(*delta_hits, measured, confidence=confidence, epsilon=epsilon))
    claim = 0.0 if budget is None else budget.epsilon
    return AuditResult(
        epsilon_lower=lower,
        delta_lower=delta_lower,
        claimed=budget,
        confidence=confidence,
        runs=runs,
        event=str(event),
        hits=hits,
        measured=measured,
        detectable_epsilon=detectable_epsilon(runs, confidence=confidence, claimed=claim, delta=delta),
        seed=seed,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class _AuditTask:
    mechanism: Callable[..., Any]
    data: Any
    world: int
    index: int
    count: int
    batched: bool
    features: Callable[[Any], Any] | None
    seed: int | None

    def __call__(self) -> Any:
        noise = self._noise()
        if self.batched:
            rows = np.asarray(self.mechanism(self.data, noise, self.count))
            if rows.shape[:1] != (self.count,):
                raise ConfigError(
                    f"a batched mechanism returns {self.count} rows here, got shape {rows.shape}"
                )
            return rows if self.features is None else np.asarray([self.features(row) for row in rows])
        outputs = [self.mechanism(self.data, noise) for _ in range(self.count)]
        return outputs if self.features is None else [self.features(output) for output in outputs]

    def _noise(self) -> Noise:
        if self.seed is None:
            return SystemNoise()
        words = np.random.SeedSequence(self.seed, spawn_key=(self.world, self.index)).generate_state(4)
        return SeededNoise(int.from_bytes(words.tobytes(), "little"))


def _chunks(runs: int, size: int) -> list[int]:
    return [min(size, runs - start) for start in range(0, runs, size)]


def _run(tasks: list[_AuditTask], workers: int) -> Iterator[Any]:
    if workers == 1:
        for task in tasks:
            yield task()
        return
    try:
        pickle.dumps(tasks[0])
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        raise ConfigError(f"with workers > 1 the mechanism must be picklable: {problem}") from problem
    # Fresh processes, not forks: some numerical libraries do not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(task) for task in tasks]
        for future in futures:
            yield future.result()


def _to_rows(*worlds: list[Any]) -> tuple[Rows, Rows]:
    """Outputs as rows of numbers. Labels become one column, numbered alike in both worlds."""
    sizes = [sum(len(chunk) for chunk in world) for world in worlds]
    outputs = [output for world in worlds for chunk in world for output in chunk]
    if isinstance(outputs[0], Real | np.ndarray | np.generic | list | tuple) and not isinstance(
        outputs[0], np.str_
    ):
        try:
            rows = np.array(outputs, dtype=np.float64)
        except (TypeError, ValueError) as problem:
            raise ConfigError(
                "outputs must be numbers, labels, or arrays of one length; give features= to make them so"
            ) from problem
        rows = with_low_bits(rows.reshape(len(outputs), -1))
    else:
        labels = {label: code for code, label in enumerate(sorted({repr(output) for output in outputs}))}
        rows = np.array([[labels[repr(output)]] for output in outputs], dtype=np.float64)
    strange = ~np.isfinite(rows)
    if strange.any():  # NaN compares with nothing: say in columns of their own where outputs are not numbers
        marks = np.where(strange, np.where(np.isnan(rows), 3.0, np.sign(rows)), 0.0)
        rows = np.concatenate([np.where(strange, 0.0, rows), marks], axis=1)
    return rows[: sizes[0]], rows[sizes[0] :]


def _hits(event: Event, first: Rows, second: Rows) -> tuple[int, int]:
    """Hits in the world that the event favours, then in the other."""
    hits = event.hits(first), event.hits(second)
    return hits if event.first else hits[::-1]


def _claim(claimed: PrivacyBudget | float | None) -> PrivacyBudget | None:
    return claimed if claimed is None or isinstance(claimed, PrivacyBudget) else PrivacyBudget(claimed)


def _check(neighbours: Any, runs: int, confidence: float, workers: int, seed: int | None) -> None:
    if not isinstance(neighbours, tuple | list) or len(neighbours) != 2:
        raise ConfigError("neighbours must be a pair of inputs that differ in one unit")
    validate.whole(runs, "runs", low=MIN_RUNS)
    validate.whole(workers, "workers", low=1)
    if validate.share(confidence, "confidence") > 1 - 1e-12:
        raise validate.refuse("confidence", "at most 1 - 1e-12", confidence)
    if seed is not None:
        validate.whole(seed, "seed", low=0, high=None)


# The arithmetic of audits: exact binomial confidence bounds, and what they can and cannot show.


def clopper_pearson(hits: Any, runs: int, miss: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds of a probability, each wrong with probability at most ``miss``, for any true
    value.
    """
    hits = np.asarray(hits, dtype=np.float64)
    # At the ends the beta law degenerates, and the bound is 0 or 1.
    low = np.where(hits > 0, stats.beta.ppf(miss, np.maximum(hits, 1), runs - hits + 1), 0.0)
    high = np.where(hits < runs, stats.beta.isf(miss, hits + 1, np.maximum(runs - hits, 1)), 1.0)
    return np.asarray(low), np.asarray(high)


def epsilon_bound(hits: Any, other_hits: Any, runs: int, *, confidence: float, delta: float = 0.0) -> Floats:
    """Lower bound on ε from one event's hits in two worlds: ln((P(a) - δ) / P(b)), with the bounds' bad ends.

    Both bounds hold at once with the given confidence (each misses with half of what is left).
    """
    miss = (1 - confidence) / 2
    low = clopper_pearson(hits, runs, miss)[0] - delta
    high = clopper_pearson(other_hits, runs, miss)[1]
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(np.log(np.maximum(low, 0.0)) - np.log(high), 0.0))


def delta_bound(hits: Any, other_hits: Any, runs: int, *, confidence: float, epsilon: float) -> Floats:
    """Lower bound on δ at ``epsilon``: P(a) - e^ε P(b), with the bounds' bad ends."""
    miss = (1 - confidence) / 2
    low = clopper_pearson(hits, runs, miss)[0]
    high = clopper_pearson(other_hits, runs, miss)[1]
    return np.asarray(np.maximum(low - math.exp(epsilon) * high, 0.0))


def detectable_epsilon(runs: int, *, confidence: float, claimed: float = 0.0, delta: float = 0.0) -> float:
    """The true ε from which an audit of ``runs`` runs a world reports more than ``claimed``, nine times in
    ten.

    For a mechanism that is as easy to tell apart as randomised response (one event holds all there is to see)
    when the audit has learned that event. Harder mechanisms need more. Infinity: no mechanism can be caught
    with so few runs.

    >>> round(detectable_epsilon(20_000, confidence=0.999, claimed=1.0), 2)
    1.11
    """
    measured = runs - runs // 2

    def reported(epsilon: float) -> float:
        rare = 1 / (1 + math.exp(epsilon))
        spread = 1.3 * math.sqrt(measured * rare * (1 - rare))
        hits = math.floor(max(0.0, measured * (1 - rare) - spread))
        other = math.ceil(min(measured, measured * rare + spread))
        return float(epsilon_bound(hits, other, measured, confidence=confidence, delta=delta))

    low, high = claimed, claimed + 1.0
    while reported(high) <= claimed:
        low, high = high, 2 * high
        if high > 200:
            return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        if reported(middle) <= claimed:
            low = middle
        else:
            high = middle
    return high

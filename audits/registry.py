"""The registry of audits: every public mechanism, its claim, how it is attacked, and a broken twin.

``tests/audit/test_registry.py`` runs all of it with few runs and checks that no public mechanism is missing;
``python -m benchmarks.audit`` runs it at length and writes docs/audit.md. The cases are beside it, one module
for each kind of mechanism.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from synthgeo.auditing.blackbox import audit, detectable_epsilon
from synthgeo.auditing.duels import PUSH, ReplayError, duel, gaussian_epsilon
from synthgeo.privacy.budget import PrivacyBudget

CONFIDENCE = 1 - 1e-9
EXTREMES = (0.1, 5.0)  # every product is replayed at these ε too, beside the one of its other rows
PARTS = ("core", "counters", "spatial", "series", "local", "tables", "trips", "trip_streams")


@dataclass(frozen=True)
class Found:
    """What an attack found for a mechanism and for its twin."""

    epsilon: float
    twin: float
    runs: int = 0
    detectable: float | None = None


@dataclass(frozen=True)
class Case:
    """One row of the audit. ``covers`` are the public names it stands for."""

    mechanism: str
    unit: str
    claimed: PrivacyBudget
    method: str
    twin: str
    covers: tuple[str, ...]
    attack: Callable[[Attacker], Found] = field(repr=False)
    within: float = 1e-9

    @property
    def name(self) -> str:
        """Unique."""
        return f"{self.mechanism} / {self.twin} / {self.claimed.epsilon:g}"

    def holds(self, found: Found) -> bool:
        """Whether the claim was not refuted. Computed numbers may exceed it by rounding only."""
        return found.epsilon <= self.claimed.epsilon * (1 if self.method == "black box" else 1 + self.within)

    def caught(self, found: Found) -> bool:
        """Whether the twin was shown to break the claim."""
        return found.twin > self.claimed.epsilon


CASES: list[Case] = []


def case(
    mechanism: str,
    *,
    unit: str,
    claimed: float | PrivacyBudget,
    method: str,
    twin: str,
    covers: str | tuple[str, ...],
    within: float = 1e-9,
) -> Callable[[Callable[[Attacker], Found]], Callable[[Attacker], Found]]:
    """Enter an attack into the registry."""

    def enter(attack: Callable[[Attacker], Found]) -> Callable[[Attacker], Found]:
        budget = claimed if isinstance(claimed, PrivacyBudget) else PrivacyBudget(claimed)
        names = (covers,) if isinstance(covers, str) else covers
        CASES.append(Case(mechanism, unit, budget, method, twin, names, attack, within))
        return attack

    return enter


def all_cases() -> list[Case]:
    """Every case, in the order of the page."""
    for part in PARTS:
        importlib.import_module(f"audits.{part}")
    return CASES


class Attacker:
    """Runs attacks; ``quick`` takes each black-box attack's small number of runs."""

    def __init__(self, *, quick: bool, seed: int = 20) -> None:
        self.quick = quick
        self.seed = seed

    def black_box(
        self,
        mechanism: Callable[..., Any],
        twin: Callable[..., Any],
        pair: Any,
        *,
        claimed: float | PrivacyBudget,
        runs: int,
        quick: int,
        batched: bool = False,
        twin_pair: Any = None,
        features: Callable[[Any], Any] | None = None,
        twin_runs: int | None = None,
    ) -> Found:
        """Both by ``sg.auditing.audit``. A twin that is caught early need not be run as long."""
        budget = claimed if isinstance(claimed, PrivacyBudget) else PrivacyBudget(claimed)
        count = quick if self.quick else runs
        twin_count = count if twin_runs is None else min(count, twin_runs)
        options: dict[str, Any] = {
            "confidence": CONFIDENCE,
            "claimed": budget,
            "batched": batched,
            "seed": self.seed,
            "progress": False,
            "classifier": False,
            "features": features,
        }
        honest = audit(mechanism, pair, runs=count, **options)
        broken = audit(twin, pair if twin_pair is None else twin_pair, runs=twin_count, **options)
        seen = detectable_epsilon(count, confidence=CONFIDENCE, claimed=budget.epsilon, delta=budget.delta)
        return Found(honest.epsilon_lower, broken.epsilon_lower, count, seen)

    def duels(
        self,
        run: Callable[..., Any],
        pair: Any,
        *,
        seeds: int = 4,
        twin: Callable[..., Any] | None = None,
        thin: float = 0.5,
        twin_pair: Any = None,
        delta: float = 0.0,
    ) -> Found:
        """Both by ``duel``, in both orders; the twin is another product, or the same with thinner noise."""
        honest = self.largest_duel(run, pair, seeds=seeds, delta=delta)
        broken = self.largest_duel(
            run if twin is None else twin,
            pair if twin_pair is None else twin_pair,
            seeds=seeds,
            thin=thin if twin is None and twin_pair is None else 1.0,
            delta=delta,
        )
        return Found(honest, broken, 2 * seeds)

    @staticmethod
    def largest_duel(
        run: Callable[..., Any], pair: Any, *, seeds: int, thin: float = 1.0, delta: float = 0.0
    ) -> float:
        """The largest loss over seeds and orders; infinite when questions or results differ."""
        largest = 0.0
        for seed in range(seeds):
            for worlds in (pair, pair[::-1]):
                try:
                    # Once as if there were no noise, when choices tell most; then with pushed answers.
                    result = duel(run, worlds, seed=seed, push=PUSH if seed else 0.0, thin=thin)
                except ReplayError:
                    return math.inf
                if not same(*result.results):
                    return math.inf
                loss = gaussian_epsilon(result.rho, delta) if delta else result.loss
                largest = max(largest, loss)
        return largest


def same(one: Any, other: Any) -> bool:
    """Whether two worlds released the same: arrays, or lists and tuples of them."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    a, b = np.asarray(one), np.asarray(other)
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))

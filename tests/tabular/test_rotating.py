"""Tables over time, draw by draw: a selection is made, on columns of unequal sizes, in two worlds."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import numpy as np
import pytest

import synthgeo as sg
import tabular.measuring
import tabular.over_time.baselines as fresh
import tabular.over_time.every_step as every_step
import tabular.over_time.rotating_marginals as rotating
from benchmarks.audits.tables import UNEQUAL, related
from benchmarks.audits.traced import traced
from synthgeo.auditing.duel import duel

EPSILON = 2.0


def run(batches: Any, noise: Any, *, kind: Any, seen: dict[Any, list[Any]], **options: Any) -> float:
    """Feed a stream, and write down every pick: ε, sensitivity and scores."""
    stream = kind(
        schema=UNEQUAL, budget=sg.PrivacyBudget(EPSILON), marginals_per_step=2, noise=noise, **options
    )
    seen[id(noise)] = []
    for step, batch in enumerate(batches):
        noise.at = (id(noise), step)
        stream.update(batch)
    return float(stream.mechanism.setup.event.structure.epsilon)


@pytest.mark.parametrize(
    ("module", "kind", "options"),
    [
        (rotating, sg.TabularStream, {}),
        (every_step, sg.TabularStream, {"schedule": "every_step"}),
        (fresh, sg.StreamingMWEM, {}),
    ],
    ids=["rotating", "every step", "fresh"],
)
def test_picks_cost_their_share_and_scores_move_by_no_more_than_the_sensitivity(module, kind, options):
    seen: dict[Any, list[Any]] = {}
    with traced():
        inner = module.exponential_mechanism

        def spy(scores, *, epsilon, sensitivity, noise, monotonic=False):
            seen[id(noise)].append((noise.at[1], epsilon, sensitivity, np.array(scores)))
            return inner(scores, epsilon=epsilon, sensitivity=sensitivity, noise=noise, monotonic=monotonic)

        picks = mock.patch.object(tabular.measuring, "MOST_SCORES", 0.0)  # none by scores
        with picks, mock.patch.object(module, "exponential_mechanism", spy):
            found = duel(functools.partial(run, kind=kind, seen=seen, **options), related(), push=0.0)
    assert found.loss <= EPSILON + 1e-9
    structure = found.results[0]
    one, other = seen.values()
    assert len(one) == len(other) >= 2  # the branch that chooses was reached
    steps = {step for step, *_ in one}
    for step in steps:
        assert sum(epsilon for at, epsilon, *_ in one if at == step) <= structure * (1 + 1e-9)
    moved = 0.0
    for (_, _, sensitivity, scores), (_, _, _, neighbour) in zip(one, other, strict=True):
        possible = np.isfinite(scores)
        change = float(np.abs(scores[possible] - neighbour[possible]).max())
        assert change <= sensitivity * (1 + 1e-9)
        moved = max(moved, change / sensitivity)
    assert moved > 0.9  # the sensitivity is reached, so a smaller one would be noticed

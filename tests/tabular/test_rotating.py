"""Tables over time, draw by draw: a selection is made, on columns of unequal sizes, in two worlds."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
import tabular.measuring
import tabular.over_time.baselines as fresh
import tabular.over_time.every_step as every_step
import tabular.over_time.rotating_marginals as rotating
from audits.tables import UNEQUAL, related
from audits.traced import traced
from synthgeo.auditing.duels import duel

EPSILON = 2.0


def run(batches: Any, noise: Any, *, kind: Any, seen: dict[Any, list[Any]], **options: Any) -> float:
    """Feed a stream, and write down every pick: ε, sensitivity and scores."""
    stream = kind.from_options(
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
        (fresh, sg.baselines.StreamingMWEM, {}),
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


def by_drift(*, sorted_by: bool) -> Any:
    """The stream after twelve thousand rows of two columns, in any order or in that of the first."""
    rng = np.random.default_rng(4)
    codes = np.sort(rng.integers(0, 8, 12_000))
    frame = pd.DataFrame({"a": codes, "b": (codes // 2 + rng.integers(0, 2, codes.size)) % 5})
    if not sorted_by:
        frame = frame.sample(frac=1.0, random_state=1)
    schema = sg.Schema({"a": sg.Categorical(range(8)), "b": sg.Categorical(range(5))})
    stream = sg.TabularStream(
        schema=schema, budget=sg.PrivacyBudget(0.5), workload=[("a",), ("b",)], noise=sg.SeededNoise(1)
    )
    for start in range(0, len(frame), 400):
        stream.update(frame.iloc[start : start + 400])
    return stream


def test_marginals_take_turns_as_often_as_their_shares_move():
    still, moving = (by_drift(sorted_by=order).mechanism for order in (False, True))

    def turns(mechanism: Any) -> int:
        return sum(slot.turns for slot in mechanism.slots.values())

    assert turns(moving) > 1.5 * turns(still)
    for mechanism, low, high in ((still, 0.0, 0.1), (moving, 0.3, 2.0)):
        (clique, slot), *_ = mechanism.slots.items()
        unseen, slot.active = 1000.0, mechanism.events - 1000.0
        drift = mechanism._drift(clique, slot)
        assert low <= drift * np.sqrt(mechanism.setup.cells[clique]) / unseen <= high


def test_a_saved_stream_remembers_how_its_shares_moved(tmp_path):
    stream = by_drift(sorted_by=True)
    stream.save(tmp_path / "state")
    again = sg.TabularStream.load(tmp_path / "state").mechanism
    for clique, slot in stream.mechanism.slots.items():
        assert (again.slots[clique].moved, again.slots[clique].weight) == (slot.moved, slot.weight)
        assert slot.weight > 0


def test_only_pairs_that_could_be_worth_their_noise_are_asked_for():
    """Few rows, and large tables are not asked for; what is in the structure is not asked for again."""
    columns = {name: sg.Categorical(range(size)) for name, size in zip("abc", (2, 3, 400), strict=True)}
    stream = sg.TabularStream(schema=sg.Schema(columns), budget=sg.PrivacyBudget(1.0))
    mechanism = stream.mechanism
    for events, asked in ((100.0, set()), (1_000.0, {("a", "b")}), (1e9, {*mechanism.period})):
        mechanism.events = events
        assert set(mechanism._worth_asking()) == asked
    mechanism._join(("a", "b"), np.zeros(6))
    assert set(mechanism._worth_asking()) == {*mechanism.period} - {("a", "b")}

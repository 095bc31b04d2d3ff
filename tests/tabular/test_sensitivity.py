"""What one record can change: marginals, scores, and what an event pays."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from streams.mechanism import EventBudget
from synthgeo.privacy.noise import SeededNoise
from synthgeo.sources import Histogram
from tabular import marginals
from tabular.marginals import MarginalIndex
from tabular.over_time.every_step import EveryStepModel
from tabular.over_time.method import Setup
from tabular.over_time.rotating_marginals import Rotating, Slot
from tabular.workload import all_k_way, cell_count, l1_scores, score_sensitivity
from tests.tabular.conftest import small_table

SIZES = {"a": 3, "b": 2, "c": 4}
SCHEMA = sg.Schema({name: sg.Categorical(range(size)) for name, size in SIZES.items()})


def tables() -> st.SearchStrategy[np.ndarray]:
    row = st.tuples(*(st.integers(0, size - 1) for size in SIZES.values()))
    return st.lists(row, min_size=1, max_size=30).map(lambda rows: np.array(rows, dtype=np.int64))


@settings(max_examples=60, deadline=None)
@given(tables(), st.data())
def test_one_record_moves_one_cell_of_each_marginal_by_one(codes: np.ndarray, data: st.DataObject) -> None:
    index = MarginalIndex(SCHEMA, [*((n,) for n in SIZES), *all_k_way(SCHEMA, 2), ("a", "b", "c")])
    gone = data.draw(st.integers(0, len(codes) - 1))

    def counts(rows: np.ndarray) -> dict:
        return index.split(Histogram.of(*index.keys(rows, np.ones(len(rows), dtype=np.int64))))

    with_it, without = counts(codes), counts(np.delete(codes, gone, axis=0))
    for clique, vector in with_it.items():
        change = vector - without[clique]
        assert vector.sum() == len(codes)
        assert change.sum() == 1
        assert np.count_nonzero(change) == 1


@settings(max_examples=60, deadline=None)
@given(tables(), st.data(), st.sampled_from(["cells", "equal"]))
def test_one_record_moves_each_score_by_at_most_the_sensitivity(
    codes: np.ndarray, data: st.DataObject, weighting: str
) -> None:
    workload = all_k_way(SCHEMA, 2, weighting=weighting)
    index = MarginalIndex(SCHEMA, list(workload))
    gone = data.draw(st.integers(0, len(codes) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    expected = {c: rng.normal(2, 5, cell_count(SIZES, c)) for c in workload}  # any model, also a bad one
    penalty = {c: float(rng.random() * 10) for c in workload}
    weights = dict(zip(workload.cliques, workload.weights, strict=True))

    def scores(rows: np.ndarray) -> np.ndarray:
        counts = index.split(Histogram.of(*index.keys(rows, np.ones(len(rows), dtype=np.int64))))
        return l1_scores(counts, expected, weights, penalty)

    moved = np.abs(scores(codes) - scores(np.delete(codes, gone, axis=0)))
    assert moved.max() <= score_sensitivity(workload.weights) * (1 + 1e-9)
    assert np.all(moved <= np.array(workload.weights) * (1 + 1e-9))


class Logged(Rotating):
    """Writes down which steps each noisy number holds, and what it costs their events."""

    def __init__(self, setup: Setup) -> None:
        self.now = 0
        self.began: dict[int, int] = {}
        self.log: list[tuple[int, int, float]] = []
        self.selected_until = 0
        super().__init__(setup)

    def _join(self, clique: tuple[str, ...], remainder: np.ndarray) -> None:
        super()._join(clique, remainder)
        self.began[id(self.slots[clique])] = self.now + 1
        self._keep = [*getattr(self, "_keep", []), self.slots[clique]]  # ids stay unique while slots live

    def _release(self, slot: Slot) -> None:
        self.log.append((self.began[id(slot)], self.now, slot.share))
        self.began[id(slot)] = self.now + 1
        super()._release(slot)

    def _reopen(self) -> None:
        super()._reopen()
        self.selected_until = self.now - 1  # events from this step on reserve a selection again

    def _select(self, budget: sg.PrivacyBudget) -> None:
        self.log.append((self.selected_until + 1, self.now, budget.epsilon))
        self.selected_until = self.now
        super()._select(budget)


def setup_of(
    schema: sg.Schema,
    epsilon: float,
    *,
    share: float = 0.1,
    counter: str = "auto",
    horizon: int | None = None,
) -> Setup:
    event = EventBudget.of(sg.PrivacyBudget(epsilon), None, share)
    return Setup(schema, all_k_way(schema, 2), event, 2, counter, horizon, 10_000, SeededNoise(3))


@pytest.mark.parametrize(
    ("epsilon", "rows", "share"), [(0.5, 2000, 0.1), (2.0, 300, 0.1), (8.0, 4000, 0.1), (8.0, 4000, 0.97)]
)
def test_no_event_pays_more_than_epsilon(schema: sg.Schema, epsilon: float, rows: int, share: float) -> None:
    """Every noisy sum and selection that holds an event, whenever the releases made it happen."""
    method = Logged(setup_of(schema, epsilon, share=share))
    index = method.index
    steps = 40
    for step in range(1, steps + 1):
        method.now = step
        batch = small_table(rows if step % 3 else 0, seed=step)
        chunk = {name: batch[name].to_numpy() for name in batch}
        method.advance(Histogram.of(*index(chunk)), step=step, structure=step % 4 == 0)
        assert sum(method.paid()) == pytest.approx(epsilon)
    assert any(first < last for first, last, _ in method.log), "some release should hold several steps"
    for step in range(1, steps + 1):
        paid = method.rows_budget.epsilon + math.fsum(
            cost for first, last, cost in method.log if first <= step <= last
        )
        assert paid <= epsilon * (1 + 1e-9), step
    assert (
        max(
            method.rows_budget.epsilon + math.fsum(c for a, b, c in method.log if a <= step <= b)
            for step in range(1, steps + 1)
        )
        > 0.8 * epsilon
    ), "a bound that nothing comes near tests nothing"


class Forgetful(Logged):
    """The twin with a fault: what was released stays pending and is released again."""

    def _release(self, slot: Slot) -> None:
        pending, began = slot.pending, self.began[id(slot)]
        super()._release(slot)
        slot.pending = pending
        self.began[id(slot)] = began


def test_the_ledger_of_events_catches_a_sum_that_is_released_twice(schema: sg.Schema) -> None:
    method = Forgetful(setup_of(schema, 8.0))
    index = method.index
    for step in range(1, 11):
        method.now = step
        chunk = {name: column.to_numpy() for name, column in small_table(4000, seed=step).items()}
        method.advance(Histogram.of(*index(chunk)), step=step, structure=False)
    assert math.fsum(cost for first, last, cost in method.log if first <= 1 <= last) > 8.0


@pytest.mark.parametrize("counter", ["auto", "binary", "kary"])
def test_algorithm_14_spends_epsilon_and_no_more(schema: sg.Schema, counter: str) -> None:
    setup = setup_of(schema, 3.0, share=0.5, counter=counter, horizon=100)
    method = EveryStepModel(setup)
    selection, counts = method.paid()
    # each pick's counters hold the event once, for each of the picks of its step
    assert float(method.bank.event_cost(300).max()) * setup.picks <= counts * (1 + 1e-9)
    assert selection + counts == pytest.approx(3.0)


class Shifted(SeededNoise):
    """Noise that is always the same number: what is released must follow it, or it comes from elsewhere."""

    def __init__(self, by: int) -> None:
        super().__init__(1)
        self.by = by

    def discrete_laplace(self, scale: object, size: int | None = None) -> np.ndarray:
        return np.full(int(size or 1), self.by, dtype=np.int64)

    def discrete_gaussian(self, sigma: object, size: int | None = None) -> np.ndarray:
        return np.full(int(size or 1), self.by, dtype=np.int64)


@pytest.mark.parametrize("budget", [sg.PrivacyBudget(1.0), sg.PrivacyBudget(1.0, 1e-6)])
def test_the_true_number_of_rows_is_never_used_unless_public(
    schema: sg.Schema, budget: sg.PrivacyBudget
) -> None:
    frame = small_table(1000)
    shifted = sg.TabularSynthesizer(schema=schema, budget=budget, noise=Shifted(7)).fit(frame)
    # Each cell is 7 steps of the noise's grid too high, so every estimate of the rows is: never the truth.
    assert 1000 < shifted.sample().total <= 1000 + 7 * 5
    public = sg.TabularSynthesizer(schema=schema, budget=budget, noise=Shifted(7), public_total=1234).fit(
        frame
    )
    assert public.sample().total == 1234


@pytest.mark.parametrize("schedule", ["auto", "every_step"])
def test_streams_count_their_rows_with_noise(schema: sg.Schema, schedule: str) -> None:
    stream = sg.TabularStream(
        schema=schema,
        budget=sg.PrivacyBudget(2.0),
        settings=sg.TableSettings(schedule=schedule, marginals_per_step=1),
        noise=Shifted(15),
    )
    release = stream.update(small_table(1000))
    assert release.total != 1000
    assert release.total >= 1015
    assert "1000" not in repr(release.provenance)
    assert "1000" not in repr(stream.__dict__.get("workload"))


def test_a_deletion_moves_what_the_insertion_moved() -> None:
    index = MarginalIndex(SCHEMA, list(all_k_way(SCHEMA, 2)), operations="op", deletions=True)
    chunk = {"a": np.array([1, 1]), "b": np.array([0, 0]), "c": np.array([3, 3]), "op": np.array([1, -1])}
    keys, weights = index(chunk)
    counts = index.split(Histogram.of(keys, weights))
    assert counts.pop(()).tolist() == [1, 1]
    assert all(not vector.any() for vector in counts.values())
    frame = pd.DataFrame({"a": [0], "b": [0], "c": [0], "op": [2]})
    with pytest.raises(sg.InputError, match="'op', row 0"):
        index({name: frame[name].to_numpy() for name in frame})


@pytest.mark.parametrize("deletions", [False, True])
def test_one_compiled_pass_counts_what_numpy_counts(deletions, monkeypatch):
    """Pairs by bits, pairs and triples by row, marginals too large to be dense; blocks that are not full."""
    rng = np.random.default_rng(4)
    sizes = {"a": 2, "b": 3, "c": 8, "d": 40, "e": 300, "f": 1}
    schema = sg.Schema({name: sg.Categorical(range(size)) for name, size in sizes.items()})
    cliques = [*((name,) for name in sizes), *all_k_way(schema, 2), ("a", "c", "d"), ("b", "d", "e", "c")]
    index = MarginalIndex(schema, cliques, groups={"d": np.arange(40) // 7})
    codes = np.column_stack([rng.integers(0, size, 10_003) for size in sizes.values()])
    signs = rng.choice([1, -1], 10_003) if deletions else np.ones(10_003, dtype=np.int64)
    assert any(cells > 4 * len(codes) for cells in index.cells.values())
    for rows in (slice(None), slice(0, 64), slice(0, 0)):
        with monkeypatch.context() as patch:
            expected = Histogram.of(*index.keys(codes[rows], signs[rows]))
            patch.setattr(marginals, "_COMPILED_FROM", 1)
            assert Histogram.of(*index.keys(codes[rows], signs[rows])).equals(expected)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 8, 16, 17, 40, 300]), min_size=2, max_size=5),
    st.sampled_from([0, 1, 63, 64, 65, 1000, 8191, 8193, 70_001]),
    st.sampled_from([0.0, 0.9, 1.0]),
    st.sampled_from([np.uint8, np.uint16, np.int64]),
    st.integers(0, 2**32),
)
def test_compiled_counts_are_those_of_numpy(sizes, rows, same, kind, seed) -> None:
    """Bit for bit: every pair, one column, three columns, all of them; rows that are mostly or all alike."""
    from tabular.cell_counts import count_cells

    rng = np.random.default_rng(seed)
    sizes = [min(size, np.iinfo(kind).max + 1) for size in sizes]
    codes = np.column_stack([rng.integers(0, size, rows) for size in sizes])
    codes[rng.random(rows) < same] = [size - 1 for size in sizes]
    marginals = [*combinations(range(len(sizes)), 2), (1, 0), (0,), *combinations(range(len(sizes)), 3)][:12]
    expected = []
    for marginal in marginals:
        shape = tuple(sizes[column] for column in marginal)
        cells = np.ravel_multi_index(tuple(codes[:, column] for column in marginal), shape)
        expected.append(np.bincount(cells, minlength=int(np.prod(shape))))
    for layout in ("C", "F"):
        given_codes = codes.astype(kind, order=layout)
        assert np.array_equal(count_cells(given_codes, np.array(sizes), marginals), np.concatenate(expected))

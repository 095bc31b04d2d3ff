"""Budgets added up by hand, as docs/how-to/check-by-hand.md does it: from the statement and the scales."""

from __future__ import annotations

import math
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from scipy.stats import binom, norm

import streams.scalar.local_baselines
import synthgeo as sg
import synthgeo.privacy.filter
import tabular.over_time.baselines
import tabular.over_time.every_step
import trajectories.setup
from synthgeo.auditing.neighbours import unique_trip
from synthgeo.hierarchy.privtree import GRID
from synthgeo.privacy.accountant import approximate_dp_of_zcdp, zcdp_of
from tests.contract.products import (
    BOX,
    SCHEMA,
    households,
    panel,
    rows,
    trip_batches,
    trip_stream,
    two_tables,
    waves,
)
from tests.streams.scalar.examples import EXAMPLES

ONE = sg.PrivacyBudget(1.0)


class Watched(sg.SeededNoise):
    """Noise that writes down its scales, and for how many numbers they are."""

    def __init__(self, seed=1):
        super().__init__(seed)
        self.laplace, self.gaussian = [], []

    def discrete_laplace(self, scale, size=None):
        self.laplace.append((float(np.max(scale)), size))
        return super().discrete_laplace(scale, size)

    def discrete_gaussian(self, sigma, size=None):
        self.gaussian.append((float(sigma), size))
        return super().discrete_gaussian(sigma, size)


@pytest.fixture
def choices(monkeypatch):
    """ε of each choice that a table makes."""
    made, choose = [], synthgeo.privacy.filter.exponential_mechanism

    def watched(scores, *, epsilon, **options):
        made.append(epsilon)
        return choose(scores, epsilon=epsilon, **options)

    monkeypatch.setattr(synthgeo.privacy.filter, "exponential_mechanism", watched)
    return made


def tree(scale, fanout):
    """What a tree costs, by the page."""
    return (2 * fanout - 1) / ((fanout - 1) * scale)


def test_points():
    noise = Watched()
    stream = sg.PHDStream(domain=BOX, budget=ONE, settings=sg.PointSettings(max_depth=4), noise=noise)
    points = np.random.default_rng(1).random((2, 50, 2))
    said = stream.update(points[0]).provenance
    scales = {scale for scale, _ in noise.laplace}
    assert scales == {6.0 * GRID.one, 2.0}
    assert tree(6.0, said["fanout"]) == said["structure_share"]
    assert tree(6.0, said["fanout"]) + 1 / 2.0 == said["budget"]["epsilon"]
    noise.laplace.clear()
    stream.update(points[1])
    assert {scale for scale, _ in noise.laplace} == {1.0}


def test_a_table_at_pure_epsilon(choices):
    noise = Watched()
    made = sg.TabularSynthesizer(
        schema=SCHEMA, budget=ONE, settings=sg.TableSettings(iterations=20), noise=noise, progress=False
    )
    said = made.fit(rows(300, 1)).sample(1).provenance
    scores = 3  # of all pairs, after the three columns
    costs = [(scores if i == 3 else 1) / scale for i, (scale, _) in enumerate(noise.laplace)]
    assert len(costs) == 1 + len(said["marginals"])
    assert said["selection"] == "scores"
    assert not choices
    assert sum(costs[:3]) == pytest.approx(0.25)
    assert costs[3] == pytest.approx(0.1)
    assert sum(costs) == pytest.approx(said["budget"]["epsilon"])


def test_a_table_in_zero_concentrated_privacy(choices):
    noise, budget = Watched(), sg.PrivacyBudget(1.0, 1e-6)
    made = sg.TabularSynthesizer(
        schema=SCHEMA,
        budget=budget,
        settings=sg.TableSettings(selection="mwem", rounds=3, iterations=20),
        noise=noise,
        progress=False,
    )
    said = made.fit(rows(300, 1)).sample(1).provenance
    rho = sum(1 / (2 * sigma**2) for sigma, _ in noise.gaussian) + sum(epsilon**2 / 8 for epsilon in choices)
    assert len(noise.gaussian) == 6
    assert len(choices) == 3
    assert 0.95 <= approximate_dp_of_zcdp(rho, said["budget"]["delta"]) <= said["budget"]["epsilon"] + 1e-9


def test_a_table_over_time():
    """Rows, columns, and the scores that marginals are chosen by."""
    noise = Watched()
    said = sg.TabularStream(schema=SCHEMA, budget=ONE, noise=noise).update(rows(300, 0)).provenance
    rows_counter = [scale for scale, size in noise.laplace if size == 2]
    *columns, scores = [found for found in noise.laplace if found[1] > 2]
    assert rows_counter == pytest.approx([20.0])
    assert [scale for scale, _ in columns] == pytest.approx([3.75] * 3)
    assert scores == (pytest.approx(30.0), 3)
    assert pytest.approx(said["structure_share"]) == 3 / 30.0
    spent = 2 / 20.0 + sum(1 / scale for scale, _ in columns) + 3 / 30.0
    assert spent == pytest.approx(said["budget"]["epsilon"])


def test_a_table_over_time_with_marginals_chosen_at_every_step(monkeypatch):
    made, choose = [], tabular.over_time.every_step.exponential_mechanism

    def watched(scores, *, epsilon, **options):
        made.append(epsilon)
        return choose(scores, epsilon=epsilon, **options)

    monkeypatch.setattr(tabular.over_time.every_step, "exponential_mechanism", watched)
    noise = Watched()
    stream = sg.TabularStream(
        schema=SCHEMA, budget=ONE, settings=sg.TableSettings(schedule="every_step"), noise=noise
    )
    said = stream.update(rows(300, 0)).provenance
    share, picks = said["structure_share"], said["marginals_per_step"]
    assert made == pytest.approx([share / picks] * 3)
    assert [scale for scale, _ in noise.laplace] == pytest.approx([picks / (1 - share)] * 3)
    assert sum(made) + sum(1 / scale for scale, _ in noise.laplace) == pytest.approx(0.75)


def test_two_tables(choices):
    """So few rows that no scores are asked for: every column is counted twice."""
    noise, options = Watched(), households("").options
    made = households("").make(noise=noise)
    made.fit(*two_tables()[0])
    columns = len(options["parent"].columns) + 1  # and the number of children
    ours, theirs = noise.laplace[: 2 * columns], noise.laplace[2 * columns :]
    assert len(theirs) == 2 * len(options["child"].columns)
    assert sum(1 / scale for scale, _ in ours) == pytest.approx(0.2)
    assert 3 * sum(1 / scale for scale, _ in theirs) == pytest.approx(made.budget.epsilon - 0.2)
    assert not choices


def test_a_panel():
    noise = Watched()
    stream = panel("").make(noise=noise)
    for number, wave in enumerate(waves()):
        stream.update(wave)
        costs = [1 / scale for scale, _ in noise.laplace]
        assert sum(costs) == pytest.approx(stream.budget.epsilon / stream.unit.max_contributions)
        assert not number or sum(costs[:4]) == pytest.approx(0.03)
        noise.laplace.clear()


def test_trips_over_time():
    noise = Watched()
    stream = trip_stream("").make(noise=noise)
    for number, batch in enumerate(trip_batches()[:2]):
        shares = stream.update(batch).provenance["shares"]
        assert sum(shares.values()) == pytest.approx(stream.budget.epsilon)
        assert ("cells" in shares) == (number == 0)
        ends, counts = 0.55 * 0.4 * shares["pairs"], (0.45 if number else 0.43) * shares["pairs"]
        wanted = {2 / ends, 1 / counts, GRID.one / shares["transitions"], 1 / shares["recording"]}
        drawn = {scale for scale, _ in noise.laplace}
        for one in wanted:
            assert any(math.isclose(scale, one) for scale in drawn)
        tree_of_pairs = drawn - {scale for scale in drawn if any(math.isclose(scale, one) for one in wanted)}
        blocks = [tree(scale / GRID.one, 4) for scale in tree_of_pairs]
        assert blocks == pytest.approx([] if number else [0.02 * shares["pairs"]])
        noise.laplace.clear()


def test_trips():
    noise = Watched()
    made = sg.TrajectorySynthesizer(
        domain=BOX, budget=ONE, noise=noise, settings=sg.TripSettings(max_depth=6, cleaning=False)
    )
    with mock.patch.object(trajectories.setup, "calibrate", lambda blank, *_: blank):  # slow, and free
        said = made.fit(unique_trip(BOX)[1])._statement
    shares, scales = said["shares"], [scale for scale, _ in noise.laplace]
    assert sum(shares.values()) == pytest.approx(said["budget"]["epsilon"])
    ends, blocks, counts = 0.55 * 0.4 * shares["pairs"], 0.02 * shares["pairs"], 0.43 * shares["pairs"]
    for wanted in (2 / ends, 1 / counts, 1 / shares["lengths"], GRID.one / shares["transitions"]):
        assert any(math.isclose(scale, wanted) for scale in scales)
    assert any(tree(scale / GRID.one, 4) == pytest.approx(blocks) for scale in scales)


@pytest.mark.parametrize("number", [0, 1])
def test_points_that_a_tree_is_grown_for_at_every_step(number):
    noise = Watched()
    stream = sg.baselines.DifferentialPrivTree(
        domain=BOX, budget=ONE, settings=sg.PointSettings(max_depth=4), noise=noise
    )
    for points in np.random.default_rng(1).random((number + 1, 50, 2)):
        noise.laplace.clear()
        said = stream.update(points).provenance
    *nodes, counts, deletions = noise.laplace
    assert {scale for scale, _ in nodes} == {6.0 * GRID.one}
    assert (counts[0], deletions) == (2.0, (2.0, 1))  # an event is an insertion or a deletion
    assert tree(6.0, said["fanout"]) + 1 / counts[0] == said["budget"]["epsilon"]


def test_points_on_the_tree_of_the_first_step():
    noise = Watched()
    stream = sg.baselines.InitialPrivTree(
        domain=BOX, budget=ONE, settings=sg.PointSettings(max_depth=4), noise=noise
    )
    points = np.random.default_rng(1).random((3, 50, 2))
    said = stream.update(points[0]).provenance
    assert {scale for scale, _ in noise.laplace} == {6.0 * GRID.one, 2.0}
    assert tree(6.0, said["fanout"]) + 1 / 2.0 == said["budget"]["epsilon"]
    for later in points[1:]:
        noise.laplace.clear()
        stream.update(later)
        ((scale, _),) = noise.laplace
        assert 1 / scale == pytest.approx(said["budget"]["epsilon"])


def test_a_table_over_time_with_a_model_for_every_batch(monkeypatch):
    made, choose = [], tabular.over_time.baselines.exponential_mechanism

    def watched(scores, *, epsilon, **options):
        made.append(epsilon)
        return choose(scores, epsilon=epsilon, **options)

    monkeypatch.setattr(tabular.over_time.baselines, "exponential_mechanism", watched)
    noise = Watched()
    stream = sg.baselines.StreamingMWEM(schema=SCHEMA, budget=ONE, noise=noise)
    for number in range(2):
        noise.laplace.clear()
        made.clear()
        said = stream.update(rows(300, number)).provenance
        share, picks = said["structure_share"], said["marginals_per_step"]
        assert made == pytest.approx([share / picks] * 3)
        assert [scale for scale, _ in noise.laplace] == pytest.approx([picks / (1 - share)] * 3)
        assert sum(made) + sum(1 / scale for scale, _ in noise.laplace) == pytest.approx(0.75)


def test_any_algorithm_accumulated():
    noise = Watched()
    stream = sg.baselines.Accumulated(
        lambda batch, budget: np.array(batch) + noise.discrete_laplace(1 / budget.epsilon, len(batch)),
        budget=ONE,
    )
    for batch in ([3, 4], [0, 5], [2, 2]):
        noise.laplace.clear()
        stream.update(batch)
        assert sum(1 / scale for scale, _ in noise.laplace) == stream.spent.epsilon


LENGTH = 24  # of the series below
RHO = zcdp_of(sg.PrivacyBudget(1.0, 1e-5))


def drawn(name):
    """A series released as the contract's examples have it: the mechanism, and at each step its scales."""
    example, noise, steps = EXAMPLES[name], Watched(), []
    made = example.kind.from_options(budget=example.budget, noise=noise, **example.options)
    for value in [example.series] if not made.online else example.series:
        noise.laplace.clear()
        noise.gaussian.clear()
        made.update(value) if made.online else made.run(value)
        steps.append(([scale for scale, _ in noise.laplace], [sigma for sigma, _ in noise.gaussian]))
    return made, steps


def windows(costs, size):
    return [sum(costs[start : start + size]) for start in range(len(costs) - size + 1)]


@pytest.mark.parametrize(
    "name", ["lpa", "fast", "fast-guess", "fast-kalman", "fast-particle", "sampling-user"]
)
def test_a_series_of_a_user(name):
    made, steps = drawn(name)
    spent = sum(1 / scale for scales, _ in steps for scale in scales)
    assert 0.75 <= spent <= made.budget.epsilon + 1e-9
    assert name not in ("lpa", "fast", "sampling-user") or spent == pytest.approx(made.budget.epsilon)


@pytest.mark.parametrize("name", ["uniform", "sampling", "fast-window", "absorption", "distribution"])
def test_a_series_in_windows(name):
    made, steps = drawn(name)
    each = windows([sum(1 / scale for scale in scales) for scales, _ in steps], made.window)
    assert 0.6 <= max(each) <= made.budget.epsilon + 1e-9
    assert name not in ("uniform", "sampling") or max(each) == min(each) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["gaussian", "fast-gaussian"])
def test_a_series_with_gaussian_noise(name):
    _, steps = drawn(name)
    assert sum(1 / (2 * sigma**2) for _, sigmas in steps for sigma in sigmas) == pytest.approx(RHO, rel=1e-6)


def test_a_series_of_differences_from_a_prediction():
    """The first two steps have weight 1, the others 0.4, in units of 2^-20."""
    _, steps = drawn("ar1")
    moved = [2**20 * (1.0 if number < 2 else 0.4) for number in range(LENGTH)]
    costs = [(s / sigma) ** 2 / 2 for s, (_, (sigma,)) in zip(moved, steps, strict=True)]
    assert sum(costs) == pytest.approx(RHO, rel=1e-5)


def test_a_series_of_totals():
    _, steps = drawn("counter")
    assert [scale for scales, _ in steps for scale in scales] == pytest.approx([1.0] * LENGTH)
    made, steps = drawn("counter-binary")
    levels = LENGTH.bit_length()
    (scale,) = {scale for scales, _ in steps for scale in scales}
    assert made.max_steps * levels / scale == pytest.approx(made.budget.epsilon)
    _, steps = drawn("counter-toeplitz")
    # The square root of the matrix of ones, rounded to 2^-16: what an event moves the numbers by.
    column = [round(2**16 * math.comb(2 * j, j) / 4**j) for j in range(LENGTH)]
    (sigma,) = {sigma for _, sigmas in steps for sigma in sigmas}
    assert sum(c**2 for c in column) / (2 * sigma**2) == pytest.approx(RHO, rel=1e-9)


def test_a_series_of_waves():
    """Seven coordinates of 24 values that one user moves by 1 each, in units of 2^-20."""
    made, (((scale,), _),) = drawn("dft")
    reach = (2**20 + 0.51 * math.sqrt(7 * LENGTH)) * math.sqrt(LENGTH)
    assert math.sqrt(7) * reach / scale == pytest.approx(made.budget.epsilon)
    _, ((_, (sigma,)),) = drawn("dft-gaussian")
    assert (reach / sigma) ** 2 / 2 == pytest.approx(RHO, rel=1e-6)


def delta(mu, epsilon):
    """Of Gaussian noise, when a user moves the numbers by mu standard deviations."""
    return (
        norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) if mu else 0.0
    )


def test_a_series_of_steps_drawn_at_random():
    """Each of a user's four steps is released with probability 0.4: the average over how many are."""
    made, ((_, (sigma,)),) = drawn("subsampled")
    ways = binom.pmf(range(5), 4, 0.4)
    found = sum(way * delta(math.sqrt(k) / sigma, 1.0) for k, way in enumerate(ways))
    assert 0.9 * made.budget.delta <= found <= made.budget.delta


def test_a_series_filtered_before_steps_are_drawn(monkeypatch):
    seen, sampled = [], sg.series.FilteredRelease.sampled_filter
    monkeypatch.setattr(
        sg.series.FilteredRelease,
        "sampled_filter",
        lambda self, *given: seen.append(sampled(self, *given)) or seen[0],
    )
    made, ((_, (sigma,)),) = drawn("filtered")
    reach = np.linalg.norm(seen[0].toarray(), 2) * math.sqrt(made.max_steps)
    assert 0.95 * RHO <= (reach / sigma) ** 2 / 2 <= RHO * (1 + 1e-9)


@pytest.mark.parametrize("name", ["randomized-response", "unary-encoding", "temporal-response"])
def test_a_series_of_answers(name):
    """What is released of two values differs by a factor, at each step."""
    example = EXAMPLES[name]
    made, spent = example.make(), 0.0
    for value in example.series:
        channel = made.channel()
        column = channel[:, channel.min(axis=0) > 0]
        spent += float(np.log(column.max(axis=0) / column.min(axis=0)).max()) if column.size else 0.0
        made.update(value)
    assert 0.25 * made.budget.epsilon <= spent <= made.budget.epsilon + 1e-6
    assert name != "randomized-response" or spent == pytest.approx(made.budget.epsilon)


@pytest.mark.parametrize("name", ["sip", "sip-second-order", "sip-batched"])
def test_a_series_that_an_observer_learns_little_of(name):
    """What an output moves the belief in a value by, at each step."""
    example = EXAMPLES[name]
    made, spent = example.make(), 0.0
    for batch in example.series.reshape(-1, example.options.get("batch", 1)):
        channel = made.channel()
        belief = made.batch_belief(batch.size) if batch.size > 1 else made.belief
        shown = belief @ channel
        ratios = channel[np.ix_(belief > 0, shown > 0)] / shown[shown > 0]
        spent += float(np.abs(np.log(ratios)).max())
        made.update(batch if batch.size > 1 else batch[0])
    assert 0.5 * made.budget.epsilon <= spent <= made.budget.epsilon + 1e-6


@pytest.mark.parametrize("name", ["window-response", "window-unary"])
def test_a_series_of_answers_in_windows(name, monkeypatch):
    """A comparison of states that are 1 apart, in units of 2^-16, and an answer when it pays."""
    answered, module = [], streams.scalar.local_baselines
    for function in ("respond", "encode_unary"):
        answer = getattr(module, function)
        monkeypatch.setattr(
            module,
            function,
            lambda index, states, epsilon, noise, answer=answer: (
                answered.append((made.step, epsilon)) or answer(index, states, epsilon, noise)
            ),
        )
    example, noise, costs = EXAMPLES[name], Watched(), []
    made = example.make(seed=1)
    made.noise = noise
    for value in example.series:
        noise.laplace.clear()
        answered.clear()
        made.update(value)
        costs.append(sum(2**16 / scale for scale, _ in noise.laplace) + sum(e for _, e in answered))
    each = windows(costs, made.window)
    assert 0.5 * made.budget.epsilon <= max(each) <= made.budget.epsilon + 1e-9


def test_a_series_of_answers_below_a_threshold():
    """After the warm-up: states that are at most 1 apart, in units of 2^-16."""
    made, steps = drawn("tops")
    later = [2**16 / scale for scales, _ in steps for scale in scales]
    assert later == pytest.approx([made.budget.epsilon / LENGTH] * (LENGTH - 4))
    assert made.step_epsilon * 4 + sum(later) == pytest.approx(made.budget.epsilon)


def test_every_series_is_added_up_by_hand():
    """Variants of one promise are left to the audits."""
    here = Path(__file__).read_text()
    assert {example.kind for name, example in EXAMPLES.items() if f'"{name}"' in here} == {
        example.kind for example in EXAMPLES.values()
    }

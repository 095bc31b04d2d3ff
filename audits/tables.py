"""Tables, once and over time."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from scipy.optimize import brentq

import synthgeo as sg
import tabular.measuring
import tabular.once
import tabular.over_time.panel
from audits.registry import EXTREMES, Attacker, Found, case
from audits.traced import traced
from synthgeo.auditing.duels import duel
from synthgeo.auditing.neighbours import marginal_flip, rare_record
from synthgeo.auditing.whitebox import privtree_loss, worst_loss
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.gaussian import TAU, gaussian_delta, grid_bits, interaction_cost, noisy_table
from synthgeo.sources import Histogram
from tabular import bins, discovery, values
from tabular.multiplicative_weights import mwem
from tabular.once import TabularSynthesizer
from tabular.over_time import rotating_marginals
from tabular.over_time.expiring_marginals import ExpiringMarginals

SCHEMA = sg.Schema({name: sg.Categorical(["0", "1"]) for name in "abc"})
PAIRS = {
    "a record that flips a selection": marginal_flip(),
    "a record unique in every marginal": rare_record(),
}
TIGHT = sg.PrivacyBudget(1.0, 1e-5)
CLIQUES = [("a",), ("a", "b"), ("b", "c")]


class TrueTotal(TabularSynthesizer):
    """Twin: the true number of rows handed to the fit."""

    def _privatise(self, spending: Any, schema: Any, singles: Any, count: Any) -> Any:
        self.public_total = int(singles["a",].sum())
        return super()._privatise(spending, schema, singles, count)


def table(
    data: Any,
    noise: Any,
    *,
    kind: Any = TabularSynthesizer,
    epsilon: float = 1.0,
    delta: float = 0.0,
    schema: sg.Schema = SCHEMA,
    **options: Any,
) -> list[np.ndarray]:
    """What a synthesizer's model expects of some marginals."""
    budget = sg.PrivacyBudget(epsilon, delta)
    model = kind.from_options(schema=schema, budget=budget, noise=noise, progress=False, **options).fit(data)
    expected = model.sample(0).marginals(CLIQUES)
    return [expected[clique] for clique in CLIQUES]


def _enter_table(name: str, selection: str, epsilon: float = 1.0) -> None:
    @case(
        f"TabularSynthesizer ({selection}), {name}",
        unit="record",
        claimed=epsilon,
        method="duel",
        twin="noise scale halved",
        covers=("TabularSynthesizer", f"TabularSynthesizer {selection}"),
    )
    def attack(attacker: Attacker) -> Found:
        with traced():
            run = functools.partial(table, selection=selection, epsilon=epsilon)
            return attacker.duels(run, PAIRS[name], seeds=4 if epsilon == 1 else 2)


for _selection in ("auto", "annealed", "mwem"):
    for _name in PAIRS:
        _enter_table(_name, _selection)
for _epsilon in EXTREMES:
    _enter_table("a record unique in every marginal", "auto", _epsilon)


@case(
    "TabularSynthesizer, a record unique in every marginal",
    unit="record",
    claimed=1.0,
    method="duel",
    twin="a true total handed to the fit",
    covers="TabularSynthesizer",
)
def true_total(attacker: Attacker) -> Found:
    with traced():
        return attacker.duels(table, rare_record(), twin=functools.partial(table, kind=TrueTotal), seeds=2)


class OneScore(PrivacyFilter):
    """Twin: scores with the noise that one of them needs, though a record moves them all."""

    def measure_scores(self, scores: Any, fraction: float) -> Any:
        if self.kind == "pure":
            return scores + self.noise.discrete_laplace(1 / self._take(fraction), scores.size)
        return noisy_table(scores, math.sqrt(1 / self._take(fraction)), self.noise)


class WholeTable(PrivacyFilter):
    """Twin: the whole noisy table released at the price of its interaction."""

    def measure_interaction(self, counts: Any, fraction: float) -> Any:
        sigma = math.sqrt(interaction_cost(counts.shape) / self._take(fraction))
        return noisy_table(counts, sigma, self.noise)


class WholeTriple(PrivacyFilter):
    """Twin: of triples the whole noisy table, at the price of its interaction."""

    def measure_interaction(self, counts: Any, fraction: float) -> Any:
        if counts.ndim == 2:
            return super().measure_interaction(counts, fraction)
        sigma = math.sqrt(interaction_cost(counts.shape) / self._take(fraction))
        return noisy_table(counts, sigma, self.noise)


def dependent(rows: int = 2000) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Columns that agree, so that pairs are worth measuring, and the same with a record that disagrees."""
    value = np.arange(rows) % 2
    without = pd.DataFrame({name: value.astype(str) for name in "abc"})
    one = pd.DataFrame({"a": ["0"], "b": ["1"], "c": ["0"]})
    return without, pd.concat([without, one], ignore_index=True)


def _enter_gaussian(
    name: str,
    twin: str,
    broken: type[PrivacyFilter] | None,
    covers: tuple[str, ...] = (),
    *,
    epsilon: float = 1.0,
    **options: Any,
) -> None:
    @case(
        f"TabularSynthesizer at (ε, δ): {name}",
        unit="record",
        claimed=sg.PrivacyBudget(epsilon, TIGHT.delta),
        method="duel",
        twin=twin,
        covers=("TabularSynthesizer", "TabularSynthesizer (ε, δ)", *covers),
    )
    def attack(attacker: Attacker) -> Found:
        run = functools.partial(table, epsilon=epsilon, delta=TIGHT.delta, **options)
        with traced():
            if broken is None:
                pair = dependent() if "workload" in options else rare_record()
                return attacker.duels(run, pair, delta=TIGHT.delta)
            honest = attacker.largest_duel(run, dependent(), seeds=2, delta=TIGHT.delta)
            with mock.patch.object(tabular.once, "PrivacyFilter", broken):
                found = attacker.largest_duel(run, dependent(), seeds=2, delta=TIGHT.delta)
        return Found(honest, found, 4)


_enter_gaussian("all that is measured", "noise scale halved", None)
for _epsilon in EXTREMES:
    _enter_gaussian("all that is measured", "noise scale halved", None, epsilon=_epsilon)
# Where the number of marginals is bounded, scores are asked for even if there were budget for everything.
_enter_gaussian("scores of all pairs", "noise for one score alone", OneScore, rounds=3)
_enter_gaussian(
    "interactions of pairs",
    "the whole table at the price of its interaction",
    WholeTable,
    ("noisy_table", "Noise.contrast_gaussian", "TabularSynthesizer auto"),
)
_enter_gaussian(
    "interactions of triples",
    "of triples the whole table at the price of its interaction",
    WholeTriple,
    ("noisy_table", "Noise.contrast_gaussian", "TabularSynthesizer auto"),
)
_enter_gaussian("marginals of three columns", "noise scale halved", None, workload=sg.all_k_way(SCHEMA, 3))
_enter_gaussian("Gaussian sums in rounds", "noise scale halved", None, selection="annealed")


def small_groups() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Values that are rare in their columns and closely related, and the same with a record that is not."""
    value = np.repeat([f"v{i}" for i in range(12)], [800, 750, *([45] * 10)])
    without = pd.DataFrame({"a": value, "b": value, "c": (np.arange(value.size) % 2).astype(str)})
    one = pd.DataFrame({"a": ["v5"], "b": ["v7"], "c": ["0"]})
    return without, pd.concat([without, one], ignore_index=True)


@case(
    "TabularSynthesizer at (ε, δ): scores of finer groups",
    unit="record",
    claimed=TIGHT,
    method="duel",
    twin="noise for one score alone",
    covers=("TabularSynthesizer", "TabularSynthesizer (ε, δ)", "TabularSynthesizer auto"),
)
def finer_scores(attacker: Attacker) -> Found:
    twelve = sg.Categorical([f"v{i}" for i in range(12)])  # words: codes have no finer groups
    schema = sg.Schema({"a": twelve, "b": twelve, "c": sg.Categorical(["0", "1"])})
    run = functools.partial(table, epsilon=TIGHT.epsilon, delta=TIGHT.delta, schema=schema)
    with traced():
        honest = attacker.largest_duel(run, small_groups(), seeds=2, delta=TIGHT.delta)
        with mock.patch.object(tabular.once, "PrivacyFilter", OneScore):
            found = attacker.largest_duel(run, small_groups(), seeds=2, delta=TIGHT.delta)
    return Found(honest, found, 4)


@case(
    "TabularSynthesizer: scores of all pairs",
    unit="record",
    claimed=1.0,
    method="duel",
    twin="noise for one score alone",
    covers=("TabularSynthesizer", "TabularSynthesizer auto"),
)
def pure_scores(attacker: Attacker) -> Found:
    with traced():
        honest = attacker.largest_duel(table, dependent(), seeds=2)
        with mock.patch.object(tabular.once, "PrivacyFilter", OneScore):
            found = attacker.largest_duel(table, dependent(), seeds=2)
    return Found(honest, found, 4)


@case(
    "TabularSynthesizer, more columns than scores stand out for: by choice",
    unit="record",
    claimed=1.0,
    method="duel",
    twin="noise scale halved",
    covers=("TabularSynthesizer", "TabularSynthesizer auto"),
)
def by_choice(attacker: Attacker) -> Found:
    with traced(), mock.patch.object(tabular.measuring, "MOST_SCORES", 0.0):
        return attacker.duels(table, rare_record(), seeds=2)


def heavy_user(bound: int, excess: int, *, crowd: int = 12) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Users with one record each, and the same with one who has more records than the bound, all equal."""
    users = [f"u{i}" for i in range(crowd)]
    without = pd.DataFrame({**{name: ["0"] * crowd for name in "abc"}, "user_id": users})
    many = bound + excess
    heavy = pd.DataFrame({**{name: ["1"] * many for name in "abc"}, "user_id": ["heavy"] * many})
    return without, pd.concat([without, heavy], ignore_index=True)


def _unbounded(data: Any, noise: Any) -> list[np.ndarray]:
    """Twin: ε divided by the bound, and nobody bounded."""
    return table(data.drop(columns="user_id"), noise, epsilon=1 / 3)


@case(
    "TabularSynthesizer, a user with 9 records, bound 3",
    unit="user",
    claimed=1.0,
    method="duel",
    twin="no bounding",
    covers=("TabularSynthesizer", "ContributionBounder", "user-level tables"),
)
def bounded(attacker: Attacker) -> Found:
    unit = sg.PrivacyUnit.user(max_events=3)
    with traced():
        return attacker.duels(functools.partial(table, unit=unit), heavy_user(3, 6), twin=_unbounded, seeds=2)


class LinearGroup(PrivacyFilter):
    """Twin: μ² divided by the bound, and not by its square."""

    def __init__(self, budget: Any, unit: Any, noise: Any, **options: Any) -> None:
        super().__init__(budget, unit, noise, **options)
        self.whole *= unit.max_contributions


@case(
    "TabularSynthesizer at (ε, δ), a user with 9 records, bound 3: its Gaussian sums",
    unit="user",
    claimed=TIGHT,
    method="duel",
    twin="the cost of a group taken as linear",
    covers=("TabularSynthesizer", "TabularSynthesizer (ε, δ)", "user-level tables"),
)
def gaussian_user(attacker: Attacker) -> Found:
    run = functools.partial(table, delta=1e-5, unit=sg.PrivacyUnit.user(max_events=3))
    with traced():
        honest = attacker.largest_duel(run, heavy_user(3, 6), seeds=2, delta=1e-5)
        with mock.patch.object(tabular.once, "PrivacyFilter", LinearGroup):
            linear = attacker.largest_duel(run, heavy_user(3, 6), seeds=2, delta=1e-5)
    return Found(honest, linear, 4)


@case(
    "TabularSynthesizer, bins found in the data",
    unit="record",
    claimed=1.0,
    method="exact",
    twin="noise scale halved",
    covers=("TabularSynthesizer", "tree_edges"),
)
def edges(attacker: Attacker) -> Found:
    """The tree's constants as its code asks for them, read off its draws and its splits."""
    scale, decay = _bin_constants(1.0)
    found = worst_loss(scale, decay, 1)
    assert math.isclose(found, privtree_loss(scale, decay, depth=40), rel_tol=1e-3)
    return Found(found, worst_loss(scale / 2, math.ceil(scale / 2 * math.log(2)), 1))


def _bin_constants(epsilon: float) -> tuple[float, int]:
    """λ from what the tree asks of its noise; δ from the least count split at level 1 without noise."""
    asked: list[float] = []

    class Watch(sg.SeededNoise):
        def discrete_laplace(self, scale: Any, size: Any = None) -> Any:
            asked.append(float(scale))
            return np.zeros(size, dtype=np.int64)

    column = sg.Numeric(0, 1, bins="auto")
    least = 0
    for count in range(1, 200):
        found = bins.tree_edges(column, np.array([0]), np.array([count]), epsilon=epsilon, noise=Watch(1))
        if np.isclose(found, 0.25).any():  # level 1 was split: count - δ > 0
            least = count
            break
    return asked[0], least - 1


@case(
    "TabularSynthesizer, values of categories found in the data",
    unit="user with 2 records",
    claimed=sg.PrivacyBudget(1.0, 1e-6),
    method="exact",
    twin="threshold without the margin for noise",
    covers=("frequent_words", "find_values"),
)
def found_values(attacker: Attacker) -> Found:
    """The exact loss at δ of what is told about one user's two words, held by others too or by nobody: from
    the noise that is asked for, and the least count with which a word is told without any.
    """
    delta, bound = 1e-6, 2
    counts = values.LaplaceCounts(1.0, bound)
    asked: list[float] = []

    class Silent(sg.SeededNoise):
        def discrete_laplace(self, scale: Any, size: Any = None) -> Any:
            asked.append(float(scale))
            return np.zeros(size, dtype=np.int64)

    options: dict[str, Any] = {"counts": counts, "delta": delta, "noise": Silent(1)}
    told = [bool(values.frequent_words(["a", "b"], np.array([n, 0]), **options)) for n in range(60)]
    least = told.index(True)
    return Found(
        _told(asked[0], delta, bound, least),
        _told(asked[0], delta, bound, int(counts.threshold(0.1))),
    )


@case(
    "TabularSynthesizer, values found in the data beside Gaussian marginals",
    unit="user with 2 records",
    claimed=sg.PrivacyBudget(1.0, 1e-6),
    method="exact",
    twin="threshold without the margin for noise",
    covers=("frequent_words", "find_values"),
)
def found_values_of_table(attacker: Attacker) -> Found:
    """The exact ε at δ of a whole fit, for a user who holds two words: what its words that others hold, too,
    and all marginals tell together (one Gaussian shift), and how often a word of its own is told.
    """
    delta, bound = 1e-6, 2
    asked: list[values.GaussianCounts] = []
    deltas: list[float] = []
    amounts: list[float] = []
    taken, kept = PrivacyFilter._take, values.frequent_words

    def take(self: Any, fraction: float) -> float:
        amounts.append(taken(self, fraction))
        return amounts[-1]

    def words(*args: Any, counts: Any, delta: float, **options: Any) -> Any:
        asked.append(counts)
        deltas.append(delta)
        return kept(*args, counts=counts, delta=delta, **options)

    who = np.arange(400)
    frame = pd.DataFrame({"who": who // 2, "word": np.where(who % 3, "a", "b"), "x": who % 2})
    schema = sg.Schema({"word": sg.Categorical("private"), "x": sg.Categorical(range(2))})
    with mock.patch.object(PrivacyFilter, "_take", take), mock.patch.object(values, "frequent_words", words):
        sg.TabularSynthesizer(
            schema=schema,
            budget=sg.PrivacyBudget(1.0, delta),
            unit=sg.PrivacyUnit.user(max_events=bound, key="who"),
            noise=sg.SeededNoise(1),
            settings=sg.TableSettings(iterations=5),
        ).fit(frame)
    counts = asked[0]
    # The list spent first; a user moves its counts by sqrt(2) in length, and all else by 2.
    length = math.sqrt(bound) / counts.sigma
    mu = math.hypot(length, bound * math.sqrt(sum(amounts[1:])))

    def loss(least: float) -> float:
        own = 1 - (1 - _gaussian_reaches(counts.sigma, least - 1)) ** bound
        if own >= delta:
            return math.inf
        return float(brentq(lambda e: gaussian_delta(mu, e) / (delta - own) - 1, 1e-3, 9.0, xtol=1e-12))

    return Found(loss(counts.threshold(deltas[0])), loss(counts.threshold(0.1)))


def _gaussian_reaches(sigma: float, least: float) -> float:
    """P(noise >= least) for the discrete Gaussian noise of ``noisy_counts``, summed up."""
    bits = grid_bits(sigma, (1,))
    fine = math.hypot(sigma * 2.0**bits, TAU)
    steps = np.arange(-int(40 * fine), int(40 * fine) + 1)
    weights = np.exp(-(steps**2) / (2 * fine**2))
    return float(weights[steps >= least * 2.0**bits].sum() / weights.sum())


def _told(scale: float, delta: float, bound: int, least: int) -> float:
    """The least ε at which both kinds of words keep (ε, δ); inf where own words are told too often."""
    ratio = math.exp(-1 / scale)
    if 1 - (1 - _reaches(1, least, ratio)) ** bound > delta:
        return math.inf
    return bound * max(_losses(least, ratio, 3 * least))


def _reaches(count: int, least: int, ratio: float) -> float:
    """P(count + noise >= least), where P(noise >= k) = ratio^k / (1 + ratio) from k = 0 on."""
    gap = least - count
    return ratio**gap / (1 + ratio) if gap >= 0 else 1 - _misses(count, least, ratio)


def _misses(count: int, least: int, ratio: float) -> float:
    """P(count + noise < least), exact also where it is tiny."""
    gap = count - least + 1
    return ratio**gap / (1 + ratio) if gap >= 0 else 1 - _reaches(count, least, ratio)


def _losses(least: int, ratio: float, most: int) -> list[float]:
    """The privacy losses of being told, and of not being told, for counts that differ by 1."""
    out = []
    for chance in (_reaches, _misses):
        chances = [chance(count, least, ratio) for count in range(most)]
        out += [abs(math.log(b / a)) for a, b in pairwise(chances)]
    return out


@case(
    "TabularSynthesizer, values of categories among public candidates",
    unit="record",
    claimed=1.0,
    method="exact",
    twin="keys that nobody holds get no noise",
    covers=("frequent_keys",),
)
def found_keys(attacker: Attacker) -> Found:
    """The exact loss of whether a key is told, from the least count at which it is."""

    class Silent(sg.SeededNoise):
        def discrete_laplace(self, scale: Any, size: Any = None) -> Any:
            return np.zeros(size, dtype=np.int64)

    told = [
        values.frequent_keys(np.array([count, 0]), counts=values.LaplaceCounts(1.0, 1), noise=Silent(1)).size
        for count in range(9)
    ]
    least, ratio = told.index(1), math.exp(-1.0)
    # Without noise a key that nobody holds is never told; with one holder it may be.
    twin = math.inf if _reaches(1, least, ratio) > 0 else 0.0
    return Found(max(_losses(least, ratio, 20)), twin)


# --- over time ---

STEPS = 3


def stream(
    data: Any, noise: Any, *, kind: Any = sg.TabularStream, epsilon: float = 1.0, **options: Any
) -> list[np.ndarray]:
    """The released tables of a whole stream."""
    made = kind.from_options(
        schema=SCHEMA,
        budget=sg.PrivacyBudget(epsilon),
        workload=sg.all_k_way(SCHEMA, 2),
        marginals_per_step=2,
        noise=noise,
        **options,
    )
    return [made.update(batch).to_pandas().to_numpy().astype(float).ravel() for batch in data]


def record_at(step: int, record: str) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Batches in which all pairs are equally informative, and the same with a record that tips it."""
    without, _ = marginal_flip(rows=40)
    row = pd.DataFrame(dict(zip("abc", ([value] for value in record), strict=True)))
    with_it = pd.concat([without, row], ignore_index=True)
    return [without] * STEPS, [with_it if i == step else without for i in range(STEPS)]


def _enter_stream(name: str, *, epsilon: float = 1.0, **options: Any) -> None:
    @case(
        f"{name}, a record at any step",
        unit="event",
        claimed=epsilon,
        method="duel",
        twin="noise scale halved",
        covers=(name, name.split()[0]),
    )
    def attack(attacker: Attacker) -> Found:
        run = functools.partial(stream, epsilon=epsilon, **options)
        with traced():
            found = [
                attacker.duels(run, record_at(step, record), seeds=2)
                for step in range(1 if attacker.quick else STEPS)
                for record in ("110", "101", "011")
            ]
        return Found(max(f.epsilon for f in found), max(f.twin for f in found), sum(f.runs for f in found))


_enter_stream("TabularStream auto", schedule="auto")
_enter_stream("TabularStream every_step", schedule="every_step")
_enter_stream("StreamingMWEM", kind=sg.baselines.StreamingMWEM)
_enter_stream("TabularStream lifetime", lifetime=2)
_enter_stream("TabularStream borrow", lifetime=1)
for _epsilon in (0.5, 5.0):  # at a smaller ε nothing is released for so few rows
    _enter_stream("TabularStream auto", schedule="auto", epsilon=_epsilon)
    _enter_stream("StreamingMWEM", kind=sg.baselines.StreamingMWEM, epsilon=_epsilon)


UNEQUAL = sg.Schema(
    {"a": sg.Categorical(range(2)), "b": sg.Categorical(range(3)), "c": sg.Categorical(range(5))}
)


def related(*, steps: int = 4, rows: int = 6_000) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Columns of unequal sizes that hang together, so that pairs are worth choosing; one more record at the
    first step.
    """
    rng = np.random.default_rng(3)
    batches = []
    for _ in range(steps):
        a = rng.integers(0, 2, rows)
        b, c = (a + rng.integers(0, 2, rows)) % 3, 2 * a + rng.integers(0, 2, rows)
        batches.append(pd.DataFrame({"a": a, "b": b, "c": c}))
    one = pd.DataFrame({"a": [0], "b": [2], "c": [4]})
    return batches, [pd.concat([batches[0], one], ignore_index=True), *batches[1:]]


def chosen(data: Any, noise: Any) -> list[np.ndarray]:
    """The released tables of a stream that chooses pairs."""
    made = sg.TabularStream(
        schema=UNEQUAL,
        budget=sg.PrivacyBudget(1.0),
        settings=sg.TableSettings(marginals_per_step=2, structure_share=0.2),
        noise=noise,
    )
    return [made.update(batch).to_pandas().to_numpy().astype(float).ravel() for batch in data]


def _enter_choice(name: str, twin: str, method: str, **constants: float) -> None:
    @case(
        f"TabularStream auto, pairs {name} among columns of unequal sizes",
        unit="event",
        claimed=1.0,
        method="duel",
        twin=twin,
        covers=("TabularStream", "TabularStream auto"),
    )
    def unequal(attacker: Attacker) -> Found:
        select = getattr(rotating_marginals.Rotating, method)

        def whole(self: Any, budget: Any) -> None:
            select(self, budget * (self.setup.picks if method == "_pick" else len(self.period)))

        with traced(), mock.patch.multiple(tabular.measuring, **constants):
            honest = duel(chosen, related(), push=0.0).loss
            with mock.patch.object(rotating_marginals.Rotating, method, whole):
                broken = duel(chosen, related(), push=0.0).loss
        return Found(honest, broken, 1)


_enter_choice("chosen by scores", "noise for one score alone", "_select_by_scores", MOST_SCORES=6.5)
_enter_choice("picked", "each pick at the whole share of selection", "_pick", MOST_SCORES=0.0)


@case(
    "TabularStream, bins found in the first batch",
    unit="event",
    claimed=1.0,
    method="exact",
    twin="bins found beside counts at all of ε",
    covers=("TabularStream", "tree_edges"),
)
def bins_of_stream(attacker: Attacker) -> Found:
    """The ε of the tree as the stream hands it over, and what an event of the first step pays for counts."""
    asked: list[float] = []

    def watched(*args: Any, epsilon: float, **options: Any) -> list[float]:
        asked.append(epsilon)
        return bins.tree_edges(*args, epsilon=epsilon, **options)

    schema = sg.Schema({"x": sg.Numeric(0, 16, bins="auto", integer=True), "y": sg.Categorical([0, 1])})
    made = sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1))
    with mock.patch.object(discovery, "tree_edges", watched):
        made.update(pd.DataFrame({"x": np.arange(200) % 16, "y": np.arange(200) % 2}))
    counts = made.mechanism.setup.event.whole.epsilon  # type: ignore[attr-defined]
    scale, decay = _bin_constants(sum(asked))
    found = worst_loss(scale, decay, 1)
    return Found(found + counts, found + made.budget.epsilon, 1)


class SlidingMarginals(ExpiringMarginals):
    """Every step of the window is noised again at each slide."""

    raw: tuple[tuple[Any, Any], ...] = ()

    def _release(self, slot: Any) -> None:
        share, exact = slot.share, slot.pending
        self.raw = (*self.raw, (slot, exact))
        super()._release(slot)
        own = [pending for other, pending in self.raw if other.counted is slot.counted][-self.lifetime :]
        fresh = [pending + self.setup.noise.discrete_laplace(1 / share, pending.size) for pending in own]
        slot.parts = tuple(
            replace(part, values=values.astype(float))
            for part, values in zip(slot.parts, fresh[-len(slot.parts) :], strict=True)
        )


class SlidingTable(sg.TabularStream):
    @staticmethod
    def _make_mechanism(plan: Any, setup: Any) -> Any:
        return SlidingMarginals(setup)


@case(
    "TabularStream lifetime, a record that stays for three steps",
    unit="event",
    claimed=1.0,
    method="duel",
    twin="a table's batch that is noised again at each slide",
    covers=("TabularStream", "TabularStream lifetime"),
)
def sliding_table(attacker: Attacker) -> Found:
    run = functools.partial(stream, lifetime=3)
    with traced():
        return attacker.duels(
            run, record_at(0, "110"), twin=functools.partial(run, kind=SlidingTable), seeds=2
        )


class TwiceMarginals(ExpiringMarginals):
    """A deletion is subtracted in its age group, and in its own step too."""

    def advance(self, counts: Any, **options: Any) -> None:
        both = counts.weights.copy()
        both[:, 0] += both[:, 1:].sum(axis=1)
        super().advance(Histogram(counts.keys, both), **options)


class TwiceTable(sg.TabularStream):
    @staticmethod
    def _make_mechanism(plan: Any, setup: Any) -> Any:
        return TwiceMarginals(setup)


@case(
    "TabularStream lifetime, a deletion of an earlier step's record",
    unit="event",
    claimed=1.0,
    method="duel",
    twin="a deletion subtracted in its age group and in its step",
    covers=("TabularStream", "TabularStream lifetime", "TabularStream inserted"),
)
def aged_table(attacker: Attacker) -> Found:
    batches, _ = record_at(0, "110")
    one, other = ([batch.assign(op=1, since=1) for batch in batches] for _ in range(2))
    gone = pd.DataFrame({"a": ["1"], "b": ["1"], "c": ["0"], "op": [-1], "since": [1]})
    other[2] = pd.concat([other[2], gone], ignore_index=True)
    run = functools.partial(stream, lifetime=4, inserted="since")
    with traced():
        return attacker.duels(run, (one, other), twin=functools.partial(run, kind=TwiceTable), seeds=2)


HOME = sg.Schema({"h": sg.Categorical(range(2))})
PERSON = sg.Schema({"a": sg.Categorical(range(2)), "b": sg.Categorical(range(2))})


def homes(rows: int = 400) -> tuple[Any, Any]:
    """Households of two persons, and the same with one more of three persons that are alike."""
    value = np.arange(rows) % 2
    parents = pd.DataFrame({"household_id": np.arange(rows), "h": value})
    children = pd.DataFrame(
        {name: np.repeat(parents[key], 2) for name, key in (("household_id",) * 2, ("a", "h"))}
    )
    children["b"] = np.arange(len(children)) % 2
    one = pd.DataFrame({"household_id": [rows], "h": [1]})
    three = pd.DataFrame({"household_id": [rows] * 3, "a": [0] * 3, "b": [1] * 3})
    more = [pd.concat(both, ignore_index=True) for both in ((parents, one), (children, three))]
    return (parents, children), tuple(more)


def household_tables(data: Any, noise: Any, *, budget: sg.PrivacyBudget) -> list[np.ndarray]:
    """What the models of both tables expect of some marginals."""
    model = sg.HouseholdSynthesizer(
        parent=HOME, child=PERSON, max_children=3, budget=budget, noise=noise
    ).fit(*data)
    fitted = model._after_fit()
    cliques = [("a",), ("b",), ("a", "b")]
    return [
        *fitted.parents.snapshot.expected([("h",), ("h", "children")]).values(),
        *fitted.children.snapshot.expected(cliques).values(),
    ]


def _enter_households(budget: sg.PrivacyBudget) -> None:
    run = functools.partial(household_tables, budget=budget)
    name = "HouseholdSynthesizer" if budget.is_pure else "HouseholdSynthesizer at (ε, δ)"

    @case(
        f"{name}, a household with three children",
        unit="household",
        claimed=budget,
        method="duel",
        twin="noise scale halved",
        covers="HouseholdSynthesizer",
    )
    def attack(attacker: Attacker) -> Found:
        with traced():
            return attacker.duels(run, homes(), seeds=2, delta=budget.delta)

    @case(
        f"{name}, all children of a household",
        unit="household",
        claimed=budget,
        method="duel",
        twin="child tables at the noise of one child",
        covers="HouseholdSynthesizer",
    )
    def bounded(attacker: Attacker) -> Found:
        part = PrivacyFilter.part
        with traced():
            honest = attacker.largest_duel(run, homes(), seeds=2, delta=budget.delta)
            with mock.patch.object(PrivacyFilter, "part", lambda self, share, bound=1: part(self, share)):
                broken = attacker.largest_duel(run, homes(), seeds=2, delta=budget.delta)
        return Found(honest, broken, 4)


for _budget in (sg.PrivacyBudget(1.0), TIGHT, *map(sg.PrivacyBudget, EXTREMES)):
    _enter_households(_budget)


FOUND = sg.Schema(
    {
        "a": sg.Numeric(0, 16, bins="auto", integer=True),
        "b": sg.Categorical("private", candidates=["x", "y"], other="other"),
    }
)


def found_for(most: int) -> tuple[float, float]:
    """What one household pays at ε = 1 for bins and values found in both tables and for the tables: with its
    children's share divided by the bound on children, and as if it had one child alone.

    The ε of each tree and the scale of each list's noise are read off as they are handed over.
    """
    trees: list[float] = []
    scales: list[float] = []
    wholes: list[tuple[float, int]] = []
    part = PrivacyFilter.part

    class Watch(sg.SeededNoise):
        def discrete_laplace(self, scale: Any, size: Any = None) -> Any:
            scales.append(float(scale))
            return super().discrete_laplace(scale, size)

    def edges(column: Any, *args: Any, epsilon: float, **options: Any) -> list[float]:
        trees.append(epsilon)
        return [column.low, column.high]

    def parts(self: Any, fraction: float, *, bound: int = 1) -> Any:
        made = part(self, fraction, bound=bound)
        wholes.append((made.whole, bound))
        return made

    parents = pd.DataFrame({"household_id": np.arange(60), "a": np.arange(60) % 16, "b": "x"})
    children = parents.loc[np.repeat(parents.index, 2)].assign(b="y")
    model = sg.HouseholdSynthesizer(
        parent=FOUND,
        child=FOUND,
        max_children=most,
        budget=sg.PrivacyBudget(1.0),
        noise=Watch(1),
        settings=sg.TableSettings(iterations=5),
    )
    with mock.patch.object(discovery, "tree_edges", edges), mock.patch.object(PrivacyFilter, "part", parts):
        model.fit(parents, children)
    (own, own_bound), (below, bound) = wholes
    assert (own_bound, bound) == (1, most)
    # A household moves one value of its own and at most k of its children's, each by 1.
    lists = 1 / scales[0] + most / scales[1]
    tables = own + most * below
    honest = worst_loss(*_bin_constants(trees[0]), 1) + worst_loss(*_bin_constants(trees[1]), most)
    broken = worst_loss(*_bin_constants(trees[0]), 1) + worst_loss(*_bin_constants(trees[0]), most)
    return honest + lists + tables, broken + lists + tables


@case(
    "HouseholdSynthesizer, bins and values found in both tables",
    unit="household",
    claimed=1.0,
    method="exact",
    twin="bins of children found at the ε of one child",
    covers=("HouseholdSynthesizer", "tree_edges", "find_values"),
)
def found_of_households(attacker: Attacker) -> Found:
    """Four children: a tree over their rows is moved by four, a list of their values in four places."""
    return Found(*found_for(4), 1)


ANSWERS = sg.Schema({"a": sg.Categorical(range(2)), "b": sg.Categorical(range(3))})


def waves(without: tuple[int, ...], crowd: int = 300) -> list[pd.DataFrame]:
    """Three waves of a crowd, and of one more person, who does not answer in some of them."""
    out = []
    for wave in range(3):
        who = np.arange(crowd)
        frame = pd.DataFrame({"person_id": who, "a": (who + (who % 9 == wave)) % 2, "b": (who + wave) % 3})
        one = pd.DataFrame({"person_id": [crowd], "a": [wave % 2], "b": [2]})
        out.append(frame if wave in without else pd.concat([frame, one], ignore_index=True))
    return out


def panel(
    data: Any, noise: Any, *, epsilon: float = 1.0, delta: float = 0.0, **unit: Any
) -> list[np.ndarray]:
    """The answers of synthetic persons, wave by wave."""
    made = sg.PanelStream(
        schema=ANSWERS,
        budget=sg.PrivacyBudget(epsilon, delta),
        unit=sg.PrivacyUnit.user(key="person_id", **unit),
        noise=noise,
    )
    return [made.update(wave).data.to_numpy().astype(float).ravel() for wave in data]


def _enter_panel(budget: sg.PrivacyBudget) -> None:
    name = "PanelStream" if budget.is_pure else "PanelStream at (ε, δ)"

    @case(
        f"{name}, a person who answers in three waves",
        unit="user",
        claimed=budget,
        method="duel",
        twin="noise scale halved",
        covers="PanelStream",
    )
    def life(attacker: Attacker) -> Found:
        run = functools.partial(panel, epsilon=budget.epsilon, delta=budget.delta, max_events=3)
        with traced():
            return attacker.duels(run, (waves(()), waves((0, 1, 2))), seeds=2, delta=budget.delta)

    if budget.epsilon != 1:
        return

    @case(
        f"{name}, the answers of one period",
        unit="user",
        claimed=budget,
        method="duel",
        twin="answers before not paid for in the next period",
        covers="PanelStream",
    )
    def period(attacker: Attacker) -> Found:
        pair = waves(()), waves((1,))
        run = functools.partial(panel, delta=budget.delta, max_events=1, per=1)
        with traced():
            honest = attacker.largest_duel(run, pair, seeds=2, delta=budget.delta)
            with mock.patch.object(tabular.over_time.panel, "BORDER", {True: 0, False: 0}):
                broken = attacker.largest_duel(run, pair, seeds=2, delta=budget.delta)
        return Found(honest, broken, 4)


for _budget in (sg.PrivacyBudget(1.0), TIGHT, *map(sg.PrivacyBudget, EXTREMES)):
    _enter_panel(_budget)


def dense(data: Any, noise: Any, *, batches: int = 1, **options: Any) -> list[np.ndarray]:
    """The tables that multiplicative weights leave, batch by batch."""
    queries = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    made = sg.baselines.Accumulated(
        lambda batch, budget: mwem(batch, queries, budget=budget, iterations=3, noise=noise, **options),
        budget=sg.PrivacyBudget(1.0),
    )
    return [made.update(np.array(batch)) for batch in data[:batches]]


@case(
    "mwem, a record in one batch of two (Accumulated)",
    unit="record",
    claimed=1.0,
    method="duel",
    twin="noise scale halved",
    covers=("mwem", "Accumulated"),
)
def multiplicative_weights(attacker: Attacker) -> Found:
    one, other = [[9, 3, 3, 5], [4, 4, 0, 2]], [[9, 3, 4, 5], [4, 4, 0, 2]]
    with traced():
        return attacker.duels(functools.partial(dense, batches=2), (one, other), seeds=4)


@case(
    "mwem, the number of records",
    unit="record",
    claimed=1.0,
    method="duel",
    twin="a true total handed to the table (Algorithm 13, line 16)",
    covers="mwem",
)
def true_total_of_mwem(attacker: Attacker) -> Found:
    def literal(data: Any, noise: Any) -> list[np.ndarray]:
        return dense(data, noise, public_total=int(np.sum(data[0])))

    with traced():
        return attacker.duels(dense, ([[9, 3, 3, 5]], [[9, 3, 4, 5]]), twin=literal, seeds=4)


@case(
    "TabularStream, a user with 9 records over three steps, bound 3",
    unit="user",
    claimed=1.0,
    method="duel",
    twin="no bounding",
    covers=("TabularStream", "ContributionBounder"),
)
def user_over_time(attacker: Attacker) -> Found:
    def run(data: Any, noise: Any, *, bounded: bool = True) -> list[np.ndarray]:
        if bounded:
            return stream(data, noise, unit=sg.PrivacyUnit.user(max_events=3), deletions=False)
        return stream([batch.drop(columns="user_id") for batch in data], noise, epsilon=1 / 3)

    crowd, with_heavy = heavy_user(3, 0, crowd=300)
    pair = [crowd] * 3, [with_heavy] * 3
    with traced():
        return attacker.duels(run, pair, twin=functools.partial(run, bounded=False), seeds=2)


@case(
    "PanelStream, bins and values found in the first wave",
    unit="user",
    claimed=1.0,
    method="exact",
    twin="bins and values found beside waves at all of ε",
    covers=("PanelStream", "tree_edges", "find_values"),
)
def found_of_panel(attacker: Attacker) -> Found:
    """The ε of the tree and the scale of the list's noise as they are handed over, and what the waves of a
    person get together.
    """
    trees: list[float] = []
    scales: list[float] = []

    def edges(column: Any, *args: Any, epsilon: float, **options: Any) -> list[float]:
        trees.append(epsilon)
        return [column.low, column.high]

    def keys(holders: Any, *, counts: Any, noise: Any) -> Any:
        scales.append(counts.bound / counts.epsilon)
        return np.arange(holders.size)

    panel = sg.PanelStream(
        schema=FOUND,
        budget=sg.PrivacyBudget(1.0),
        unit=sg.PrivacyUnit.user(max_events=3, key="person_id"),
        noise=sg.SeededNoise(1),
        settings=sg.TableSettings(iterations=5),
    )
    who = np.arange(100)
    with mock.patch.object(discovery, "tree_edges", edges), mock.patch.object(values, "frequent_keys", keys):
        for _ in range(2):
            panel.update(pd.DataFrame({"person_id": who, "a": who % 16, "b": "x"}))
    (tree,), (scale,) = trees, scales
    found = worst_loss(*_bin_constants(tree), 1) + 1 / scale
    return Found(found + 3 * panel.epsilon, found + panel.budget.epsilon, 1)

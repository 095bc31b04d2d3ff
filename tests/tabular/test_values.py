"""Values of categories that are found privately: the frequent ones, and nobody's own."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.gaussian import TAU, grid_bits, noise_tail, noisy_counts
from tabular.discovery import word_counts
from tabular.values import GaussianCounts, LaplaceCounts, frequent_keys, frequent_words


def operators(rows: int = 6000) -> pd.DataFrame:
    """A few large operators, a long tail, and a relation with the plane."""
    rng = np.random.default_rng(3)
    at = np.minimum(rng.geometric(0.12, rows), 60)
    at[:40] = 100 + np.arange(40)  # forty operators with one row each
    return pd.DataFrame({"operator": [f"op {i}" for i in at], "plane": np.where(at % 2 == 0, "jet", "prop")})


def made(values: sg.Categorical, **options: object) -> sg.TabularSynthesizer:
    schema = sg.Schema({"operator": values, "plane": sg.Categorical(["jet", "prop"])})
    budget = options.pop("budget", sg.PrivacyBudget(2.0, 1e-6))
    return sg.TabularSynthesizer.from_options(
        schema=schema, budget=budget, noise=sg.SeededNoise(1), **options
    )  # type: ignore[arg-type]


def test_the_threshold_is_the_least_that_a_single_holder_rarely_reaches() -> None:
    for epsilon, delta, bound in ((1.0, 1e-9, 1), (0.1, 1e-6, 3), (5.0, 1e-3, 2)):
        least = int(LaplaceCounts(epsilon, bound).threshold(delta))
        ratio = math.exp(-epsilon / bound)

        def reaches(count: int, ratio: float = ratio) -> float:
            return ratio ** (count - 1) / (1 + ratio)

        assert reaches(least) <= delta / bound
        assert least == 2 or reaches(least - 1) > delta / bound


@pytest.mark.parametrize("sigma", [0.05, 0.7, 5.0, 40.0, 300.0])
def test_gaussian_noise_rarely_reaches_its_tail(sigma: float) -> None:
    """The exact tail of the discrete law; of half a deviation less it must not hold."""
    bits = grid_bits(sigma, (1,))
    fine = math.hypot(sigma * 2.0**bits, TAU)
    steps = np.arange(-int(40 * fine), int(40 * fine) + 1)
    weights = np.exp(-(steps**2) / (2 * fine**2))
    weights /= weights.sum()
    for chance in (0.3, 1e-4, 5e-10):
        tail = noise_tail(sigma, chance)
        assert weights[steps >= tail * 2.0**bits].sum() <= chance
        assert weights[steps >= (tail - sigma / 2) * 2.0**bits - 2].sum() > chance
        assert GaussianCounts(sigma, 3).threshold(3 * chance) == pytest.approx(1 + tail)


def test_gaussian_counts_of_any_number_have_the_same_grid() -> None:
    """How many words there are is private: one more must not change how the noise of the others is drawn."""
    few, many = (noisy_counts(np.zeros(n, dtype=np.int64), 3.0, sg.SeededNoise(2)) for n in (50, 2000))
    assert set(np.mod(few * 2**5, 1)) == set(np.mod(many * 2**5, 1)) == {0.0}
    assert float(np.std(many)) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(("selection", "kind"), [("auto", "gaussian"), ("annealed", "zcdp")])
@pytest.mark.parametrize("bound", [1, 3])
def test_values_are_found_with_the_noise_that_a_tenth_of_the_filter_buys(
    monkeypatch: pytest.MonkeyPatch, selection: str, kind: str, bound: int
) -> None:
    """A unit moves the counts of ``bound`` words: sqrt(bound) in length, at half of δ."""
    asked: list[tuple[GaussianCounts, float]] = []
    wholes: list[PrivacyFilter] = []

    def watched(
        words: object, holders: object, *, counts: GaussianCounts, delta: float, **_: object
    ) -> object:
        asked.append((counts, delta))
        return ["op 1"]

    def remember(spending: PrivacyFilter, share: float, **options: int) -> object:
        wholes.append(spending)
        return word_counts(spending, share, **options)

    monkeypatch.setattr("tabular.values.frequent_words", watched)
    monkeypatch.setattr("tabular.once.word_counts", remember)
    unit = sg.PrivacyUnit.user(max_events=bound, key="who") if bound > 1 else None
    made(sg.Categorical("private"), selection=selection, unit=unit, iterations=5).fit(
        operators(2000).assign(who=np.arange(2000))
    )
    ((counts, delta),) = asked
    assert counts.bound == bound
    assert delta == pytest.approx(5e-7)
    assert wholes[0].kind == kind
    # What the filter has is for a record; m times as much in length is for a unit.
    whole = wholes[0].whole * bound**2 * (1 if kind == "gaussian" else 2)
    assert bound / counts.sigma**2 == pytest.approx(0.1 * whole, rel=1e-6)


def test_frequent_values_are_found_and_rare_ones_become_other() -> None:
    frame = operators()
    model = made(sg.Categorical("private")).fit(frame)
    found = set(model.schema.columns["operator"].values) - {"other"}  # type: ignore[attr-defined]
    counts = frame["operator"].value_counts()
    # A tenth of the budget's precision is noise of about 7.6, and 5 times that is the threshold.
    assert set(counts.index[counts > 100]) <= found
    assert not {name for name in found if counts[name] < 15}
    out = model.sample().data
    assert set(out["operator"]) <= found | {"other"}
    jets = out[out["operator"] == "op 2"]["plane"].eq("jet").mean()
    assert jets > 0.9
    assert abs((out["operator"] == "op 1").mean() - (frame["operator"] == "op 1").mean()) < 0.03


def test_a_pure_budget_needs_public_candidates() -> None:
    with pytest.raises(sg.ConfigError, match="candidates"):
        made(sg.Categorical("private"), budget=sg.PrivacyBudget(1.0))
    column = sg.Categorical("private", candidates=[f"op {i}" for i in range(1000)], other="rest")
    model = made(column, budget=sg.PrivacyBudget(2.0)).fit(operators())
    found = model.schema.columns["operator"].values  # type: ignore[attr-defined]
    assert "op 1" in found
    assert "rest" in found
    assert len(found) < 40
    assert sg.Schema.from_json(sg.Schema({"c": column}).to_json()).columns["c"] == column


def test_under_pure_epsilon_a_user_pays_for_all_its_words() -> None:
    """A tenth of ε for two columns: each list is told with a twentieth, however many words a user holds."""
    unit = sg.PrivacyUnit.user(max_events=4, key="who")
    spending = PrivacyFilter(sg.PrivacyBudget(2.0), unit, sg.SeededNoise(1))
    counts = word_counts(spending, 0.05, bound=4, rows=4)
    assert isinstance(counts, LaplaceCounts)
    assert counts == LaplaceCounts(pytest.approx(0.1), 4)
    assert spending.left == pytest.approx(0.95)


def test_a_user_counts_once_for_each_value() -> None:
    """One user with all the rows of an operator must not get it named."""
    frame = operators(3000).assign(who=np.arange(3000))
    frame.loc[frame.index[-500:], ["operator", "who"]] = ["mine", 7_000]
    unit = sg.PrivacyUnit.user(max_events=2, key="who")
    model = made(sg.Categorical("private"), unit=unit, budget=sg.PrivacyBudget(20.0, 1e-3)).fit(frame)
    found = model.schema.columns["operator"].values  # type: ignore[attr-defined]
    assert "op 1" in found
    assert "mine" not in found


def test_what_cannot_be_found_is_refused_before_anything_is_spent() -> None:
    schema = sg.Schema({"c": sg.Categorical("private")})
    with pytest.raises(sg.ConfigError, match="values='private'"):
        sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(1.0))
    with pytest.raises(sg.ConfigError, match="still to be found"):
        sg.Schema(
            {"c": sg.Categorical("private"), "d": sg.Categorical(["x", "y"])},
            impossible=[{"c": "a", "d": "x"}],
        )
    model = made(sg.Categorical("private"))
    state = model.noise.state()
    with pytest.raises(sg.InputError, match="missing"):
        model.fit(pd.DataFrame({"operator": ["a", None], "plane": ["jet", "jet"]}))
    assert model.noise.state() == state


def test_noise_is_as_wide_as_a_holder_can_reach() -> None:
    """The mean absolute noise of a count is about its scale, bound / ε; half of it must be told apart."""
    asked: list[float] = []

    class Watch(sg.SeededNoise):
        def discrete_laplace(self, scale: float, size: int | None = None) -> object:
            asked.append(float(scale))
            return super().discrete_laplace(scale, size)

        def discrete_gaussian(self, sigma: float, size: int) -> object:
            asked.append(float(sigma))
            return super().discrete_gaussian(sigma, size)

    for counts in (LaplaceCounts(0.5, 3), GaussianCounts(300.0, 3)):
        frequent_words(["a", "b"], np.array([5, 9]), counts=counts, delta=1e-6, noise=Watch(1))
        frequent_keys(np.zeros(10, dtype=np.int64), counts=counts, noise=Watch(1))
    assert asked == [6.0, 6.0, *[math.hypot(300.0, TAU)] * 2]


def test_places_outside_are_a_category_that_evaluate_reads_again():
    schema = sg.Schema(
        {
            "home": sg.Location(sg.BoxDomain(0, 0, 1, 1), cells=4, outside="category"),
            "kind": sg.Categorical(["a", "b"]),
        }
    )
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"home_x": rng.random(600) * 1.25, "home_y": rng.random(600), "kind": "a"})
    release = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(50.0)).fit(real).sample()
    outside = release.data["home_x"].isna()
    assert outside.mean() == pytest.approx((real["home_x"] > 1).mean(), abs=0.03)
    scores = sg.evaluate(real, release, ["tv_1way"], repeats=1)
    assert scores["value"].iloc[0] < 0.03
    assert sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0)).check(real).ok

"""Values of categories that are found privately: the frequent ones, and nobody's own."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from tabular.values import frequent_keys, frequent_words, threshold


def operators(rows: int = 6000) -> pd.DataFrame:
    """A few large operators, a long tail, and a relation with the plane."""
    rng = np.random.default_rng(3)
    at = np.minimum(rng.geometric(0.12, rows), 60)
    at[:40] = 100 + np.arange(40)  # forty operators with one row each
    return pd.DataFrame({"operator": [f"op {i}" for i in at], "plane": np.where(at % 2 == 0, "jet", "prop")})


def made(values: sg.Categorical, **options: object) -> sg.TabularSynthesizer:
    schema = sg.Schema({"operator": values, "plane": sg.Categorical(["jet", "prop"])})
    budget = options.pop("budget", sg.PrivacyBudget(2.0, 1e-6))
    return sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(1), **options)  # type: ignore[arg-type]


def test_the_threshold_is_the_least_that_a_single_holder_rarely_reaches() -> None:
    for epsilon, delta, bound in ((1.0, 1e-9, 1), (0.1, 1e-6, 3), (5.0, 1e-3, 2)):
        least = threshold(epsilon, delta, bound)
        ratio = math.exp(-epsilon / bound)

        def reaches(count: int, ratio: float = ratio) -> float:
            return ratio ** (count - 1) / (1 + ratio)

        assert reaches(least) <= delta / bound
        assert least == 2 or reaches(least - 1) > delta / bound


def test_frequent_values_are_found_and_rare_ones_become_other() -> None:
    frame = operators()
    model = made(sg.Categorical("private")).fit(frame)
    found = set(model.schema.columns["operator"].values) - {"other"}  # type: ignore[attr-defined]
    counts = frame["operator"].value_counts()
    # ε for the values is the tenth of the budget's precision: μ sqrt(0.1), about 0.1.
    assert set(counts.index[counts > 400]) <= found
    assert not {name for name in found if counts[name] < 30}
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

    frequent_words(["a", "b"], np.array([5, 9]), epsilon=0.5, delta=1e-6, bound=3, noise=Watch(1))
    frequent_keys(np.zeros(10, dtype=np.int64), epsilon=0.5, bound=3, noise=Watch(1))
    assert asked == [6.0, 6.0]


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

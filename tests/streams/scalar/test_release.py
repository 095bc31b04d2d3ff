"""The one call that the command line uses."""

from __future__ import annotations

import numpy as np
import pytest

import synthgeo as sg
from tests.streams.scalar.examples import EXAMPLES

S = sg.series
COUNTS = np.floor(100 + 20 * np.sin(np.arange(30)))


@pytest.mark.parametrize("name", S.MECHANISMS)
def test_every_mechanism_can_be_called_by_name(name):
    example = next(one for one in EXAMPLES.values() if one.kind is S.MECHANISMS[name])
    options = {key: value for key, value in example.options.items() if key != "horizon"}
    release = S.release_series(
        example.series, mechanism=name, budget=example.budget, noise=sg.SeededNoise(1), **options
    )
    assert release.values.shape == example.series.shape
    assert example.budget.covers(release.spent)
    assert release.provenance["mechanism"] == S.MECHANISMS[name].__name__
    assert not release.releasable
    assert list(release.to_frame().columns) == ["released"]


def test_unknown_names_and_options_are_explained():
    budget = sg.PrivacyBudget(1.0)
    with pytest.raises(sg.ConfigError, match="unknown mechanism 'lpb'; there are auto, lpa"):
        S.release_series(COUNTS, mechanism="lpb", budget=budget)
    with pytest.raises(sg.ConfigError, match="unexpected keyword argument 'wind"):
        S.release_series(COUNTS, mechanism="lpa", budget=budget, wind=3)
    with pytest.raises(sg.ConfigError, match="missing 1 required keyword-only argument: 'window'"):
        S.release_series(COUNTS, mechanism="uniform", budget=budget)


def test_the_default_noise_is_the_systems_and_releasable():
    release = S.release_series(COUNTS, mechanism="LPA", budget=sg.PrivacyBudget(1.0))
    assert release.releasable
    assert release.spent == sg.PrivacyBudget(1.0)
    assert release.unit == sg.PrivacyUnit.user(max_events=30)


def test_the_plot_says_when_it_is_for_the_curator_only():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    release = S.release_series(COUNTS, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1))
    alone, both = release.plot(), release.plot(true=COUNTS)
    assert len(alone.lines) == 1
    assert [len(line.get_ydata()) for line in both.lines] == [30, 30]
    assert "curator only" in both.get_legend().get_texts()[0].get_text()
    plt.close("all")

"""The baselines of spatial streams: what they release when points go, and what they do not take."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg

BOX = sg.BoxDomain(0, 0, 1, 1)
NOBODY = np.empty((0, 2))


def cloud(n, centre=0.3, seed=0):
    return np.clip(np.random.default_rng(seed).normal(centre, 0.05, (n, 2)), 0, 1)


def frame(inserts, deletes=NOBODY):
    xy = np.vstack([inserts, deletes])
    return pd.DataFrame(
        {"x": xy[:, 0], "y": xy[:, 1], "op": np.repeat([1, -1], [len(inserts), len(deletes)])}
    )


def differential(epsilon=1.0, seed=1, **options):
    return sg.baselines.DifferentialPrivTree.from_options(
        domain=BOX, budget=sg.PrivacyBudget(epsilon), noise=sg.SeededNoise(seed), **options
    )


def test_baseline_2_releases_a_stream_in_which_as_many_go_as_come():
    """With the signed batch in the tree, most releases were empty."""
    stream, size = differential(), 200
    totals = []
    for step in range(30):
        gone = cloud(size, seed=step - 5) if step >= 5 else NOBODY
        totals.append(stream.update(frame(cloud(size, seed=step), gone)).total)
    there = np.minimum(np.arange(1, 31), 5) * size
    np.testing.assert_allclose(totals, there, atol=200)


def test_a_batch_of_deletions_alone_keeps_the_shape_and_lowers_the_total():
    stream = differential(epsilon=100.0)
    stream.update(frame(cloud(2000)))
    less = stream.update(frame(NOBODY, cloud(500)))
    assert abs(less.total - 1500) < 20
    np.testing.assert_allclose(less.xy.mean(axis=0), 0.3, atol=0.02)
    assert stream.update(frame(NOBODY, cloud(2000))).total == 0
    again = stream.update(frame(cloud(3000, centre=0.7)))
    np.testing.assert_allclose(again.xy.mean(axis=0), 0.7, atol=0.02)


def test_a_shape_survives_a_total_of_zero():
    stream = differential(epsilon=100.0)
    stream.update(frame(cloud(300)))
    assert stream.update(frame(NOBODY, cloud(400))).total == 0
    stream.mechanism.totals = (250.0,)  # as if few had come since, in no leaf of their own
    kept = stream.update(frame(NOBODY))
    assert abs(kept.total - 250) < 20
    np.testing.assert_allclose(kept.xy.mean(axis=0), 0.3, atol=0.05)


@pytest.mark.parametrize("deletions", [True, False])
def test_an_event_is_in_one_noisy_sum(deletions):
    """Each sum has the scale of the whole share: an insertion is in one leaf, a deletion in one total."""

    class Scales(sg.SeededNoise):
        def __init__(self):
            super().__init__(1)
            self.sums = []

        def discrete_laplace(self, scale, size):
            self.sums.append((scale, int(np.prod(size))))
            return super().discrete_laplace(scale, size)

    noise = Scales()
    stream = sg.baselines.DifferentialPrivTree(
        domain=BOX,
        budget=sg.PrivacyBudget(1.0),
        noise=noise,
        deletions=deletions,
        settings=sg.PointSettings(max_depth=3),
    )
    release = stream.update(frame(cloud(300)))
    leaves = release.partition.size
    expected = [(2.0, leaves), (2.0, 1)] if deletions else [(2.0, leaves)]
    assert noise.sums[-len(expected) :] == expected


@pytest.mark.parametrize("kind", ["OfflinePrivTree", "DifferentialPrivTree"])
@pytest.mark.parametrize("setting", [{"schedule": "once"}, {"counter": "kary"}, {"horizon": 12}])
def test_baselines_refuse_settings_that_they_would_ignore(kind, setting):
    with pytest.raises(sg.ConfigError, match=next(iter(setting))):
        getattr(sg.baselines, kind).from_options(domain=BOX, budget=sg.PrivacyBudget(1.0), **setting)


def test_the_third_baseline_has_no_schedule():
    with pytest.raises(sg.ConfigError, match="schedule"):
        sg.baselines.InitialPrivTree(
            domain=BOX, budget=sg.PrivacyBudget(1.0), settings=sg.PointSettings(schedule="once")
        )


@pytest.mark.parametrize("setting", [{"schedule": "once"}, {"counter": "kary"}, {"horizon": 12}])
def test_streaming_mwem_refuses_settings_that_it_would_ignore(setting):
    with pytest.raises(sg.ConfigError, match=next(iter(setting))):
        sg.baselines.StreamingMWEM.from_options(
            schema=sg.simulate.census_schema(), budget=sg.PrivacyBudget(1.0), **setting
        )

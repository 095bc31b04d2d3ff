"""Whole streams by replay: every step, both kinds of structure, events at every time. Exact for each
transcript.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import streams.spatial.phd
import synthgeo as sg
import tabular.over_time.every_step as every_step
import tabular.over_time.rotating_marginals as rotating_marginals
from audits.stream_twins import Literal, Spanning
from audits.traced import TracedBank
from streams.spatial.phd import PHD
from synthgeo.auditing.duels import ReplayError, ReplayNoise, replayed_selection
from synthgeo.auditing.neighbours import deletion_path

BOX = sg.BoxDomain(0, 0, 1, 1)
EPSILON = 1.0


@pytest.fixture(autouse=True)
def _traced(monkeypatch):
    for module in (streams.spatial.phd, rotating_marginals, every_step):
        monkeypatch.setattr(module, "make_bank", TracedBank)
    for module in (rotating_marginals, every_step):
        monkeypatch.setattr(module, "exponential_mechanism", replayed_selection)
        fit = module.fit
        monkeypatch.setattr(
            module,
            "fit",
            lambda *args, fit=fit, **options: fit(*args, **{**options, "iterations": 3}),
        )


def replay(make, worlds, *, seed):
    """Log-ratio of the transcript of a whole stream, and the releases of both worlds."""
    noise = ReplayNoise(seed)
    outputs = []
    for number, batches in enumerate(worlds):
        if number:
            noise.rewind()
        stream = make(noise)
        outputs.append([_numbers(stream.update(batch)) for batch in batches])
    return noise.finish(), outputs


def _numbers(release):
    if hasattr(release, "released"):
        return np.concatenate([release.partition.start.astype(float), release.released])
    frame = release.to_pandas()
    return frame.to_numpy().astype(float).ravel()


def assert_same(outputs):
    for one, other in zip(*outputs, strict=True):
        np.testing.assert_array_equal(one, other)


class TestPoints:
    STEPS = 5

    def worlds(self, at, op, rng):
        """Random inserts and deletes in a few places; the second world has one event more at one step."""
        places = rng.random((6, 2))
        batches = [
            pd.DataFrame(
                {
                    **dict(zip("xy", places[rng.integers(0, 6, 12)].T, strict=True)),
                    "op": rng.choice([1, 1, -1], 12),
                    "since": rng.integers(max(1, step - 2), step + 1, 12),
                }
            )
            for step in range(1, self.STEPS + 1)
        ]
        event = pd.DataFrame({"x": [0.9], "y": [0.1], "op": [op], "since": [at + 1]})
        other = list(batches)
        other[at] = pd.concat([batches[at], event], ignore_index=True)
        return batches, other

    @pytest.mark.parametrize("schedule", ["every_step", "once", "growing", "auto"])
    @pytest.mark.parametrize("op", [1, -1])
    @pytest.mark.parametrize(
        "options",
        [{}, {"lifetime": 2, "inserted": "since"}, {"lifetime": 1, "inserted": "since"}],
        ids=["all", "lifetime", "borrow"],
    )
    def test_any_event_at_any_step(self, schedule, op, options):
        def make(noise):
            return sg.PHDStream.from_options(
                domain=BOX,
                budget=sg.PrivacyBudget(EPSILON),
                max_depth=5,
                schedule=schedule,
                noise=noise,
                **options,
            )

        ratios = []
        for at in range(self.STEPS):
            for seed in range(3):
                worlds = self.worlds(at, op, np.random.default_rng(seed))
                ratio, outputs = replay(make, worlds[:: 1 if seed % 2 else -1], seed=seed)
                assert_same(outputs)
                ratios.append(abs(ratio))
        assert max(ratios) <= EPSILON + 1e-9
        assert max(ratios) > 0.4 * EPSILON

    def largest(self, kind, worlds, *, seeds, **options):
        def make(noise):
            return kind.from_options(domain=BOX, budget=sg.PrivacyBudget(EPSILON), noise=noise, **options)

        return max(abs(replay(make, worlds, seed=seed)[0]) for seed in range(seeds))

    def test_the_printed_rule_is_caught_on_the_deletion_path(self):
        """With nine tenths of ε in the structure, a single release of the literal rule tells more than ε."""
        options = {"max_depth": 14, "schedule": "every_step", "structure_share": 0.9}
        stream = sg.PHDStream.from_options(domain=BOX, budget=sg.PrivacyBudget(EPSILON), **options)
        decay = stream.mechanism.structure.rule.decay / 2**20
        pair = deletion_path(BOX, levels=14, decay=decay)
        worlds = [pair[0]], [pair[1]]
        assert self.largest(sg.PHDStream, worlds, seeds=60, **options) <= EPSILON + 1e-9
        assert self.largest(Literal, worlds, seeds=60, **options) > 1.1 * EPSILON

    def test_a_counter_that_spans_a_rebuild_is_caught(self):
        crowd = np.full((3, 2), 0.3)
        worlds = [crowd], [np.vstack([crowd, [[0.31, 0.3]]])]
        options = {"max_depth": 2, "schedule": "once", "structure_share": 0.9}
        assert self.largest(sg.PHDStream, worlds, seeds=20, **options) <= EPSILON + 1e-9
        assert self.largest(Spanning, worlds, seeds=20, **options) > 1.1 * EPSILON


class TestTables:
    SCHEMA = sg.Schema({name: sg.Categorical(["0", "1"]) for name in "abc"})
    STEPS = 4

    @pytest.mark.parametrize("schedule", ["auto", "every_step"])
    def test_a_record_at_any_step(self, schedule):
        def make(noise):
            return sg.TabularStream(
                schema=self.SCHEMA,
                budget=sg.PrivacyBudget(EPSILON),
                workload=sg.all_k_way(self.SCHEMA, 2),
                settings=sg.TableSettings(marginals_per_step=2, schedule=schedule),
                noise=noise,
            )

        rng = np.random.default_rng(1)
        batches = [
            pd.DataFrame(rng.integers(0, 2, (30, 3)).astype(str), columns=list("abc"))
            for _ in range(self.STEPS)
        ]
        record = pd.DataFrame({"a": ["1"], "b": ["1"], "c": ["0"]})
        ratios = []
        for at in range(self.STEPS):
            other = list(batches)
            other[at] = pd.concat([batches[at], record], ignore_index=True)
            for seed in range(2):
                worlds = (batches, other) if seed else (other, batches)
                ratio, outputs = replay(make, worlds, seed=seed)
                assert_same(outputs)
                ratios.append(abs(ratio))
        assert max(ratios) <= EPSILON + 1e-9
        assert max(ratios) > 0.1 * EPSILON


def test_a_scale_from_the_data_is_caught():
    """A stream that sets its noise by the size of the batch asks different questions in the two worlds."""

    class AdaptivePHD(PHD):
        def advance(self, counts, *, step, structure):
            self.bank.scale = 1 + 1 / max(1, int(counts.weights[:, 0].sum()))
            super().advance(counts, step=step, structure=structure)

    class Adaptive(sg.PHDStream):
        counting_type = AdaptivePHD

    def make(noise):
        return Adaptive(
            domain=BOX,
            budget=sg.PrivacyBudget(EPSILON),
            settings=sg.PointSettings(schedule="every_step", max_depth=1),
            noise=noise,
        )

    with pytest.raises(ReplayError, match="differs"):
        replay(make, ([np.full((3, 2), 0.3)], [np.full((4, 2), 0.3)]), seed=1)

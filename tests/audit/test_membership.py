"""The membership attack: what it allows, what it finds, and the neighbours library."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.auditing.membership import (
    allowed_advantage,
    attack_release,
    closest_distance,
    membership_attack,
    trip_vectors,
)
from synthgeo.auditing.neighbours import (
    border_event,
    deletion_path,
    lone_point,
    marginal_flip,
    rare_record,
    unique_trip,
    user_at_bound,
)
from synthgeo.errors import ConfigError, InputError
from synthgeo.hierarchy.base import hierarchy_of

BOX = sg.BoxDomain(0, 0, 1, 1)


def table(rng, rows):
    return pd.DataFrame(rng.integers(0, 8, (rows, 6)).astype(str), columns=list("abcdef"))


class TestAttack:
    def test_copies_of_the_input_are_caught(self):
        """A "synthesizer" that publishes its input: every member lies at distance 0."""
        rng = np.random.default_rng(1)
        members, others = rng.random((300, 3)), rng.random((300, 3))
        result = membership_attack(members, members, others, budget=sg.PrivacyBudget(1.0))
        assert result.advantage > 0.95
        assert result.violates
        assert "the budget allows 0.462" in str(result)

    def test_a_fresh_sample_is_not(self):
        rng = np.random.default_rng(2)
        result = membership_attack(
            rng.random((300, 3)), rng.random((300, 3)), rng.random((300, 3)), budget=sg.PrivacyBudget(1.0)
        )
        assert not result.violates
        assert result.interval[0] < 0 < result.interval[1]

    def test_tables(self):
        rng = np.random.default_rng(3)
        members, others = table(rng, 200), table(rng, 200)
        assert membership_attack(members, members, others, budget=sg.PrivacyBudget(1.0)).violates
        assert not membership_attack(table(rng, 200), members, others, budget=sg.PrivacyBudget(1.0)).violates

    def test_a_released_stream_is_within_its_bound(self):
        """End to end: points, half of them in the stream, against the synthetic points released at ε = 1."""
        rng = np.random.default_rng(4)
        population = rng.beta(2, 5, (800, 2))
        stream = sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1))
        release = stream.update(population[:400])
        result = membership_attack(
            release.xy, population[:400], population[400:], budget=sg.PrivacyBudget(1.0)
        )
        assert not result.violates
        assert abs(result.advantage) < result.allowed

    def test_a_released_table_is_within_its_bound_and_a_copy_is_not(self):
        """End to end at ε = 1: members 0.46 at most, and the same attack on a "synthesizer" that copies."""
        rng = np.random.default_rng(7)
        people = table(rng, 400)
        schema = sg.Schema({name: sg.Categorical([str(i) for i in range(8)]) for name in "abcdef"})
        model = sg.TabularSynthesizer(
            schema=schema, budget=sg.PrivacyBudget(1.0),
            settings=sg.TableSettings(iterations=10, rounds=1, selection="mwem"),
            noise=sg.SeededNoise(1), progress=False,
        )  # fmt: skip
        release = model.fit(people[:200]).sample(200)
        fair = attack_release(release, people[:200], people[200:])
        assert not fair.violates
        assert fair.allowed == pytest.approx(math.tanh(0.5))
        copied = SimpleNamespace(
            product="table", schema=schema, spent=sg.PrivacyBudget(1.0), to_pandas=lambda: people[:200]
        )
        assert attack_release(copied, people[:200], people[200:]).violates

    def test_released_trips_are_within_their_bound_and_copies_are_not(self):
        domain = sg.RoadDomain.from_graph(sg.simulate.city_graph(4, 3, seed=1))
        points = sg.simulate.city_trips(domain, trips=120, coordinates="xy", seed=1)
        inside, outside = points[points["trip_id"] < 60], points[points["trip_id"] >= 60]
        model = sg.TrajectorySynthesizer(
            domain=domain,
            budget=sg.PrivacyBudget(1.0),
            noise=sg.SeededNoise(1),
            settings=sg.TripSettings(calibration=0.0),
        ).fit(inside)
        assert not attack_release(model.sample(60), inside, outside).violates
        copied = SimpleNamespace(product="trips", domain=domain, spent=sg.PrivacyBudget(1.0), data=inside)
        assert attack_release(copied, inside, outside).violates

    def test_what_is_no_release_is_refused(self):
        with pytest.raises(ConfigError, match="release"):
            attack_release(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 2)))

    def test_trips_become_vectors(self):
        _, trips = unique_trip(BOX, trips=3, points=6)
        vectors = trip_vectors(trips, size=4)
        assert vectors.shape == (4, 8)
        # "back" sorts first, and is the others reversed.
        assert vectors[0, :4] == pytest.approx(vectors[1, 3::-1])

    def test_an_empty_release_tells_nothing(self):
        rng = np.random.default_rng(5)
        result = membership_attack(np.empty((0, 3)), rng.random((50, 3)), rng.random((50, 3)))
        assert result.advantage == 0
        assert result.allowed is None

    def test_refuses(self):
        rng = np.random.default_rng(6)
        few, many = rng.random((5, 2)), rng.random((50, 2))
        with pytest.raises(InputError, match="at least 20"):
            membership_attack(many, few, many)
        with pytest.raises(InputError, match="shape"):
            membership_attack(rng.random((9, 3)), many, many)
        with pytest.raises(ConfigError, match="confidence"):
            membership_attack(many, many, many, confidence=1.5)
        with pytest.raises(InputError, match="'f'"):
            closest_distance(table(rng, 3), table(rng, 3).drop(columns="f"))


def test_allowed_advantage():
    assert allowed_advantage(sg.PrivacyBudget(1e-9)) == pytest.approx(0, abs=1e-9)
    assert allowed_advantage(sg.PrivacyBudget(1.0)) == pytest.approx(math.tanh(0.5))
    assert allowed_advantage(sg.PrivacyBudget(1.0, 0.1)) > math.tanh(0.5)
    assert allowed_advantage(sg.PrivacyBudget(1000.0)) == 1.0


class TestNeighbours:
    @pytest.mark.parametrize(
        "pair",
        [lone_point(BOX), deletion_path(BOX, levels=5, decay=2.1), marginal_flip(), rare_record()],
        ids=["lone point", "deletion path", "marginal flip", "rare record"],
    )
    def test_differ_in_one_row(self, pair):
        without, with_it = pair
        assert len(with_it) == len(without) + 1
        pd.testing.assert_frame_equal(with_it.iloc[:-1], without)

    def test_an_event_and_its_place(self):
        quiet, loud = border_event(8, 4)
        assert (loud - quiet).tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
        with pytest.raises(ConfigError, match="from 1 to 8"):
            border_event(8, 9)

    def test_a_user_and_a_trip_more(self):
        without, with_user = user_at_bound(BOX, bound=2, excess=3)
        assert set(with_user.user_id) - set(without.user_id) == {"heavy"}
        assert (with_user.user_id == "heavy").sum() == 5
        without, with_trip = unique_trip(BOX)
        assert set(with_trip.trip_id) - set(without.trip_id) == {"back"}

    def test_the_outlier_is_alone_and_inside(self):
        _, frame = lone_point(BOX, bits=6)
        keys, inside = hierarchy_of(BOX).locate(frame[["x", "y"]].to_numpy(), 6)
        assert inside.all()
        assert (keys == keys[-1]).sum() == 1

    def test_the_deletion_path_rises(self):
        """Net counts grow by about δ a level on the way down, as no set of points can."""
        without, _ = deletion_path(BOX, levels=6, decay=2.1)
        keys, _ = hierarchy_of(BOX).locate(without[["x", "y"]].to_numpy(), 6)
        net = [int(without.op[(keys >> np.uint64(6 - d)) == 0].sum()) for d in range(7)]
        assert net == [round(2.1 * d) for d in range(7)]

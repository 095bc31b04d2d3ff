"""Fuzzing: streams in random order against an obvious reference, damaged state files, and files nobody wrote
on purpose.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import synthgeo as sg
from synthgeo.auditing.whitebox import ImpulseNoise
from synthgeo.errors import InputError, StateError, SynthGeoError
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.privacy.noise import SeededNoise
from synthgeo.state import dump_state, parse_state
from trajectories.reading.points import read_trips

BOX = sg.BoxDomain(0, 0, 1, 1)
DEPTH = 3
CELLS = 1 << DEPTH
MIDDLES = np.array(
    [
        (s.centroid.x, s.centroid.y)
        for s in hierarchy_of(BOX).geometry(np.arange(CELLS, dtype=np.uint64), DEPTH)
    ]
)
EVENTS = st.lists(st.tuples(st.integers(0, CELLS - 1), st.sampled_from([1, 1, 1, -1])), max_size=30)


def frame(events):
    cells = np.array([cell for cell, _ in events], dtype=np.int64)
    ops = np.array([op for _, op in events], dtype=np.int64)
    return pd.DataFrame({"x": MIDDLES[cells, 0], "y": MIDDLES[cells, 1], "op": ops})


class StreamMachine(RuleBasedStateMachine):
    """Two streams of one seed, of which one is saved, loaded and insulted; and one without noise, beside
    exact counts.
    """

    @initialize(
        seed=st.integers(0, 2**32),
        schedule=st.sampled_from(["every_step", "once", "growing", "auto"]),
        counter=st.sampled_from(["simple", "block", "kary", "hybrid"]),
        persist=st.booleans(),
    )
    def start(self, seed, schedule, counter, persist):
        options = {
            "domain": BOX,
            "budget": sg.PrivacyBudget(1.0),
            "max_depth": DEPTH,
            "counter": counter,
            "horizon": 8,
        }
        self.plain, self.tried = (
            sg.PHDStream.from_options(**options, schedule=schedule, persist=persist, noise=SeededNoise(seed))
            for _ in range(2)
        )
        self.quiet = sg.PHDStream.from_options(**options, schedule="once", noise=ImpulseNoise())
        self.moving = sg.PHDStream.from_options(**options, schedule=schedule, noise=ImpulseNoise())
        # What the reference knows: exact net counts of the finest cells.
        self.exact = np.zeros(CELLS, dtype=np.int64)
        self.release = None

    @rule(events=EVENTS)
    def update(self, events):
        batch = frame(events)
        kept = batch.copy()
        self.release, other = self.plain.update(batch), self.tried.update(batch)
        pd.testing.assert_frame_equal(batch, kept)
        np.testing.assert_array_equal(self.release.partition.start, other.partition.start)
        np.testing.assert_array_equal(self.release.released, other.released)
        np.testing.assert_array_equal(self.release.xy, other.xy)
        for cell, op in events:
            self.exact[cell] += op
        self.quiet.update(batch)
        self.moving.update(batch)

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state"
            self.tried.save(path)
            self.tried = sg.PHDStream.load(path)

    @rule(
        bad=st.sampled_from([{"x": np.nan}, {"y": np.inf}, {"op": 0}, {"op": 2}]),
        events=EVENTS.filter(lambda events: len(events) > 0),
    )
    def refuse(self, bad, events):
        batch = frame(events)
        for column, value in bad.items():
            batch[column] = batch[column].astype(float)
            batch.loc[len(batch) - 1, column] = value
        before = self.tried.step
        with pytest.raises(InputError, match=f"row {len(batch) - 1}"):
            self.tried.update(batch)
        assert self.tried.step == before

    @invariant()
    def the_stream_without_noise_counts_exactly(self):
        """Every cell's estimate is the reference's count of the finest cells in it, since the first tree was
        kept.
        """
        found = self.quiet.mechanism.cells
        cells = found.partition
        inside = cells.cell_of(np.arange(CELLS, dtype=np.uint64), DEPTH)
        expected = np.bincount(inside, self.exact, minlength=cells.size)
        np.testing.assert_allclose(found.estimate.sums(cells, found.estimate.values), expected, atol=1e-9)

    @invariant()
    def no_move_of_the_structure_loses_a_point(self):
        cells = self.moving.mechanism.cells
        assert cells.estimate.values.sum() == pytest.approx(self.exact.sum(), abs=1e-6)
        assert cells.partition.measure.sum() == pytest.approx(1.0)

    @invariant()
    def no_event_pays_more_than_epsilon(self):
        costs = self.plain.costs
        assert costs.empty or costs["total"].max() <= 1.0 + 1e-12

    @invariant()
    def releases_are_proper(self):
        if self.release is None:
            return
        assert self.release.released.min() >= 0
        assert self.release.partition.measure.sum() == pytest.approx(1.0)
        assert len(self.release.xy) == self.release.total
        assert not self.release.releasable


TestStream = StreamMachine.TestCase
TestStream.settings = settings(max_examples=12, stateful_step_count=10, deadline=None)


STATE = dump_state(
    "thing", 1, {"a": [1, 2, 3], "name": "x"}, {"numbers": np.arange(50), "more": np.ones((3, 4))}
)


class TestStateFiles:
    @settings(max_examples=150, deadline=None)
    @given(st.binary(max_size=300))
    def test_random_bytes(self, content):
        with pytest.raises(StateError):
            parse_state(content, "thing", 1)

    @settings(max_examples=300, deadline=None)
    @given(st.integers(0, len(STATE) - 1), st.integers(1, 255))
    def test_one_changed_byte_is_noticed_or_harmless(self, place, change):
        damaged = bytearray(STATE)
        damaged[place] ^= change
        self._noticed_or_equal(bytes(damaged))

    @settings(max_examples=100, deadline=None)
    @given(st.integers(0, len(STATE)), st.integers(0, len(STATE)))
    def test_a_missing_piece(self, one, other):
        low, high = sorted((one, other))
        self._noticed_or_equal(STATE[:low] + STATE[high:])

    @staticmethod
    def _noticed_or_equal(content):
        try:
            values, arrays = parse_state(content, "thing", 1)
        except StateError:
            return
        whole_values, whole_arrays = parse_state(STATE, "thing", 1)
        assert values == whole_values
        assert arrays.keys() == whole_arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, whole_arrays[name])


TEXT = st.text(alphabet=st.sampled_from(list("xy,op01.5-+\n\"';éN an")), max_size=120)


class TestFiles:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(TEXT, st.booleans())
    def test_any_text_as_csv_is_read_or_refused_in_one_typed_error(self, text, with_header):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "batch.csv"
            path.write_text(("x,y\n" if with_header else "") + text)
            self._update(path)

    @settings(max_examples=40, deadline=None)
    @given(st.binary(max_size=200), st.sampled_from(["parquet", "csv"]))
    def test_any_bytes(self, content, kind):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"batch.{kind}"
            path.write_bytes((b"PAR1" if kind == "parquet" else b"x,y\n") + content)
            self._update(path)

    @settings(max_examples=40, deadline=None)
    @given(
        st.recursive(
            st.none() | st.integers(-2, 2) | st.text("xyPoint", max_size=6),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["type", "features", "geometry", "coordinates", "properties"]),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=8,
        )
    )
    def test_any_json_as_geojson(self, content):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "batch.geojson"
            path.write_text(json.dumps(content))
            self._update(path)

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(TEXT, st.booleans())
    def test_any_text_as_a_table(self, text, with_header):
        """Refused before anything is drawn, or read: a stream of tables, which reads the same files."""
        schema = sg.Schema({"x": sg.Categorical(["0", "1"]), "y": sg.Numeric(0, 10, bins=2)})
        noise = SeededNoise(1)
        stream = sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(1.0), noise=noise)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "batch.csv"
            path.write_text(("x,y\n" if with_header else "") + text)
            before = noise.state()
            try:
                stream.update(path)
            except SynthGeoError:
                assert noise.state() == before
                assert stream.spent is None

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(TEXT, st.booleans())
    def test_any_text_as_trips(self, text, with_header):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trips.csv"
            path.write_text(("trip_id,x,y\n" if with_header else "") + text)
            try:
                trips = read_trips(path, BOX, unit=sg.PrivacyUnit.trajectory())
            except SynthGeoError:
                return
            assert np.isfinite(trips.xy).all()

    @staticmethod
    def _update(path):
        noise = SeededNoise(1)
        stream = sg.PHDStream(
            domain=BOX, budget=sg.PrivacyBudget(1.0), settings=sg.PointSettings(max_depth=2), noise=noise
        )
        before = noise.state()
        try:
            stream.update(path)
        except SynthGeoError:
            assert noise.state() == before
            assert stream.spent is None

"""What every stream promises, whatever it releases."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from tests.contract.streams import CASES, Case

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def seeded(case: Case, seed: int = 5):
    return case.make(noise=sg.SeededNoise(seed))


@every_case
def test_inputs_are_left_as_they_were(case):
    batches = case.batches()
    copies = [batch.copy(deep=True) for batch in batches]
    stream = seeded(case)
    for batch in batches:
        stream.update(batch)
    for batch, copy in zip(batches, copies, strict=True):
        pd.testing.assert_frame_equal(batch, copy)


@every_case
def test_same_seed_same_releases(case):
    first, second = seeded(case), seeded(case)
    for batch in case.batches():
        np.testing.assert_array_equal(case.values(first.update(batch)), case.values(second.update(batch)))


@every_case
def test_other_seed_other_releases(case):
    first, second = seeded(case, 1), seeded(case, 2)
    pairs = [(case.values(first.update(b)), case.values(second.update(b))) for b in case.batches()]
    assert any(not np.array_equal(a, b) for a, b in pairs)


@every_case
def test_later_batches_change_no_earlier_release(case):
    batches = case.batches()
    other = [*batches[:3], batches[0], batches[1]]
    first, second = seeded(case), seeded(case)
    early = [case.values(first.update(batch)) for batch in batches][:3]
    again = [case.values(second.update(batch)) for batch in other][:3]
    for a, b in zip(early, again, strict=True):
        np.testing.assert_array_equal(a, b)


@every_case
@pytest.mark.parametrize("after", [0, 1, 3])
def test_save_and_load_go_on_bit_for_bit(case, after, tmp_path):
    batches = case.batches()
    stream = seeded(case)
    for batch in batches[:after]:
        stream.update(batch)
    stream.save(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600
    loaded = type(stream).load(tmp_path / "state")
    for batch in batches[after:]:
        a, b = stream.update(batch), loaded.update(batch)
        np.testing.assert_array_equal(case.values(a), case.values(b))
        assert a.provenance == b.provenance


@every_case
def test_a_refused_batch_changes_nothing(case, tmp_path):
    batches = case.batches()
    stream, twin = seeded(case), seeded(case)
    stream.update(batches[0])
    twin.update(batches[0])
    stream.save(tmp_path / "before")
    with pytest.raises(sg.InputError):
        stream.update(case.bad())
    stream.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    np.testing.assert_array_equal(
        case.values(stream.update(batches[1])), case.values(twin.update(batches[1]))
    )


@every_case
def test_no_event_pays_more_than_its_epsilon(case):
    stream = seeded(case)
    for batch in case.batches():
        stream.update(batch)
    costs = stream.costs
    assert len(costs) == stream.step
    assert (costs["total"] <= stream.epsilon * (1 + 1e-12)).all()
    assert (costs["total"] > 0).all()


@every_case
def test_the_statement_is_public_and_json(case):
    stream = seeded(case)
    for batch in case.batches():
        release = stream.update(batch)
    text = json.dumps(release.provenance)
    assert not release.releasable  # seeded noise
    assert "not_releasable_because" in release.provenance
    assert str(sum(len(batch) for batch in case.batches())) not in text
    assert release.provenance["unit"] == stream.unit.describe()


@every_case
def test_only_private_mechanisms_with_system_noise_are_releasable(case):
    stream = case.make()
    release = stream.update(case.batches()[0])
    assert release.releasable == stream.is_private
    assert release.provenance["private"] == stream.is_private


@every_case
def test_reading_another_kind_of_state_is_refused(case, tmp_path):
    stream = seeded(case)
    stream.save(tmp_path / "state")
    content = bytearray((tmp_path / "state").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "damaged").write_bytes(bytes(content))
    (tmp_path / "short").write_bytes(bytes(content[:50]))
    for name in ("damaged", "short", "missing"):
        with pytest.raises(sg.StateError):
            type(stream).load(tmp_path / name)


@every_case
def test_looking_at_the_last_release_again_changes_nothing(case):
    first, second = seeded(case), seeded(case)
    with pytest.raises(sg.ConfigError, match="nothing yet"):
        _ = first.release
    for batch in case.batches():
        released, same = first.update(batch), second.update(batch)
        again = first.release
        assert (again.step, again.spent) == (released.step, released.spent)
        np.testing.assert_array_equal(case.values(again), case.values(first.release))
        np.testing.assert_array_equal(case.values(released), case.values(same))

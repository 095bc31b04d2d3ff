from __future__ import annotations

import pytest

from synthgeo.errors import ConfigError
from synthgeo.privacy.unit import PrivacyUnit

UNITS = [
    PrivacyUnit.event(),
    PrivacyUnit.trajectory(),
    PrivacyUnit.user(max_events=3),
    PrivacyUnit.user(max_trajectories=2, key="rider"),
]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.describe())
def test_survives_its_dictionary(unit):
    assert PrivacyUnit.from_dict(unit.to_dict()) == unit


def test_the_descriptions_differ():
    assert len({unit.describe() for unit in UNITS}) == len(UNITS)


def test_only_a_user_needs_bounding():
    assert [unit.is_user for unit in UNITS] == [False, False, True, True]
    assert [unit.of for unit in UNITS] == ["event", "trajectory", "event", "trajectory"]
    assert [unit.max_contributions for unit in UNITS] == [1, 1, 3, 2]


@pytest.mark.parametrize("bound", [0, -1, 1.5, "2", True])
@pytest.mark.parametrize("name", ["max_events", "max_trajectories"])
def test_refuses_a_bad_bound(name, bound):
    with pytest.raises(ConfigError, match=name):
        PrivacyUnit.user(**{name: bound})


def test_needs_exactly_one_bound():
    for bounds in ({}, {"max_events": 1, "max_trajectories": 1}):
        with pytest.raises(ConfigError, match="exactly one"):
            PrivacyUnit.user(**bounds)


@pytest.mark.parametrize("key", ["", None, 3])
def test_refuses_a_bad_key(key):
    with pytest.raises(ConfigError, match="key"):
        PrivacyUnit.user(max_events=1, key=key)


def test_a_unique_key_makes_all_rows_of_an_event_the_unit():
    unit = PrivacyUnit.event(unique="ride_id")
    assert unit.is_user
    assert (unit.key, unit.max_contributions, unit.of) == ("ride_id", 1, "event")
    assert unit.describe() == "one event: all rows with one value of ride_id, of which one counts"
    assert PrivacyUnit.from_dict(unit.to_dict()) == unit != PrivacyUnit.user(max_events=1, key="ride_id")
    assert "unique" not in PrivacyUnit.event().to_dict()
    with pytest.raises(ConfigError, match="unique"):
        PrivacyUnit.event(unique="")

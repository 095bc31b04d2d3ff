"""Parameters from a constructor's signature: given, default, changed, copied."""

from __future__ import annotations

import copy

import pytest

from synthgeo.errors import ConfigError
from synthgeo.parameters import Parameters


class Kettle(Parameters):
    def __init__(self, *, litres: float, lid: bool = True, colours: list | None = None) -> None:
        if litres <= 0:
            raise ConfigError("litres must be > 0")
        self.litres = litres
        self.on = False

    def _in_use(self):
        return self.on


def test_given_and_default_are_told_apart():
    kettle = Kettle(litres=1.5, lid=True)
    assert kettle.get_params() == {"litres": 1.5, "lid": True, "colours": None}
    assert Kettle.parameter_names() == ("litres", "lid", "colours")
    assert repr(kettle) == "Kettle(litres=1.5, lid=True)"


def test_set_params_changes_all_or_nothing():
    kettle = Kettle(litres=1.5)
    with pytest.raises(ConfigError, match="litres"):
        kettle.set_params(lid=False, litres=-1)
    assert kettle.get_params()["lid"] is True
    assert kettle.set_params(litres=2.0, lid=False) is kettle
    assert (kettle.litres, kettle.get_params()["lid"]) == (2.0, False)
    with pytest.raises(ConfigError, match="no parameter handle"):
        kettle.set_params(handle=1)
    kettle.on = True
    with pytest.raises(ConfigError, match=r"in use; clone\(\)"):
        kettle.set_params(litres=1.0)


def test_a_clone_shares_nothing_and_a_copy_keeps_what_was_given():
    kettle = Kettle(litres=1.5, colours=["red"])
    kettle.on = True
    fresh = kettle.clone()
    assert not fresh.on
    assert fresh.get_params() == kettle.get_params()
    assert fresh.get_params()["colours"] is not kettle.get_params()["colours"]
    copied = copy.deepcopy(kettle)
    assert copied.on
    assert copied.get_params()["colours"] == kettle.get_params()["colours"]


def test_a_wrong_argument_is_the_constructors_to_refuse():
    with pytest.raises(TypeError, match="handle"):
        Kettle(litres=1.0, handle=2)
    with pytest.raises(TypeError):
        Kettle(1.0)

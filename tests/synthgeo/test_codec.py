"""Dataclasses to JSON and arrays, and back."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from streams.schedule import Growing
from streams.spatial.settings import PointSettings
from synthgeo import codec
from synthgeo.errors import ConfigError, StateError
from tabular.settings import TableSettings
from trajectories.setup import TripSettings


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Leg:
    codec_version: ClassVar[int] = 2
    length: float
    places: np.ndarray


@dataclass(frozen=True)
class Walk:
    name: str
    legs: tuple[Leg, ...]
    colour: Colour
    deviations: dict[tuple[str, ...], float]
    best: Leg | None = None
    mode: Literal["foot", "bus"] | int = "foot"
    note: Any = None
    size: int = field(init=False, default=0)


WALK = Walk(
    "w",
    (Leg(1.5, np.arange(3)), Leg(math.inf, np.zeros((0, 2)))),
    Colour.RED,
    {("a", "b"): 0.5, ("a",): math.nan},
    Leg(0.0, np.array([True])),
    7,
    [1, None],
)


def test_what_is_written_is_read_as_it_was():
    values, arrays = codec.dump(WALK)
    text = json.dumps(values, allow_nan=False)
    read = codec.load(Walk, json.loads(text), arrays)
    assert set(arrays) == {"legs/0/places", "legs/1/places", "best/places"}
    assert (read.name, read.colour, read.mode, read.note) == ("w", Colour.RED, 7, [1, None])
    assert list(read.deviations) == list(WALK.deviations)
    assert math.isnan(read.deviations[("a",)])
    assert math.isinf(read.legs[1].length)
    assert read.best is not None
    for one, other in zip((*read.legs, read.best), (*WALK.legs, WALK.best), strict=True):
        assert np.array_equal(one.places, other.places)
        assert one.places.dtype == other.places.dtype


@pytest.mark.parametrize(
    "settings",
    [
        PointSettings(schedule=Growing(longest=9), horizon=5, times="hour"),
        TableSettings(structure_share=0.3, borrow=False),
        TripSettings(cleaning={"min_points": 3}, start="2026-05-04", max_speed=80),
    ],
    ids=lambda settings: type(settings).__name__,
)
def test_settings_come_back_equal(settings):
    values, arrays = codec.dump(settings)
    assert codec.load(type(settings), json.loads(json.dumps(values)), arrays) == settings


def _without(values, name):
    return {key: value for key, value in values.items() if key != name}


def test_other_classes_versions_and_fields_are_refused_in_one_line():
    values, arrays = codec.dump(WALK.legs[0])
    for wrong, why in [
        (values | {"class": "Walk"}, "no Leg"),
        (values | {"version": 1}, "version 1, this synthgeo reads version 2"),
        (values | {"colour": 1}, "other fields"),
        (_without(values, "length"), "other fields"),
        (7, "no Leg"),
    ]:
        with pytest.raises(StateError, match=why) as refused:
            codec.load(Leg, wrong, arrays)
        assert "\n" not in str(refused.value)
    whole, arrays = codec.dump(WALK)
    for name, value in (("name", 3), ("mode", {}), ("best", 1)):
        with pytest.raises(StateError):
            codec.load(Walk, whole | {name: value}, arrays)
    with pytest.raises(TypeError, match="cannot be written"):
        codec.dump(object())


def test_what_a_constructor_refuses_is_refused_here_too():
    values, _ = codec.dump(PointSettings())
    with pytest.raises(ConfigError, match="t0"):
        codec.load(PointSettings, values | {"t0": -1})

"""How trips are placed and measured: the public choices that a one-off fit and a stream share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.domain.polygon import as_domain
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.keys import MAX_BITS
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.unit import PrivacyUnit
from trajectories.calendar import Week, local_seconds, zone
from trajectories.fit.calibrate import calibrate
from trajectories.ground import Ground, ground_of
from trajectories.ground.base import PlacedTrips
from trajectories.matching.match import Method
from trajectories.measure.measured import Measured
from trajectories.measure.shares import Shares
from trajectories.measure.transitions import Weights
from trajectories.model import Length, TripModel
from trajectories.reading.cleaning import clean
from trajectories.reading.points import Trips

RECORDING = 0.02  # share of ε
ATTRIBUTE_SHARE = 0.25  # of ε, where there are attributes
ROAD_CAP = 130.0  # km/h


@dataclass(frozen=True, eq=False)
class TripSetup:
    """The choices of ``TrajectorySynthesizer``, checked. Nothing in it comes from private data."""

    domain: SpatialDomain
    budget: PrivacyBudget
    unit: PrivacyUnit
    split: tuple[float, ...]
    calibration: float
    times: float
    weights: Weights
    length: Length
    partition: Partition | None
    bits: int
    theta: float
    match: Method
    cleaning: dict[str, Any] | bool | None
    recording: float
    max_speed: float | None
    week: Week
    attribute_share: float = 0.0  # of ε, for what else is recorded of each trip

    @classmethod
    def of(
        cls,
        *,
        domain: Any,
        budget: Any,
        unit: PrivacyUnit | None,
        split: Sequence[float],
        calibration: float,
        times: float,
        weights: str,
        length: str,
        max_depth: int,
        theta: float,
        match: str,
        cleaning: dict[str, Any] | bool | None,
        partition: Partition | None = None,
        recording: float = RECORDING,
        max_speed: float | None = None,
        tz: str | None = None,
        start: Any = None,
        attribute_share: float = 0.0,
    ) -> TripSetup:
        """Check what a user gave; the unit is one trip where none is given, the time zone UTC, and the cap on
        roads 130 km/h.
        """
        domain = as_domain(domain)
        if not isinstance(domain, SpatialDomain) or domain.kind == "h3":
            what = "a BoxDomain, PolygonDomain or RoadDomain (RoadDomain.from_graph makes one of a graph)"
            raise validate.refuse("domain", what, domain)
        if not isinstance(budget, PrivacyBudget):
            raise validate.refuse("budget", "a PrivacyBudget, such as PrivacyBudget(epsilon=2.0)", budget)
        unit = PrivacyUnit.trajectory() if unit is None else unit
        if unit.of != "trajectory":
            raise ConfigError(
                "trips are protected whole: use PrivacyUnit.trajectory() or "
                "PrivacyUnit.user(max_trajectories=...)"
            )
        if len(split) != 3:
            raise validate.refuse("split", "three shares (cells, transitions, pairs)", split)
        budget.split(split)
        calibration = validate.share(calibration, "calibration", zero=True)
        times = validate.share(times, "times", zero=True)
        recording = validate.share(recording, "recording", zero=True)
        if calibration + times + recording >= 1:
            raise ConfigError("calibration, times and recording must leave some ε for the trips")
        if max_speed is not None:
            max_speed = validate.positive(max_speed, "max_speed")
        elif domain.kind == "roads":
            max_speed = ROAD_CAP
        if partition is not None and not hierarchy_of(domain).measure(partition.prefix, partition.bits).any():
            raise ConfigError("the given partition holds nothing of the domain")
        if partition is not None and (partition.stop[:-1] > partition.start[1:]).any():
            raise ConfigError("the cells of the given partition overlap: a place may be in one of them only")
        setup = cls(
            domain, budget, unit, tuple(float(share) for share in split), calibration, times,
            validate.one_of(weights, "weights", ("uniform", "ends")),  # type: ignore[arg-type]
            validate.one_of(length, "length", ("killed", "median")),  # type: ignore[arg-type]
            partition, validate.whole(max_depth, "max_depth", low=1, high=MAX_BITS),
            validate.non_negative(theta, "theta"),
            validate.one_of(match, "match", ("hmm", "nearest")),  # type: ignore[arg-type]
            cleaning, recording, max_speed, Week.of(start, zone("UTC" if tz is None else tz)),
            validate.share(attribute_share, "attribute_share", zero=True),
        )  # fmt: skip
        for timed, ends_only in product((False, True), repeat=2):
            setup.shares(timed=timed, ends_only=ends_only).check()
        return setup

    @property
    def ground(self) -> Ground:
        """The domain as trips see it."""
        return ground_of(self.domain, self.bits)

    @property
    def per_trip(self) -> tuple[PrivacyBudget, PrivacyBudget | None]:
        """What one trip may spend: on itself, and on its attributes."""
        whole = self.budget / self.unit.max_contributions
        if not self.attribute_share:
            return whole, None
        trip, attributes = whole.split((1 - self.attribute_share, self.attribute_share))
        return trip, attributes

    def shares(self, *, timed: bool, ends_only: bool = False, structure: bool = True) -> Shares:
        """ε of each measurement, for one trip; ``structure=False`` where cells and blocks are known
        already, so that nothing is spent on them.
        """
        lengths, times = 0.0 if ends_only else self.calibration, self.times if timed else 0.0
        recording = 0.0 if ends_only else self.recording
        cells, transitions, pairs = self.split
        if ends_only:  # nothing is known of the ways: pairs take their share
            transitions, pairs = 0.0, transitions + pairs
        if self.partition is not None or not structure:
            cells = 0.0
        each = (1.0 - lengths - times - recording) / (cells + transitions + pairs)
        weights = {"cells": each * cells, "transitions": each * transitions, "pairs": each * pairs}
        weights |= {"lengths": lengths, "times": times, "recording": recording}
        return Shares.of(self.per_trip[0], weights, tree=structure)

    def clean(self, trips: Trips) -> Trips:
        """One plausible trip for each recorded one, or none."""
        if self.cleaning is False:
            return trips
        options = self.cleaning if isinstance(self.cleaning, dict) else {}
        return clean(trips, domain=self.domain, **options)

    def place(self, trips: Trips, *, ends_only: bool = False) -> PlacedTrips:
        """Match or locate trips, each by itself; departures are by the clocks of the time zone."""
        if not self.times:
            trips = replace(trips, time=None)
        placed = self.ground.place(trips, method="ends" if ends_only else self.match)
        if placed.departure is None:
            return placed
        return replace(placed, departure=local_seconds(placed.departure, self.week.tz))

    def fit(self, measured: Measured, rng: np.random.Generator, costs: Floats | None = None) -> TripModel:
        """A model whose trips agree with what was measured; ``costs`` of links, of an earlier model on the
        same cells, are where it starts. Post-processing.
        """
        return calibrate(TripModel.blank(self.ground, measured, self.length), measured, rng, costs)


__all__ = ["ATTRIBUTE_SHARE", "RECORDING", "TripSetup"]

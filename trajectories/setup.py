"""How trips are placed and measured: the public choices that a one-off fit and a stream share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.polygon import as_domain
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import MAX_BITS, hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.parameters import Settings, check_settings
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.unit import PrivacyUnit
from trajectories.calendar import Week, local_seconds, zone
from trajectories.fit.calibrate import calibrate
from trajectories.ground import Ground, ground_of
from trajectories.ground.base import PlacedTrips
from trajectories.matching.match import Method
from trajectories.measure.measured import MeasuredTrips, Shares
from trajectories.measure.pairs import Weights
from trajectories.model import Length, TripModel
from trajectories.reading.cleaning import clean
from trajectories.reading.points import Trips

ROAD_CAP = 130.0  # km/h


@dataclass(frozen=True, kw_only=True)
class TripSettings(Settings):
    """Settings of ``TrajectorySynthesizer`` and ``TrajectoryStream``.

    Attributes
    ----------
    split
        Shares of cells, transitions and pairs in what the next three leave.
    calibration
        Share of ε for the table of lengths and diameters. 0 leaves it out.
    times
        Share of ε for departure hours, paces, and where trips start and end at which time, spent only if the
        data have times. 0 leaves them out.
    recording
        Share of ε for the gaps between points and how much speeds vary within trips. 0 leaves it out.
    attribute_share
        Share of ε for the table of attributes, where there are attributes.
    borrow
        Combine the counts of a batch with what earlier releases let expect (``TrajectoryStream``;
        ``trajectories.over_time.borrowing``). ``"auto"``: where there is a lifetime.
    max_speed
        Public cap in km/h that no synthetic trip exceeds anywhere. None: 130 on roads; elsewhere what the
        fastest released pace lets expect.
    start
        First day of the week that synthetic trips are dated in, such as ``"2026-05-04"``. None: a week of
        2024.
    weights
        How a trip shares its weight over its crossings: ``"uniform"``, or more to its ``"ends"``.
    length
        ``"killed"``: walks of free length, each metre costs. ``"median"``: walks of a fixed number of
        steps, exponential with the length of the most probable path as its median: the length law of Kumar's
        Algorithm 20. The whole of that method is ``trajectories.baselines.PaperTrips``.
    partition
        Public cells to use instead of private ones (``TrajectorySynthesizer``); the share of cells then goes
        to the others.
    max_depth
        Deepest level of PrivTree.
    theta
        PrivTree's threshold: nodes with scores above it are split.
    match
        How points are matched to roads: ``"hmm"`` or ``"nearest"``.
    cleaning
        Keyword arguments for ``trajectories.reading.cleaning.clean``. None: its defaults. False: nothing is
        cleaned.
    """

    split: tuple[float, ...] = (0.09, 0.35, 0.56)
    calibration: float = 0.06
    times: float = 0.18
    recording: float = 0.02
    attribute_share: float = 0.25
    borrow: bool | str = "auto"
    max_speed: float | None = None
    start: str | None = None
    weights: Weights = "uniform"
    length: Length = "killed"
    partition: Partition | None = None
    max_depth: int = 20
    theta: float = 0.0
    match: Method = "hmm"
    cleaning: dict[str, Any] | bool | None = None

    def __post_init__(self) -> None:
        if len(self.split) != 3:
            raise validate.refuse("split", "three shares (cells, transitions, pairs)", self.split)
        PrivacyBudget(1.0).split(self.split)
        for name in ("calibration", "times", "recording", "attribute_share"):
            self._check(**{name: validate.share(getattr(self, name), name, zero=True)})
        if self.calibration + self.times + self.recording >= 1:
            raise ConfigError("calibration, times and recording must leave some ε for the trips")
        if self.borrow != "auto":
            validate.flag(self.borrow, "borrow")
        if self.partition is not None and (self.partition.stop[:-1] > self.partition.start[1:]).any():
            raise ConfigError("the cells of the given partition overlap: a place may be in one of them only")
        start, speed = self.start, self.max_speed
        self._check(
            split=tuple(float(share) for share in self.split),
            start=None if start is None else str(Week.of(start, "UTC").first.date()),
            max_speed=None if speed is None else validate.positive(speed, "max_speed"),
            weights=validate.one_of(self.weights, "weights", ("uniform", "ends")),
            length=validate.one_of(self.length, "length", ("killed", "median")),
            max_depth=validate.whole(self.max_depth, "max_depth", low=1, high=MAX_BITS),
            theta=validate.non_negative(self.theta, "theta"),
            match=validate.one_of(self.match, "match", ("hmm", "nearest")),
        )


@dataclass(frozen=True, eq=False)
class TripSetup:
    """What ``TrajectorySynthesizer`` and ``TrajectoryStream`` were made with, checked. Nothing in it comes
    from private data.
    """

    domain: SpatialDomain
    budget: PrivacyBudget
    unit: PrivacyUnit
    settings: TripSettings
    max_speed: float | None
    week: Week
    attribute_share: float  # of ε, for what else is recorded of each trip; 0 without attributes

    @classmethod
    def of(
        cls,
        *,
        domain: Any,
        budget: Any,
        unit: PrivacyUnit | None = None,
        settings: TripSettings | None = None,
        tz: str | None = None,
        attributes: bool = False,
    ) -> TripSetup:
        """Check what a user gave; the unit is one trip where none is given, the time zone UTC, and the cap on
        roads 130 km/h.
        """
        settings = check_settings(settings, TripSettings)
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
        partition = settings.partition
        if partition is not None and not hierarchy_of(domain).measure(partition.prefix, partition.bits).any():
            raise ConfigError("the given partition holds nothing of the domain")
        setup = cls(
            domain, budget, unit, settings,
            settings.max_speed or (ROAD_CAP if domain.kind == "roads" else None),
            Week.of(settings.start, zone("UTC" if tz is None else tz)),
            settings.attribute_share if attributes else 0.0,
        )  # fmt: skip
        for timed, ends_only in product((False, True), repeat=2):
            setup.shares(timed=timed, ends_only=ends_only).check()
        return setup

    @property
    def ground(self) -> Ground:
        """The domain as trips see it."""
        return ground_of(self.domain, self.settings.max_depth)

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
        settings = self.settings
        lengths, times = 0.0 if ends_only else settings.calibration, settings.times if timed else 0.0
        recording = 0.0 if ends_only else settings.recording
        cells, transitions, pairs = settings.split
        if ends_only:  # nothing is known of the ways: pairs take their share
            transitions, pairs = 0.0, transitions + pairs
        if settings.partition is not None or not structure:
            cells = 0.0
        each = (1.0 - lengths - times - recording) / (cells + transitions + pairs)
        weights = {"cells": each * cells, "transitions": each * transitions, "pairs": each * pairs}
        weights |= {"lengths": lengths, "times": times, "recording": recording}
        return Shares.of(self.per_trip[0], weights, tree=structure)

    def clean(self, trips: Trips) -> Trips:
        """One plausible trip for each recorded one, or none."""
        cleaning = self.settings.cleaning
        if cleaning is False:
            return trips
        options = cleaning if isinstance(cleaning, dict) else {}
        return clean(trips, domain=self.domain, **options)

    def place(self, trips: Trips, *, ends_only: bool = False) -> PlacedTrips:
        """Match or locate trips, each by itself; departures are by the clocks of the time zone."""
        if not self.settings.times:
            trips = replace(trips, time=None)
        placed = self.ground.place(trips, method="ends" if ends_only else self.settings.match)
        if placed.departure is None:
            return placed
        return replace(placed, departure=local_seconds(placed.departure, self.week.tz))

    def fit(
        self, measured: MeasuredTrips, rng: np.random.Generator, costs: Floats | None = None
    ) -> TripModel:
        """A model whose trips agree with what was measured; ``costs`` of links, of an earlier model on the
        same cells, are where it starts. Post-processing.
        """
        return calibrate(TripModel.blank(self.ground, measured, self.settings.length), measured, rng, costs)


__all__ = ["TripSettings", "TripSetup"]

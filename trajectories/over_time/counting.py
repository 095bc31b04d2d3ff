"""Counting trips over time: each batch once, with all of ε, on cells that earlier releases chose.

The first batch is measured like a one-off fit: it finds cells, parts of busy cells and blocks of pairs, and
pays for them. From then on this structure is known, nothing is spent on it, and every batch has all of its ε
for counts. When the released total has left the structure behind (doubled, or halved), a new one is found by
measuring *synthetic* trips of the last release as if they were real: post-processing, at no cost. What older
batches counted is then carried over to the new structure by the same synthetic trips.

A stream that borrows does so as soon as its crossings stand out of their noise, and cuts its cells finer than
a batch alone could: what one batch cannot tell from noise, several together can.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from streams.mechanism import Arrays, part_of, prefixed
from synthgeo.arrays import Bools, Floats
from synthgeo.privacy.noise import Noise, laplace_variance
from synthgeo.schema import Schema
from trajectories.attributes import MOST_TABLES, AttributeModel, TripRows, measure_attributes
from trajectories.drawing import Drawing
from trajectories.fit.calibrate import SHUT
from trajectories.ground.base import PlacedTrips
from trajectories.measure.measured import MeasuredTrips, Shares, measure
from trajectories.model import TripModel
from trajectories.over_time.borrowing import borrow, total_of
from trajectories.parts.records import RecordParts
from trajectories.reading.points import Trips
from trajectories.setup import TripSetup
from trajectories.walks.sampler import TripSampler

_OUTGROWN = 2.0  # how far the released total may move before a new structure is looked for
_FEW = 100.0  # trips: below that a total says nothing of a structure
_IMAGINED = 4000  # synthetic trips that find a new structure
# Where batches borrow from each other, times less noise in the choice of cells: the most with which crossings
# stand out of their noise. Pairs stay as they are: there are too many to be told apart.
_FINER = (8.0, 4.0, 2.0, 1.0)
_TOLD = 2.0  # mean square of crossings, in variances of their noise
_OPEN = 2.0  # deviations of the noise left in a link's traffic: above, it is not shut
_EXACT = 1e6  # ε at which synthetic trips are counted: no noise to speak of


@dataclass(frozen=True, eq=False)
class CountedTrips:
    """The admitted trips of one batch: placed, and where attributes are measured the rows that hold them
    (``trajectories.attributes.measure_attributes``). Private.
    """

    placed: PlacedTrips
    rows: TripRows | RecordParts | None = None
    crs: str | None = None  # of the data, where their columns are longitude and latitude: public


@dataclass(frozen=True, eq=False)
class TripSnapshot:
    """What a step has released: a model of trips, and perhaps one of their attributes."""

    model: TripModel
    attributes: AttributeModel | None = None
    crs: str | None = None


@dataclass(frozen=True, eq=False)
class TripBatch:
    """What was released of one batch, or of several together.

    ``estimate`` holds counts after borrowing, with the variance that is left; ``variances`` are those of
    the counts as they were measured. After borrowing, errors of successive batches go together: each noise
    is spread over several batches, and their sum has the noise of the sum of what was measured.
    """

    estimate: MeasuredTrips
    variances: dict[str, float]


class TripCounting:
    """Measures each batch of trips once and keeps the released counts of the batches that still live.

    Guarantee
    ---------
    Unit: one trip. Pure ε-differential privacy under add/remove neighbours over all releases together, where
    ε is what one trip may spend.

    A trip is admitted to one batch (``TripBounder``), and a batch is measured once (``advance``): its counts
    get their noise then, and whatever is released later, at this step or any other, is computed from noisy
    counts. So two streams that differ in one trip differ in the input of one call of ``measure`` alone. What
    that call gets besides its batch (cells, parts, blocks) was computed from what earlier batches released,
    which is adaptive composition; over the *other* batches the two streams agree, so nothing adds up: the
    trip pays for the measurements of its own batch, Σ ε_i = ε (``trajectories.measure.measured``), where one
    of the ε_i pays for the table of attributes, if there is one: a table of each batch's own, on zones that
    the first batch released. At the first step some of ε pays for the structure, later all of it for counts.
    Estimates, borrowing, lifetimes, mixtures of tables and new structures are post-processing.
    """

    name: ClassVar[str] = "TrajectoryStream"
    is_private: ClassVar[bool] = True

    def __init__(
        self,
        setup: TripSetup,
        *,
        lifetime: int | None,
        borrow: bool,
        timed: bool,
        noise: Noise,
        attributes: Schema | None = None,
    ) -> None:
        self.setup, self.lifetime, self.borrow, self.timed = setup, lifetime, borrow, timed
        self.schema = attributes
        self.noise = noise
        self.shares = {first: setup.shares(timed=timed, structure=first) for first in (True, False)}
        for shares in (*self.shares.values(), scaled(self.shares[True], _FEW / _IMAGINED)):
            shares.check()
        self.batches: tuple[TripBatch, ...] = ()  # those that live, or all in one; released
        self.latest: MeasuredTrips | None = (
            None  # the estimate of the last batch, for the next to borrow from
        )
        self.left: dict[str, Floats] = {}  # of the last batch's counts, what its estimate does not follow
        self.built_for = 0.0  # the released total when the structure was found
        self.coarse = False  # whether the structure is that of one batch alone
        self.totals: tuple[tuple[float, float], ...] = ()  # of the last two batches, with their variance
        self.model: TripModel | None = None
        self.attributes: AttributeModel | None = None
        self.crs: str | None = None  # of files
        self._paid = (0.0, 0.0)

    def advance(self, counts: CountedTrips, *, step: int, structure: bool) -> None:  # noqa: ARG002
        followed = self._outgrown() or self._too_coarse()
        if followed:
            self._follow()
        shares = self.shares[structure]
        fresh = measure(
            counts.placed, self.setup.ground, shares, noise=self.noise, theta=self.setup.settings.theta,
            weights=self.setup.settings.weights, like=None if structure else self.latest,
        )  # fmt: skip
        noise = {name: variance for name, (_, variance) in fresh.counts().items()}
        self.totals = (*self.totals, fresh.total)[-2:]
        costs_before = None  # of links: where the fit starts
        if structure:
            self.built_for, self.coarse, self.left = total_of(fresh), True, {}
        elif self.borrow and self.latest is not None:
            graph = self.setup.ground.graph(fresh.partition)
            fresh, self.left, shut = borrow(fresh, self.latest, self.left, graph)
            if self.model is not None and not followed:
                costs_before = link_costs(self.model.link_cost, fresh, shut)
        self.latest = fresh
        if self.lifetime is None:
            self.batches = (together((*self.batches, TripBatch(fresh, noise))),)
        else:
            self.batches = (*self.batches, TripBatch(fresh, noise))[-self.lifetime :]
        self._measure_attributes(counts, fresh)
        self.crs = counts.crs
        self.model = self.setup.fit(together(self.batches).estimate, self.noise.rng, costs_before)
        self._paid = costs(shares, self.setup)

    @property
    def collapsed(self) -> bool:
        """Whether the last batch had under a tenth of the trips of the one before, by more than noise."""
        if len(self.totals) < 2:
            return False
        (then, spread), (now, own) = self.totals
        return now < then / 10 and then - now > 6 * float(np.sqrt(spread + own))

    def _measure_attributes(self, counts: CountedTrips, measured: MeasuredTrips) -> None:
        """A table of this batch's attributes, beside those of the batches that still live."""
        share = self.setup.per_trip[1]
        if self.schema is None or share is None or counts.rows is None:
            return
        before = self.attributes
        fresh = measure_attributes(
            self.schema, counts.rows, self.setup.ground, measured, tz=self.setup.week.tz,
            epsilon=share.epsilon, noise=self.noise, borders=None if before is None else before.borders,
        )  # fmt: skip
        joined = fresh if before is None else before.joined(fresh, self.lifetime)
        too_many = self.lifetime is None and len(joined.tables) > MOST_TABLES
        self.attributes = joined.folded(self.noise) if too_many else joined

    def _outgrown(self) -> bool:
        """Whether the last batch was too large or too small for the structure that it was counted on."""
        if self.latest is None:
            return False
        now, then = (max(total, _FEW) for total in (total_of(self.latest), self.built_for))
        return not then / _OUTGROWN <= now <= then * _OUTGROWN

    def _too_coarse(self) -> bool:
        """Whether batches that borrow from each other can tell more than the structure of one batch does:
        where its crossings stand out of their noise.
        """
        return (
            self.borrow
            and self.coarse
            and self.latest is not None
            and self.latest.signal.get("links", 0.0) > 1
        )

    def _follow(self) -> None:
        """A structure for batches like the last, found and filled by synthetic trips of the last release."""
        assert self.latest is not None
        assert self.model is not None
        trips = self._imagined()
        if trips.size == 0:
            return
        total, ground, setup = max(total_of(self.latest), _FEW), self.setup.ground, self.setup
        weight = total / trips.size  # trips that each synthetic one stands for
        placed = setup.place(trips)
        options: dict[str, Any] = {"noise": self.noise, "weights": setup.settings.weights}
        # PrivTree asks for counts against noise: as many times fewer trips, as many times less noise.
        shares = scaled(self.shares[True], weight)
        exact = scaled(self.shares[False], _EXACT / self.shares[False].transitions)
        for finer in _FINER if self.borrow else _FINER[-1:]:
            in_cells = replace(shares, cells=shares.cells * finer)
            found = measure(placed, ground, in_cells, theta=setup.settings.theta, **options)
            shape = measure(placed, ground, exact, like=found, **options)
            if self._tells(shape, weight):
                break
        self.batches = tuple(
            TripBatch(carried(batch.estimate, shape, trips.size), batch.variances) for batch in self.batches
        )
        self.latest = carried(self.latest, shape, trips.size)
        self.built_for, self.coarse, self.left = total, False, {}

    def _tells(self, shape: MeasuredTrips, weight: float) -> bool:
        """Whether crossings would stand out of their noise, if trips went like synthetic ones that each stand
        for so many.
        """
        if shape.crossings is None:
            return True
        variance = laplace_variance(1 / self.shares[False].transitions)
        return float(np.mean((weight * shape.crossings) ** 2)) > _TOLD * variance

    def _imagined(self) -> Trips:
        """Synthetic trips of the last release, as if they had been recorded."""
        assert self.model is not None
        release = Drawing(_IMAGINED).draw(TripSampler(self.model), self.noise.rng, spent=None, statement={})
        time = None
        if self.timed:
            column = release.data["time"].dt.tz_convert(None).astype("datetime64[us]").astype(np.int64)
            time = column.to_numpy() / 1e6
        return Trips(release.xy, release.start, time)

    def paid(self) -> tuple[float, float]:
        return self._paid

    def snapshot(self) -> TripSnapshot:
        assert self.model is not None
        return TripSnapshot(self.model, self.attributes, self.crs)

    def facts(self) -> dict[str, Any]:
        shares = self.shares[self.built_for == 0.0 or self._paid[0] > 0]
        share = self.setup.per_trip[1]
        more = {} if share is None else {"attributes": share.epsilon}
        return {
            "shares": shares.as_dict() | more,
            "weights": self.setup.settings.weights, "length": self.setup.settings.length,
            "borrow": self.borrow, "deviations": self._deviations(),
            "batches": "disjoint in trips: each trip is measured once, in its own",
        }  # fmt: skip

    def _deviations(self) -> dict[str, float]:
        """Of the noise in what the last release was made from: of all batches that live, after borrowing."""
        counts = {} if self.model is None or self.model.measured is None else self.model.measured.counts()
        return {name: float(np.sqrt(variance)) for name, (_, variance) in counts.items()}

    def settings(self) -> dict[str, Any]:
        return {
            "borrow": self.borrow, "max_speed": self.setup.max_speed, "tz": self.setup.week.tz,
            "start": str(self.setup.week.first.date()),
            "attributes": None if self.schema is None else self.schema.to_json(),
            "attribute_share": self.setup.attribute_share,
        }  # fmt: skip

    def copy(self) -> Self:
        return copy(self)  # its values are replaced, never changed

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        values: dict[str, Any] = {
            "variances": [batch.variances for batch in self.batches],
            "built_for": self.built_for,
            "coarse": self.coarse,
            "paid": list(self._paid),
            "crs": self.crs,
            "totals": [list(total) for total in self.totals],
            "model": None,
        }
        arrays: Arrays = {}
        if self.model is not None and self.latest is not None:
            values["model"], model_arrays = self.model.to_state()
            arrays = {name: array for name, array in model_arrays.items() if not name.startswith("domain/")}
            values["model"].pop("domain")
            arrays = prefixed("model", arrays) | prefixed("latest", self.latest.arrays())
            arrays |= prefixed("left", self.left)
            for number, batch in enumerate(self.batches):
                arrays |= prefixed(f"batch{number}", batch.estimate.arrays())
        if self.attributes is not None:
            values["attribute model"], own = self.attributes.to_state()
            arrays |= prefixed("attributes", own)
        return values, arrays

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.built_for, self._paid = float(values["built_for"]), tuple(map(float, values["paid"]))  # type: ignore[assignment]
        self.crs, self.coarse = values["crs"], bool(values["coarse"])
        self.totals = tuple((float(total), float(spread)) for total, spread in values["totals"])
        if values["model"] is None:
            return
        domain_values, domain_arrays = self.setup.domain.to_state()
        self.model = TripModel.from_state(
            {**values["model"], "domain": domain_values},
            part_of("model", arrays) | prefixed("domain", domain_arrays),
        )
        self.latest = MeasuredTrips.from_arrays(part_of("latest", arrays), self.setup.settings.weights)
        self.left = part_of("left", arrays)
        self.batches = tuple(
            TripBatch(
                MeasuredTrips.from_arrays(part_of(f"batch{number}", arrays), self.setup.settings.weights),
                dict(noise),
            )
            for number, noise in enumerate(values["variances"])
        )
        if "attribute model" in values:
            own = part_of("attributes", arrays)
            self.attributes = AttributeModel.from_state(values["attribute model"], own, self.noise)


def link_costs(before: Floats, estimate: MeasuredTrips, shut: Bools) -> Floats:
    """Where the fit of a batch starts: at the costs of the release before, with links that have closed shut
    and those open again on which traffic stands out of the noise that is left.
    """
    if estimate.crossings is None:
        return before
    again = estimate.crossings > _OPEN * np.sqrt(estimate.crossing_variance)
    return np.where(shut, SHUT, np.where((before >= SHUT) & again, 0.0, before))


def together(batches: tuple[TripBatch, ...]) -> TripBatch:
    """Several batches on one structure, added up."""
    if len(batches) == 1:
        return batches[0]
    each = [batch.estimate.counts() for batch in batches]
    noise = {name: sum(batch.variances[name] for batch in batches) for name in each[0]}
    counts = {name: (np.sum([one[name][0] for one in each], axis=0), noise[name]) for name in each[0]}
    return TripBatch(batches[-1].estimate.with_counts(counts), noise)


def carried(batch: MeasuredTrips, shape: MeasuredTrips, trips: int) -> MeasuredTrips:
    """A batch on another structure: its total, spread like the ``shape`` of so many synthetic trips."""
    weight = total_of(batch) / max(trips, 1)
    old = batch.counts()
    counts: Mapping[str, Any] = {
        name: (values * weight, old[name][1]) for name, (values, _) in shape.counts().items()
    }
    return shape.with_counts(counts)


def scaled(shares: Shares, factor: float) -> Shares:
    """Shares of ε for trips that each stand for so many. For synthetic trips, which pay nothing."""
    more: dict[str, Any] = {name: epsilon * factor for name, epsilon in shares.as_dict().items()}
    return replace(shares, **more)


def costs(shares: Shares, setup: TripSetup) -> tuple[float, float]:
    """What a trip pays for structure (cells, tree of pairs), and for counts, those of its attributes too."""
    structure, share = shares.cells + shares.pair_tree, setup.per_trip[1]
    return structure, sum(shares.as_dict().values()) - structure + (0.0 if share is None else share.epsilon)


def structure_share(setup: TripSetup, *, timed: bool) -> float:
    """The share of the structure in what a trip of the first batch pays."""
    structure, counts = costs(setup.shares(timed=timed), setup)
    return structure / (structure + counts)


__all__ = [
    "CountedTrips",
    "TripBatch",
    "TripCounting",
    "TripSnapshot",
    "carried",
    "costs",
    "link_costs",
    "scaled",
    "structure_share",
    "together",
]

"""TrajectorySynthesizer: private trips in, synthetic trips out."""

from __future__ import annotations

import math
import os
import secrets
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from streams.mechanism import part_of
from synthgeo import codec, validate
from synthgeo.arrays import Keys
from synthgeo.domain.box import SpatialDomain
from synthgeo.errors import BudgetExhausted, ConfigError, StateError
from synthgeo.hierarchy.cells import Partition
from synthgeo.parameters import Parameters, check_settings
from synthgeo.preflight import CheckReport
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.ledger import settle
from synthgeo.privacy.noise import Noise, SystemNoise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.progress import track
from synthgeo.release import arrow_table, provenance
from synthgeo.schema import Schema
from synthgeo.sources import Source, open_source
from synthgeo.sources.chunk import Chunk
from synthgeo.sources.declared import Reading, check_reading
from synthgeo.state import MALFORMED, load_state, save_state
from trajectories.attributes import AttributeModel, TripRows, check_attributes, measure_attributes
from trajectories.drawing import Drawing
from trajectories.formats import legs_of
from trajectories.ground.base import PlacedTrips
from trajectories.measure.measured import WEAK, MeasuredTrips, Shares, measure
from trajectories.model import TripModel
from trajectories.parts.columns import total
from trajectories.parts.opening import check_workers, rows_in_parts
from trajectories.parts.placing import placed_in_parts
from trajectories.parts.records import RecordParts
from trajectories.reading.checking import check_trips, warn_of_unused
from trajectories.reading.points import (
    EndColumns,
    PointColumns,
    TripColumns,
    Trips,
    bounded,
    fingerprint_of,
    instants,
)
from trajectories.release import TrajectoryRelease
from trajectories.setup import TripSettings, TripSetup
from trajectories.walks.sampler import TripSampler

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd

    from synthgeo.privacy.ledger import Ledger, Reservation

_KIND = "TrajectorySynthesizer"
_VERSION = 8
_BATCH = 20_000
_KINDS = {"pairs": "origin-destination pairs", "by_cell": "ends", "links": "crossings between cells"}


class TrajectorySynthesizer(Parameters):
    """Synthetic trips that start, end, go and take as long as private ones do.

    Trips are cleaned, matched to the roads (or located on a plane), and measured: where they are (PrivTree
    cells), how they cross from cell to cell, where they start and end (a second time more closely where many
    do, and in pairs), how long they are. From then on only these released numbers and public roads are used:
    conditional walks on the road graph, with costs that make them cross cells as the measurements say, and a
    choice among many of them that makes lengths and crossings agree with what was measured.

    Parameters
    ----------
    domain
        ``RoadDomain``, ``BoxDomain`` or ``PolygonDomain``. Coordinates without a CRS are taken for metres; a
        domain of at most 100 across counts as 10 km.
    budget
        ε is spent whole by ``fit``. The guarantee is pure, and a budget with δ is refused: all of a user's
        trips may fall into one cell of every table, so that Gaussian noise, which δ would allow, would be
        larger than Laplace noise for the few tables that are measured.
    unit
        ``PrivacyUnit.trajectory()``, or ``PrivacyUnit.user(max_trajectories=m)``: then at most m trips of a
        user are kept and everything runs at ε / m.
    attributes
        What else the rows say of each trip (fare, vehicle, purpose): a ``Schema`` of columns, measured
        together with where, when and how far the trip goes. A trip has the values of its first row. They
        become columns of ``release.trips``, and ``sample(given=...)`` fixes them.
    tz
        Time zone whose clocks say what hour it is: hours are measured by it, synthetic times are in it, and
        clock times in the data without a zone are read as its. None: that of ``reading``, else UTC.
    workers
        Processes that read, match and count files of trips that need not fit in memory. None: one for each
        core where the files have more than about two million points, else this process alone. Whatever their
        number, the result is the same. A dask DataFrame is worked on by its cluster.
    reading
        How text is read (``Reading``).
    settings
        All other choices (``TripSettings``).
    noise
        ``SystemNoise()`` unless given; ``SeededNoise(seed)`` for tests.
    ledger
        A ``Ledger`` to charge, where one data set has several products.

    Guarantee
    ---------
    Pure ε-differential privacy for the unit, under adding or removing one. Reading, cleaning and matching
    map one trip to at most one trip (sensitivity 1). The measurements (``trajectories.measure``) are ε1
    (``cells``), ε2 (``transitions``), ε3 (``ends``, ``pairs``), ε4 (``lengths``), ε5 (``times``, ``zones``)
    and ε6 (``recording``) differentially private, and the table of attributes ε7, each whatever the earlier
    ones released, so together at most ε1 + ... + ε7 = ε by adaptive composition. All else is post-processing
    of what they released. For users, removing one changes at most m trips: m times ε / m.

    >>> import numpy as np, synthgeo as sg
    >>> rng = np.random.default_rng(0)
    >>> steps = {"trip_id": np.repeat(np.arange(200), 5), "x": rng.random(1000), "y": rng.random(1000)}
    >>> model = sg.TrajectorySynthesizer(
    ...     domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1)
    ... )
    >>> trips = model.fit(steps).sample(10)
    >>> trips.total, trips.releasable
    (10, False)
    """

    parts: ClassVar[dict[str, type]] = {"settings": TripSettings}
    takes = tuple(field.name for field in fields(TripSettings) if field.name != "borrow")
    _takes_parts = True  # whether trips may lie in parts
    _counts: tuple[str, ...] = ("pairs", "by_cell", "links")  # that noise may drown

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        attributes: Schema | None = None,
        tz: str | None = None,
        workers: int | None = None,
        reading: Reading | None = None,
        settings: TripSettings | None = None,
        noise: Noise | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.workers = check_workers(workers)
        self.reading = check_reading(reading)
        self.settings = check_settings(settings, TripSettings).only("TrajectorySynthesizer", self.takes)
        self._setup = TripSetup.of(
            domain=domain, budget=budget, unit=unit, settings=self.settings,
            tz=self.reading.tz if tz is None else tz, attributes=attributes is not None,
        )  # fmt: skip
        if attributes is not None:
            check_attributes(validate.instance(attributes, "attributes", Schema), self._setup.per_trip[1])
        self.attributes = attributes
        self.domain, self.budget, self.unit = self._setup.domain, self._setup.budget, self._setup.unit
        self.unit.over_all_time()
        if self.budget.delta:
            raise ConfigError(
                "trips are measured under pure differential privacy: give delta=0. All of a user's trips may "
                "fall into one cell, and then δ would not lower the noise (docs/guarantees.md, Trajectories)"
            )
        self.noise = SystemNoise() if noise is None else noise
        if not isinstance(self.noise, Noise):
            raise validate.refuse("noise", "a SystemNoise or SeededNoise", noise)
        self.ledger = ledger
        self._model: TripModel | None = None
        self._attribute_model: AttributeModel | None = None
        self._statement: dict[str, Any] = {}
        self._sampler: TripSampler | None = None
        self._crs: str | None = None  # of the data, where they came as longitude and latitude
        self._charge: str | None = None  # the key under which the ledger was charged

    def fit(
        self,
        data: Any,
        *,
        trip: str = "trip_id",
        time: str | bool | None = None,
        x: str | None = None,
        y: str | None = None,
        crs: Any = None,
        origin: tuple[str, str] | None = None,
        destination: tuple[str, str] | None = None,
        departure: str | None = None,
        arrival: str | None = None,
    ) -> Self:
        """Read the private trips, spend the budget, keep the released model.

        Points: columns ``trip``, coordinates and, if there are times, ``time``. Trips known by their two
        ends: give ``origin`` and ``destination`` (two columns each) and, if known, ``departure`` and
        ``arrival``; ways between are not measured then, and their share goes to cells and pairs. A second
        call is refused: it would spend again.
        """
        if self._model is not None:
            raise BudgetExhausted("this synthesizer has spent its budget; a new one would spend a new budget")
        if (origin is None) != (destination is None):
            raise ConfigError("give both origin and destination, or neither")
        source = open_source(data, reading=instants(self._clocks))
        columns: TripColumns
        if origin is not None and destination is not None:
            columns = EndColumns.of(
                source, self.domain, unit=self.unit, origin=origin, destination=destination,
                departure=departure, arrival=arrival, crs=crs, attributes=self.attributes,
            )  # fmt: skip
            warn_of_unused(source, [*columns.kinds, departure, arrival, trip], self.unit)
            timed, ends_only = columns.times is not None, True
        else:
            columns = PointColumns.of(
                source, self.domain, unit=self.unit, trip=trip, time=time, x=x, y=y, crs=crs,
                attributes=self.attributes,
            )  # fmt: skip
            self._crs, timed, ends_only = columns.degrees, columns.time is not None, False
            warn_of_unused(source, columns.kinds, self.unit, timeless=time is None and not timed)
        rows = rows_in_parts(source, columns, self.workers) if self._takes_parts else None
        if rows is not None:
            placed, parts, identity = placed_in_parts(rows, self._setup, self.unit, ends_only=ends_only)
            records = None if self.attributes is None else RecordParts(parts, self.attributes)
            content = fingerprint_of(identity, timed=timed)
            return self._fit_placed(placed, content, timed=timed, ends_only=ends_only, rows=records)
        recorded = columns.read(source)
        trips = recorded.bounded(self.unit)
        assert recorded.rows is not None
        return self._fit(trips, ends_only=ends_only, read=(source, recorded.rows))

    def check(
        self,
        data: Any,
        *,
        trip: str = "trip_id",
        time: str | bool | None = None,
        x: str | None = None,
        y: str | None = None,
        crs: Any = None,
        origin: tuple[str, str] | None = None,
        destination: tuple[str, str] | None = None,
        departure: str | None = None,
        arrival: str | None = None,
    ) -> CheckReport:
        """Everything in ``data`` that does not fit, at once; takes what ``fit`` takes, and spends nothing.

        Of points that make whole trips it has ``figures`` (points off the network, trips cut, gaps, speeds)
        and ``plot()``. The report is for the curator only.
        """
        if (origin is None) != (destination is None):
            raise ConfigError("give both origin and destination, or neither")
        ends = () if origin is None or destination is None else (origin, destination)
        moments = tuple(column for column in (departure, arrival) if column is not None)
        return check_trips(
            data, self.domain, unit=self.unit, trip=trip, time=time, x=x, y=y, crs=crs, ends=ends,
            moments=moments, reading=instants(self._clocks), clean=self._setup.clean,
            attributes=self.attributes,
        )  # fmt: skip

    def transition_noise(self) -> float:
        """Standard deviation of the noise in the crossings from one cell to the next, for trips given by
        points with times: known before any trip is read.
        """
        return math.sqrt(laplace_variance(1 / self._setup.shares(timed=True).transitions))

    def fit_trips(self, trips: Trips, *, ends_only: bool = False) -> Self:
        """Fit trips that are arrays already. Where users are protected, ``trips.user`` says whose each is,
        and of each user at most as many are kept as the unit says.
        """
        if self._model is not None:
            raise BudgetExhausted("this synthesizer has spent its budget; a new one would spend a new budget")
        if self.attributes is not None:
            raise ConfigError("attributes are columns of rows: use fit")
        if self.unit.is_user:
            trips = bounded(trips, self.unit)
        return self._fit(trips, ends_only=ends_only, read=None)

    def _fit(self, trips: Trips, *, ends_only: bool, read: tuple[Source, Chunk] | None) -> Self:
        """Fit admitted trips; ``read`` are the rows that hold their attributes."""
        if trips.size == 0:
            self.reading.remark("there are no trips to fit")
        if not ends_only:
            trips = self._setup.clean(trips)
        placed = self._setup.place(trips, ends_only=ends_only)
        rows = None if read is None else TripRows(*read, trips)
        timed, content = trips.time is not None, trips.fingerprint()
        return self._fit_placed(placed, content, timed=timed, ends_only=ends_only, rows=rows)

    def _fit_placed(
        self,
        placed: PlacedTrips,
        content: str,
        *,
        timed: bool,
        ends_only: bool = False,
        rows: TripRows | RecordParts | None = None,
    ) -> Self:
        """Fit trips that are on the ground, in memory or in parts."""
        setup = self._setup
        shares = setup.shares(timed=timed, ends_only=ends_only)
        self._check_placed(placed)
        reservation = self._reserve(content)
        model = self._model_of(placed, shares)
        spent_on, for_attributes = shares.as_dict(), setup.per_trip[1]
        attributes = None
        if self.attributes is not None and for_attributes is not None and rows is not None:
            assert model.measured is not None
            attributes = measure_attributes(
                self.attributes, rows, setup.ground, model.measured, tz=self.tz,
                epsilon=for_attributes.epsilon, noise=self.noise,
            )  # fmt: skip
            spent_on["attributes"] = for_attributes.epsilon
        statement = provenance(
            mechanism=type(self).__name__, unit=self.unit, budget=self.budget, noise=self.noise,
            domain=self.domain.describe(), shares=spent_on, weights=setup.settings.weights,
            length=setup.settings.length, cells=model.partition.size,
            given_cells=setup.settings.partition is not None,
            ends_only=ends_only, tz=self.tz,
            pair_deviation=None if model.measured is None else math.sqrt(model.measured.pair_variance),
        )  # fmt: skip
        found = {"_attribute_model": attributes, "_statement": statement, "_model": model}
        settle(self.ledger, reservation, self, "__dict__", {**self.__dict__, **found})
        warn_of_noise(model.measured, self._counts)  # it tells of what was measured, and may be made an error
        return self

    @property
    def tz(self) -> str:
        """The time zone of hours and times."""
        return self._setup.week.tz

    @property
    def max_speed(self) -> float | None:
        """The cap in km/h."""
        return self._setup.max_speed

    @property
    def _clocks(self) -> Reading:
        """Clock times without a zone are those of the synthesizer's."""
        return self.reading if self.reading.tz is not None else self.reading.but(tz=self.tz)

    def _model_of(self, placed: PlacedTrips, shares: Shares) -> TripModel:
        """Measure the trips, with all the noise there is, and fit a model to what was measured."""
        setup = self._setup
        measured = measure(
            placed, setup.ground, shares, noise=self.noise, partition=setup.settings.partition,
            theta=setup.settings.theta, weights=setup.settings.weights,
        )  # fmt: skip
        return setup.fit(measured, self.noise.rng)

    def _check_placed(self, placed: PlacedTrips) -> None:
        """Refuse data of which nothing lies in the domain: a wrong CRS or domain, and no reason to spend."""
        if not total(_in_cells, placed.keys, self.settings.partition, self.settings.max_depth):
            self.reading.remark(f"no trip lies in {self.domain!r}: are the coordinates in its CRS?")

    def _reserve(self, content: str) -> Reservation | None:
        """Charge the ledger before any noise is drawn, or take over the charge of a fit that was stopped."""
        self._charge = self._charge or secrets.token_hex(16)
        if self.ledger is None:
            return None
        return self.ledger.reserve(
            type(self).__name__, self.budget, self.unit, key=self._charge, content_hash=content
        )

    @property
    def model(self) -> TripModel:
        """The released model."""
        if self._model is None:
            raise ConfigError("fit the synthesizer first")
        return self._model

    @property
    def spent(self) -> PrivacyBudget | None:
        """What the fit has spent; None before. Of this object: a ledger alone knows of its copies."""
        return None if self._model is None else self.budget

    @property
    def total(self) -> int:
        """The released number of trips, at least 1."""
        return max(round(self.model.total), 1)

    def sample(
        self,
        n: int | None = None,
        *,
        start: Any = None,
        end: Any = None,
        hour: int | Sequence[int] | None = None,
        weekday: int | Sequence[int] | None = None,
        spacing: float | None = None,
        interval: float | None = None,
        week: Any = None,
        given: Mapping[str, Any] | None = None,
        crs: Any = None,
    ) -> TrajectoryRelease:
        """``n`` synthetic trips; without ``n`` as many as were released: the estimated total.

        ``start`` and ``end`` restrict the ends: a point (x, y) in the domain's CRS, a shapely geometry in
        it, or numbers of cells (rows of ``model.partition``). ``hour`` (of the day) and ``weekday`` (0 is
        Monday), by the clocks of the synthesizer's time zone, take one number or several, and ends are those
        of trips at that time. Points come every ``interval`` seconds or every ``spacing`` metres; without
        either, as often as those of the data. ``week`` is the first day of the week of the times. ``given``
        fixes attributes: ``{"vehicle": "van"}``, a list of values, or a range (low, high) of numbers; the
        trips are then such as go with them. ``crs`` is the coordinate system of the files that the trips
        are written to; by default longitude and latitude where the data came so, else the domain's.
        """
        number = self.total if n is None else n
        wishes = (start, end, hour, weekday, spacing, interval, week, given)
        return self._draw(
            Drawing(number, *wishes, attributes=self._attribute_model, crs=self._crs if crs is None else crs)
        )

    def route(
        self,
        od: pd.DataFrame,
        zones: gpd.GeoDataFrame | int,
        *,
        hour: int | Sequence[int] | None = None,
        weekday: int | Sequence[int] | None = None,
        spacing: float | None = None,
        interval: float | None = None,
        week: Any = None,
    ) -> TrajectoryRelease:
        """Synthetic trips for an origin-destination table, along the ways that trips take.

        ``od`` has the columns origin, destination and trips, ``zones`` polygons by the same labels, or the
        resolution of the cells of H3 that it names; whose table it is (this release's, a census's, a
        forecast's) is up to the caller. Trips come in the order of the table. A road is in the zone of its
        middle, so that an end may lie half a road outside. Post-processing: nothing is spent.
        """
        legs = legs_of(od, zones, self.domain)
        number = sum(trips for _, _, trips in legs)
        wishes = (None, None, hour, weekday, spacing, interval, week)
        return self._draw(
            Drawing(number, *wishes, legs=legs, attributes=self._attribute_model, crs=self._crs)
        )

    def _draw(self, drawing: Drawing) -> TrajectoryRelease:
        if self._sampler is None:
            self._sampler = TripSampler(self.model)
        return drawing.draw(
            self._sampler, self.noise.rng, spent=self.budget, statement=self._statement,
            week=self._setup.week, max_speed=self.max_speed, again=partial(self._draw, drawing),
        )  # fmt: skip

    def sample_to_parquet(
        self, path: str | os.PathLike[str], n: int | None = None, *, batch: int = _BATCH, **options: Any
    ) -> None:
        """Write ``n`` trips (or the released total) as GeoParquet points, ``batch`` trips at a time: memory
        does not grow with ``n``. Options are those of ``sample``.
        """
        import pyarrow.parquet as pq

        n, batch = (
            self.total if n is None else validate.rows(n, "n", low=1),
            validate.whole(batch, "batch", low=1),
        )
        known = {field.name for field in fields(Drawing)} - {"n", "first_id", "attributes", "legs"}
        options = {"crs": self._crs, **options}
        unknown = set(options) - known
        if unknown:
            raise ConfigError(f"unknown options {sorted(unknown)}; sample takes {sorted(known)}")
        drawing = Drawing(n, **options, attributes=self._attribute_model)
        target = Path(path)
        partial = target.with_name(f".{target.name}.part")
        writer: list[pq.ParquetWriter] = []

        def write(part: TrajectoryRelease) -> None:
            table = arrow_table(part.to_crs(), self._statement, bounds=False)
            if not writer:
                writer.append(pq.ParquetWriter(partial, table.schema))
            writer[0].write_table(table.cast(writer[0].schema))

        try:
            # One batch is written while the next is drawn.
            with ThreadPoolExecutor(1, thread_name_prefix="synthgeo") as behind:
                written: Future[None] | None = None
                for first in track(range(0, n, batch), label="sampling trips"):
                    part = self._draw(drawing.part(first, min(batch, n - first)))
                    if written is not None:
                        written.result()
                    written = behind.submit(write, part)
                    del part
                if written is not None:
                    written.result()
            for one in writer:
                one.close()
            partial.replace(target)
        except BaseException:
            for one in writer:
                one.close()
            partial.unlink(missing_ok=True)
            raise

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the released model; sampling needs nothing else."""
        values, arrays = self.model.to_state()
        settings, own = codec.dump(self.settings)
        arrays |= {f"settings/{name}": array for name, array in own.items()}
        facts = {
            "model": values,
            "budget": self.budget.to_dict(),
            "unit": self.unit.to_dict(),
            "statement": self._statement,
            "settings": settings,
            "tz": self.tz,
            "noise": self.noise.state(),
            "charge": self._charge,
            "crs": self._crs,
        }
        if self._attribute_model is not None:
            facts["attributes"], own = self._attribute_model.to_state()
            arrays |= {f"attributes/{name}": array for name, array in own.items()}
        save_state(path, _KIND, _VERSION, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, ledger: Ledger | None = None) -> TrajectorySynthesizer:
        """A fitted synthesizer from what ``save`` wrote.

        A ``ledger`` that does not hold this fit yet is charged for it; one that does, is not charged again.
        """
        facts, arrays = load_state(path, _KIND, _VERSION)
        try:
            out = cls._of_state(facts, arrays, ledger)
        except MALFORMED as problem:
            raise StateError(f"{path}: not a saved synthesizer ({type(problem).__name__})") from problem
        if ledger is not None:
            ledger.charge(product=_KIND, budget=out.budget, unit=out.unit, key=out._charge)  # noqa: SLF001 - its own class
        return out

    @classmethod
    def _of_state(cls, facts: dict[str, Any], arrays: dict[str, Any], ledger: Ledger | None) -> Self:
        model = TripModel.from_state(facts["model"], arrays)
        out = cls(
            domain=model.domain,
            budget=PrivacyBudget(facts["budget"]["epsilon"]),
            unit=PrivacyUnit.from_dict(facts["unit"]),
            noise=Noise.from_state(facts["noise"]),
            settings=codec.load(TripSettings, facts["settings"], part_of("settings", arrays)),
            tz=facts["tz"],
            ledger=ledger,
        )
        out._crs = facts["crs"]
        out._model, out._statement = model, dict(facts["statement"])
        out._charge = facts["charge"]
        if "attributes" in facts:
            own = part_of("attributes", arrays)
            out._attribute_model = AttributeModel.from_state(facts["attributes"], own, out.noise)
            out.attributes = out._attribute_model.schema
        return out

    def __getstate__(self) -> dict[str, Any]:
        # Factorised chains stay home, and a copy of what is not fitted yet pays for itself.
        charge = None if self._model is None else self._charge
        return {**self.__dict__, "_sampler": None, "_charge": charge}

    def __repr__(self) -> str:
        state = "fitted" if self._model is not None else "not fitted"
        return f"{type(self).__name__}({self.domain!r}, epsilon={self.budget.epsilon:g}, {state})"


def _in_cells(keys: Keys, partition: Partition | None, bits: int) -> int:
    """How many of these places lie in cells of a partition, where there is one."""
    return len(keys) if partition is None else int((partition.cell_of(keys, bits) >= 0).sum())


def warn_of_noise(measured: MeasuredTrips | None, counts: Sequence[str]) -> None:
    """Warn where there is more noise than signal in these counts, by the released numbers themselves."""
    signal = {} if measured is None else measured.signal
    weak = [_KINDS[name] for name in counts if signal.get(name, 1.0) < WEAK]
    if weak:
        warnings.warn(
            f"the noise exceeds the signal in {', '.join(weak)}: there the trips follow the map more "
            "than the data. More ε, more trips or a smaller bound per user would help",
            stacklevel=4,
        )


__all__ = ["TrajectorySynthesizer"]

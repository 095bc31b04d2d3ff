"""TrajectoryStream: batches of private trips in, synthetic trips after each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, cast

import pandas as pd

from streams.mechanism import Arrays, EventBudget, check_noise, part_of
from streams.schedule import ReleaseDriven
from streams.starvation import StarvingStreamWarning
from streams.stream import Stream, check_lifetime
from synthgeo import codec, validate
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import domain_from_state
from synthgeo.errors import ConfigError
from synthgeo.parameters import check_settings
from synthgeo.preflight import Probe
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.schema import Schema
from synthgeo.sources import Reading, Source, open_source
from synthgeo.sources.declared import ColumnNames, check_columns, check_reading
from synthgeo.sources.grid import check_grid
from trajectories.attributes import check_attributes
from trajectories.drawing import Drawing
from trajectories.model import TripModel
from trajectories.over_time.admission import TripBounder, TripsSeen
from trajectories.over_time.counting import TripCounting, structure_share
from trajectories.over_time.records import TripRecords
from trajectories.parts.opening import check_workers
from trajectories.reading.points import instants
from trajectories.release import TrajectoryRelease
from trajectories.setup import TripSettings, TripSetup
from trajectories.walks.sampler import TripSampler


class TrajectoryStream(Stream):
    """Releases synthetic trips after every batch of private ones: a month of trips each month, one promise.

    Each trip is measured once, in its own batch, with all of ε. The first batch finds the structure (cells,
    parts of busy cells, blocks of origin-destination pairs); later ones are counted on a structure that
    earlier releases chose, which costs nothing.

    A batch holds whole trips: points with columns for the trip, coordinates and times. A trip whose id an
    earlier batch held is dropped; where users are bounded in periods, an earlier batch of the same period.
    ``run`` cuts a file by a public grid of windows: a trip belongs to the window of its last point, with all
    its points. ``sample`` draws other trips from the last release.

    Parameters
    ----------
    domain, budget, unit
        As in ``TrajectorySynthesizer``; ε is for the whole stream, however long it is.
    lifetime
        A release describes the trips of the last ``lifetime`` batches (1: of this batch alone). None: all
        trips so far.
    attributes
        What else the rows say of each trip, as in ``TrajectorySynthesizer``. Each batch has a table of its
        own, and a release draws from those of its lifetime.
    tz
        Time zone whose clocks say what hour it is. None: that of ``reading``, else UTC.
    columns
        Names of columns (``ColumnNames``): trip, time, x, y, crs. ``time=None`` says that trips have no
        times.
    workers
        Processes for large files, as in ``TrajectorySynthesizer``.
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
    Unit: one whole trip, or a user with at most m trips over the life of the stream, or in each public
    period where the unit has such (``per``), which is enforced. What a user does in a period are the user's
    rows in the batches of that period: with ``run``, the trips that *end* in it, with all their points. Pure
    ε-differential privacy under add/remove neighbours, over all releases together, however many there are:
    batches are disjoint in trips, so the trips of different batches do not add up. ``TripCounting`` has the
    argument; see also docs/guarantees.md. ``costs`` lists what a trip of each batch pays.

    >>> import numpy as np, synthgeo as sg
    >>> stream = sg.TrajectoryStream(
    ...     domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0), lifetime=1,
    ...     columns=sg.ColumnNames(time=None), noise=sg.SeededNoise(1),
    ... )
    >>> for month in range(2):
    ...     x, y = np.random.default_rng(month).random((2, 500))
    ...     release = stream.update({"trip_id": np.arange(500) // 5 + 100 * month, "x": x, "y": y})
    >>> release.step, release.releasable
    (2, False)
    """

    state_kind = "trajectory-stream"
    parts: ClassVar[dict[str, type]] = {"settings": TripSettings, "columns": ColumnNames}
    takes = tuple(field.name for field in fields(TripSettings) if field.name != "partition")

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        lifetime: int | None = None,
        attributes: Schema | None = None,
        tz: str | None = None,
        columns: ColumnNames | None = None,
        workers: int | None = None,
        reading: Reading | None = None,
        settings: TripSettings | None = None,
        noise: Noise | None = None,
        ledger: Any = None,
    ) -> None:
        self.workers = check_workers(workers)
        chosen = check_settings(settings, TripSettings).only("TrajectoryStream", self.takes)
        names = check_columns(columns).only("a stream of trips", ("trip", "time", "x", "y", "crs"))
        setup = TripSetup.of(
            domain=domain, budget=budget, unit=unit, settings=chosen, attributes=attributes is not None,
            tz=check_reading(reading).tz if tz is None else tz,
        )  # fmt: skip
        if attributes is not None:
            check_attributes(validate.instance(attributes, "attributes", Schema), setup.per_trip[1])
        if not budget.is_pure:
            raise ConfigError("streams run under pure differential privacy: give a budget with delta=0")
        lifetime = check_lifetime(lifetime)
        borrows = lifetime is not None if chosen.borrow == "auto" else bool(chosen.borrow)
        source, timed = check_noise(noise), names.time is not None
        super().__init__(
            records=TripRecords(setup, columns=names, workers=self.workers, attributes=attributes),
            mechanism=TripCounting(
                setup, lifetime=lifetime, borrow=borrows, timed=timed, noise=source, attributes=attributes
            ),
            event=EventBudget(setup.budget, setup.unit, structure_share(setup, timed=timed)),
            lifetime=lifetime,
            schedule=ReleaseDriven(),
            t0=0,
            deletions=False,
            reading=instants(reading, setup.week.tz),
            noise=source,
            ledger=ledger,
        )
        self.domain, self.attributes, self._setup = setup.domain, attributes, setup
        self.columns, self.settings = names, chosen

    @property
    def stored_parts(self) -> tuple[str, ...]:
        """What a durable run stores of each release unless told otherwise."""
        return ("data",) if self.attributes is None else ("data", "trips")

    def _new_bounder(self) -> TripBounder:
        return TripBounder(self.unit)

    def _probes(self, source: Source) -> list[Probe]:
        return [*super()._probes(source), TripsSeen(self._now.bounder, self.columns.trip)]

    def _look_for_starvation(self, after: Any) -> None:
        super()._look_for_starvation(after)
        if self._starving:
            return
        self._starving = after.mechanism.collapsed
        if self._starving:
            others = " and so are those beyond a user's bound" if self.unit.is_user else ""
            where = "" if self.unit.per is None else " of a period"
            warnings.warn(
                "the released number of trips fell to less than a tenth of the batch before. If it had "
                f"as many: trips whose ids an earlier batch held are dropped{others}, so ids must differ "
                f"between batches{where} (check() counts those that do not)",
                StarvingStreamWarning,
                stacklevel=3,
            )

    @property
    def model(self) -> TripModel:
        """The released model of the last step; sampling needs nothing else."""
        mechanism = self.mechanism
        assert isinstance(mechanism, TripCounting)
        if mechanism.model is None:
            raise ConfigError("this stream has released nothing yet: update it first")
        return mechanism.model

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
        """``n`` synthetic trips of the last release (or as many as it holds), under the conditions of
        ``TrajectorySynthesizer``.

        Asking changes nothing: the stream goes on as if nobody had asked.
        """
        model, mechanism = self.model, self.mechanism
        assert isinstance(mechanism, TripCounting)
        number = max(round(model.total), 0) if n is None else n
        wishes = (start, end, hour, weekday, spacing, interval, week, given)
        files = mechanism.crs if crs is None else crs
        drawing = Drawing(number, *wishes, attributes=mechanism.attributes, crs=files)
        rng = Noise.from_state(self.noise.state()).rng
        return drawing.draw(
            TripSampler(model), rng, spent=self.budget, statement=self._statement(self._now), step=self.step,
            week=self._setup.week, max_speed=self._setup.max_speed,
        )  # fmt: skip

    def run(
        self,
        data: Any,
        *,
        time: str | None = None,
        every: str,
        start: Any = None,
        end: Any = None,
        tz: str | None = None,
        lifetime: str | int | None = None,
        progress: bool | None = None,
    ) -> Iterator[TrajectoryRelease]:
        """Cut trips by a public grid of windows, and release after each: ``Stream.run``, by the stream's own
        column of times.
        """
        if self.columns.time is None:
            raise ConfigError("windows need times: name the column of times (ColumnNames(time=...))")
        releases = super().run(
            data, time=self.columns.time if time is None else time, every=every, start=start, end=end, tz=tz,
            lifetime=lifetime, progress=progress,
        )  # fmt: skip
        return cast(Iterator[TrajectoryRelease], releases)

    def windows(
        self,
        data: Any,
        *,
        time: str | None = None,
        every: str,
        start: Any = None,
        end: Any = None,
        tz: str | None = None,
    ) -> Iterator[tuple[pd.Timestamp, Source]]:
        """Cut trips by a public grid; each is in the window of its last point. An empty window is a window
        like any other.
        """
        if time not in (None, self.columns.time):
            raise ConfigError(f"this stream reads times from {self.columns.time!r}, not from {time!r}")
        records = self._records
        assert isinstance(records, TripRecords)
        check_grid(every, start, end)
        source = open_source(data, reading=self.reading)
        return records.windows(source, every=every, start=start, end=end, tz=tz)

    @classmethod
    def _own_params(cls, values: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        schema = values.get("attributes")
        return {
            "domain": domain_from_state(values["domain"], part_of("domain", arrays)),
            "lifetime": values["lifetime"],
            "attributes": None if schema is None else Schema.from_json(schema),
            "columns": codec.load(ColumnNames, values["columns"]),
            "settings": codec.load(TripSettings, values["settings"]),
            "tz": values["tz"],
        }


__all__ = ["TrajectoryStream"]

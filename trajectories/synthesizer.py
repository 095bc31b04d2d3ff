"""TrajectorySynthesizer: private trips in, synthetic trips out."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from synthgeo.domain.roads import RoadDomain
from synthgeo.domain.spatial import SpatialDomain
from synthgeo.errors import BudgetExhausted, ConfigError, InputError
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.keys import MAX_BITS
from synthgeo.hierarchy.privtree import SplitRule
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise, SystemNoise, laplace_variance
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.progress import track
from synthgeo.release import METADATA_KEY, provenance
from synthgeo.sources.fingerprint import content_hash, file_hash
from synthgeo.state import load_state, save_state
from trajectories.calibrate import Measured, Recipe, calibrate
from trajectories.cleaning import clean
from trajectories.conditions import states_in
from trajectories.discretise import Sequences, cut, end_keys, on_graph, sequences, usual_durations
from trajectories.ends import count_ends
from trajectories.geometry import lines_of
from trajectories.lengths import measure_lengths, path_shapes
from trajectories.matching import Method
from trajectories.model import Length, TripModel
from trajectories.origin_destination import ENDS_SHARE, TREE_SHARE, measure_pairs
from trajectories.points import Trips, bounded, read_ends, read_trips
from trajectories.release import TrajectoryRelease
from trajectories.sampler import TripSampler
from trajectories.states import Floats, Ints, states_of
from trajectories.times import measure_times
from trajectories.transitions import GRID, Weights, measure_links

if TYPE_CHECKING:
    from synthgeo.privacy.ledger import Ledger

_KIND = "TrajectorySynthesizer"
_VERSION = 4
_WEEK = pd.Timestamp("2024-01-01", tz="UTC")  # a Monday
_BATCH = 20_000


class TrajectorySynthesizer:
    """Synthetic trips that start, end, go and take as long as private ones do.

    Trips are cleaned, matched to the roads (or located on a plane), and measured: where they are (PrivTree
    cells), how they cross from cell to cell, where they start and end (a second time more closely where many
    do, and in pairs), how long they are. From then on only these released numbers and public roads are used:
    conditional walks on the road graph, with costs that make them cross cells as the measurements say, and a
    choice among many of them that makes lengths and crossings agree with what was measured.

    Parameters
    ----------
    domain
        ``RoadDomain``, ``BoxDomain`` or ``PolygonDomain``.
    budget
        ε is spent whole by ``fit``. The guarantee is pure: δ is not used.
    unit
        ``PrivacyUnit.trajectory()``, or ``PrivacyUnit.user(max_trajectories=m)``: then at most m trips of a
        user are kept and everything runs at ε / m.
    split
        Shares of cells, transitions and pairs in what the next two leave.
    calibration
        Share of ε for the table of lengths and diameters. 0 leaves it out.
    times
        Share of ε for departure hours and speeds, spent only if the data have times. 0 leaves them out.
    weights
        How a trip shares its weight over its crossings: ``"uniform"``, or more to its ``"ends"``.
    length
        ``"killed"``: walks of free length, each metre costs. ``"median"``: walks of a fixed number of
        steps, exponential with the length of the most probable path as its median (Kumar's Algorithm 20).
    partition
        Public cells to use instead of private ones; the share of cells then goes to the others.
    max_depth, theta
        Of PrivTree: halvings at most, and its threshold.
    match
        Of ``trajectories.matching``: ``"hmm"`` or ``"nearest"``.
    cleaning
        Keyword arguments for ``trajectories.cleaning.clean``; None for its defaults, False to clean nothing.

    Guarantee
    ---------
    Pure ε-differential privacy for the unit, under adding or removing one. Reading, cleaning and matching
    map one trip to at most one trip (sensitivity 1). The measurements are ε1 (``discretise``), ε2
    (``transitions``), ε3 (``ends``, ``origin_destination``), ε4 (``lengths``) and ε5 (``times``)
    differentially private, each whatever the earlier ones released, so together at most ε1 + ... + ε5 = ε by
    adaptive composition. All else is post-processing of what they released. For users, removing one changes
    at most m trips: m times ε / m.

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

    def __init__(
        self,
        *,
        domain: SpatialDomain,
        budget: PrivacyBudget,
        unit: PrivacyUnit | None = None,
        split: Sequence[float] = (0.09, 0.41, 0.5),
        calibration: float = 0.06,
        times: float = 0.1,
        weights: Weights = "uniform",
        length: Length = "killed",
        partition: Partition | None = None,
        max_depth: int = 20,
        theta: float = 0.0,
        match: Method = "hmm",
        cleaning: dict[str, Any] | bool | None = None,
        noise: Noise | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        if not isinstance(budget, PrivacyBudget):
            raise ConfigError(f"budget must be a PrivacyBudget, such as PrivacyBudget(2.0); got {budget!r}")
        self.domain = domain
        self.budget = budget
        self.unit = PrivacyUnit.trajectory() if unit is None else unit
        self.noise = SystemNoise() if noise is None else noise
        self.ledger = ledger
        if self.unit.of != "trajectory":
            raise ConfigError(
                "trips are protected whole: use PrivacyUnit.trajectory() or "
                "PrivacyUnit.user(max_trajectories=...)"
            )
        if len(split) != 3:
            raise ConfigError(f"split must be three shares (cells, transitions, pairs), got {split!r}")
        budget.split(split)
        for name, share in (("calibration", calibration), ("times", times)):
            if not 0 <= share < 1:
                raise ConfigError(f"{name} must be a share of ε in [0, 1), got {share!r}")
        if calibration + times >= 1:
            raise ConfigError("calibration and times must leave some ε for the trips")
        if weights not in ("uniform", "ends"):
            raise ConfigError(f"weights must be 'uniform' or 'ends', got {weights!r}")
        if length not in ("killed", "median"):
            raise ConfigError(f"length must be 'killed' or 'median', got {length!r}")
        if match not in ("hmm", "nearest"):
            raise ConfigError(f"match must be 'hmm' or 'nearest', got {match!r}")
        if partition is not None and not hierarchy_of(domain).measure(partition.prefix, partition.bits).any():
            raise ConfigError("the given partition holds nothing of the domain")
        if isinstance(max_depth, bool) or not isinstance(max_depth, int) or not 1 <= max_depth <= MAX_BITS:
            raise ConfigError(f"max_depth must be a whole number from 1 to {MAX_BITS}, got {max_depth!r}")
        if not (theta >= 0 and math.isfinite(theta)):
            raise ConfigError(f"theta must be a number >= 0, got {theta!r}")
        self._split, self._calibration, self._times = tuple(split), float(calibration), float(times)
        self._weights, self._length, self._match = weights, length, match
        self._partition, self._theta, self._cleaning = partition, float(theta), cleaning
        self._bits = max_depth
        self._recipe = Recipe()
        self._model: TripModel | None = None
        self._statement: dict[str, Any] = {}
        self._sampler: TripSampler | None = None
        self._charge: str | None = None  # the key under which the ledger was charged
        self._begun: str | None = None  # content that a fit has begun to measure; private, gone when it ends
        self._paid = False
        for timed, ends_only in product((False, True), repeat=2):
            check_scales(self._shares(timed=timed, ends_only=ends_only))

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
        if origin is not None and destination is not None:
            trips = read_ends(
                data, self.domain, unit=self.unit, origin=origin, destination=destination,
                departure=departure, arrival=arrival, crs=crs,
            )  # fmt: skip
        else:
            trips = read_trips(data, self.domain, unit=self.unit, trip=trip, time=time, x=x, y=y, crs=crs)
        return self.fit_trips(trips, ends_only=origin is not None)

    def fit_trips(self, trips: Trips, *, ends_only: bool = False) -> Self:
        """Fit trips that are arrays already. Where users are protected, ``trips.user`` says whose each is,
        and of each user at most as many are kept as the unit says.
        """
        if self._model is not None:
            raise BudgetExhausted("this synthesizer has spent its budget; a new one would spend a new budget")
        if self.unit.is_user:
            trips = bounded(trips, self.unit)
        if trips.size == 0:
            raise InputError("there are no trips to fit; nothing was spent")
        if not ends_only and self._cleaning is not False:
            options = self._cleaning if isinstance(self._cleaning, dict) else {}
            trips = clean(trips, domain=self.domain, **options)
        timed = trips.time is not None and self._times > 0
        shares = self._shares(timed=timed, ends_only=ends_only)
        private = sequences(trips, self.domain, self._bits, method="ends" if ends_only else self._match)
        self._check_placed(private)
        self._pay(content_hash(trips.xy))
        model = self._measure(private, shares)
        statement = provenance(
            mechanism=_KIND, unit=self.unit, budget=self.budget, noise=self.noise,
            domain=self.domain.describe(),
            shares=shares, weights=self._weights, length=self._length, cells=model.partition.size,
            given_cells=self._partition is not None, ends_only=ends_only,
        )  # fmt: skip
        self._statement, self._begun, self._model = statement, None, model
        return self

    def _check_placed(self, private: Sequences) -> None:
        """Refuse data of which nothing lies in the domain: a wrong CRS or domain, and no reason to spend."""
        placed = private.size > 0
        if placed and self._partition is not None:
            placed = bool((self._partition.cell_of(private.keys, self._bits) >= 0).any())
        if not placed:
            raise InputError(
                f"no trip lies in {self.domain!r}: are the coordinates in its CRS? Nothing was spent"
            )

    def _pay(self, content: str) -> None:
        """Charge the ledger, once for this content: a fit that was interrupted has shown nothing of what it
        measured, so trying again on the same trips costs nothing more.
        """
        if self._begun != content:
            self._begun, self._charge, self._paid = content, secrets.token_hex(16), False
        if self.ledger is not None:
            self.ledger.charge(
                product=_KIND, budget=self.budget, unit=self.unit, content_hash=content, key=self._charge
            )
        self._paid = True

    def _shares(self, *, timed: bool, ends_only: bool) -> dict[str, float]:
        """ε of each measurement, for one trip."""
        rest = 1.0 - (0.0 if ends_only else self._calibration) - (self._times if timed else 0.0)
        cells, links, pairs = self._split
        if ends_only:  # nothing is known of the ways: pairs take their share
            links, pairs = 0.0, links + pairs
        if self._partition is not None:
            cells = 0.0
        whole = cells + links + pairs
        parts = {
            "cells": rest * cells / whole,
            "transitions": rest * links / whole,
            "pairs": rest * pairs / whole,
        }
        parts["lengths"] = 0.0 if ends_only else self._calibration
        parts["times"] = self._times if timed else 0.0
        used = {name: share for name, share in parts.items() if share > 0}
        budgets = (self.budget / self.unit.max_contributions).split(list(used.values()))
        return {name: part.epsilon for name, part in zip(used, budgets, strict=True)}

    def _measure(self, private: Sequences, shares: dict[str, float]) -> TripModel:
        """All noise is drawn here. What it returns is released."""
        domain, noise, bits = self.domain, self.noise, self._bits
        partition = self._partition
        if partition is None:
            # Where nothing but ends is known, cells need to be small there and nowhere else.
            at_ends = self._recipe.ends_in_cells if "transitions" in shares else 1.0
            partition = cut(
                private, domain, epsilon=shares["cells"], noise=noise, max_depth=bits, theta=self._theta,
                at_ends=at_ends,
            )  # fmt: skip
        graph = states_of(domain, partition, bits)
        states, start = on_graph(private, graph, partition, domain, bits)
        real = np.diff(start) > 0
        origin, destination = end_keys(private, partition, domain, bits, states, start).T
        for_ends, tree = shares["pairs"] * ENDS_SHARE, shares["pairs"] * TREE_SHARE
        count = shares["pairs"] - for_ends - tree
        ends = count_ends(origin, destination, bits, partition, domain, epsilon=for_ends, noise=noise)
        pairs = measure_pairs(
            partition.cell_of(origin, bits), partition.cell_of(destination, bits), partition,
            epsilon_tree=tree, epsilon_count=count, noise=noise, ends=ends.by_cell, theta=self._theta,
        )  # fmt: skip
        links, link_variance = None, 0.0
        if "transitions" in shares:
            epsilon = shares["transitions"]
            links = measure_links(graph, states, start, epsilon=epsilon, noise=noise, weights=self._weights)
            link_variance = laplace_variance(GRID.one / epsilon) / GRID.one**2
        lengths, length_variance = None, 0.0
        if "lengths" in shares:
            metres, diameter = path_shapes(graph, states, start)
            lengths = measure_lengths(metres[real], diameter[real], epsilon=shares["lengths"], noise=noise)
            length_variance = laplace_variance(1 / shares["lengths"])
        clock = None
        if "times" in shares and private.departure is not None and private.duration is not None:
            usual = usual_durations(domain, graph, states, start)
            clock = measure_times(
                private.departure[real],
                private.duration[real],
                usual[real],
                epsilon=shares["times"],
                noise=noise,
            )
        measured = Measured(
            links, link_variance, pairs, laplace_variance(1 / count), ends, lengths, length_variance,
            self._weights,
        )  # fmt: skip
        blank = TripModel(
            domain=domain, partition=partition, bits=bits, pairs=pairs, parts=ends.parts,
            ends=np.ones(ends.parts.size), popularity=np.ones(graph.size), link_cost=np.zeros(graph.links),
            traffic=np.zeros(graph.links), taste=None, length=self._length, clock=clock,
        )  # fmt: skip
        blank.__dict__["graph"] = graph
        return calibrate(blank, measured, noise.rng, self._recipe)

    @property
    def model(self) -> TripModel:
        """The released model."""
        if self._model is None:
            raise ConfigError("fit the synthesizer first")
        return self._model

    @property
    def spent(self) -> PrivacyBudget | None:
        """What was spent: nothing until ``fit`` begins to measure, the budget from then on."""
        return self.budget if self._paid else None

    def sample(
        self,
        n: int,
        *,
        start: Any = None,
        end: Any = None,
        hour: int | None = None,
        spacing: float = 25.0,
        interval: float | None = None,
    ) -> TrajectoryRelease:
        """``n`` synthetic trips.

        ``start`` and ``end`` restrict the ends: a point (x, y) in the domain's CRS, a shapely geometry in
        it, or numbers of cells (rows of ``model.partition``). ``hour`` is an hour of the day in UTC. Points
        come every ``spacing`` metres or, where times were measured and ``interval`` is given, every
        ``interval`` seconds.
        """
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise ConfigError(f"n must be a whole number >= 0, got {n!r}")
        return self._sample(int(n), 0, start, end, hour, spacing, interval)

    def _sample(
        self,
        n: int,
        first_id: int,
        start: Any,
        end: Any,
        hour: int | None,
        spacing: float,
        interval: float | None,
    ) -> TrajectoryRelease:
        model, rng = self.model, self.noise.rng
        if not spacing > 0 or (interval is not None and not interval > 0):
            raise ConfigError("spacing and interval must be > 0")
        if hour is not None and (isinstance(hour, bool) or not 0 <= hour < 24):
            raise ConfigError(f"hour must be from 0 to 23, got {hour!r}")
        if model.clock is None and (hour is not None or interval is not None):
            raise ConfigError("hour and interval need times: fit data with a time column and times > 0")
        if self._sampler is None:
            self._sampler = TripSampler(model)
        masks = [None if where is None else states_in(model, where) for where in (start, end)]
        walks = self._sampler.draw(n, rng, start=masks[0], end=masks[1])
        lines = lines_of(model, walks, rng)
        departure = duration = None
        if model.clock is not None:
            departure = model.clock.departures(n, rng, hour=hour)
            usual = usual_durations(model.domain, model.graph, walks.states, walks.start)
            duration = np.maximum(model.clock.draw_paces(n, rng) * usual, 1.0)
        gaps = _gaps(lines.lengths, spacing, duration, interval)
        return TrajectoryRelease(
            domain=model.domain, walks=walks, lines=lines, gaps=gaps, departure=departure, duration=duration,
            week=_WEEK, spent=self.budget, provenance=self._statement, first_id=first_id,
            again=partial(self._sample, n, first_id, start, end, hour, spacing, interval),
        )  # fmt: skip

    def sample_to_parquet(
        self, path: str | os.PathLike[str], n: int, *, batch: int = _BATCH, **options: Any
    ) -> None:
        """Write ``n`` trips as GeoParquet points, ``batch`` trips at a time: memory does not grow with
        ``n``.
        """
        import json

        import pyarrow.parquet as pq
        from geopandas.io.arrow import _geopandas_to_arrow

        if batch < 1 or n < 1:
            raise ConfigError("n and batch must be >= 1")
        defaults = {"start": None, "end": None, "hour": None, "spacing": 25.0, "interval": None}
        unknown = set(options) - set(defaults)
        if unknown:
            raise ConfigError(f"unknown options {sorted(unknown)}; sample takes {sorted(defaults)}")
        writer: pq.ParquetWriter | None = None
        target = Path(path)
        partial = target.with_name(f".{target.name}.part")
        try:
            for first in track(range(0, n, batch), label="sampling trips"):
                part = self._sample(min(batch, n - first), first, **{**defaults, **options})
                table = _geopandas_to_arrow(part.data, index=False)
                metadata = dict(table.schema.metadata or {})
                geo = json.loads(metadata[b"geo"])
                for column in geo["columns"].values():
                    column.pop("bbox", None)  # of this batch only
                metadata |= {
                    b"geo": json.dumps(geo).encode(),
                    METADATA_KEY: json.dumps(self._statement).encode(),
                }
                table = table.replace_schema_metadata(metadata)
                if writer is None:
                    writer = pq.ParquetWriter(partial, table.schema)
                writer.write_table(table.cast(writer.schema))
            if writer is not None:
                writer.close()
            partial.replace(target)
        except BaseException:
            if writer is not None:
                writer.close()
            partial.unlink(missing_ok=True)
            raise

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the released model; sampling needs nothing else."""
        values, arrays = self.model.to_state()
        facts = {
            "model": values,
            "budget": self.budget.to_dict(),
            "unit": self.unit.to_dict(),
            "statement": self._statement,
            "noise": self.noise.state(),
            "charge": self._charge,
        }
        save_state(path, _KIND, _VERSION, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, ledger: Ledger | None = None) -> TrajectorySynthesizer:
        """A fitted synthesizer from what ``save`` wrote.

        A ``ledger`` that does not hold this fit yet is charged for it; one that does, is not charged again.
        Models of version 0.1.0 do not say under which key they were charged, and are charged once each.
        """
        facts, arrays = load_state(path, _KIND, _VERSION)
        model = TripModel.from_state(facts["model"], arrays)
        out = cls(
            domain=model.domain,
            budget=PrivacyBudget(**facts["budget"]),
            unit=PrivacyUnit.from_dict(facts["unit"]),
            noise=Noise.from_state(facts["noise"]),
            length=model.length,
            ledger=ledger,
        )
        charge = facts.get("charge") or file_hash(path)
        if ledger is not None:
            ledger.charge(product=_KIND, budget=out.budget, unit=out.unit, key=charge)
        out._model, out._statement, out._charge, out._paid = model, facts["statement"], charge, True
        return out

    def __getstate__(self) -> dict[str, Any]:
        # Factorised chains stay home, and a copy of what is not fitted yet pays for itself.
        return {**self.__dict__, "_sampler": None, "_begun": None, "_paid": self._model is not None}

    def __repr__(self) -> str:
        state = "fitted" if self._model is not None else "not fitted"
        return f"TrajectorySynthesizer({self.domain!r}, epsilon={self.budget.epsilon:g}, {state})"


def check_scales(shares: Mapping[str, float]) -> None:
    """Refuse shares of ε too small for the noise they ask for: before anything is read or spent."""
    pairs = shares["pairs"]
    scales = {
        "cells": SplitRule(shares["cells"]).scale * GRID.one if "cells" in shares else 1.0,
        "transitions": GRID.one / shares["transitions"] if "transitions" in shares else 1.0,
        "pairs": SplitRule(pairs * TREE_SHARE, fanout=4).scale * GRID.one,
        "lengths": 1 / shares["lengths"] if "lengths" in shares else 1.0,
        "times": 2 / shares["times"] if "times" in shares else 1.0,
    }
    for name, scale in scales.items():
        if not scale <= MAX_SCALE:
            raise ConfigError(
                f"the share of {name} is ε = {shares[name]:.2g} for each trip: too little for any noise to "
                "be drawn. Give more ε, a smaller bound per user, or a larger share"
            )


def _gaps(metres: Floats, spacing: float, duration: Floats | None, interval: float | None) -> Ints:
    parts = metres / spacing if interval is None or duration is None else duration / interval
    return np.maximum(np.rint(parts), 1).astype(np.int64)


__all__ = ["RoadDomain", "TrajectorySynthesizer"]

"""Releases: what a synthesizer hands out, with the statement that goes with it.

A release knows its synthetic data, what the mechanism spent, and whether it may be published. It never knows
the private data, its totals, or how many rows were read.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.notebook import facts_html
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_KEY = b"synthgeo"
_MOST_EXPLORED = 20_000  # records on a notebook's map


def provenance(
    *,
    mechanism: str,
    unit: PrivacyUnit,
    budget: PrivacyBudget,
    noise: Noise,
    private: bool = True,
    **facts: Any,
) -> dict[str, Any]:
    """The statement that travels with a release: public facts only.

    ``private=False`` marks a mechanism that keeps no promise (a baseline for comparison).
    """
    from synthgeo import __version__

    releasable = private and noise.releasable
    if not private:
        why = "this mechanism is not differentially private: it is a baseline for comparison"
    elif not noise.releasable:
        why = "made with seeded noise, which anybody who knows the seed can subtract"
    else:
        why = None
    return {
        "synthgeo": __version__,
        "mechanism": mechanism,
        "private": private,
        "releasable": releasable,
        **({"not_releasable_because": why} if why else {}),
        "unit": unit.describe(),
        "neighbours": "add or remove one unit",
        "budget": budget.to_dict() if private else None,
        "noise": repr(noise) if not noise.releasable else "operating system entropy",
        **facts,
    }


class Release(ABC):
    """One synthetic dataset and its statement. Subclasses say how the data is built, on first use."""

    product: str  # "points", "table" or "trips": what kind of dataset this is

    def __init__(self, *, step: int, spent: PrivacyBudget | None, provenance: dict[str, Any]) -> None:
        self.step = step
        self.spent = spent
        self.provenance = provenance

    @property
    def releasable(self) -> bool:
        """Whether this may be published: a private mechanism, run with the operating system's noise."""
        return bool(self.provenance["releasable"])

    @property
    def total(self) -> int:
        """How many synthetic records there are: points, rows or trips."""
        return len(self.data)

    @cached_property
    def data(self) -> pd.DataFrame:
        """The synthetic dataset as a frame, built when first asked for."""
        return self._build()

    @property
    def layers(self) -> dict[str, pd.DataFrame]:
        """The frames of the dataset by name, as ``publish`` hands them on; trips have two."""
        return {self.product: self.data}

    @abstractmethod
    def _build(self) -> pd.DataFrame:
        """Make the synthetic dataset."""

    def tables(self) -> Iterator[pa.Table]:
        """The dataset as Arrow tables that follow each other, so that a writer need not hold all of it."""
        yield arrow_table(self.data, self.provenance)

    @abstractmethod
    def redraw(self, turn: int) -> Self:
        """Another dataset from the same released numbers; ``turn`` tells draws apart. Costs nothing."""

    @abstractmethod
    def expected_error(self) -> pd.DataFrame:
        """What the noise alone does to the released numbers. Uses no private data, so it may be published."""

    def to_pandas(self) -> pd.DataFrame:
        """The synthetic dataset as a plain DataFrame without geometry objects."""
        frame = pd.DataFrame(self.data)
        return frame.drop(columns=[c for c in frame.columns if frame[c].dtype.name == "geometry"])

    def to_numpy(self) -> np.ndarray:
        """The numeric columns of the synthetic dataset as one array."""
        return np.asarray(self.to_pandas().select_dtypes("number").to_numpy())

    def iter_batches(self, size: int = 1024) -> Iterator[pd.DataFrame]:
        """The synthetic dataset in frames of ``size`` rows, for training loops."""
        validate.whole(size, "size", low=1)
        frame = self.to_pandas()
        for start in range(0, len(frame), size):
            yield frame.iloc[start : start + size]

    def to_arrow(self, *, crs: Any = None) -> pa.Table:
        """The synthetic dataset as an Arrow table, geometries as in GeoParquet, the provenance in its
        metadata.
        """
        return arrow_table(in_crs(self.data, crs), self.provenance)

    def to_polars(self, *, crs: Any = None) -> Any:
        """The synthetic dataset as a polars DataFrame, with coordinates in place of geometry objects."""
        polars = require("polars", extra="polars")
        return polars.from_arrow(arrow_table(self._flat(crs), self.provenance))

    def to_parquet(self, path: str | os.PathLike[str], *, crs: Any = None) -> None:
        """Write Parquet (GeoParquet where there are geometries), the provenance in the file's metadata.

        ``crs`` moves the geometries to another coordinate system than the domain's, here and in all writers.
        """
        if crs is None:
            write_tables(self.tables(), path)
        else:
            write_parquet(in_crs(self.data, crs), path, self.provenance)

    def to_csv(self, path: str | os.PathLike[str], *, crs: Any = None) -> None:
        """Write CSV, and the provenance beside it as ``<name>.provenance.json``.

        With ``crs="EPSG:4326"`` the coordinates are columns ``lon`` and ``lat``, with another one ``x`` and
        ``y`` in it.
        """
        write_csv(self._flat(crs), path)
        self._write_provenance(path)

    def _flat(self, crs: Any) -> pd.DataFrame:
        """The dataset without geometry objects, its coordinates in ``crs``."""
        if crs is None:
            return self.to_pandas()
        moved = in_crs(self.data, crs)
        names = ("lon", "lat") if moved.crs.to_epsg() == 4326 else ("x", "y")
        places = dict(zip(names, (moved.geometry.x.to_numpy(), moved.geometry.y.to_numpy()), strict=True))
        plain = pd.DataFrame(moved).drop(columns=["x", "y", moved.geometry.name], errors="ignore")
        return plain.assign(**places)

    def explore(self, **options: Any) -> Any:
        """An interactive map in a notebook, by folium through ``GeoDataFrame.explore``; lines for trips.

        Only synthetic data is shown. Draws at most 20,000 records: it says so where there are more.
        """
        require("folium", extra="notebook")
        frame = next(iter(self.layers.values()))
        if getattr(frame, "crs", None) is None:
            raise ConfigError("a map needs geometries with a coordinate system: give the domain a crs")
        if len(frame) > _MOST_EXPLORED:
            warnings.warn(f"drawing {_MOST_EXPLORED:,} of {len(frame):,} records", stacklevel=2)
            frame = frame.iloc[:_MOST_EXPLORED]
        times = [name for name in frame if pd.api.types.is_datetime64_any_dtype(frame[name])]
        return frame.assign(**{name: frame[name].astype(str) for name in times}).explore(**options)

    def _repr_html_(self) -> str:
        budget = self.provenance["budget"]
        facts = {
            "mechanism": self.provenance["mechanism"],
            "protects": self.provenance["unit"],
            "ε": None if budget is None else budget["epsilon"],
            "δ": budget["delta"] if budget and budget["delta"] else None,
            "may be published": "yes"
            if self.releasable
            else f"NO: {self.provenance.get('not_releasable_because', 'not releasable')}",
        }
        return facts_html(repr(self), facts, below=self.to_pandas().head().to_html(index=False))

    def publish(
        self,
        directory: str | os.PathLike[str],
        *,
        formats: Any = ("geoparquet", "csv"),
        crs: Any = None,
        overwrite: bool = False,
        **description: Any,
    ) -> Path:
        """Write a folder that can be handed on: data, data card, statement, registry entry and checksums.

        ``formats`` are among ``geoparquet``, ``gpkg``, ``csv`` and ``xlsx``. Geometries are in ``crs``, by
        default longitude and latitude. ``description`` is what only the curator can tell, all of it
        published: ``title``, ``summary``, ``curator``, ``curator_type``, ``contact``, ``license``,
        ``region``, ``sector``, ``use``, ``period``, and ``after_looking``, a list of declarations that were
        made after looking at the private data. Refuses what is not releasable; all files have mode 0644.
        """
        from synthgeo.publishing.card import Description
        from synthgeo.publishing.folder import publish

        known = {field.name for field in fields(Description)}
        if not set(description) <= known:
            wrong = min(set(description) - known)
            raise ConfigError(f"publish has no argument {wrong!r}; it takes {', '.join(sorted(known))}")
        about = Description(**description)
        return publish(
            [self], directory, formats=formats, crs=crs, description=about, overwrite=overwrite
        ).folder

    def __repr__(self) -> str:
        kind = {"points": "points", "table": "rows", "trips": "trips"}.get(self.product, "records")
        private = "" if self.releasable else ", not releasable"
        return f"{type(self).__name__}(step {self.step}, {self.total:,} synthetic {kind}{private})"

    def _write_provenance(self, path: str | os.PathLike[str]) -> None:
        beside = Path(f"{os.fspath(path)}.provenance.json")
        beside.write_text(json.dumps(self.provenance, indent=2) + "\n")


def in_crs(frame: pd.DataFrame, crs: Any) -> Any:
    """A frame with its geometries, and columns x and y that go with them, in another coordinate system."""
    if crs is None:
        return frame
    if getattr(frame, "crs", None) is None:
        raise ConfigError("crs= needs geometries whose own coordinate system is known")
    moved: Any = frame.to_crs(crs)  # type: ignore[operator]
    if {"x", "y"} <= set(moved.columns):
        moved = moved.assign(x=moved.geometry.x, y=moved.geometry.y)
    return moved


def write_parquet(
    frame: pd.DataFrame,
    path: str | os.PathLike[str],
    statement: dict[str, Any],
    *,
    geoparquet: Literal["1.0.0", "1.1.0"] = "1.0.0",
) -> None:
    """Parquet or GeoParquet with ``statement`` under the metadata key ``synthgeo``."""
    import pyarrow.parquet as pq

    pq.write_table(arrow_table(frame, statement, geoparquet=geoparquet), path)


# What a spreadsheet takes for a formula, with apostrophes before it or not; plain numbers are none.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def write_csv(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """CSV in which no text is a formula: one that begins with = + - @, a tab or a line end gets an apostrophe
    before it, in cells and in names of columns. Numbers stay numbers.

    To read such texts back, take one apostrophe from those that begin with apostrophes and one of these
    characters. Texts that had apostrophes there have one more, so nothing is lost.
    """
    safe = frame.copy(deep=False)
    for place, kind in enumerate(frame.dtypes):
        if isinstance(kind, pd.CategoricalDtype | pd.StringDtype) or pd.api.types.is_object_dtype(kind):
            safe.isetitem(place, frame.iloc[:, place].astype(object).map(_no_formula))
    safe.columns = pd.Index([_no_formula(name) for name in frame.columns])
    safe.to_csv(path, index=False)


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def write_tables(tables: Iterator[pa.Table], path: str | os.PathLike[str]) -> None:
    """Parquet of tables that follow each other: one of them is in memory at a time."""
    import pyarrow.parquet as pq

    table = next(tables)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        del table
        for table in tables:
            writer.write_table(table)


def arrow_table(
    frame: pd.DataFrame,
    statement: dict[str, Any],
    *,
    geoparquet: Literal["1.0.0", "1.1.0"] = "1.0.0",
    bounds: bool = True,
) -> pa.Table:
    """The frame as Arrow, its geometries as GeoParquet has them; ``bounds=False`` where more rows follow."""
    import geopandas as gpd
    import pyarrow as pa

    facts = {METADATA_KEY: json.dumps(statement).encode()}
    if isinstance(frame, gpd.GeoDataFrame):
        columns = {}
        for name in frame.columns[frame.dtypes == "geometry"]:
            series = frame[name]
            columns[name] = {
                "encoding": "WKB",
                "crs": None if series.crs is None else series.crs.to_json_dict(),
                "geometry_types": sorted(series.geom_type.dropna().unique()),
                **({"bbox": series.total_bounds.tolist()} if bounds and len(series) else {}),
            }
        geo = {"version": geoparquet, "primary_column": frame.active_geometry_name, "columns": columns}
        facts[b"geo"] = json.dumps(geo).encode()
        frame = frame.to_wkb()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **facts})


def read_provenance(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The statement in a file that ``to_parquet`` wrote, or None."""
    import pyarrow.parquet as pq

    text = (pq.read_schema(path).metadata or {}).get(METADATA_KEY)
    return None if text is None else json.loads(text)

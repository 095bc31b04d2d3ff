"""The formats of published data: GeoParquet 1.1, GeoPackage, CSV and Excel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype

from synthgeo import validate
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.release import write_csv, write_parquet

FORMATS = ("geoparquet", "gpkg", "csv", "xlsx")
MOST_EXCEL_ROWS = 1_048_575  # and one for the header
_MOST_EXCEL_TEXT = 32_767


def check_formats(formats: Any) -> tuple[str, ...]:
    """The formats as a tuple; ``ConfigError`` for one that is not there, and where Excel's writer is not."""
    chosen = (formats,) if isinstance(formats, str) else tuple(formats)
    if not chosen:
        raise ConfigError(f"name at least one format: {validate.any_of(FORMATS)}")
    for name in chosen:
        validate.one_of(name, "format", FORMATS)
    if "xlsx" in chosen:
        require("openpyxl", extra="excel")
    return tuple(dict.fromkeys(chosen))


def check_fits(frames: Mapping[str, pd.DataFrame], formats: Sequence[str]) -> None:
    """Refuse what a format cannot hold, before anything is written."""
    for name, frame in frames.items():
        if "xlsx" in formats and len(frame) > MOST_EXCEL_ROWS:
            raise ConfigError(
                f"{name}: {len(frame):,} rows, and a sheet of Excel holds {MOST_EXCEL_ROWS:,}; choose csv or "
                "geoparquet, or publish fewer"
            )


def write(
    frames: Mapping[str, pd.DataFrame],
    folder: Path,
    formats: Sequence[str],
    *,
    name: str,
    statement: dict[str, Any],
    dictionary: Mapping[str, pd.DataFrame],
) -> list[Path]:
    """Write all frames in all formats; the paths that were written."""
    made: list[Path] = []
    for chosen in formats:
        made += _WRITERS[chosen](frames, folder, name, statement, dictionary)
    return made


def _geoparquet(
    frames: Mapping[str, pd.DataFrame], folder: Path, _name: str, statement: dict[str, Any], _: Any
) -> list[Path]:
    made = []
    for layer, frame in frames.items():
        made.append(folder / f"{layer}.parquet")
        write_parquet(frame, made[-1], statement, geoparquet="1.1.0")
    return made


def _gpkg(frames: Mapping[str, pd.DataFrame], folder: Path, name: str, *_: Any) -> list[Path]:
    import pyogrio

    path = folder / f"{name}.gpkg"
    for layer, frame in frames.items():
        pyogrio.write_dataframe(frame, path, layer=layer, driver="GPKG", append=path.exists())
    return [path]


def _csv(frames: Mapping[str, pd.DataFrame], folder: Path, *_: Any) -> list[Path]:
    made = []
    for layer, frame in frames.items():
        made.append(folder / f"{layer}.csv")
        flat = _flat(frame)
        times = {name: _iso(flat[name]) for name in flat if is_datetime64_any_dtype(flat[name])}
        write_csv(flat.assign(**times), made[-1])
    return made


def _xlsx(
    frames: Mapping[str, pd.DataFrame],
    folder: Path,
    name: str,
    _statement: Any,
    dictionary: Mapping[str, pd.DataFrame],
) -> list[Path]:
    openpyxl = require("openpyxl", extra="excel")
    book = openpyxl.Workbook(write_only=True)
    sheets = {**{layer: _flat(frame) for layer, frame in frames.items()}}
    sheets |= {f"columns of {layer}"[:31]: table for layer, table in dictionary.items()}
    for title, frame in sheets.items():
        sheet = book.create_sheet(title)
        sheet.freeze_panes = "A2"
        sheet.append(_cells(pd.Series([str(column) for column in frame.columns], dtype=object), sheet))
        for row in zip(*(_cells(frame[column], sheet) for column in frame.columns), strict=True):
            sheet.append(row)
    path = folder / f"{name}.xlsx"
    book.save(path)
    return [path]


def _iso(values: pd.Series) -> pd.Series:
    """Times as ISO 8601, with their offset from UTC where they have a zone."""
    local = values.dt.tz_localize(None) if isinstance(values.dtype, pd.DatetimeTZDtype) else values
    whole = bool((local.dropna().astype("datetime64[us]").astype(np.int64) % 1_000_000 == 0).all())
    text = pd.Series(np.datetime_as_string(local.to_numpy(), unit="s" if whole else "ms"), index=values.index)
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        offset = values.dt.strftime("%z")
        text = text + offset.str[:3] + ":" + offset.str[3:]
    return text.mask(values.isna())


def _cells(values: pd.Series, sheet: Any) -> list[Any]:
    """A column as cells: times without a zone, gaps as empty cells, text that begins with = as text. What no
    sheet can hold (control characters) becomes a question mark.
    """
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    if isinstance(values.dtype, pd.DatetimeTZDtype):
        values = values.dt.tz_localize(None)
    cells = [None if absent else value for value, absent in zip(values.tolist(), values.isna(), strict=True)]
    if not any(isinstance(cell, str) for cell in cells):
        return cells
    cells = [ILLEGAL_CHARACTERS_RE.sub("?", cell) if isinstance(cell, str) else cell for cell in cells]
    for at, cell in enumerate(cells):
        if isinstance(cell, str) and cell.startswith("="):
            kept: Any = WriteOnlyCell(sheet, value=cell[:_MOST_EXCEL_TEXT])
            kept.data_type = "s"
            cells[at] = kept
    return cells


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Without geometries: their coordinates stand in columns of their own."""
    plain = pd.DataFrame(frame)
    return plain.drop(columns=[name for name in plain if plain[name].dtype.name == "geometry"])


_WRITERS: dict[str, Callable[..., list[Path]]] = {
    "geoparquet": _geoparquet,
    "gpkg": _gpkg,
    "csv": _csv,
    "xlsx": _xlsx,
}

"""What a release file can say: sections and keys, declared once.

The reader, the writer, the JSON Schema and the page in the documentation all follow from these classes. Keys
are the names of the Python arguments.
"""

# A key is declared by a call.
# ruff: noqa: RUF009
from __future__ import annotations

import inspect
import re
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any

from synthgeo.errors import ConfigError
from synthgeo.publishing.card import CURATOR_TYPES, SECTORS, Description
from synthgeo.sources.declared import Reading

#: What a release file can be about, in words.
KINDS = {
    "points": "places over time: pickups, accidents, check-ins",
    "table": "rows of columns: a register, a survey",
    "households": "two tables that a key joins: households and their persons",
    "panel": "the same persons, wave after wave",
    "trips": "points of trips over time",
    "od": "trips that are known by their two ends",
    "series": "one number for each time step",
}
_SPATIAL, _TRIPS, _SCHEMED = ("points", "trips", "od"), ("trips", "od"), ("table", "panel", "trips", "od")
_CUT = ("points", "table", "panel", "trips")

#: What a value can be, in words, and as JSON Schema.
TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("a text", {"type": "string"}),
    "number": ("a number", {"type": "number"}),
    "whole": ("a whole number", {"type": "integer"}),
    "flag": ("true or false", {"type": "boolean"}),
    "texts": ("a list of texts", {"type": "array", "items": {"type": "string"}}),
    "numbers": ("a list of numbers", {"type": "array", "items": {"type": "number"}}),
    "pair": (
        "a list of two texts",
        {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
    ),
    "bounds": (
        "four numbers, [minx, miny, maxx, maxy]",
        {"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4},
    ),
    "moment": ("a date or a time", {"type": "string"}),
    "steps": (
        'a whole number of steps or a length of time such as "30D"',
        {"type": ["integer", "string"]},
    ),
    "files": (
        "a text, a list of texts, or one for each of parents and children",
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": False,
                 "properties": {name: {"type": ["string", "array"]} for name in ("parents", "children")}},
            ]
        },
    ),
    "any": ("a value", {}),
}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """One key: what its value can be, a line of help, and the kinds of release that have it."""

    type: str
    help: str
    kinds: tuple[str, ...] = tuple(KINDS)
    choices: tuple[str, ...] = ()
    keys: dict[str, Key] | None = None  # of an inline table
    default: Any = None


def _key(type_: str, help_: str, **facts: Any) -> Any:
    return field(default=None, metadata={"key": Key(type_, help_, **facts)})


_READING = {
    "delimiter": ("text", 'Character between fields, such as ";" or "\\t".'),
    "quote": ("text", "Character around fields; empty: there is none."),
    "decimal": ("text", "Decimal mark of numbers."),
    "thousands": ("text", "Mark between groups of three digits."),
    "encoding": ("text", "utf-8, or one such as latin-1 or cp1252."),
    "time_format": ("text", 'iso, unix, or a format such as "%m/%d/%Y %H:%M".'),
    "tz": ("text", "Time zone of times without an offset, such as Europe/Berlin."),
    "missing": ("texts", "Texts that mean no value."),
    "columns": ("texts", "Names of the columns of files without a header."),
    "ids": ("texts", "What does not tell two ids apart: some of space, case, zeros."),
    "unattended": ("flag", "Nobody looks: bad rows are dropped, and no private row stops a release."),
    "bad_rows": ("text", "error refuses a file with a row that cannot be read; drop leaves such rows out."),
}


def _reading_keys() -> dict[str, Key]:
    """Every declaration of reading; those without words here are taken as they are."""
    named = [one.name for one in fields(Reading)]
    return {name: Key(*_READING.get(name, ("any", "As in sg.Reading."))) for name in named}


@dataclass(frozen=True)
class About:
    """What is released, and where it is kept. These keys stand at the top of the file, in no section."""

    kind: str = _key("text", "What is released.", choices=tuple(KINDS))
    title: str | None = _key("text", "Title of the release.")
    contact: str | None = _key("text", "Whom to ask about it.")
    folder: str | None = _key(
        "text", "Folder of the run or model: private. Default: runs/ and the name of this file."
    )


@dataclass(frozen=True)
class Data:
    """The private files, and how they are written. Paths begin at the folder of the release file."""

    files: Any = _key("files", "The files: CSV, Parquet, GeoParquet, GeoJSON, GeoPackage; globs.")
    reading: dict[str, Any] | None = _key("table", "How text is read.", keys=_reading_keys())


@dataclass(frozen=True)
class Columns:
    """Which column is what. Columns with usual names (x, y, lon, lat, trip_id, op) need no line."""

    x: str | None = _key("text", "Column of x or longitude.", kinds=("points", "trips"))
    y: str | None = _key("text", "Column of y or latitude.", kinds=("points", "trips"))
    crs: str | None = _key("text", "Coordinate system of these columns, such as EPSG:4326.", kinds=_SPATIAL)
    origin: list[str] | None = _key("pair", "The two columns of a trip's start.", kinds=("od",))
    destination: list[str] | None = _key("pair", "The two columns of a trip's end.", kinds=("od",))
    departure: str | None = _key("text", "Column of departure times.", kinds=("od",))
    arrival: str | None = _key("text", "Column of arrival times.", kinds=("od",))
    trip: str | None = _key("text", "Column that tells trips apart.", kinds=("trips",))
    time: str | None = _key("text", "Column of times.", kinds=_CUT)
    user: str | None = _key(
        "text", "Column that tells apart the people whom [privacy] unit protects; it is not released.",
        kinds=("points", "table", "panel", "trips", "od"),
    )  # fmt: skip
    wave: str | None = _key("text", "Column that names the wave of each row.", kinds=("panel",))
    op: str | None = _key(
        "text", "Column that is 1 for an insertion and -1 for a deletion.", kinds=("points", "table")
    )
    inserted: str | None = _key(
        "text", "Column that says of a deletion when its row came.", kinds=("points", "table")
    )
    key: str | None = _key("text", "Column that joins both tables.", kinds=("households",))
    value: str | None = _key("text", "The column of numbers to release.", kinds=("series",))
    keep: list[str] | None = _key(
        "texts", "Public columns to copy beside it, such as the date.", kinds=("series",)
    )


_UNIT = {
    "of": Key("text", "Who or what is protected.", choices=("event", "trip", "user")),
    "max_events": Key("whole", "Rows of one person that count (of a panel: waves)."),
    "max_trajectories": Key("whole", "Trips of one person that count.", kinds=_TRIPS),
    "per": Key("steps", "The public period for which the bound holds: 1MS for months. Default: for life."),
}


@dataclass(frozen=True)
class Privacy:
    """What is promised, and to whom."""

    epsilon: float = _key("number", "The privacy budget ε.")
    delta: float | None = _key("number", "The privacy budget δ; 0 is pure ε.")
    unit: dict[str, Any] | None = _key("table", "Who or what is protected.", keys=_UNIT)
    ledger: str | None = _key("text", "Ledger of the dataset, charged with the whole budget.")
    seed: int | None = _key("whole", "Seeded noise, for tests and teaching: not to be published.")


@dataclass(frozen=True)
class Place:
    """The public domain: one of bounds, land and roads."""

    bounds: list[float] | None = _key("bounds", "A box: west, south, east, north.", kinds=_SPATIAL)
    crs: str | None = _key("text", "Coordinate system of the bounds, such as EPSG:4326.", kinds=_SPATIAL)
    land: str | None = _key("text", "Polygons: a GeoJSON, GeoPackage or GeoParquet file.", kinds=_SPATIAL)
    roads: str | None = _key("text", "A road network: an osmnx GraphML file.", kinds=_SPATIAL)
    max_distance: float | None = _key(
        "number", "Metres from the roads beyond which a point is outside.", kinds=_SPATIAL
    )
    h3: int | None = _key(
        "whole", "Cut the box or the land into cells of H3 of this resolution.", kinds=("points",)
    )


@dataclass(frozen=True)
class Time:
    """The public steps: windows of time, waves, or files."""

    every: str | None = _key(
        "text",
        'Length of a window, such as 6h, 1D or 1MS; or "file": each file is a step. A table or trips without '
        "it are released once.",
        kinds=_CUT,
    )
    start: str | None = _key("moment", "Where the first window starts.", kinds=_CUT)
    end: str | None = _key(
        "moment",
        "Where the last window ends. Default: the last window that the clock has closed.",
        kinds=_CUT,
    )
    wait: str | None = _key(
        "text", "How long after its end a window is taken, such as 2D: rows that come later are left out.",
        kinds=_CUT,
    )  # fmt: skip
    tz: str | None = _key("text", "Time zone of times without an offset, such as Europe/Berlin.")
    lifetime: Any = _key("steps", "A release holds the last steps only.", kinds=("points", "table", "trips"))
    waves: list[str] | None = _key("texts", "The waves, in order.", kinds=("panel",))


@dataclass(frozen=True)
class Engine:
    """Where counting runs; by default in this process."""

    scheduler: str | None = _key("text", "Address of a dask cluster.")
    spark: str | None = _key("text", "Where Spark counts: spark://host:7077, yarn or local[4].")
    timeout: float | None = _key("number", "Seconds that the cluster may take for a batch.")
    user_table: str | None = _key(
        "text", "Folder for what a new run remembers about users.", kinds=("points", "table")
    )


@dataclass(frozen=True)
class Publish:
    """What is handed on."""

    formats: list[str] | None = _key("texts", "Some of geoparquet, gpkg, csv, xlsx.")
    crs: str | None = _key("text", "Coordinate system of geometries; default: EPSG:4326.", kinds=_SPATIAL)
    steps: Any = _key("any", "last, all, or a list of numbers; default: all if lifetime is 1, else last.")
    rows: int | None = _key("whole", "Of a release made once: how many rows or trips to draw.")
    parts: list[str] | None = _key(
        "texts", "What a run stores: data, cells, changes; of trips data, trips, lines.",
        kinds=("points", "trips"),
    )  # fmt: skip
    summary: str | None = _key("text", "What the data is about.")
    curator: str | None = _key("text", "Who publishes it.")
    curator_type: str | None = _key("text", "What kind of office that is.", choices=CURATOR_TYPES)
    license: str | None = _key("text", "Under what licence.")
    region: str | None = _key("text", "What region it is about.")
    sector: str | None = _key("text", "The sector.", choices=SECTORS)
    use: str | None = _key("text", "What it is meant for.")
    period: str | None = _key("text", "What time it is about.")
    after_looking: list[str] | None = _key(
        "texts", "Declarations that were made after a look at the private data."
    )

    def description(self, about: About) -> Description:
        """What the data card says."""
        named = {one.name for one in fields(Description)} - {"title", "contact", "after_looking"}
        return Description(
            title=about.title,
            contact=about.contact,
            after_looking=tuple(self.after_looking or ()),
            **{name: getattr(self, name) for name in named},
        )


#: The sections with fixed keys, in the order of a canonical file; "" is the top.
SECTIONS: dict[str, type[Any]] = {
    "": About,
    "data": Data,
    "columns": Columns,
    "privacy": Privacy,
    "place": Place,
    "time": Time,
    "engine": Engine,
    "publish": Publish,
}
#: Sections whose keys are the columns of a table, and the kinds that have them.
SCHEMAS = {"schema": _SCHEMED, "parent": ("households",), "child": ("households",)}
RULE = {
    "depends": Key("any", "{ fine = coarse }: the second column follows from the first; with mapping."),
    "mapping": Key("any", "The value of the coarse column for each value of the fine one."),
    "check": Key("text", 'What holds in every row: "start <= end" or "total == fare + tip".'),
    "impossible": Key("any", "Values, lists or { range = [low, high] } that do not occur together."),
    "of": Key("text", "Which table of households the rule is about.", choices=("parent", "child")),
}
ORDER = ("", "data", "columns", "privacy", "place", "time", *SCHEMAS, "rules", "method", "engine", "publish")


def keys_of(section: str) -> dict[str, Key]:
    """The keys of a section with fixed ones."""
    return {one.name: _declared(one) for one in fields(SECTIONS[section])}


def _declared(one: Field[Any]) -> Key:
    found: Key = one.metadata["key"]
    return found


# Arguments of the products that other sections hold, or that a file cannot hold.
_ELSEWHERE = {
    "domain", "budget", "unit", "lifetime", "reading", "noise", "ledger", "schema", "attributes",
    "parent", "child", "columns", "settings", "x", "y", "crs", "trip", "time", "op", "inserted", "key",
    "progress", "partition", "cleaning", "tz", "start",
}  # fmt: skip
_OF_TYPES = {"int": "whole", "float": "number", "str": "text", "bool": "flag"}


def class_name(kind: str, *, steps: bool) -> str:
    """The name in ``sg`` of the product that makes a kind of release."""
    return {
        "points": "PHDStream",
        "table": "TabularStream" if steps else "TabularSynthesizer",
        "households": "HouseholdSynthesizer",
        "panel": "PanelStream",
        "trips": "TrajectoryStream" if steps else "TrajectorySynthesizer",
        "od": "TrajectorySynthesizer",
    }[kind]


@cache
def method_keys(kind: str, *, steps: bool = False) -> dict[str, Key]:
    """The keys of [method]: the advanced arguments of the product, by their own signature."""
    import synthgeo as sg

    if kind == "series":
        return {"mechanism": Key("text", "auto, fast, lpa, dft, ar1, absorption, ..."), **_series_keys()}
    product = getattr(sg, class_name(kind, steps=steps))
    found = {**arguments_of(product), **settings_of(product)}
    words = _described(product)
    return {
        name: Key(_type_of(parameter), words.get(name, ""), default=_plain(parameter.default))
        for name, parameter in found.items()
        if name not in _ELSEWHERE
    }


def arguments_of(product: type[Any]) -> dict[str, inspect.Parameter]:
    """The arguments of a product's constructor."""
    found = dict(inspect.signature(product).parameters)
    return {name: one for name, one in found.items() if one.kind is not inspect.Parameter.VAR_KEYWORD}


def settings_of(product: type[Any]) -> dict[str, inspect.Parameter]:
    """The settings that a product takes, as arguments."""
    kind = product.parts.get("settings")
    found = {} if kind is None else dict(inspect.signature(kind).parameters)
    return {name: one for name, one in found.items() if product.takes is None or name in product.takes}


def _series_keys() -> dict[str, Key]:
    from streams.scalar.release import MECHANISMS

    found: dict[str, Key] = {}
    for kind in MECHANISMS.values():
        for name, parameter in (arguments_of(kind) | settings_of(kind)).items():
            if name not in ("settings", "budget", "noise", "unit", "self"):
                found[name] = Key(_type_of(parameter) if name not in found else "any", "")
    return found


def _type_of(parameter: inspect.Parameter) -> str:
    parts = {part.strip() for part in str(parameter.annotation).split("|")} - {"None"}
    types = {_OF_TYPES.get(part, "any") for part in parts}
    return types.pop() if len(types) == 1 else "any"


def _plain(value: Any) -> Any:
    return None if value is inspect.Parameter.empty else value


def _described(product: type[Any]) -> dict[str, str]:
    """The first sentence about each argument, where a docstring lists them one by one."""
    kinds = [product, *product.parts.values()]
    text = "\n".join(inspect.getdoc(kind) or "" for kind in kinds)
    found = re.findall(r"^(\w[\w, ]*)\n    (\S[^\n]*(?:\n    \S[^\n]*)*)", text, re.MULTILINE)
    out: dict[str, str] = {}
    for names, words in found:
        line = " ".join(words.split())
        for name in names.split(","):
            out[name.strip()] = line.partition(". ")[0].rstrip(".") + "."
    return out


def check_kind(kind: Any) -> str:
    """A kind of release; ``ConfigError`` for anything else."""
    if kind not in KINDS:
        raise ConfigError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    return str(kind)

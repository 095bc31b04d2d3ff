"""From a release file to the product that makes the release, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthgeo.errors import ConfigError, SynthGeoError
from synthgeo.release_file.sections import (
    Columns,
    arguments_of,
    class_name,
)
from synthgeo.release_file.text import Values, plain

if TYPE_CHECKING:
    from synthgeo.domain.box import SpatialDomain
    from synthgeo.privacy.ledger import Ledger
    from synthgeo.privacy.unit import PrivacyUnit
    from synthgeo.release_file.file import ReleaseFile
    from synthgeo.schema import Schema
    from synthgeo.sources.declared import Reading


def reading_of(file: ReleaseFile) -> Reading:
    """How the files are written."""
    from synthgeo.sources.declared import Reading

    given = dict(file.data.reading or {})
    if "missing" in given and "" not in given["missing"]:
        given["missing"] = ["", *given["missing"]]
    if given.get("quote") == "":
        given["quote"] = None
    if given.get("delimiter") == "\\t":
        given["delimiter"] = "\t"
    if file.time.tz is not None:
        given["tz"] = file.time.tz
    return Reading(**given)


def unit_of(file: ReleaseFile) -> PrivacyUnit | None:
    """Who is protected; None leaves it to the product: one row, one trip."""
    from synthgeo.privacy.unit import PrivacyUnit

    unit = file.privacy.unit or {}
    bounds = {name: unit[name] for name in ("max_events", "max_trajectories", "per") if name in unit}
    user = file.columns.user
    if (unit.get("of") or ("user" if bounds else None)) != "user":
        if bounds:
            raise file.error(("privacy", "unit"), f'{", ".join(bounds)} goes with of = "user"')
        if user is not None:
            raise file.error(
                ("columns", "user"), f'{user!r} says whose each row is: say unit = {{ of = "user", ... }} too'
            )
        if file.kind == "panel":
            raise file.error(
                ("privacy",), 'a panel protects persons: unit = { of = "user", max_events = ... }'
            )
        return None
    if user is None:
        raise file.error(("privacy", "unit"), "give [columns] user, the column that tells people apart")
    wanted = "max_trajectories" if file.kind in ("trips", "od") else "max_events"
    if wanted not in bounds:
        raise file.error(("privacy", "unit"), f"unit needs {wanted}, how much of one person counts")
    return PrivacyUnit.user(key=user, **bounds)


def domain_of(file: ReleaseFile, place: Mapping[str, Any] | None = None) -> SpatialDomain:
    """The public domain of [place]: a box, land, or roads; or the cells of H3 over a box or land."""
    from synthgeo.domain.box import BoxDomain

    facts = place if place is not None else {**file.values.get("place", {})}
    one = [name for name in ("bounds", "land", "roads") if facts.get(name) is not None]
    if len(one) != 1:
        problem = f"both {one[0]} and {one[1]} are given" if one else "there is none"
        raise file.error(("place",), f"give the domain once, as bounds, land or roads: {problem}")
    for name, goes in (("crs", "bounds"), ("max_distance", "roads")):
        if facts.get(name) is not None and one != [goes]:
            raise file.error(("place", name), f"{name} goes with {goes}; files know their own")
    if facts.get("h3") is not None and one == ["roads"]:
        raise file.error(("place", "h3"), "h3 goes with bounds or land: roads are cut along themselves")
    if one == ["roads"]:
        from synthgeo.domain.roads import RoadDomain

        distance = facts.get("max_distance")
        path = _there(file, "roads", facts["roads"])
        return RoadDomain.from_graphml(path, max_distance=50.0 if distance is None else distance)
    domain: Any
    if one == ["bounds"]:
        domain = BoxDomain(*facts["bounds"], crs=facts.get("crs"))
    else:
        from synthgeo.domain.polygon import PolygonDomain

        domain = PolygonDomain(_land(_there(file, "land", facts["land"])))
    if facts.get("h3") is None:
        return domain  # type: ignore[no-any-return]
    from synthgeo.domain.h3 import H3Domain

    return H3Domain(resolution=facts["h3"], within=domain)


def _there(file: ReleaseFile, name: str, path: str) -> Path:
    found = file.path_of(path)
    if not found.exists():
        raise file.error(("place", name), f"{name}: there is no file {found}")
    return found


def _land(path: Path) -> Any:
    import geopandas as gpd

    try:
        return gpd.read_parquet(path) if path.suffix in (".parquet", ".geoparquet") else gpd.read_file(path)
    except Exception as problem:  # readers of many formats, no common base
        raise ConfigError(f"{path.name} cannot be read ({problem})") from problem


def schema_of(file: ReleaseFile, section: str = "schema") -> Schema | None:
    """The columns and rules of a table; None where the file has none."""
    from synthgeo.schema import Schema

    columns = file.values.get(section)
    if columns is None:
        return None
    made: Values = {"columns": {}}
    for name, facts in columns.items():
        made["columns"][name] = _column(file, section, name, facts)
    for number, rule in enumerate(file.values.get("rules", [])):
        if rule.get("of", section) != section:
            continue
        try:
            kind, value = _rule(rule)
        except (TypeError, ValueError, KeyError, IndexError) as problem:
            raise file.error(("rules", str(number)), f"not a rule: {problem}") from None
        made.setdefault(kind, []).append(value)
    try:
        return Schema.from_json(made)
    except SynthGeoError as problem:
        name = next((name for name in columns if f"column {name!r}" in str(problem)), None)
        where = (section,) if name is None else (section, name)
        raise file.error(where, str(problem)) from None


def _column(file: ReleaseFile, section: str, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A column's facts as ``Schema.from_json`` takes them: a place is written like [place]."""
    if facts.get("type") != "location":
        return dict(facts)
    from synthgeo.schema import Location

    place = facts.get("domain", "place")
    if place != "place" and not isinstance(place, Mapping):
        raise file.error(
            (section, name), 'domain is "place" or a table such as { bounds = [...], crs = ... }'
        )
    domain = domain_of(file, None if place == "place" else place)
    rest = {key: value for key, value in facts.items() if key not in ("type", "domain")}
    if "columns" in rest:
        rest["columns"] = tuple(rest["columns"])
    try:
        return Location(domain, **rest).to_json()
    except TypeError as problem:
        raise file.error((section, name), f"{name}: {problem}") from None


def _rule(rule: Mapping[str, Any]) -> tuple[str, Any]:
    if "check" in rule:
        return "relations", rule["check"]
    if "impossible" in rule:
        return "impossible", {name: _nothing(value) for name, value in rule["impossible"].items()}
    ((fine, coarse),) = rule["depends"].items()
    mapping = rule["mapping"]
    pairs = list(mapping.items()) if isinstance(mapping, Mapping) else [list(pair) for pair in mapping]
    return "depends", {
        "fine": fine, "coarse": coarse, "mapping": [[_nothing(one) for one in pair] for pair in pairs]
    }  # fmt: skip


def _nothing(value: Any) -> Any:
    """TOML has no word for a missing value: { missing = true } is one."""
    return None if value == {"missing": True} else value


def product_of(file: ReleaseFile, *, ledger: Ledger | None = None) -> Any:
    """The synthesizer or stream that a release file describes. Nothing is read but public files."""
    import synthgeo as sg

    if file.kind == "series":
        raise ConfigError(
            "a series has no product of its own: its mechanism is made when its length is known"
        )
    kind = getattr(sg, class_name(file.kind, steps=file.has_steps))
    given: dict[str, Any] = {
        "budget": budget_of(file),
        "reading": reading_of(file),
        "noise": noise_of(file),
        "ledger": ledger,
        **file.values.get("method", {}),
    }
    if file.kind in ("points", "trips", "od"):
        given["domain"] = domain_of(file)
    unit = unit_of(file) if file.kind != "households" else None
    if unit is not None:
        given["unit"] = unit
    if file.kind == "households":
        given |= {table: _needed(file, table) for table in ("parent", "child")}
    elif file.kind in ("trips", "od"):
        given["attributes"] = schema_of(file)
    elif file.kind in ("table", "panel"):
        given["schema"] = _needed(file, "schema")
    lifetime = lifetime_of(file)
    if lifetime is not None:
        given["lifetime"] = lifetime
    names = ("x", "y", "crs", "op", "inserted", "key") + (("trip", "time") if file.kind == "trips" else ())
    known = {*arguments_of(kind), *(field.name for part in kind.parts.values() for field in fields(part))}
    named = {name: getattr(file.columns, name) for name in names if getattr(file.columns, name) is not None}
    given |= {name: value for name, value in named.items() if name in known}
    for name in ("workload", "split"):
        if name in given:
            given[name] = tuple(tuple(one) if isinstance(one, list) else one for one in given[name])
    try:
        return kind.from_options(**{name: value for name, value in given.items() if value is not None})
    except TypeError as problem:
        raise file.error((), f"{kind.__name__}: {problem}") from None
    except ConfigError as problem:
        raise file.error((), str(problem)) from problem


def _needed(file: ReleaseFile, section: str) -> Schema:
    found = schema_of(file, section)
    if found is None:
        raise file.error((), f"give [{section}.NAME] for each column: what it can hold")
    return found


def budget_of(file: ReleaseFile) -> Any:
    """The budget, which nobody may forget to give."""
    from synthgeo.privacy.budget import PrivacyBudget

    if file.privacy.epsilon is None:
        raise file.error(("privacy",), "give epsilon, the privacy budget")
    try:
        return PrivacyBudget(file.privacy.epsilon, file.privacy.delta or 0.0)
    except ConfigError as problem:
        raise file.error(("privacy", "epsilon"), str(problem)) from None


def noise_of(file: ReleaseFile) -> Any:
    """The operating system's noise, or seeded noise that marks the result as not for publication."""
    from synthgeo.privacy.noise import SeededNoise, SystemNoise

    return SystemNoise() if file.privacy.seed is None else SeededNoise(file.privacy.seed)


def lifetime_of(file: ReleaseFile) -> int | None:
    """The lifetime in steps; a time is counted in windows."""
    found: int | str | None = file.time.lifetime
    if not isinstance(found, str):
        return found
    if not file.has_windows:
        raise file.error(("time", "lifetime"), "a lifetime that is a time goes with windows: every = ...")
    from synthgeo.sources.grid import windows_in

    return windows_in(found, str(file.time.every))


# From a product to a file.

_KIND_OF = {
    "PHDStream": "points",
    "TabularSynthesizer": "table",
    "TabularStream": "table",
    "HouseholdSynthesizer": "households",
    "PanelStream": "panel",
    "TrajectorySynthesizer": "trips",
    "TrajectoryStream": "trips",
}


def values_of(product: Any, given: Mapping[str, Any]) -> Values:
    """What a release file says of a product; ``given`` are the sections that a product does not know."""
    name = type(product).__name__
    if name not in _KIND_OF:
        raise ConfigError(f"a release file cannot describe a {name}")
    values: Values = {"kind": given.get("kind", _KIND_OF[name])}
    params = _parameters(product)
    sections: dict[str, Values] = {section: {} for section in ("data", "columns", "privacy", "place", "time")}
    budget = params.pop("budget")
    sections["privacy"]["epsilon"] = budget.epsilon
    if budget.delta:
        sections["privacy"]["delta"] = budget.delta
    _put_noise(params.pop("noise", None), sections)
    _put_unit(params.pop("unit", None), sections)
    _put_reading(params.pop("reading", None), sections)
    _put_ledger(params.pop("ledger", None), sections)
    if "domain" in params:
        sections["place"] = _place(params.pop("domain"), given.get("place"))
    if params.get("lifetime") is not None:
        sections["time"]["lifetime"] = params["lifetime"]
    if name in ("TabularStream", "TrajectoryStream"):
        sections["time"]["every"] = "file"
    params.pop("lifetime", None)
    for column in ("x", "y", "crs", "op", "inserted", "key", "trip", "time"):
        if params.get(column) is not None:
            sections["columns"][column] = params[column]
        params.pop(column, None)
    schemas = {}
    for argument, section in (
        ("schema", "schema"),
        ("attributes", "schema"),
        ("parent", "parent"),
        ("child", "child"),
    ):
        schema = params.pop(argument, None)
        if schema is not None:
            schemas[section] = schema
    values |= sections
    for section, schema in schemas.items():
        _put_schema(schema, section, values)
    if "workload" in params:
        params["workload"] = _cliques(params["workload"], schemas["schema"])
    method = {key: _listed(value) for key, value in params.items() if value is not None}
    values["method"] = {key: plain(value) for key, value in method.items()}
    for section, own in given.items():
        if isinstance(own, Mapping) and section != "place":
            values[section] = {**values.get(section, {}), **plain(own)}
        elif section != "place":
            values[section] = plain(own)
    return {section: value for section, value in values.items() if value != {}}


def _parameters(product: Any) -> dict[str, Any]:
    """What a product was given that is not default, its settings among it."""
    defaults = {name: one.default for name, one in arguments_of(type(product)).items()}
    found = {name: value for name, value in product.get_params().items() if not _same(value, defaults[name])}
    for part, kind in product.parts.items():
        choices = found.pop(part, None)
        if choices is not None:
            changed = {f.name: getattr(choices, f.name) for f in fields(kind)}
            found |= {f.name: changed[f.name] for f in fields(kind) if changed[f.name] != f.default}
    return found


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def _put_noise(noise: Any, sections: dict[str, Values]) -> None:
    from synthgeo.privacy.noise import SeededNoise

    if isinstance(noise, SeededNoise):
        sections["privacy"]["seed"] = int(noise.state()["seed"])


def _put_unit(unit: Any, sections: dict[str, Values]) -> None:
    if unit is None or not unit.is_user:
        return
    bound = "max_trajectories" if unit.of == "trajectory" else "max_events"
    facts = {"of": "user", bound: unit.max_contributions}
    sections["privacy"]["unit"] = facts | ({} if unit.per is None else {"per": unit.per})
    sections["columns"]["user"] = unit.key


def _put_reading(reading: Any, sections: dict[str, Values]) -> None:
    from synthgeo.sources.declared import Reading

    if reading is None:
        return
    usual, found = Reading().to_dict(), reading.to_dict()
    changed = {name: value for name, value in found.items() if value != usual[name]}
    tz = changed.pop("tz", None)
    if tz is not None:
        sections["time"]["tz"] = tz
    if "quote" in changed and changed["quote"] is None:
        changed["quote"] = ""
    if changed:
        sections["data"]["reading"] = changed


def _put_ledger(ledger: Any, sections: dict[str, Values]) -> None:
    if ledger is not None:
        sections["privacy"]["ledger"] = str(ledger.path)


def _place(domain: Any, given: Mapping[str, Any] | None) -> Values:
    """[place] of a domain: a box by itself, any other with the file that it came from."""
    if given is not None:
        return dict(given)
    from synthgeo.domain.box import BoxDomain
    from synthgeo.domain.coordinates import crs_text

    if not isinstance(domain, BoxDomain):
        raise ConfigError(
            "a release file names the file of a domain that is no box: give place={'roads': 'city.graphml'} "
            "or place={'land': 'land.geojson'}"
        )
    bounds = [float(edge) for edge in domain.bounds]
    return {"bounds": bounds} | ({} if domain.crs is None else {"crs": crs_text(domain.crs)})


def _put_schema(schema: Schema, section: str, values: Values) -> None:
    facts = schema.to_json()
    columns: Values = {}
    for name, column in facts["columns"].items():
        if column["type"] != "location":
            columns[name] = column
            continue
        place = _place(schema.columns[name].domain, None)  # type: ignore[attr-defined]
        rest = {key: value for key, value in column.items() if key != "domain"}
        columns[name] = {**rest, "domain": "place" if place == values.get("place") else place}
    values[section] = columns
    of = {"of": section} if section in ("parent", "child") else {}
    rules: list[Values] = []
    rules += [
        {"impossible": {name: _missing(value) for name, value in entry.items()}}
        for entry in facts.get("impossible", [])
    ]
    for entry in facts.get("depends", []):
        pairs = [[_missing(one) for one in pair] for pair in entry["mapping"]]
        texts = all(isinstance(fine, str) for fine, _ in pairs)
        mapping = dict(pairs) if texts else pairs
        rules.append({"depends": {entry["fine"]: entry["coarse"]}, "mapping": mapping})
    rules += [{"check": text} for text in facts.get("relations", [])]
    if rules:
        values.setdefault("rules", []).extend([{**rule, **of} for rule in rules])


def _missing(value: Any) -> Any:
    return {"missing": True} if value is None else value


def _cliques(workload: Any, schema: Schema) -> list[list[str]]:
    """The marginals of a workload by name; refused where its weights are not the usual ones."""
    import synthgeo as sg

    found = [list(clique) for clique in workload]
    if (
        isinstance(workload, sg.results.Workload)
        and workload.weights != sg.results.Workload.of(schema, found).weights
    ):
        raise ConfigError(
            "a release file lists the marginals of a workload; its weights have to be the usual"
        )
    return found


def _listed(value: Any) -> Any:
    """Tuples as lists."""
    return [_listed(one) for one in value] if isinstance(value, list | tuple | set | frozenset) else value


def columns_for_fit(columns: Columns) -> dict[str, Any]:
    """The columns that a fit of trips is told."""
    names = ("trip", "time", "x", "y", "crs", "departure", "arrival")
    found = {name: getattr(columns, name) for name in names}
    pairs = {name: getattr(columns, name) for name in ("origin", "destination")}
    found |= {name: None if pair is None else tuple(pair) for name, pair in pairs.items()}
    return {name: value for name, value in found.items() if value is not None}

"""The text of a release file: read with line numbers, checked against the declarations, written, edited."""

from __future__ import annotations

import datetime as dt
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from synthgeo.errors import ConfigError
from synthgeo.release_file import sections as declared
from synthgeo.release_file.sections import KINDS, ORDER, SCHEMAS, SECTIONS, TYPES, Key

Values = dict[str, Any]
Path = tuple[str, ...]

_HEADER = re.compile(r"^\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class TextPlace:
    """Where things stand in a release file, for errors."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._lines = _lines_of(text)

    def error(self, path: Path, problem: str) -> ConfigError:
        """The error about what stands at ``path``: section, key and line."""
        line = next((self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines), None)
        where = self.name if line is None else f"{self.name}, line {line}"
        section = f"[{path[0]}] " if len(path) > 1 or path[:1] in _TABLES else ""
        return ConfigError(f"{where}: {section}{problem}")


_TABLES = {(name,) for name in (*SECTIONS, *SCHEMAS, "rules", "method")}


def _lines_of(text: str) -> dict[Path, int]:
    """The line on which each section and key first stands."""
    found: dict[Path, int] = {}
    section: Path = ()
    rules = -1
    for number, line in enumerate(text.splitlines(), 1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header is not None:
            section = tuple(part.strip("\"'") for part in _PART.findall(header[1]))
            if section == ("rules",):
                rules += 1
                section = ("rules", str(rules))
            found.setdefault(section, number)
            found.setdefault(section[:1], number)
        elif key is not None:
            parts = tuple(part.strip("\"'") for part in _PART.findall(key[1]))
            found.setdefault((*section, *parts), number)
    return found


def parse(text: str, name: str) -> Values:
    """The values of a TOML text; ``ConfigError`` with the line where it is none."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(problem), re.DOTALL)
        if found is None:
            raise ConfigError(f"{name}: not a TOML file ({problem})") from None
        raise ConfigError(f"{name}, line {found[2]}, column {found[3]}: not TOML ({found[1]})") from None


def value_of(text: str) -> Any:
    """A value given on a command line: as TOML where it is TOML, else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def set_value(values: Values, dotted: str, value: Any) -> None:
    """Put a value at ``section.key``, or at a key of the top."""
    parts = [part.strip("\"'") for part in _PART.findall(dotted)]
    if not parts:
        raise ConfigError(f"give section.key=value, not {dotted!r}")
    table = values
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{dotted}: {part!r} is a value, not a section")
    table[parts[-1]] = value


def checked(values: Values, place: TextPlace) -> Values:
    """The values, with dates as texts; ``ConfigError`` for keys and types that are not declared."""
    if "kind" not in values:
        raise place.error((), f"there is no kind; it is one of {', '.join(KINDS)}")
    _check(("kind",), "kind", values["kind"], declared.keys_of("")["kind"], place, "")
    kind = values["kind"]
    top = declared.keys_of("")
    known = [*top, *(name for name in ORDER if name)]
    out: Values = {}
    for name, value in values.items():
        if name in top:
            out[name] = _check((name,), name, value, top[name], place, kind)
        elif name not in known:
            raise place.error((name,), _unknown(f"there is no section or key {name!r}", name, known))
        elif name == "rules":
            out[name] = _rules(value, kind, place)
        elif not isinstance(value, Mapping):
            raise place.error((name,), f"{name} is a section: write [{name}] on a line of its own")
        elif name in SCHEMAS:
            out[name] = _columns(name, value, kind, place)
        else:
            out[name] = _section(name, value, kind, values, place)
    return out


def _section(name: str, value: Mapping[str, Any], kind: str, values: Values, place: TextPlace) -> Values:
    keys = declared.method_keys(kind, steps=has_steps(values)) if name == "method" else declared.keys_of(name)
    out = {}
    for key, one in value.items():
        if key not in keys:
            raise place.error((name, key), _unknown(f"there is no key {key!r}", key, list(keys)))
        out[key] = _check((name, key), key, one, keys[key], place, kind)
    return out


def _columns(name: str, value: Mapping[str, Any], kind: str, place: TextPlace) -> Values:
    if kind not in SCHEMAS[name]:
        raise place.error((name,), f"goes with {_listed(SCHEMAS[name])}, not with {kind}")
    out = {}
    for column, facts in value.items():
        if not isinstance(facts, Mapping):
            raise place.error((name, column), f"{column} needs its facts: [{name}.{column}] and type = ...")
        out[column] = {key: plain(fact) for key, fact in facts.items()}
    return out


def _rules(value: Any, kind: str, place: TextPlace) -> list[Values]:
    if not isinstance(value, list) or not all(isinstance(rule, Mapping) for rule in value):
        raise place.error(("rules",), "rules are written one by one, each under [[rules]]")
    out = []
    for number, rule in enumerate(value):
        path = ("rules", str(number))
        for key, one in rule.items():
            if key not in declared.RULE:
                raise place.error((*path, key), _unknown(f"there is no key {key!r}", key, [*declared.RULE]))
            _check((*path, key), key, plain(one), declared.RULE[key], place, kind)
        if len({"depends", "check", "impossible"} & set(rule)) != 1:
            raise place.error(path, "a rule has one of depends, check and impossible")
        if ("mapping" in rule) != ("depends" in rule):
            raise place.error(path, "depends and mapping go together")
        if ("of" in rule) != (kind == "households"):
            raise place.error(path, 'of = "parent" or "child" says which table of households a rule is about')
        out.append({key: plain(one) for key, one in rule.items()})
    return out


def _check(path: Path, name: str, value: Any, key: Key, place: TextPlace, kind: str) -> Any:
    """A value as its key declares it."""
    if kind and kind not in key.kinds:
        raise place.error(path, f"{name} goes with {_listed(key.kinds)}, not with {kind}")
    if key.keys is not None:
        if not isinstance(value, Mapping):
            raise place.error(path, f"{name} must be a table such as {{ key = value }}, got {value!r}")
        out = {}
        for sub, one in value.items():
            inner = (*path, sub)
            if sub not in key.keys:
                raise place.error(inner, _unknown(f"{name} has no key {sub!r}", sub, list(key.keys)))
            out[sub] = _check(inner, f"{name}.{sub}", one, key.keys[sub], place, kind)
        return out
    value = plain(value)
    if not _FITS[key.type](value):
        raise place.error(path, f"{name} must be {TYPES[key.type][0]}, got {value!r}")
    if key.choices and value not in key.choices:
        raise place.error(path, _unknown(f"{name} cannot be {value!r}", str(value), list(key.choices)))
    return value


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_files(value: Any) -> bool:
    if isinstance(value, Mapping):
        return set(value) == {"parents", "children"} and all(
            isinstance(one, str) or _is_texts(one) for one in value.values()
        )
    return isinstance(value, str) or (_is_texts(value) and bool(value))


_FITS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": _is_number,
    "whole": _is_whole,
    "flag": lambda value: isinstance(value, bool),
    "texts": _is_texts,
    "numbers": lambda value: isinstance(value, list) and all(map(_is_number, value)),
    "pair": lambda value: _is_texts(value) and len(value) == 2,
    "bounds": lambda value: isinstance(value, list) and len(value) == 4 and all(map(_is_number, value)),
    "moment": lambda value: isinstance(value, str),
    "steps": lambda value: _is_whole(value) or isinstance(value, str),
    "files": _is_files,
    "any": lambda value: True,  # noqa: ARG005
}


def has_steps(values: Values) -> bool:
    """Whether a release is made step by step."""
    time = values.get("time")
    return isinstance(time, Mapping) and "every" in time


def plain(value: Any) -> Any:
    """A value without TOML's dates, which become texts."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _unknown(problem: str, name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"{problem}; the nearest is {near[0]!r}" if near else f"{problem}; there are {', '.join(known)}"


def written(values: Values) -> str:
    """The canonical text: sections and keys in the order of their declaration."""
    lines: list[str] = []
    for section in ORDER:
        if section == "":
            lines += _pairs(values, declared.keys_of(""))
        elif section == "rules":
            for rule in values.get("rules", []):
                lines += ["", "[[rules]]", *_pairs(rule, declared.RULE)]
        elif section in SCHEMAS:
            for column, facts in values.get(section, {}).items():
                lines += ["", f"[{section}.{_name(column)}]", *_pairs(facts)]
        elif values.get(section):
            keys = None if section == "method" else declared.keys_of(section)
            lines += ["", f"[{section}]", *_pairs(values[section], keys)]
    return "\n".join(lines) + "\n"


def _pairs(values: Mapping[str, Any], keys: Mapping[str, Key] | None = None) -> list[str]:
    names = list(values) if keys is None else [name for name in keys if name in values]
    moments = {name for name in names if keys is not None and keys[name].type == "moment"}
    return [
        f"{_name(name)} = {_toml(values[name], day=name in moments)}"
        for name in names
        if values[name] is not None
    ]


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: Any, *, day: bool = False) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if day and _DAY.fullmatch(value) else _text(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_name(str(key))} = {_toml(one)}" for key, one in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    raise ConfigError(f"a release file cannot hold {type(value).__name__} {value!r}")


def edited(text: str, changes: Mapping[str, Any]) -> str:
    """The text with some values changed or added (None: taken out); comments and order stay."""
    import tomlkit

    document = tomlkit.parse(text)
    for dotted, value in changes.items():
        parts = [part.strip("\"'") for part in _PART.findall(dotted)]
        table: Any = document
        for part in parts[:-1]:
            if part not in table:
                table[part] = tomlkit.table()
            table = table[part]
        if value is None:
            table.pop(parts[-1], None)
        else:
            table[parts[-1]] = value
    return tomlkit.dumps(document)

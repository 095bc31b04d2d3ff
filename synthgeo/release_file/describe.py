"""The declarations told: a JSON Schema for editors, and the page of the documentation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from synthgeo.release_file.sections import (
    KINDS,
    RULE,
    SCHEMAS,
    SECTIONS,
    TYPES,
    Key,
    class_name,
    keys_of,
    method_keys,
)

Plain = dict[str, Any]


def json_schema() -> Plain:
    """The JSON Schema of a release file, by which editors complete and check it."""
    top = _object(keys_of(""))
    for section in filter(None, SECTIONS):
        top["properties"][section] = _object(keys_of(section)) | {"description": _words(section)}
    for section in SCHEMAS:
        facts = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
        top["properties"][section] = {
            "type": "object", "additionalProperties": facts, "description": "What each column can hold."
        }  # fmt: skip
    top["properties"]["rules"] = {"type": "array", "items": _object(RULE)}
    top["properties"]["method"] = {"type": "object", "description": "Advanced settings."}
    top["required"] = ["kind", "privacy"]
    top["properties"]["privacy"]["required"] = ["epsilon"]
    top["allOf"] = [_of_kind(kind) for kind in KINDS]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "synthgeo release file",
        **top,
    }


def _of_kind(kind: str) -> Plain:
    """What is forbidden to a kind of release, and what [method] holds for it."""
    closed: Plain = {}
    for section in filter(None, SECTIONS):
        others = {name: False for name, key in keys_of(section).items() if kind not in key.kinds}
        if others:
            closed[section] = {"properties": others}
    closed |= {section: False for section, kinds in SCHEMAS.items() if kind not in kinds}
    methods = _object(method_keys(kind, steps=False) | _stepwise(kind))
    return {
        "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
        "then": {"properties": {**closed, "method": methods}},
    }


def _stepwise(kind: str) -> dict[str, Key]:
    return method_keys(kind, steps=True) if kind in ("table", "trips") else {}


def _object(keys: Mapping[str, Key]) -> Plain:
    properties = {name: _value(key) for name, key in keys.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _value(key: Key) -> Plain:
    if key.keys is not None:
        return _object(key.keys) | {"description": key.help}
    found = dict(TYPES[key.type][1])
    if key.choices:
        found["enum"] = list(key.choices)
    return found | ({"description": key.help} if key.help else {})


def page() -> str:
    """``docs/release-file.md``, the reference of the release file."""
    kinds = "\n".join(f"| `{kind}` | {words} | {_products(kind)} |" for kind, words in KINDS.items())
    parts = [_HEAD.format(kinds=kinds)]
    parts += [_table(section) for section in SECTIONS if section not in ("engine", "publish")]
    parts.append(_SCHEMA)
    parts.append(_rows("| key | what |\n| --- | --- |", RULE, kinds=False))
    parts.append(_method())
    parts += [_table("engine"), _table("publish")]
    return "\n\n".join(parts) + "\n"


_HEAD = """\
# The release file

<!-- Generated from the declarations by synthgeo.release_file.describe.page; do not edit. -->

One TOML file says everything public about one release: what it is, where the data are and how they are
written, what is promised, the public place and time, and what is handed on. In Python it is `sg.ReleaseFile`:
`load`, `check`, `plan`, `run`, `status`, `sample`, `publish`, `evaluate`, `report`. Keys are the names of the
Python arguments. Paths begin at the folder of the file. A key that is unknown, has a wrong value or
contradicts another is refused with its line, before anything is read or spent.

There is a release file of every kind in `examples/release-files`.

| kind | what | product in Python |
| --- | --- | --- |
{kinds}"""

_SCHEMA = """\
## `[schema.COLUMN]`

What each column of a table, a panel or the attributes of trips can hold; households have `[parent.COLUMN]`
and `[child.COLUMN]`. `type` is one of categorical, ordinal, numeric, date, datetime, time_of_day, duration,
identifier and location; the other keys are the arguments of the column in Python, such as those of
`sg.Numeric(low, high, bins=..., decimals=...)`. All of it is public: from a codebook, not from the data. The
`domain` of a location is `"place"`, the domain of `[place]`, or a table such as
`{ bounds = [...], crs = "EPSG:4326" }`.

```toml
[schema.income]
type = "numeric"
low = 0
high = 500000
bins = "auto"
missing = true
```

## `[[rules]]`

What holds in every row, public too. Each rule has one of `depends`, `check` and `impossible`.
A missing value is `{ missing = true }`.

```toml
[[rules]]
check = "start <= end"

[[rules]]
depends = { city = "canton" }
mapping = { Zug = "ZG", Baar = "ZG", Chur = "GR" }

[[rules]]
impossible = { age = { range = [0, 15] }, status = ["married", "widowed"] }
```"""


def _products(kind: str) -> str:
    if kind == "series":
        return "`sg.series`"
    names = dict.fromkeys(class_name(kind, steps=steps) for steps in (False, True))
    return ", ".join(f"`sg.{name}`" for name in names)


def _words(section: str) -> str:
    return " ".join((inspect.getdoc(SECTIONS[section]) or "").split())


def _table(section: str) -> str:
    title = f"## `[{section}]`" if section else "## Top of the file"
    return f"{title}\n\n{_words(section)}\n\n" + _rows(
        "| key | what | for |\n| --- | --- | --- |", keys_of(section)
    )


def _rows(head: str, keys: Mapping[str, Key], *, kinds: bool = True, before: str = "") -> str:
    lines = [head] if head else []
    for name, key in keys.items():
        whom = "all" if len(key.kinds) == len(KINDS) else ", ".join(key.kinds)
        line = f"| `{before}{name}` | {_described(key)} |"
        lines.append(line + (f" {whom} |" if kinds else ""))
        if key.keys is not None:
            lines.append(_rows("", key.keys, kinds=kinds, before=f"{before}{name}."))
    return "\n".join(lines)


def _described(key: Key) -> str:
    words = key.help.replace("|", "\\|")
    if key.choices:
        return f"{words} One of {', '.join(key.choices)}."
    what = "a table" if key.keys is not None else TYPES[key.type][0]
    return f"{words} {what[0].upper()}{what[1:]}." if words else f"{what[0].upper()}{what[1:]}."


def _method() -> str:
    lines = [
        "## `[method]`", "",
        "Advanced settings: the other arguments of the product. The reference of its class describes them.",
        "", "| kind | keys |", "| --- | --- |",
    ]  # fmt: skip
    for kind in KINDS:
        for steps in (False, True) if kind in ("table", "trips") else (False,):
            names = ", ".join(f"`{name}`" for name in method_keys(kind, steps=steps))
            lines.append(f"| {kind}{', step by step' if steps else ''} | {names} |")
    return "\n".join(lines)


__all__ = ["json_schema", "page"]

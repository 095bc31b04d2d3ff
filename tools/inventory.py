"""What synthgeo stands on: licences, a bill of materials (CycloneDX), versions that were tested.

``python -m tools.inventory licences`` lists every package that an installation brings, with its licence;
``sbom`` writes a CycloneDX 1.5 document; ``constraints`` writes the versions that are installed, for
``pip install -c``. All read the environment that they run in, and go by the requirements that packages state.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SPEC = "1.5"
# Copyleft that would bind whoever distributes a program together with the package.
STRONG = ("GPL", "AGPL")


@dataclass(frozen=True)
class Package:
    """An installed package: what it is called, its version and licence, and what it needs itself."""

    name: str
    version: str
    licence: str
    needs: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"

    @property
    def is_strong_copyleft(self) -> bool:
        """Whether its licence is of the GPL's kind (the LGPL and the MPL are not)."""
        words = self.licence.replace("(", " ").replace(")", " ").replace("-", " ").split()
        return any(word.rstrip("v23+.0") in STRONG for word in words)


def packages(extras: tuple[str, ...] = ("all",)) -> list[Package]:
    """Everything that ``pip install synthgeo[extras]`` brings, by name, without synthgeo itself."""
    found: dict[str, Package] = {}
    _walk("synthgeo", frozenset(extras), found, set())
    return sorted(found.values(), key=lambda package: package.name)


def _walk(name: str, extras: frozenset[str], found: dict[str, Package], seen: set[Any]) -> None:
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    if name == "synthgeo":  # from its tree: what is installed may be another version
        facts, requirements = None, _own()
    else:
        try:
            facts = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            return  # needed on another platform or Python only
        requirements = facts.requires or []
    needs = [one for text in requirements for one in _wanted(Requirement(text), extras)]
    if facts is not None:
        own = tuple(sorted({canonicalize_name(requirement.name) for requirement in needs}))
        known = found.get(name)
        own = tuple(sorted({*own, *(known.needs if known else ())}))
        found[name] = Package(name, facts.version, licence_of(facts), own)
    for requirement in needs:
        _walk(canonicalize_name(requirement.name), frozenset(requirement.extras), found, seen)


def _own() -> list[str]:
    """What pyproject.toml states."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"].items()
    return [
        *project["dependencies"],
        *(f"{text}; extra == '{extra}'" for extra, texts in optional for text in texts),
    ]


def _wanted(requirement: Requirement, extras: frozenset[str]) -> Iterator[Requirement]:
    marker = requirement.marker
    if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
        yield requirement


def licence_of(facts: metadata.Distribution) -> str:
    """The licence that a package states: its expression, its classifiers, or the first line of its text."""
    stated = facts.metadata
    expression = stated.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in stated.get_all("Classifier") or []
        if text.startswith("License :: OSI")
    ]
    if classifiers:
        return " AND ".join(sorted(classifiers))
    text = (stated.get("License") or "").strip()
    return text.splitlines()[0][:60] if text else "not stated"


def bill(extras: tuple[str, ...] = ("all",)) -> dict[str, Any]:
    """A CycloneDX document of everything that an installation brings. The same environment, the same text."""
    parts = packages(extras)
    names = {part.name: part.purl for part in parts}
    version = _version()
    own = f"pkg:pypi/synthgeo@{version}"
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "version": 1,
        "metadata": {
            "component": {
                "type": "library", "bom-ref": own, "name": "synthgeo", "version": version, "purl": own,
                "licenses": [{"license": {"id": "MIT"}}],
            }
        },
        "components": [
            {
                "type": "library", "bom-ref": part.purl, "name": part.name, "version": part.version,
                "purl": part.purl, "licenses": [{"license": {"name": part.licence}}],
            }
            for part in parts
        ],
        "dependencies": [
            {"ref": part.purl, "dependsOn": sorted(names[need] for need in part.needs if need in names)}
            for part in parts
        ],
    }  # fmt: skip
    text = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}"}


def _version() -> str:
    import tomllib

    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def main() -> None:
    """Write the list that was asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("what", choices=["licences", "sbom", "constraints"])
    options.add_argument("--extras", default="all", help="extras of synthgeo, with commas; empty: the base")
    options.add_argument("--out", type=Path, help="where to write it; default: the terminal")
    chosen = options.parse_args()
    extras = tuple(filter(None, chosen.extras.split(",")))
    if chosen.what == "sbom":
        text = json.dumps(bill(extras), indent=2, sort_keys=True)
    elif chosen.what == "licences":
        text = "\n".join(f"{p.name:28} {p.version:16} {p.licence}" for p in packages(extras))
    else:
        text = "\n".join(f"{p.name}=={p.version}" for p in packages(extras))
    if chosen.out is None:
        print(text)
    else:
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()

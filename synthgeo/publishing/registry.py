"""An entry for the registry of privacy deployments that OpenDP keeps.

The shape follows the registry's own schema (``schemas/deployments-schema.yaml`` in
github.com/opendp/deployments-registry-data, as of 2026). An entry is a draft for the curator to send in: what
nobody told is left out and named at its head.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthgeo.publishing.card import THINGS, Description

_DOMAIN = {
    "points": "Sets of points of the public spatial domain, each with a time of arrival.",
    "table": "Tables with the columns, categories and ranges of the public schema.",
    "trips": "Sets of trips, each a sequence of points of the public spatial domain.",
}
_MECHANISMS = {
    "points": "A tree over the domain is built with noise on the decision to split a cell; the counts of its "
    "leaves are released over time by counters with discrete Laplace noise.",
    "table": "Marginals are chosen by the exponential mechanism (permute and flip) and measured with "
    "discrete Laplace or discrete Gaussian noise; a graphical model is fitted to what was measured.",
    "trips": "Cells of the domain are found by a noisy tree; transitions, pairs of origin and destination, "
    "lengths and times are measured with discrete Laplace noise; a random walk model is fitted to them.",
}
_COMPOSITION = {
    "points": "Basic composition of structure and counts for each event; parallel composition over steps, as "
    "an event is in one batch. The budget covers all releases of the stream.",
    "table": "Basic composition of pure measurements, or zCDP composition turned into (epsilon, delta). The "
    "budget covers all releases.",
    "trips": "Basic composition over the kinds of counts. The budget covers all samples of the model.",
}
_POST = (
    "Negative counts are set to zero, counts are made consistent and rounded without bias, and records are "
    "drawn at random from them. None of this reads the private data."
)
_REQUIRED = {
    "data_curators": "data_curators (name and type)",
    "intended_use": "intended_use",
    "data_product_region": "data_product_region",
}


def registry_entry(
    *,
    product: str,
    provenance: Mapping[str, Any],
    description: Description,
    title: str,
    published: str,
    total: int,
    many: bool,
    expected_error: Sequence[Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """The entry as plain values."""
    budget = provenance["budget"]
    pure = not budget["delta"]
    user = any(word in provenance["unit"] for word in ("user", "household"))
    summary = description.summary or f"{total:,} synthetic {THINGS[product]}."
    basic = {
        "name": title,
        "data_curators": None
        if description.curator is None or description.curator_type is None
        else [
            {"data_curator_name": description.curator, "data_curator_type": description.curator_type},
        ],
        "description": summary,
        "intended_use": description.use,
        "data_product_type": "Synthetic data",
        "data_product_region": description.region,
        "data_product_sector": description.sector,
        "publication_date": published,
    }
    looked = (
        "The curator declared no look at the private data outside the guarantee."
        if not description.after_looking
        else "Declared after looking at the private data, outside the guarantee: "
        + "; ".join(description.after_looking)
    )
    parameters = {"epsilon": budget["epsilon"], **({} if pure else {"delta": budget["delta"]})}
    deployment = {
        "basic": {name: value for name, value in basic.items() if value is not None},
        "dp_variant": {
            "variant_name": "Pure DP" if pure else "Approximate DP",
            "data_domain": _DOMAIN[product],
            "unprotected_quantities": "The public declarations: domain or schema, time windows, number of "
            "releases and their times, and all parameters. " + looked,
        },
        "privacy_loss": {
            "privacy_unit": "User-level" if user else {"trips": "Trip-level"}.get(product, "Event-level"),
            "privacy_unit_details": f"Add/remove neighbours; the unit is {provenance['unit']}.",
            **({} if user or not many else {"number_of_privacy_units": total}),
            "privacy_parameters": parameters,
            "privacy_parameters_details": "Over all that was and will be released from this model or run. "
            "The number of units is the released, noisy one.",
        },
        "deployment_model": {
            "model_name": "Central",
            "model_name_details": "The curator holds the private data and runs the mechanism.",
            "trust_assumptions": "The curator is trusted. Everybody else is assumed to know all about the "
            "method, to hold any other data, and to see all releases.",
            "actors": "The curator; anybody who obtains the published files.",
            "release_type": "Many releases" if many else "One release",
            "data_source_type": "Dynamic" if many else "Static",
            "access_type": "Non-interactive",
            "access_type_details": "Files only; nobody queries the private data.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": "Public declarations fix how rows are read; rows "
            "outside the domain are left out. " + looked,
            "mechanisms": f"{provenance['mechanism']} of synthgeo {provenance['synthgeo']}. "
            f"{_MECHANISMS[product]} Noise is sampled exactly on integers from the operating system's "
            "entropy, so there are no floating-point attacks on it. Timing is not protected; access is not "
            "interactive.",
            "composition": _COMPOSITION[product],
            "post_processing": _POST,
            "justification": "Proofs and statistical audits with broken twins come with the library.",
            "utility": json.dumps(list(expected_error or [])[:10]),
        },
        "administrative": {
            "evidence_sources": {
                "statement": {
                    "evidence_source_type": _EVIDENCE,
                    "misc": {"title": "statement.json and README.md of the published dataset"},
                }
            },
            "status": "Draft",
            "registry_authors": [description.curator or "the curator of the dataset"],
            "tier": 3,
        },
    }
    return {"url_slug": slug(f"{title} {published[:4]}"), "deployment": deployment}


_EVIDENCE = "Formal publication by the deploying organization"


def missing(entry: Mapping[str, Any]) -> list[str]:
    """What the registry requires and nobody has told."""
    return [words for name, words in _REQUIRED.items() if name not in entry["deployment"]["basic"]]


def slug(text: str) -> str:
    """Lower case words with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "dataset"


def yaml_text(value: Mapping[str, Any]) -> str:
    """Plain values as YAML. Texts are quoted as in JSON, which YAML reads."""
    return "\n".join(_yaml(value, "")) + "\n"


def _yaml(value: Any, indent: str) -> Iterator[str]:
    for name, part in value.items():
        if isinstance(part, Mapping):
            yield f"{indent}{name}:"
            yield from _yaml(part, indent + "  ")
        elif isinstance(part, list):
            yield f"{indent}{name}:"
            yield from (f"{indent}  - {json.dumps(item, ensure_ascii=False)}" for item in part)
        else:
            yield f"{indent}{name}: {json.dumps(part, ensure_ascii=False)}"

"""``sg.report``: one self-contained page, for the curator or for the public."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.reporting.sections import Builder
from synthgeo.state import write_atomic


def report(
    real: Any,
    release: Any,
    path: str | os.PathLike[str],
    *,
    public: bool = False,
    ledger: Any = None,
    title: str = "Synthetic data report",
    repeats: int = 3,
) -> Path:
    """Write one HTML page about a release: no network, nothing beside it.

    ``release`` is a release, a list of them (a stream: the page then shows how the error moved), or a dict
    of either by product name. ``real`` has the same shape, with None where the truth is not at hand. The
    default page shows private data beside synthetic data and is **for the curator only**: its file can be
    read by its owner alone. ``public=True`` takes nothing from ``real`` and holds only what may be
    published; it refuses if any of the releases may not be.
    """
    jinja2 = require("jinja2", extra="report")
    products = release if isinstance(release, dict) else {"Release": release}
    truths = real if isinstance(release, dict) and real is not None else dict.fromkeys(products, real)
    if set(truths) != set(products):
        raise ConfigError(
            f"real and release name different products: {sorted(truths)} and {sorted(products)}"
        )
    builder = Builder(public=public, repeats=repeats)
    lists = {name: value if isinstance(value, list) else [value] for name, value in products.items()}
    blocked = [r for releases in lists.values() for r in releases if not r.releasable]
    if public and blocked:
        why = blocked[0].provenance.get("not_releasable_because", "it is not releasable")
        raise ConfigError(f"a public page holds only what may be published; here {why}")
    for name, releases in lists.items():
        builder.add(name, None if public else truths[name], releases)
    if ledger is not None:
        builder.add_ledger(ledger.show())
    from synthgeo import __version__

    template = files("synthgeo.reporting").joinpath("template.html").read_text(encoding="utf-8")
    page = jinja2.Environment(autoescape=True).from_string(template)
    html = page.render(
        title=title,
        version=__version__,
        public=public,
        releasable=not blocked,
        why_not=blocked[0].provenance.get("not_releasable_because", "") if blocked else "",
        sections=builder.sections,
        maps=json.dumps(builder.maps),  # numbers and base64 only: nothing to escape
    )
    target = Path(path)
    write_atomic(target, html.encode())  # mode 0600
    if public:
        target.chmod(0o644)
    return target

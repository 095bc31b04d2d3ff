"""For mkdocs: what pages hold for readers of the repository and not for those of the site.

The expressions behind measured figures (``benchmarks.figures``) go: in a table they would be taken for links
and stop a strict build. Links to functions, ``[name]: ../file.py``, lead to their source on
the site, which is appended to the page, or to the reference where that has them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_EXPRESSION = re.compile(r"<!--= .+? : \S+ -->")
_FUNCTION = re.compile(r"^\[([\w.]+)\]: \.\./\S+\.py\n?", re.MULTILINE)
_SOURCE = """
::: {name}
    options:
      show_source: true
      show_root_full_path: false
      heading_level: 3
      members: false
"""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page as the site shows it."""
    markdown = _EXPRESSION.sub("", markdown)
    names = _FUNCTION.findall(markdown)
    if not names:
        return markdown
    sources = [_SOURCE.format(name=name) for name in names if not _in_reference(name)]
    return _FUNCTION.sub("", markdown) + "\n## The functions\n" + "".join(sources)


def _in_reference(name: str) -> bool:
    """Whether the reference documents an object, itself or as a public member of a class."""
    reference = Path(__file__).parents[1] / "docs/reference.md"
    listed = set(re.findall(r"^::: ([\w.]+)", reference.read_text(), re.MULTILINE))
    owner, _, member = name.rpartition(".")
    return name in listed or (owner in listed and not member.startswith("_"))

"""For mkdocs: the expressions behind measured figures (``benchmarks.figures``) are not for readers.

In a table they would also be taken for links, and a strict build would stop.
"""

from __future__ import annotations

import re
from typing import Any

_EXPRESSION = re.compile(r"<!--= .+? : \S+ -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page without them."""
    return _EXPRESSION.sub("", markdown)

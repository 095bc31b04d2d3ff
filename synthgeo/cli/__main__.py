"""``python -m synthgeo.cli``: the same as the command ``synthgeo``."""

from synthgeo.cli import main

main()

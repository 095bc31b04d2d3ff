"""The command line ``synthgeo``: small modules, one for each group of commands.

Everything heavy is imported inside the command that needs it, so ``--version`` and ``--help`` answer at once.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``synthgeo`` command."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        from synthgeo import __version__

        print(f"synthgeo {__version__}")
        return
    try:
        from synthgeo.cli.app import run
    except KeyboardInterrupt:
        print("error: interrupted before anything was read", file=sys.stderr)
        sys.exit(130)
    sys.exit(run(arguments))

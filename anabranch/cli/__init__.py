"""The command line: run and explain topologies, inspect checkpoints, measure, and test failures."""

import sys

from anabranch.errors import AnabranchError

try:
    from anabranch.cli.app import app, main
except AnabranchError as error:  # this version of Spark is not supported
    print(f"anabranch: {error}", file=sys.stderr)
    raise SystemExit(2) from None

__all__ = ["app", "main"]

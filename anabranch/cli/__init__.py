"""The command line: run and explain topologies, look into checkpoints, measure, and break things on
purpose.
"""

import sys

from anabranch.errors import AnabranchError

try:
    from anabranch.cli.app import app, main
except AnabranchError as error:  # a Spark that is not supported
    print(f"anabranch: {error}", file=sys.stderr)
    raise SystemExit(2) from None

__all__ = ["app", "main"]

"""The command line: run and explain topologies, look into checkpoints, measure, and break things on
purpose.
"""

from anabranch.cli.app import app, main

__all__ = ["app", "main"]

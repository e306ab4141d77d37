"""Measured comparisons with native Spark and others: `anabranch bench`."""

from __future__ import annotations

import typer

from anabranch.bench.elastic.command import elastic_command
from anabranch.bench.elastic.rebalance import rebalance_command
from anabranch.bench.fusion.command import fusion_command
from anabranch.bench.keyed.command import keyed_command
from anabranch.bench.osg import osg_command
from anabranch.bench.soak import soak_command
from anabranch.bench.windows import windows_command

bench_app = typer.Typer(
    help="Compare Anabranch with native Structured Streaming and with the bare limit.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
bench_app.command("windows")(windows_command)
bench_app.command("fusion")(fusion_command)
bench_app.command("keyed")(keyed_command)
bench_app.command("rebalance")(rebalance_command)
bench_app.command("osg")(osg_command)
bench_app.command("soak")(soak_command)
bench_app.command("elastic")(elastic_command)

__all__ = ["bench_app"]

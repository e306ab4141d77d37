"""The papers' experiments, run with the planners and policies of live runs: `anabranch lab`."""

from __future__ import annotations

import typer

from anabranch.lab.cbp.experiment import cbp_command
from anabranch.lab.dabs.experiment import dabs_command
from anabranch.lab.dabs.osg import osg_command
from anabranch.lab.elasticutor.experiment import elasticutor_command
from anabranch.lab.enorm.consolidation import consolidation_command
from anabranch.lab.enorm.fusion import fusion_command
from anabranch.lab.enorm.migration import migration_command
from anabranch.lab.enorm.throughput import throughput_command
from anabranch.lab.everything import all_command

lab_app = typer.Typer(
    help="Run the papers' experiments on Anabranch's own planners and policies.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
lab_app.command("enorm-consolidation")(consolidation_command)
lab_app.command("enorm-fusion")(fusion_command)
lab_app.command("enorm-migration")(migration_command)
lab_app.command("enorm-throughput")(throughput_command)
lab_app.command("cbp")(cbp_command)
lab_app.command("elasticutor")(elasticutor_command)
lab_app.command("dabs")(dabs_command)
lab_app.command("osg")(osg_command)
lab_app.command("all")(all_command)


@lab_app.callback()
def lab() -> None:
    """Run the papers' experiments on Anabranch's own planners and policies."""


__all__ = ["lab_app"]

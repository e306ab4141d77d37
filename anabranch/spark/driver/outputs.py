"""The sinks of a step. Each gets the files that tasks wrote for it, before the commit."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.errors import StepError
from anabranch.plan.model import Plan
from anabranch.runtime.reports import StepReports, files_of
from anabranch.spark.compile.schemas import arrow_of, late_schema, spark_schema, struct_of
from anabranch.spark.driver.causes import cause_of_call
from anabranch.spark.driver.context import RunContext, RunState
from anabranch.spark.outlets import Outlet
from anabranch.spark.sinks import StepResults
from anabranch.topology.graph import failed_fields


class Outputs:
    """Writes the results of each step to all sinks."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        # By operator, and whether late. They are kept because making one takes calls to the JVM.
        self._schemas: dict[tuple[str, bool], tuple[StructType, pa.Schema]] = {}

    def write(
        self, state: RunState, step: int, reports: StepReports, fault: Callable[[str], None]
    ) -> None:
        """Writes the results of a step to one sink after another."""
        outlets = self._context.outlets
        fault("sinks.before")
        for i, outlet in enumerate(outlets):
            spark, arrow = self.schemas(state.plan, outlet.operator, late=outlet.late)
            results = StepResults(
                step,
                self._context.checkpoint.files,
                written_for(outlet, state.plan, reports),
                spark,
                arrow,
                self._context.session,
                again=state.written_from,
            )
            try:
                outlet.target.write(results)
            except Exception as error:  # noqa: BLE001 - a sink may be a user's function
                raise StepError(
                    f"sink {outlet.name!r} ({outlet.target}) failed in step {step}, which was not "
                    f"committed: {cause_of_call(error)}"
                ) from None
            if i == (len(outlets) - 1) // 2:
                fault("sinks.half")
        fault("sinks.after")

    def schemas(self, plan: Plan, operator: str, *, late: bool) -> tuple[StructType, pa.Schema]:
        """The columns of an operator's results, or of its late or failed rows."""
        key = operator, late
        if key not in self._schemas:
            applied = plan.applied(operator)
            if applied is not None:
                fields = failed_fields(applied.feed.fields) if late else applied.fields
                self._schemas[key] = struct_of(fields), arrow_of(fields)
            else:
                of_node = late_schema if late else spark_schema
                self._schemas[key] = of_node(plan.parts_of(operator)[0])
        return self._schemas[key]


def written_for(outlet: Outlet, plan: Plan, reports: StepReports) -> tuple[str, ...]:
    """The files that tasks wrote for a sink."""
    if plan.applied(outlet.operator) is not None:
        of_apply = reports.of_apply(outlet.operator)
        return files_of([each.letters if outlet.late else each.results for each in of_apply])
    parts = {node.name for node in plan.parts_of(outlet.operator)}
    mine = [each for name, each in reports.nodes() if name in parts]
    if outlet.late:
        return files_of([each.late for each in mine])
    results = [each for report in mine for each in report.results]
    wanted = outlet.window
    return files_of([each for each in results if wanted is None or each.window == wanted])

"""The physical plans of a run's steps, to count what Spark does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    import anabranch as ab


def watched(run: ab.Run) -> list[str]:
    """The physical plan of each job of a run that has just started, as they come."""
    plans: list[str] = []
    build = run._stepper.state.levels.job

    def watch(*arguments: Any) -> DataFrame:
        frame = build(*arguments)
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        return frame

    run._stepper.state.levels.job = watch  # type: ignore[method-assign]
    return plans

"""Between two steps: what the last one was like goes to the controller, and what that decides to the step that begins.

The decision is made when the next step begins, not when the last one ends: only then Spark has told how long the whole batch took and
what waits at the sources. A controller that fails ends itself, never the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from anabranch.elastic.controller import control
from anabranch.elastic.memory import Memory
from anabranch.elastic.observation import Decision, Observation, Offer
from anabranch.elastic.replay import figures_of
from anabranch.elastic.settings import OFF, Elastic
from anabranch.errors import AnabranchError
from anabranch.plan.model import Plan
from anabranch.plan.planners.registry import AUTO
from anabranch.runtime.reports import Report
from anabranch.spark.driver.observe import Place, completed, observe
from anabranch.spark.driver.progress import Progress
from anabranch.spark.driver.source_progress import BatchProgress
from anabranch.state.checkpoint.commits import Commit
from anabranch.state.checkpoint.history import HistoryLog

if TYPE_CHECKING:
    from anabranch.spark.driver.step import Stepper

Planning: TypeAlias = Callable[[str, Mapping[str, float] | None], Plan]


class Steering:
    """Watches the steps of a run, keeps their history, and steers where the user lets it."""

    def __init__(
        self, elastic: Elastic, place: Place, make_plan: Planning | None, history: HistoryLog | None
    ) -> None:
        self.elastic, self._place, self._make_plan, self._history = (
            elastic,
            place,
            make_plan,
            history,
        )
        self.memory = Memory()
        self.decision: Decision | None = None
        self.told: Callable[[], BatchProgress | None] = lambda: (
            None
        )  # Spark's word on its last batch
        self._waiting: Observation | None = None
        self._batch_id: int | None = None
        self._before: Observation | None = None
        self._looked_at = time.monotonic()
        self._offered: Plan | None = None
        self._failed = elastic.mode == OFF

    def after(
        self, stepper: Stepper, commit: Commit, progress: Progress, reports: Sequence[Report]
    ) -> None:
        """Takes in a step that is committed."""
        self._complete()
        self._waiting = observe(stepper.plan, commit, progress, reports, self._place)
        self._batch_id = progress.batch_id

    def before(self, stepper: Stepper) -> None:
        """Decides, and hands the decision to the step that begins."""
        seen = self._complete()
        if seen is None or self._failed:
            return
        try:
            self.memory, self.decision = control(
                self.memory, self._with_offer(stepper, seen), self.elastic
            )
            self._tell(stepper, self.decision)
            self._apply(stepper, self.decision)
        except Exception as error:  # noqa: BLE001 - a policy may be the user's own; rows must go on
            self._failed = True
            stepper.event(
                "elastic",
                f"the controller failed and is off from now on: {type(error).__name__}: {error}",
            )

    def end(self, stepper: Stepper) -> None:
        """Takes in what is left, and writes what waits to be written."""
        self._complete()
        self.save(stepper)

    def save(self, stepper: Stepper) -> None:
        """Writes the history; a disk that is full costs the history and not the run."""
        if self._history is not None:
            try:
                self._history.flush()
            except (OSError, AnabranchError) as error:
                self._history = None
                stepper.event(
                    "elastic", f"the history of steps cannot be written and ends here: {error}"
                )

    def _complete(self) -> Observation | None:
        """The last step with what Spark says about it; None where it is taken in already."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return None
        try:
            spark = self.told() if self._batch_id is not None else None
        except Exception:  # noqa: BLE001 - a query that has ended may not say any more
            spark = None
        seen = completed(
            waiting, spark if spark and spark.batch_id == self._batch_id else None, self._before
        )
        self._before = seen if not seen.closing or self._before is None else self._before
        if self._history is not None:
            self._history.add(seen)
        return seen

    def _with_offer(self, stepper: Stepper, seen: Observation) -> Observation:
        """The observation with another plan, where it is time to look for one."""
        now = time.monotonic()
        due = now - self._looked_at >= self.elastic.guards.replan_s and not seen.closing
        if not (
            due
            and self.elastic.replan
            and self._make_plan is not None
            and len(stepper.plan.nodes) > 1
        ):
            return seen
        self._looked_at = now
        rates = stepper.statistics.rates()
        self._offered = self._make_plan(AUTO, rates) if rates else None
        return (
            seen
            if self._offered is None
            else replace(seen, offer=offer_of(stepper.plan, self._offered))
        )

    def _tell(self, stepper: Stepper, decision: Decision) -> None:
        for effect in decision.effects:
            kept = "" if effect.share is None else f", {effect.share:.0%} of what was promised"
            text = f"{effect.what}: {effect.observed:.4g} {effect.unit}, expected {effect.expected:.4g}, before {effect.before:.4g}"
            figures = {
                "before": effect.before,
                "expected": effect.expected,
                "observed": effect.observed,
            }
            stepper.event("effect", text + kept, figures=figures)
        for note in decision.notes:
            stepper.event("note", note)
        if decision:
            stepper.event(
                "advice" if decision.advice else "decision",
                decision.reason,
                figures=figures_of(decision),
            )

    def _apply(self, stepper: Stepper, decision: Decision) -> None:
        if not decision or decision.advice:
            return
        if decision.pause_s:
            time.sleep(decision.pause_s)
        named = {str(each): each for each in stepper.routes}
        for change in decision.changes:
            stepper.pending.routes[named[change.component]] = change.route
        if decision.replan is not None:
            stepper.pending.plan = self._offered


def offer_of(now: Plan, offered: Plan) -> Offer | None:
    """What another plan would save; None where it is the same."""
    before, after = (tuple(str(each.name) for each in plan.components) for plan in (now, offered))
    if {*before} == {*after}:
        return None
    of = {node.operator: each.name for each in now.components for node in each.nodes}
    streams = [reason.stream for reason in offered.fusion.reasons]
    return Offer(
        planner=offered.fusion.planner,
        before=before,
        after=after,
        rows_before=sum(each.rate for each in streams if of[each.source] != of[each.target]),
        rows_after=offered.fusion.communication,
    )

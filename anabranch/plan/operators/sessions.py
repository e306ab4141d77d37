"""Sessions: how a slot task keeps them, beside or without windows.

Rows are combined into panes that are no wider than the gap, so the rows of one key in one pane are always in one session. Its
first and last event time are kept besides the user's partials: whether two panes are one session is told by these alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.aggregates.partials import FirstTime, LastTime
from anabranch.plan.consolidation import Consolidation
from anabranch.plan.operators.base import Kept, OperatorPlan
from anabranch.plan.panes import Panes
from anabranch.topology.windows import Session

NO_WINDOWS = Consolidation(
    (), (), merges_per_hour=0.0, naive_per_hour=0.0, cost_per_hour=0.0, measured=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan(OperatorPlan):
    """What a slot task needs to know of one session definition; `first` and `last` are the columns of the event times."""

    session: Session
    first: int
    last: int


def session_plan(like: OperatorPlan, session: Session) -> SessionPlan:
    """The plan of a session over the keys, partials and results of an operator. Its panes may become narrower, never wider."""
    at = len(like.columns)
    times = [
        Kept(partial=partial, input=0, columns=slice(at + i, at + i + 1))
        for i, partial in enumerate((FirstTime("bigint"), LastTime("bigint")))
    ]
    kept = (*like.kept, *times)
    columns = tuple(column for each in kept for column in each.partial.columns)
    return over_session(replace(like, kept=kept, columns=columns), session)


def over_session(like: OperatorPlan, session: Session) -> SessionPlan:
    """The plan of a session whose partials are there already; the last two columns are its event times."""
    return SessionPlan(
        operator=like.operator,
        keys=like.keys,
        panes=Panes(width_us=session.gap_us, offset_us=0, windows=()),
        consolidation=NO_WINDOWS,
        kept=like.kept,
        results=like.results,
        columns=like.columns,
        time_type=like.time_type,
        early=like.early,
        session=session,
        first=len(like.columns) - 2,
        last=len(like.columns) - 1,
    )


def late_until(session: Session, watermark_us: int | None) -> int | None:
    """Rows at or before this time are late: even alone, their session ended at or before the watermark. None: no row is late."""
    return None if watermark_us is None else watermark_us - session.gap_us


def window_names(plan: OperatorPlan) -> list[str]:
    """The names of a plan's windows, or of its session, by their numbers."""
    return (
        [plan.session.name]
        if isinstance(plan, SessionPlan)
        else [window.name for window in plan.panes.windows]
    )

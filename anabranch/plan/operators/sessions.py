"""Sessions: how a slot task stores them, with or without other windows.

Panes are at most as wide as the gap, so the rows of one key in one pane are always in one session.
Besides the user's partials, each has its first and last event time. These two show whether two
panes belong to one session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anabranch.aggregates.partials import FirstTime, LastTime
from anabranch.plan.ids import PartId
from anabranch.plan.operators.aggregates import (
    AggregateNode,
    AggregatePlan,
    Consolidated,
)
from anabranch.plan.operators.base import Evolved, KeptPartial, Reached
from anabranch.plan.operators.noted import AggregateContents
from anabranch.plan.panes import MARKED_SQL, Panes, data_sql
from anabranch.topology.windows import Session

if TYPE_CHECKING:
    from anabranch.plan.notes import OperatorNote


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan(AggregatePlan):
    """What a slot task needs to know about one session definition."""

    kind = "sessions"
    marks_late = True

    session: Session

    @property
    def first(self) -> int:
        """The column of the first event times."""
        return len(self.columns) - 2

    @property
    def last(self) -> int:
        """The column of the last event times."""
        return len(self.columns) - 1

    @property
    def window_names(self) -> list[str]:
        return [self.session.name]

    def outside_sql(self) -> str:
        return "false"

    def late_sql(self, watermark_us: int | None) -> str:
        """Whether a session of this row alone would be over."""
        if watermark_us is None:
            return f"(t is null or {MARKED_SQL})"
        over = f"t + {self.session.gap_us}L <= {data_sql(watermark_us)}"
        return f"(t is null or {MARKED_SQL} or {over})"


def session_panes(session: Session) -> Panes:
    """The panes of a session. They may become narrower, never wider."""
    return Panes(width_us=session.gap_us, offset_us=0, windows=())


def with_times(kept: Sequence[KeptPartial]) -> tuple[KeptPartial, ...]:
    """Partials, and after them the first and the last event time."""
    at = kept[-1].columns.stop
    times = (FirstTime("bigint"), LastTime("bigint"))
    return (
        *kept,
        *(
            KeptPartial(partial=partial, input=0, columns=slice(at + i, at + i + 1))
            for i, partial in enumerate(times)
        ),
    )


class SessionContents(AggregateContents, frozen=True, kw_only=True, tag="sessions"):
    """What a session stores: open sessions, as partials."""

    session: Session

    @property
    def longest_us(self) -> int | None:
        return None

    def plan(self, part: PartId, note: OperatorNote) -> SessionPlan:  # noqa: ARG002
        kept = self.kept()
        return SessionPlan(
            part=part,
            keys=self.key_fields(),
            panes=session_panes(self.session),
            kept=kept,
            results=(),
            columns=tuple(column for each in kept for column in each.partial.columns),
            time_type="timestamp",
            session=self.session,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNode(AggregateNode):
    """One session definition as it runs."""

    plan: SessionPlan

    @property
    def windows_text(self) -> str:
        return self.plan.session.key

    def contents(self) -> SessionContents:
        return SessionContents(**self._noted(), session=self.plan.session)

    def continued(
        self,
        note: OperatorNote,
        keys_in: Mapping[int, float],  # noqa: ARG002
    ) -> SessionNode:
        """The node over the state of a checkpoint. What began before it was added is incomplete."""
        complete = dict(enumerate(note.complete_from.values()))
        plan = replace(self.plan, complete_from=complete, **self._over_partials(note.contents))
        return replace(self, plan=plan)

    started = "sessions that started"

    def evolved(self, note: OperatorNote, fresh: OperatorNote, at: Reached | None) -> Evolved:
        """Aggregates may be added and removed. The gap may not change: merged rows stay merged."""
        return self._with_other_aggregates(note, fresh, at)

    @property
    def complete_after(self) -> dict[str, int]:
        """A session takes rows up to a gap before the first one that it sees."""
        session = self.plan.session
        return {session.key: 1 + session.gap_us}

    def formation(self) -> dict[str, Any]:
        """Nothing is planned: panes are merged as they come."""
        return {
            "windows": {},
            "helpers": {},
            "merges": 0,
            "naive_merges": 0,
            "session": self.plan.session.name,
        }

    def window_lines(self, facts: Mapping[str, Any]) -> list[str]:
        return [f"    window:    {facts['session']}, merged from panes as long as they touch"]


def session_nodes(of: Consolidated, sessions: Sequence[Session]) -> list[SessionNode]:
    """One node for each session."""
    kept = with_times(of.kept)
    nodes = []
    for session in sessions:
        plan = SessionPlan(
            **of.planned(),
            part=of.part(session.key),
            panes=session_panes(session),
            kept=kept,
            columns=tuple(column for each in kept for column in each.partial.columns),
            session=session,
        )
        nodes.append(SessionNode(**of.run(), plan=plan))
    return nodes

"""Sessions as nodes: the times that they keep, when a row is late, and what may not change."""

from __future__ import annotations

from dataclasses import replace

from anabranch.plan.notes import note_of
from anabranch.plan.operators.base import Reached
from anabranch.plan.operators.sessions import SessionNode, with_times
from anabranch.plan.panes import MARKED_SQL
from tests.plan.every_kind import nodes

SECOND = 1_000_000


def node() -> SessionNode:
    found = nodes()["sessions"]
    assert isinstance(found, SessionNode)
    return found


def test_the_first_and_the_last_event_time_are_kept_after_all_other_partials() -> None:
    plan = node().plan
    assert with_times(plan.kept[:-2]) == plan.kept
    assert [type(each.partial).__name__ for each in plan.kept[-2:]] == ["FirstTime", "LastTime"]
    assert (plan.first, plan.last) == (len(plan.columns) - 2, len(plan.columns) - 1)
    assert [plan.kept[-2].columns.start, plan.kept[-1].columns.start] == [plan.first, plan.last]


def test_panes_are_as_wide_as_the_gap_and_a_row_alone_ends_a_gap_after_it() -> None:
    plan = node().plan
    assert (plan.panes.width_us, plan.outside_sql()) == (5 * SECOND, "false")
    assert plan.late_sql(None) == f"(t is null or {MARKED_SQL})"
    assert f"t + {5 * SECOND}L <= get(array(7L)" in plan.late_sql(7)


def test_another_gap_is_refused() -> None:
    fresh = note_of(node())
    other = replace(fresh, fingerprint={**fresh.fingerprint, "windows": "another gap"})
    at = Reached(step=1, watermark_us=0, newest_us=0)
    found = node().evolved(other, fresh, at)
    assert (found.note, found.changed) == (other, ())
    assert "the checkpoint has [another gap]" in found.refused[0]


def test_a_session_that_is_added_is_complete_one_gap_after_the_newest_row_before_it() -> None:
    assert list(node().complete_after.values()) == [1 + 5 * SECOND]
    note = replace(note_of(node()), complete_from={node().plan.session.key: 77})
    assert node().continued(note, {}).plan.complete_from == {0: 77}


def test_another_name_is_no_other_session() -> None:
    named = replace(node().plan.session, name="visit")
    renamed = replace(node(), plan=replace(node().plan, session=named))
    assert renamed.fingerprint() == node().fingerprint()
    assert renamed.continued(note_of(node()), {}).plan.window_names == ["visit"]
    assert node().name.part == named.key, "its state is known by what it is"

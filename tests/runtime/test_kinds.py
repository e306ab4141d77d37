"""Every kind of plan has its work, and the kind of state that it needs."""

from __future__ import annotations

from anabranch.runtime.kinds import WORKS
from anabranch.runtime.windows import WindowsWork
from anabranch.state.kinds import STATES
from tests.plan.every_kind import plan


def test_each_kind_that_a_topology_can_have_has_a_work_and_a_state() -> None:
    kinds = {node.plan.kind for node in plan().nodes}
    assert set(WORKS) == set(STATES) == kinds


def test_sessions_work_as_windows_do() -> None:
    assert WORKS["sessions"] is WORKS["windows"] is WindowsWork

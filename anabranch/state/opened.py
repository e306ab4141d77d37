"""The decoded state that a plan asks for: of windows, or of sessions."""

from __future__ import annotations

import pyarrow as pa

from anabranch.plan.sessions import SessionPlan
from anabranch.plan.slotted import Slotted
from anabranch.state.keyed import KeyedState
from anabranch.state.keys import KeyTable
from anabranch.state.sessions import SessionState
from anabranch.state.slot import SlotState


def state_of(plan: Slotted, keys: pa.Schema) -> KeyedState:
    """An empty state of a slot."""
    return SessionState(plan, KeyTable(keys)) if isinstance(plan, SessionPlan) else SlotState(plan, KeyTable(keys))

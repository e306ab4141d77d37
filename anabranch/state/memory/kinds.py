"""The decoded state that a plan asks for: of windows, of sessions or of a join; and the bytes of what it holds."""

from __future__ import annotations

from typing import Any

from anabranch.plan.operators.base import OperatorPlan, key_schema
from anabranch.plan.operators.joins import JoinSide
from anabranch.plan.operators.sessions import SessionPlan
from anabranch.state.codec.blob import decode, encode
from anabranch.state.codec.joins import decode_join, encode_join
from anabranch.state.memory.joins import JoinState
from anabranch.state.memory.keyed import NumberedState
from anabranch.state.memory.keys import KeyTable
from anabranch.state.memory.sessions import SessionState
from anabranch.state.memory.windows import SlotState


def state_of(plan: OperatorPlan) -> NumberedState[Any, Any]:
    """An empty state of a slot."""
    keys = KeyTable(key_schema(plan))
    if isinstance(plan, JoinSide):
        return JoinState(plan.join, keys)
    return SessionState(plan, keys) if isinstance(plan, SessionPlan) else SlotState(plan, keys)


def decoded(plan: OperatorPlan, blob: bytes) -> Any:
    """The entries in a blob of a plan's state; a damaged one is a StateError."""
    return (
        decode_join(blob, plan.join) if isinstance(plan, JoinSide) else decode(blob, plan.columns)
    )


def encoded(plan: OperatorPlan, entries: Any) -> bytes:
    """The bytes of some entries of a plan's state."""
    return (
        encode_join(entries, plan.join)
        if isinstance(plan, JoinSide)
        else encode(entries, plan.columns)
    )

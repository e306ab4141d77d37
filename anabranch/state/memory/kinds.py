"""The kinds of decoded state, by the kind of their plan: how each is made, read and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.plan.operators.base import OperatorPlan, key_schema
from anabranch.plan.operators.joins import JoinSide
from anabranch.plan.operators.sessions import SessionPlan
from anabranch.plan.operators.windows import WindowsPlan
from anabranch.state.codec.blob import decode, encode
from anabranch.state.codec.joins import decode_join, encode_join
from anabranch.state.memory.joins import JoinState
from anabranch.state.memory.keyed import NumberedState
from anabranch.state.memory.keys import KeyTable
from anabranch.state.memory.sessions import SessionState
from anabranch.state.memory.shown import partials_table, waiting_table
from anabranch.state.memory.windows import WindowsState


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedKind:
    """One kind of state that is decoded as a whole."""

    empty: Callable[[Any, KeyTable], NumberedState[Any, Any]]
    decode: Callable[[bytes, Any], Any]
    encode: Callable[[Any, Any], bytes]
    table: Callable[[Any, Any, Any, Callable[[int], str]], pa.Table]  # as people see it


def _decode_partials(blob: bytes, plan: OperatorPlan) -> Any:
    return decode(blob, plan.stored_columns)


def _encode_partials(entries: Any, plan: OperatorPlan) -> bytes:
    return encode(entries, plan.stored_columns)


DECODED: Mapping[str, DecodedKind] = {
    WindowsPlan.kind: DecodedKind(
        empty=WindowsState, decode=_decode_partials, encode=_encode_partials, table=partials_table
    ),
    SessionPlan.kind: DecodedKind(
        empty=SessionState, decode=_decode_partials, encode=_encode_partials, table=partials_table
    ),
    JoinSide.kind: DecodedKind(
        empty=lambda plan, keys: JoinState(plan.join, keys),
        decode=lambda blob, plan: decode_join(blob, plan.join),
        encode=lambda entries, plan: encode_join(entries, plan.join),
        table=waiting_table,
    ),
}


def state_of(plan: OperatorPlan) -> NumberedState[Any, Any]:
    """An empty state of a slot."""
    return DECODED[plan.kind].empty(plan, KeyTable(key_schema(plan)))


def decoded(plan: OperatorPlan, blob: bytes) -> Any:
    """Decodes a blob of a plan's state. A damaged blob is a StateError."""
    return DECODED[plan.kind].decode(blob, plan)


def encoded(plan: OperatorPlan, entries: Any) -> bytes:
    """Encodes entries of a plan's state."""
    return DECODED[plan.kind].encode(entries, plan)

"""Cells of `process` state, one per key: as columns, and as people see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from anabranch.plan.operators.process import ProcessContents
from anabranch.state.codec.cells import head_of
from anabranch.topology.process import StateColumn, defaults_of, record_of
from anabranch.types import Array


def state_record(
    columns: Sequence[StateColumn], cells: Sequence[bytes | None]
) -> tuple[Array, Array]:
    """The state of some keys as one array of records, and which of the keys are new."""
    dtype = record_of(columns)
    found = list(filter(None, cells))
    new = np.array([cell is None for cell in cells], dtype=bool)
    record = defaults_of(columns, len(cells))
    joined = b"".join(found)
    if not set(map(len, found)) <= {dtype.itemsize}:
        fresh = defaults_of(columns, 1).tobytes()  # columns that were added later have defaults
        joined = b"".join(cell + fresh[len(cell) :] for cell in found)
    record[~new] = np.frombuffer(joined, dtype=dtype)
    return record, new


def shown_cell(
    cell: bytes, contents: ProcessContents, instant: Callable[[int], str]
) -> dict[str, Any]:
    """A cell as people see it: its state, its timers and when it expires.

    It is decoded without the user's types.
    """
    head, state = head_of(cell)
    if contents.vectorised:
        declared = {each["name"]: each["type"]["kind"] for each in contents.state["fields"]}
        columns = [StateColumn(name=name, type=kind, default=0) for name, kind in declared.items()]
        record, _ = state_record(columns, [b"\0" + state])
        found: dict[str, Any] = {each.name: record[each.name][0].item() for each in columns}
    else:
        found = {"state": msgspec.msgpack.decode(state)}
    if head.timers:
        found["timers"] = {name: instant(at) for name, at in head.timers.items()}
    if head.expires_us is not None:
        found["expires"] = instant(head.expires_us)
    return found

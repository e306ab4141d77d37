"""The header and the commit records of a checkpoint, as values and as JSON.

In memory they are keyed by the ids of parts and components. In JSON, such a mapping is a list of
entries. An id is stored as its fields, so no text has to be parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.notes import OperatorNote
from anabranch.plan.route import Route
from anabranch.state.checkpoint.log import Stored

# The format of the whole checkpoint. Raise it when the golden files (tests/golden) change.
FORMAT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One committed step."""

    step: int
    epoch: int
    batch_id: int | None
    watermark_us: int | None
    next_us: int | None  # the watermark of the step after it
    seen: Mapping[str, int]  # the largest event time of each source so far
    routes: Mapping[ComponentId, Route]
    stored: Mapping[PartId, Mapping[int, Stored]]  # the shards that this step changed
    # The columns that are hashed to find the shard of a row, per operator.
    attributes: Mapping[PartId, tuple[str, ...]] = field(default_factory=dict)
    # No row that an operator has taken so far is later than this event time.
    taken: Mapping[PartId, int] = field(default_factory=dict)
    # How many steps so far only rewrote state, for a plan with other attributes.
    replans: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    # The mean number of distinct keys, by length of the interval in panes; a moving mean.
    keys_in: Mapping[PartId, Mapping[int, float]] = field(default_factory=dict)
    # Rows were compared with this clock, to find those ahead; None in a closing step.
    clock_us: int | None = None

    @property
    def max_event_us(self) -> int | None:
        return max(self.seen.values(), default=None)

    @property
    def slots(self) -> int:
        """The slots of the component that has the most."""
        return max(route.slots for route in self.routes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint belongs to: a topology with its shards, sources and operators."""

    format: int
    id: str
    topology: str
    shards: int
    sources: tuple[str, ...]  # in the order of Spark's own checkpoint
    operators: Mapping[PartId, OperatorNote]


class _Format(msgspec.Struct):
    format: int


class _HeaderRecord(msgspec.Struct):
    format: int
    id: str
    topology: str
    shards: int
    sources: tuple[str, ...]
    operators: list[tuple[PartId, OperatorNote]]


class _CommitRecord(msgspec.Struct):
    step: int
    epoch: int
    batch_id: int | None
    watermark_us: int | None
    next_us: int | None
    seen: dict[str, int]
    routes: list[tuple[ComponentId, Route]]
    stored: list[tuple[PartId, dict[int, Stored]]]
    attributes: list[tuple[PartId, tuple[str, ...]]]
    taken: list[tuple[PartId, int]]
    replans: int
    rows: dict[str, int]
    keys_in: list[tuple[PartId, dict[int, float]]]
    clock_us: int | None


_BY_ID = ("routes", "stored", "attributes", "taken", "keys_in", "operators")


def encode_header(header: Header) -> bytes:
    """The header as JSON."""
    return _encoded(header, _HeaderRecord)


def decode_header(data: bytes) -> Header:
    """The header. If it has another format, only the format is set."""
    form = msgspec.json.decode(data, type=_Format).format
    if form != FORMAT:
        return Header(format=form, id="", topology="", shards=0, sources=(), operators={})
    return Header(**_decoded(data, _HeaderRecord))


def encode_commit(commit: Commit) -> bytes:
    """The record of a step as JSON."""
    return _encoded(commit, _CommitRecord)


def decode_commit(data: bytes) -> Commit:
    """The record of a step."""
    return Commit(**_decoded(data, _CommitRecord))


def _encoded(value: Commit | Header, record: type[msgspec.Struct]) -> bytes:
    fields = {name: getattr(value, name) for name in record.__struct_fields__}
    listed = {name: list(fields[name].items()) for name in fields if name in _BY_ID}
    return msgspec.json.encode(record(**{**fields, **listed}))


def _decoded(data: bytes, record: type[msgspec.Struct]) -> dict[str, Any]:
    found = msgspec.json.decode(data, type=record)
    fields = {name: getattr(found, name) for name in record.__struct_fields__}
    return {name: dict(each) if name in _BY_ID else each for name, each in fields.items()}

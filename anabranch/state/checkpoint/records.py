"""The header and the commit records of a checkpoint, as values and as JSON.

In memory they are keyed by the ids of parts and components. JSON has such mappings as lists of
entries: an id is stored as what it consists of, and nothing is parsed back from text.
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

# Of everything that a checkpoint holds. Raise it when the golden files (tests/golden) change.
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
    # What is hashed to find the shards of each operator.
    attributes: Mapping[PartId, tuple[str, ...]] = field(default_factory=dict)
    # An event time that no row is after that an operator has taken so far.
    taken: Mapping[PartId, int] = field(default_factory=dict)
    # How many of the steps so far only wrote state again, for a plan with other attributes.
    replans: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    # Distinct keys by interval length in panes, a moving mean.
    keys_in: Mapping[PartId, Mapping[int, float]] = field(default_factory=dict)
    clock_us: int | None = None  # by which rows were ahead; None in a closing step

    @property
    def max_event_us(self) -> int | None:
        return max(self.seen.values(), default=None)

    @property
    def slots(self) -> int:
        """The slots of the component that has most."""
        return max(route.slots for route in self.routes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint is of."""

    format: int
    id: str
    topology: str
    shards: int
    sources: tuple[str, ...]  # in the order in which Spark's own checkpoint knows them
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
    """The header; of one in another format nothing but that format."""
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

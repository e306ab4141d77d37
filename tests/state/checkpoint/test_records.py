"""Records as JSON: ids are stored as what they consist of, and come back as they were."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.notes import note_of
from anabranch.plan.route import even_route
from anabranch.state.checkpoint.records import (
    FORMAT,
    Header,
    decode_commit,
    decode_header,
    encode_commit,
    encode_header,
)
from tests.plan.every_kind import plan
from tests.state.checkpoint.one_checkpoint import commit

TRICKY = PartId("w: right + 5", "a + b: c")


def header() -> Header:
    notes = {node.name: note_of(node) for node in plan().nodes}
    return Header(format=FORMAT, id="i", topology="t", shards=2, sources=("s",), operators=notes)


def test_a_commit_comes_back_whatever_names_are_in_it() -> None:
    base = commit(1, {0: True, 1: False})
    given = replace(
        base,
        stored={TRICKY: base.stored[PartId("o")]},
        routes={
            ComponentId(("a", "b")): even_route(2, 2),
            ComponentId(("a + b",)): even_route(2, 1),
        },
        attributes={TRICKY: ("k",)},
        keys_in={TRICKY: {1: 2.5}},
    )
    assert decode_commit(encode_commit(given)) == given
    record = msgspec.json.decode(encode_commit(given))
    assert record["stored"][0][0] == {"operator": "w: right + 5", "part": "a + b: c"}
    assert [each[0]["operators"] for each in record["routes"]] == [["a", "b"], ["a + b"]]


def test_a_header_comes_back_with_the_notes_of_all_kinds() -> None:
    given = header()
    assert decode_header(encode_header(given)) == given
    record = msgspec.json.decode(encode_header(given))
    kinds = [note["contents"]["kind"] for _, note in record["operators"]]
    assert kinds == ["windows", "sessions", "join", "join", "process"]


def test_a_header_in_another_format_is_read_for_its_format_only() -> None:
    found = decode_header(b'{"format":2,"operators":{"w":"as they were then"}}')
    assert (found.format, found.operators) == (2, {})


@pytest.mark.parametrize("cut", [b"", b"{", b'{"format":4}'])
def test_what_is_damaged_cannot_be_read(cut: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_header(cut)
    with pytest.raises(msgspec.DecodeError):
        decode_commit(cut)


def test_a_commit_knows_its_newest_row_and_its_largest_component() -> None:
    base = commit(1, {})
    routes = {ComponentId(("a",)): even_route(2, 1), ComponentId(("b",)): even_route(2, 2)}
    found = replace(base, routes=routes, seen={"s": 5, "r": 9})
    assert (found.slots, found.max_event_us) == (2, 9)
    assert replace(base, seen={}).max_event_us is None

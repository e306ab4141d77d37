"""Blobs of partials: what goes in comes out, and what is damaged is an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from anabranch.aggregates.functions import count_distinct, max, sum
from anabranch.aggregates.partials import PartialColumn
from anabranch.aggregates.specs import Aggregate
from anabranch.errors import StateError
from anabranch.state.codec.blob import Entries, decode, encode, sealed, unsealed
from anabranch.types import objects


def columns_of(aggregate: Aggregate, kind: str) -> dict[str, PartialColumn]:
    columns = [column for each in aggregate.partials(kind) for column in each.columns]
    return {f"{aggregate.kind}.{i}": column for i, column in enumerate(columns)}


WHOLE = columns_of(sum("x"), "bigint")
SETS = columns_of(count_distinct("x"), "string")


def entries(after_us: int | None = None) -> Entries:
    keys = pa.table({"k0": pa.array(["a", None])})
    numbers = tuple(np.array([5, -7, 2**62]).astype(each.empty(1).dtype) for each in WHOLE.values())
    key, pane = np.array([0, 1, 0], dtype=np.int32), np.array([0, 0, -(2**60)])
    return Entries(keys, key, pane, numbers, after_us)


def test_partials_come_back_with_their_keys_and_panes() -> None:
    made = entries()
    found = decode(encode(made, WHOLE), WHOLE)
    assert len(found) == 3
    assert found.keys == made.keys
    assert found.key.tolist() == [0, 1, 0]
    assert found.pane.tolist() == [0, 0, -(2**60)]
    for mine, theirs in zip(found.columns, made.columns, strict=True):
        assert (mine.dtype, mine.tolist()) == (theirs.dtype, theirs.tolist())


def test_sets_come_back_as_sets_and_nothing_as_nothing() -> None:
    held = [frozenset({"a", "b"}), None, frozenset({""})]
    made = replace(entries(), columns=(objects(held),))
    assert decode(encode(made, SETS), SETS).columns[0].tolist() == held


def test_the_watermark_before_a_delta_is_part_of_its_blob_and_may_be_missing() -> None:
    for after in (None, 0, -(2**62), 2**62):
        assert decode(encode(entries(after), WHOLE), WHOLE).after_us == after


def test_a_damaged_blob_is_an_error() -> None:
    blob = encode(entries(), WHOLE)
    for bad in (blob[:-1], blob[:10], b"", blob[:-1] + bytes([blob[-1] ^ 1]), b"xxxx" + blob[4:]):
        with pytest.raises(StateError):
            decode(bad, WHOLE)


def test_a_blob_of_another_kind_or_with_extra_bytes_is_an_error() -> None:
    tables = [pa.table({"a": [1]}), pa.table({"b": ["x"]})]
    blob = sealed(b"abxx", tables)
    assert unsealed(b"abxx", blob, 2) == tables
    for magic, data in ((b"abyy", blob), (b"abxx", blob + b"more")):
        with pytest.raises(StateError, match="checksum"):
            unsealed(magic, data, 2)


def test_columns_are_found_by_name_and_those_that_a_blob_lacks_are_empty() -> None:
    blob = encode(entries(), WHOLE)
    first, second = WHOLE
    added = {**SETS, **columns_of(max("x"), "double")}
    found = decode(blob, {second: WHOLE[second], **added, first: WHOLE[first]})
    total, count = entries().columns
    assert (found.columns[0].tolist(), found.columns[-1].tolist()) == (
        count.tolist(),
        total.tolist(),
    )
    for values, column in zip(found.columns[1:-1], added.values(), strict=True):
        assert (values.dtype, values.tolist()) == (column.dtype, column.empty(3).tolist())
    assert len(decode(blob, {second: WHOLE[second]}).columns) == 1


def test_a_blob_without_the_first_column_is_of_something_else() -> None:
    with pytest.raises(
        StateError, match=r"has no column count_distinct.0; it has key, pane, sum.0, sum.1"
    ):
        decode(encode(entries(), WHOLE), SETS)

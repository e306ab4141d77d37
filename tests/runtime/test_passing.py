"""Rows that pass a level: wrapped by operator and shard, and the same when they come out."""

from __future__ import annotations

import pyarrow as pa

from anabranch.runtime.passing import (
    APPLY_REPORT,
    REPORT,
    WRAPPED,
    pieces,
    unwrapped,
    with_reports,
    wrapped,
)


def test_combined_rows_are_wrapped_by_operator_and_shard_and_come_out_as_they_were() -> None:
    struct = pa.array([{"x": 1, "y": ["é"]}, None, {"x": None, "y": []}, None, {"x": 5, "y": None}])
    rows = pa.table(
        {
            "to": pa.array([3, 3, 1, 3, 3], pa.int32()),
            "shard": pa.array([7, 2, 7, 7, 2], pa.int32()),
            "a0": struct,
            "k": ["p", None, "q", "r", "s"],
        }
    )
    reports = pa.record_batch({"to": pa.array([-1], pa.int32()), "report": pa.array([b"{}"])})
    passed = list(wrapped([reports, *rows.to_batches(max_chunksize=2)]))
    assert passed[0] == pa.Table.from_batches([reports])
    assert passed[1].select(["to", "shard"]).to_pylist() == [
        {"to": 1, "shard": 7},
        {"to": 3, "shard": 2},
        {"to": 3, "shard": 7},
    ]
    found = unwrapped(passed[1])
    assert found == rows.take([2, 1, 4, 0, 3])
    again = list(wrapped(passed[1].to_batches()))
    assert again == [passed[1]], "what is wrapped passes the next level as it is"


def test_rows_that_were_not_wrapped_are_as_they_are() -> None:
    plain = pa.table({"to": [1], "shard": [2], "report": pa.nulls(1, pa.binary())})
    assert unwrapped(plain) is plain
    assert list(wrapped([])) == []


def test_between_two_levels_plain_rows_pass_as_they_are() -> None:
    """Results for a later level have the column of reports, and nothing in it."""
    plain = pa.record_batch({"to": [1], "shard": [2], "report": pa.nulls(1, pa.binary())})
    assert list(wrapped([plain])) == [pa.Table.from_batches([plain])]


def test_reports_of_applies_come_among_combined_rows_and_pass_by_themselves() -> None:
    rows = pa.record_batch(
        {
            "to": pa.array([3, 3], pa.int32()),
            "shard": pa.array([7, 7], pa.int32()),
            "k": ["p", "q"],
            APPLY_REPORT: pa.nulls(2, pa.string()),
        }
    )
    sent = pa.record_batch(
        {
            "to": pa.array([REPORT], pa.int32()),
            "shard": pa.array([0], pa.int32()),
            "k": pa.nulls(1, pa.string()),
            APPLY_REPORT: ["a report"],
        }
    )
    passed, packed = wrapped([rows, sent])
    assert passed.to_pylist() == [{"to": REPORT, WRAPPED: b"a report"}]
    assert unwrapped(packed).to_pydict() == {"to": [3, 3], "shard": [7, 7], "k": ["p", "q"]}
    assert with_reports(sent).to_pylist() == [{"to": REPORT, WRAPPED: b"a report"}]


def test_a_batch_of_large_rows_goes_on_in_pieces_and_a_small_one_as_it_is() -> None:
    small = pa.record_batch({"n": [1, 2, 3]})
    assert list(pieces(small)) == [small]
    docs = [
        "x",
        *("y" * size for size in (40 << 20, 5, 9 << 20, 9 << 20, 9 << 20, 9 << 20, 0)),
        None,
    ]
    large = pa.record_batch({"n": list(range(len(docs))), "doc": docs})
    found = list(pieces(large))
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([large]))
    assert len(found) > 2
    assert all(each.nbytes <= 33 << 20 or each.num_rows == 1 for each in found)

"""What the processes of a chaos run must give, by the tester."""

from __future__ import annotations

import pyarrow as pa

from anabranch.testing.chaos.processes import expected_of

SECOND = 1_000_000


def step(*rows: tuple[int, int, int]) -> pa.Table:
    table = pa.Table.from_pylist([{"k": k, "at": at * SECOND, "v": v} for k, at, v in rows])
    return table.set_column(1, "at", table["at"].cast(pa.timestamp("us", tz="UTC")))


def test_rows_are_added_up_and_silence_is_noticed() -> None:
    steps = [step((1, 0, 4), (1, 1, 5)), step((2, 100, 1)), None]
    found = expected_of("tallied", steps, ["k"], 0, finish=False).to_pylist()
    assert [row["total"] for row in found if row["k"] == 1 and row["what"] == "rows"] == [9]
    assert [row["n"] for row in found if row["k"] == 1 and row["what"] == "silent"] == [2]


def test_combined_rows_are_added_up() -> None:
    steps = [step((1, 0, 4), (1, 1, 5)), step((1, 2, 1))]
    found = expected_of("added", steps, ["k"], 0, finish=False).to_pylist()
    assert [(row["n"], row["total"]) for row in found] == [(2, 9), (3, 10)]

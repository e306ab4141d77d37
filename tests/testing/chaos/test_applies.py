"""What the apply of a chaos run must give."""

from __future__ import annotations

import pyarrow as pa

from anabranch.testing.chaos.applies import expected_work


def test_rows_become_none_one_or_two_and_some_fail() -> None:
    done, failed = expected_work([pa.table({"v": [7, 5, 3]}), None, pa.table({"v": [11, None]})])
    assert done["n"].to_pylist() == [5, 5, 3]
    assert done["part"].to_pylist() == [0, 1, 0]
    assert failed["error"].to_pylist() == ["ValueError: v is 11", "ValueError: v is None"]

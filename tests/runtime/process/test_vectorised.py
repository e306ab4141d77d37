"""A user's class that is called with columns: what it may return, and its mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from anabranch.errors import StepError
from tests.runtime.process.process_slot import (
    Slot,
    Total,
    at,
    plan_of,
)

if TYPE_CHECKING:
    import anabranch as ab


class WrongColumns(Total):
    what = ""

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        wrong: dict[str, Any] = {
            "raise": lambda: rows["price"],
            "shape": lambda: setattr(state, "n", np.zeros(7)),
            "type": lambda: setattr(state, "n", state.n + 0.5),
        }
        if self.what in wrong:
            wrong[self.what]()
        columns = {"n": state.n, "top": state.top}
        return {
            "names": {"n": state.n},
            "half": {**columns, "n": [2.0, 1.5]},
            "halves": {**columns, "n": state.n + 0.5},
            "large": {**columns, "n": [1, 2**64]},
            "count": {**columns, "top": [1.0]},
            "other": 5,
            "keys": ([9], columns),
        }.get(self.what, columns)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("raise", "process() raised KeyError: \"rows have no column 'price'"),
        ("shape", "state column 'n' does not fit its type bigint: its shape is (7,); valid: (2,)"),
        ("type", "state column 'n' does not fit its type bigint: Cannot cast"),
        ("names", "process() returned columns [n]; declared: [n, top]"),
        ("half", "column 'n' that process() returned is not of type int64: 1.5 is not a whole"),
        ("halves", "column 'n' that process() returned is not of type int64: Float value 0.5"),
        ("large", "column 'n' that process() returned is not of type int64:"),
        ("count", "column 'top' that process() returned has 1 values; valid: 2"),
        ("other", "process() returned int; valid: a dict of columns"),
        ("keys", "key numbers that are not from 0 to 1"),
    ],
)
def test_a_mistake_in_a_vectorised_class_says_what_is_valid(
    tmp_path: Path, what: str, message: str
) -> None:
    cls = WrongColumns()
    cls.what = what
    slot = Slot(plan_of(cls, "k bigint, at timestamp, v double", ["k"]), tmp_path)
    with pytest.raises(StepError) as error:
        slot.run([(1, at(0), 1.0), (2, at(0), 1.0)], None)
    assert message in str(error.value)
    assert "operator 'p'" in str(error.value)

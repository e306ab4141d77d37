"""Sketches of a chaos run are compared by their stated error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anabranch.testing.chaos.gathered import sketch_errors


def sketched(**other: Any) -> tuple[pa.Table, pa.Table]:
    """A result of forty values, with sketches as they may be, or as given; and the values."""
    values = [each % 25 for each in range(40)]
    often = [{"value": value, "count": 2} for value in range(4)]
    row = {"k": float("nan"), "about": 25, "shares": [2.0, 11.0, 21.0], "often": often, **other}
    wanted = {"k": float("nan"), "values": values}
    return pa.Table.from_pylist([row]), pa.Table.from_pylist([wanted])


def test_sketches_may_be_off_by_their_stated_error_and_no_more() -> None:
    assert sketch_errors(*sketched(), ["k"]) == []
    assert sketch_errors(*sketched(about=24), ["k"]) == []
    for name, bad in (
        ("about", 50),
        ("shares", [2.0, 11.0, 1.0]),
        ("often", [{"value": 0, "count": 3}]),
        ("often", [{"value": 90, "count": 1}]),
    ):
        found = sketch_errors(*sketched(**{name: bad}), ["k"])
        assert any(text.startswith(f"{name} of") for text in found), (name, bad, found)

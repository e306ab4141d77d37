"""The arguments of `apply`: how rows are grouped, and which columns decide their cost."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import TopologyError
from anabranch.topology.apply import ApplySpec, Osg, check_work, cost_columns

KINDS = (("k", "bigint"), ("at", "timestamp"), ("m", "map<string,int>"), ("s", "string"))
VALID: dict[str, Any] = {
    "fn": len,
    "form": "rows",
    "grouping": "osg",
    "on_error": "fail",
    "batch_rows": 1,
    "osg": Osg(),
}


def test_the_shape_of_the_sketches_is_that_of_the_paper() -> None:
    assert Osg(epsilon=0.05, delta=0.05).shape == (3, 54)  # DABS-Storm, Table 2
    assert Osg(epsilon=0.7, delta=0.25).shape == (2, 4)  # Fig. 6


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fn": 5}, r"apply\(5\) is not a function"),
        ({"form": "json"}, "unknown form 'json'; valid: arrow, pandas, rows"),
        ({"grouping": "random"}, "unknown grouping 'random'; valid: auto, round robin, hash, osg"),
        ({"on_error": "retry"}, "unknown on_error 'retry'; valid: fail, dead letter"),
        ({"batch_rows": 0}, "batch_rows=0; valid: 1 row or more"),
        ({"batch_rows": True}, "batch_rows=True; valid: 1 row or more"),
        ({"osg": 0.05}, "osg=0.05; valid: ab.Osg"),
    ],
)
def test_invalid_arguments_are_refused_with_the_valid_ones(
    changed: dict[str, Any], message: str
) -> None:
    assert check_work(**VALID) == (len, False)
    assert check_work(**VALID | {"on_error": "dead letter"}) == (len, True)
    with pytest.raises(TopologyError, match=message):
        check_work(**VALID | changed)


@pytest.mark.parametrize(
    "bad", [{"epsilon": 0}, {"delta": 1}, {"window": 0}, {"mu": -0.1}, {"mu": float("nan")}]
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(TopologyError, match=f"{next(iter(bad))}="):
        Osg(**bad)


def test_the_cost_of_a_row_is_decided_by_all_columns_that_can_be_hashed_unless_some_are_named() -> (
    None
):
    assert cost_columns(None, KINDS, "at") == ("k", "s")
    assert cost_columns("s", KINDS, "at") == ("s",)
    assert cost_columns(["s", "at"], KINDS, "at") == ("s", "at")
    with pytest.raises(TopologyError, match="column 'm' of type map<string,int> cannot be hashed"):
        cost_columns("m", KINDS, "at")
    with pytest.raises(TopologyError, match="unknown column in cost_by 'x'; valid: k, at, m, s"):
        cost_columns(["x"], KINDS, "at")


def test_time_is_measured_by_value_only_where_the_grouping_uses_it() -> None:
    measured = [
        name
        for name in ("auto", "round robin", "hash", "osg")
        if ApplySpec(fn=len, grouping=name).measured
    ]
    assert measured == ["auto", "osg"]

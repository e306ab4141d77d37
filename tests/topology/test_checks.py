"""Invalid keys, results and windows are refused by name."""

from __future__ import annotations

from datetime import timedelta

import pytest

from anabranch.errors import TopologyError
from anabranch.topology import Field, cumulative, session, tumbling
from anabranch.topology.checks import check_early, check_result_names, check_windows, key_fields
from anabranch.topology.graph import Early

FIELDS = (
    Field("area", "string"),
    Field("m", "map<string,int>"),
    Field("c", "string collate UNICODE_CI"),
)


def test_an_unknown_key_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(TopologyError, match="unknown key column 'city'; valid: area, m, c"):
        key_fields(["city"], FIELDS)


@pytest.mark.parametrize("column", ["m", "c"])
def test_maps_and_collated_strings_cannot_be_keys(column: str) -> None:
    with pytest.raises(TopologyError, match="cannot be a key"):
        key_fields([column], FIELDS)


def test_a_key_may_be_one_name_or_none_but_not_twice_the_same() -> None:
    assert [field.name for field in key_fields("area", FIELDS)] == ["area"]
    assert key_fields([], FIELDS) == ()
    with pytest.raises(TopologyError, match="duplicate column"):
        key_fields(["area", "area"], FIELDS)


def test_results_may_not_have_the_name_of_a_key_or_of_the_window() -> None:
    with pytest.raises(TopologyError, match="'window'"):
        check_result_names(FIELDS[:1], ["window"])
    with pytest.raises(TopologyError, match="name of a key"):
        check_result_names(FIELDS[:1], ["area"])
    with pytest.raises(TopologyError, match="at least one aggregate"):
        check_result_names(FIELDS[:1], [])


def test_early_results_come_every_so_many_steps_or_after_a_time() -> None:
    assert check_early(None, ["early"]) is None
    assert check_early(3, []) == Early(steps=3)
    assert check_early("10 seconds", []) == check_early(timedelta(seconds=10), [])
    assert check_early("10 seconds", []) == Early(us=10_000_000)


@pytest.mark.parametrize(
    ("every", "names", "why"),
    [
        (1, ["early"], "'early' is a column of results with early="),
        (0, [], "early=0; valid: 1 step or more"),
        (True, [], "early=True; valid: a number of steps"),
        (1.5, [], "early=1.5; valid: a number of steps"),
    ],
)
def test_invalid_early_results_are_refused(every: object, names: list[str], why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        check_early(every, names)


def test_windows_may_be_lists_and_steps_of_one_share_a_name() -> None:
    steps = cumulative("1 hour", every="20 minutes")
    assert check_windows([tumbling("5 minutes"), steps]) == (tumbling("5 minutes"), *steps)


def test_missing_windows_other_values_and_duplicate_names_are_refused() -> None:
    with pytest.raises(TopologyError, match="at least one window"):
        check_windows([])
    with pytest.raises(TopologyError, match="'5 minutes' is not a window"):
        check_windows(["5 minutes"])
    with pytest.raises(TopologyError, match="two windows are named 'x'"):
        check_windows([tumbling("5 minutes", name="x"), session("5 minutes", name="x")])

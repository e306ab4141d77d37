"""What the graph refuses, and how it names things."""

from __future__ import annotations

import pytest

from anabranch.errors import TopologyError
from anabranch.topology import Field, Graph, Source
from anabranch.topology.graph import check_result_names, key_fields

FIELDS = (
    Field("area", "string"),
    Field("m", "map<string,int>"),
    Field("c", "string collate UNICODE_CI"),
)


def source(name: str) -> Source:
    return Source(name=name, fields=FIELDS, event_time="at", unit_us=None, delay_us=0)


def test_a_name_is_used_once() -> None:
    graph = Graph(name="t").add(source("loans"))
    with pytest.raises(TopologyError, match="'loans' already"):
        graph.add(source("loans"))
    assert graph.free_name("loans") == "loans_2"


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
    with pytest.raises(TopologyError, match="twice"):
        key_fields(["area", "area"], FIELDS)


def test_results_may_not_have_the_name_of_a_key_or_of_the_window() -> None:
    with pytest.raises(TopologyError, match="'window'"):
        check_result_names(FIELDS[:1], ["window"])
    with pytest.raises(TopologyError, match="name of a key"):
        check_result_names(FIELDS[:1], ["area"])
    with pytest.raises(TopologyError, match="at least one aggregate"):
        check_result_names(FIELDS[:1], [])

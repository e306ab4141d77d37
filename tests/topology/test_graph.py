"""What the graph refuses, and how it names things."""

from __future__ import annotations

import pytest

from anabranch.errors import TopologyError
from anabranch.topology import Field, Graph, Source

FIELDS = (Field("area", "string"), Field("at", "timestamp"))


def source(name: str) -> Source:
    return Source(name=name, fields=FIELDS, event_time="at", unit_us=None, delay_us=0)


def test_a_name_is_used_once() -> None:
    graph = Graph(name="t").add(source("loans"))
    with pytest.raises(TopologyError, match="'loans' already"):
        graph.add(source("loans"))
    assert graph.free_name("loans") == "loans_2"


def test_a_derived_name_has_no_counter_and_is_refused_where_it_is_taken() -> None:
    graph = Graph(name="t").add(source("loans"))
    assert graph.derived_name("loans", "by_area") == "loans_by_area"
    with pytest.raises(TopologyError) as error:
        graph.add(source("loans_by_area")).derived_name("loans", "by_area")
    assert "two operators would be named 'loans_by_area'" in str(error.value)
    assert "give one of them another name with name=" in str(error.value)
    assert "that one must keep 'loans_by_area'" in str(error.value)


def test_a_long_derived_name_is_cut_and_stays_its_own() -> None:
    graph, keys = Graph(name="t"), [f"key_{i}" for i in range(30)]
    names = {graph.derived_name("loans", "by_" + "_".join(keys[:n])) for n in range(12, 30)}
    assert len(names) == 18
    assert {len(each) for each in names} == {64}
    assert all(each.startswith("loans_by_key_0_key_1_") for each in names)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x" * 129, "has 129 characters; valid: at most 128 printable ones, given with name="),
        ("x" * 300, "has 300 characters; valid: at most 128"),
        (
            "two\nlines",
            "operator name 'two\\nlines' has 9 characters; valid: at most 128 printable",
        ),
        ("", "operator name ''; valid: a non-empty string"),
        ("  ", "operator name '  '; valid: a non-empty string"),
    ],
)
def test_a_name_that_cannot_name_state_is_refused_with_what_is_valid(name: str, said: str) -> None:
    with pytest.raises(TopologyError) as error:
        Graph(name="t").add(source(name))
    assert said in str(error.value)
    assert len(str(error.value)) < 200
    assert Graph(name="t").add(source("größe / " + "x" * 120)).operators

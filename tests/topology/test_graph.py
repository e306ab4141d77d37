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

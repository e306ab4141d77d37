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

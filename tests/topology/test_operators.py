"""Operators answer for themselves: what they read, what they make, and what cannot read them."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.aggregates.functions import count
from anabranch.errors import TopologyError
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, tumbling
from anabranch.topology.graph import Clock, Join, Map, Named
from anabranch.topology.operators import failed_fields, window_fields

FIELDS = (Field("k", "bigint"), Field("at", "timestamp_ntz"))
COUNTED = (Named(name="n", aggregate=count(), input_type="int"),)
MINUTE = (tumbling("1 minute"),)


def source(*more: Field) -> Graph:
    fields = (*FIELDS, *more)
    return Graph(name="t").add(
        Source(name="s", fields=fields, event_time="at", unit_us=None, delay_us=0)
    )


def counted(graph: Graph, stream: str = "s") -> Graph:
    compute = Compute(name=f"c_{stream}", input=stream, by=FIELDS[:1], aggregates=COUNTED)
    return graph.add(compute).add(
        Consolidate(name=f"w_{stream}", input=f"c_{stream}", windows=MINUTE)
    )


@pytest.mark.parametrize(
    ("given", "moment"),
    [("timestamp", "timestamp"), ("timestamp_ntz", "timestamp_ntz"), ("date", "timestamp_ntz")],
)
def test_results_have_a_zone_where_event_times_have_one(given: str, moment: str) -> None:
    assert Clock("at", given).moment == moment
    assert window_fields(moment)[0].type == f"struct<start:{moment},end:{moment}>"


def test_results_of_windows_happen_in_their_window() -> None:
    graph = counted(source())
    names = [each.name for each in graph.fields_of("w_s")]
    assert names == ["k", "window", "window_name", "n"]
    assert graph.clock_of("w_s").column == "window"
    assert graph.clock_of("w_s").moment == "timestamp_ntz"
    assert graph.operator("w_s").compute_in(graph) is graph.operator("c_s")


def test_maps_are_passed_on_the_way_to_the_stream() -> None:
    graph = source()
    for name, given in (("a", "s"), ("b", "a")):
        graph = graph.add(Map(name=name, input=given, fn=lambda df: df, fields=FIELDS))
    stream, maps = graph.stream_of("b")
    assert (stream.name, [each.name for each in maps]) == ("s", ["a", "b"])
    assert graph.root_of("b") is graph.operator("s")
    assert graph.clock_of("b") == graph.clock_of("s")


def test_a_compute_needs_a_consolidate_and_a_consolidate_a_compute() -> None:
    graph = source().add(Compute(name="c", input="s", by=FIELDS[:1], aggregates=COUNTED))
    with pytest.raises(TopologyError, match="compute 'c' is not consolidated"):
        graph.operator("c").check_in(graph)
    graph = graph.add(Consolidate(name="w", input="s", windows=MINUTE))
    with pytest.raises(TopologyError, match="consolidate 'w' reads 's'; it must follow a compute"):
        graph.operator("w").compute_in(graph)


def test_results_of_windows_are_never_late() -> None:
    graph = counted(counted(source()), "w_s")
    graph.operator("w_s").check_late(graph)
    with pytest.raises(TopologyError, match="reads windowed results, which are never late"):
        graph.operator("w_w_s").check_late(graph)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (Field("tags", "map<string,int>"), "late rows cannot carry column 'tags'"),
        (Field("Side", "int"), "late rows of a join have columns side and reason; rename 'Side'"),
    ],
)
def test_columns_that_late_rows_cannot_have_are_refused(column: Field, why: str) -> None:
    graph = source(column)
    given: dict[str, Any] = {"by": FIELDS[:1], "windows": MINUTE, "how": "inner"}
    graph = graph.add(Join(name="j", input="s", right="s", fields=FIELDS, **given))
    with pytest.raises(TopologyError, match=why):
        graph.operator("j").check_late(graph)


def test_rows_that_failed_say_why() -> None:
    assert failed_fields(FIELDS)[:2] == FIELDS
    assert len(failed_fields(FIELDS)) == 3

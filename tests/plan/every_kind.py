"""A topology with an operator of every kind, over two sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.aggregates.functions import count, sum
from anabranch.plan.make import make_plan
from anabranch.plan.model import Node, Plan
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, session, tumbling
from anabranch.topology.graph import Join, Named, Process
from anabranch.topology.process import logic_of

LEFT = (Field("k", "bigint"), Field("at", "timestamp"), Field("v", "double"))
RIGHT = (Field("k", "bigint"), Field("ts", "timestamp"), Field("w", "string"))
COUNTED = (
    Named(name="n", aggregate=count(), input_type="int"),
    Named(name="total", aggregate=sum("v"), input_type="double"),
)


@dataclass
class Seen:
    """The state of a key."""

    rows: int = 0


class Counting:
    """A class with state per key."""

    state = Seen
    output = "rows bigint"

    def process(self, key: Any, rows: Any, state: Any, ctx: Any) -> Any:
        """Is never called here."""


def graph(*, share: bool | None = None) -> Graph:
    """Two windows and a session (w), a join (j) and a user's class (p), all by one key."""
    by = LEFT[:1]
    windows = (session("5 seconds"), tumbling("1 minute"), tumbling("10 minutes"))
    return (
        Graph(name="kinds")
        .add(Source(name="l", fields=LEFT, event_time="at", unit_us=None, delay_us=0))
        .add(Source(name="r", fields=RIGHT, event_time="ts", unit_us=None, delay_us=0))
        .add(Compute(name="c", input="l", by=by, aggregates=COUNTED))
        .add(Consolidate(name="w", input="c", windows=windows, share=share))
        .add(
            Join(
                name="j",
                input="l",
                right="r",
                by=by,
                windows=(tumbling("1 minute"),),
                how="inner",
                fields=(*LEFT, *RIGHT[1:]),
            )
        )
        .add(
            Process(
                name="p",
                input="l",
                by=by,
                logic=logic_of(Counting, "event_time", by, LEFT),
                fields=(*by, Field("rows", "bigint")),
            )
        )
    )


def plan() -> Plan:
    """The plan of that topology."""
    return make_plan(graph())


def nodes() -> dict[str, Node]:
    """Its nodes that hold state, by their kinds."""
    return {node.plan.kind: node for node in plan().nodes if node.plan.holds_state}

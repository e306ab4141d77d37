"""The state and the bytes that belong to each kind of operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from anabranch.aggregates.functions import count
from anabranch.errors import StateError
from anabranch.plan.make import make_plan
from anabranch.plan.operators.base import OperatorPlan
from anabranch.state.memory.joins import JoinState
from anabranch.state.memory.kinds import decoded, encoded, state_of
from anabranch.state.memory.sessions import SessionState
from anabranch.state.memory.windows import WindowsState
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, session, tumbling
from anabranch.topology.graph import Join, Named

FIELDS = (Field("k", "bigint"), Field("at", "timestamp"))


def plans() -> dict[str, OperatorPlan]:
    counted = (Named(name="n", aggregate=count(), input_type="int"),)
    source = Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0)
    other = replace(source, name="r", fields=(FIELDS[0], Field("ts", "timestamp")), event_time="ts")
    graph = (
        Graph(name="t")
        .add(source)
        .add(other)
        .add(Compute(name="c", input="s", by=FIELDS[:1], aggregates=counted))
        .add(Consolidate(name="w", input="c", windows=(tumbling("1m"), session("5 seconds"))))
        .add(
            Join(
                name="j",
                input="s",
                right="r",
                by=FIELDS[:1],
                windows=(tumbling("1m"),),
                how="inner",
                fields=(*FIELDS, Field("ts", "timestamp")),
            )
        )
    )
    nodes = make_plan(graph).nodes
    return {each.plan.kind: each.plan for each in nodes if each.plan.holds_state}


@pytest.mark.parametrize(
    ("kind", "state"),
    [("windows", WindowsState), ("sessions", SessionState), ("join", JoinState)],
)
def test_each_kind_has_its_own_state_and_nothing_comes_back_from_its_bytes(
    kind: str, state: type
) -> None:
    plan = plans()[kind]
    empty = state_of(plan)
    assert type(empty) is state
    blob = encoded(plan, empty.nothing())
    assert len(decoded(plan, blob)) == 0
    empty.number(pa.table({"k0": pa.array([5], pa.int64())}), np.array([0]))
    assert len(state_of(plan).keys) == 0, "each slot has its own"


def test_the_bytes_of_a_join_are_not_those_of_windows() -> None:
    given = plans()
    blob = encoded(given["windows"], state_of(given["windows"]).nothing())
    with pytest.raises(StateError, match="checksum"):
        decoded(given["join"], blob)

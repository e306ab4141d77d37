"""Classes of `process` when the topology is built.

What is refused, what a checkpoint notes, and what may change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.errors import CheckpointError, TopologyError
from anabranch.plan.make import make_plan
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create
from anabranch.topology.graph import Field, Graph, Process, Source
from anabranch.topology.process import logic_of

FIELDS = (Field("k", "string"), Field("at", "timestamp"), Field("v", "double"))


def made(**parts: Any) -> type:
    """A class of `process` with some parts changed, or None for those that it lacks."""

    def process(self: Any, key: Any, rows: Any, state: Any, ctx: Any) -> None: ...

    given = {"state": int, "output": "n bigint", "process": process, **parts}
    return type("Made", (), {name: value for name, value in given.items() if value is not None})


def vector(self: Any, rows: Any, state: Any, ctx: Any) -> None: ...


def alone(self: Any) -> str:
    return "x"


def logic(order: str = "event_time", **parts: Any) -> Any:
    return logic_of(made(**parts), order, FIELDS[:1], FIELDS)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"order": "random"}, "unknown order 'random'; valid: event_time, arrival"),
        ({"process": None}, "has no method process"),
        ({"process": alone}, r"cannot be called with \(key, rows, state, ctx\)"),
        ({"state": None}, "has no state"),
        ({"state": {}, "process": vector}, "state has no columns"),
        ({"state": {"n": "bigint"}}, r"cannot be called with \(rows, state, ctx\)"),
        ({"state": {"n": "string"}, "process": vector}, "unknown type of state column n 'string'"),
        ({"state": {"n": ("bigint", "x")}, "process": vector}, "default 'x' of state column 'n'"),
        ({"state": {"new": "int"}, "process": vector}, "'new' cannot be a column of state"),
        ({"output": None}, "output=None"),
        ({"output": "n"}, "'n' is not a name and a type"),
        ({"output": "n bigint, n int"}, "duplicate column 'n'"),
        ({"output": "n frog"}, "column 'n': values of type frog"),
        ({"output": "k string"}, "'k' in output is a key column"),
        ({"event_time": "n"}, "event_time='n'; valid: a timestamp column of output: it has none"),
        ({"columns": ["x"]}, "unknown column 'x'; valid: k, at, v"),
        ({"ttl": "soon"}, "ttl 'soon' is not a time"),
        ({"state": object}, "state of type object cannot be stored"),
        ({"state": np.ndarray}, "state of type ndarray cannot be stored"),
        ({"state": tuple[int, int]}, r"write def init\(self\)"),
        ({"init": alone}, "the first state of a key does not fit int"),
        ({"pickled": "x"}, "pickled='x'"),
        ({"on_timer": alone}, r"cannot be called with \(key, state, ctx\)"),
        (
            {"state": {"n": "int"}, "process": vector, "on_timer": print},
            "a vectorised process has no timers",
        ),
    ],
)
def test_a_class_that_cannot_work_is_refused_with_what_is_valid(
    parts: dict[str, Any], message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        logic(**parts)


def test_a_class_that_needs_arguments_is_given_as_an_object() -> None:
    class Limited(made()):  # type: ignore[misc]
        def __init__(self, limit: int) -> None:
            self.limit = limit

    with pytest.raises(TopologyError, match="pass an object instead"):
        logic_of(Limited, "arrival", FIELDS[:1], FIELDS)
    assert logic_of(Limited(5), "arrival", FIELDS[:1], FIELDS).given.limit == 5


def plan_with(cls: Any, shards: int = 4) -> Any:
    logic = logic_of(cls, "event_time", FIELDS[:1], FIELDS)
    source = Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0)
    process = Process(
        name="p", input="s", by=FIELDS[:1], logic=logic, fields=(FIELDS[0], *logic.output)
    )
    return make_plan(Graph(name="t").add(source).add(process))


@dataclass
class Before:
    n: int = 0


@dataclass
class After:
    n: float = 0
    names: list[str] = field(default_factory=list)


@dataclass
class Less:
    m: int = 0


def test_a_checkpoint_goes_on_with_new_fields_and_refuses_what_it_cannot_read(
    tmp_path: Path,
) -> None:
    files = Files(str(tmp_path))
    _, notice = open_or_create(files, plan_with(made(state=Before)), 4)
    assert notice is None
    _, notice = open_or_create(
        files, plan_with(made(state=After, output="other string", ttl="1 hour")), 4
    )
    assert notice == "operator 'p': state has state.n, state.names new"
    with pytest.raises(
        CheckpointError,
        match=r"operator 'p': state.n is gone; state.names is gone.*new fields that have a default",
    ):
        open_or_create(files, plan_with(made(state=Less)), 4)
    columns = made(state={"n": "bigint"}, process=vector)
    with pytest.raises(CheckpointError, match="the checkpoint has it per key"):
        open_or_create(files, plan_with(columns), 4)

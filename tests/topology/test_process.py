"""Classes of `process` when the topology is built: what is refused, what a checkpoint notes, and what may change."""

from __future__ import annotations

import enum
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import pytest
from pyspark import cloudpickle

import anabranch as ab
from anabranch.errors import CheckpointError, TopologyError
from anabranch.plan.make import make_plan
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create
from anabranch.testing import ProcessTester
from anabranch.topology.graph import Field, Graph, Process, Source
from anabranch.topology.process import logic_of
from anabranch.topology.state_types import StateType, incompatibilities

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
    ("parts", "told"),
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
        ({"output": "n bigint, n int"}, "'n' is there twice"),
        ({"output": "n frog"}, "column 'n': values of type frog"),
        ({"output": "k string"}, "'k' in output is a key column"),
        ({"event_time": "n"}, "event_time='n'; valid: a timestamp column of output: it has none"),
        ({"columns": ["x"]}, "unknown column 'x'; valid: k, at, v"),
        ({"ttl": "soon"}, "ttl 'soon' is not a time"),
        ({"state": object}, "state of type object cannot be kept"),
        ({"state": np.ndarray}, "state of type ndarray cannot be kept"),
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
    parts: dict[str, Any], told: str
) -> None:
    with pytest.raises(TopologyError, match=told):
        logic(**parts)


def test_a_class_that_needs_arguments_is_given_as_an_object() -> None:
    class Limited(made()):  # type: ignore[misc]
        def __init__(self, limit: int) -> None:
            self.limit = limit

    with pytest.raises(TopologyError, match="give an object instead"):
        logic_of(Limited, "arrival", FIELDS[:1], FIELDS)
    assert logic_of(Limited(5), "arrival", FIELDS[:1], FIELDS).given.limit == 5


@dataclass
class Order:
    price: float
    shares: int = 0


@dataclass
class Book:
    bids: list[Order] = field(default_factory=list)
    asks: dict[str, Order] = field(default_factory=dict)
    last: float | None = None


class Fast(msgspec.Struct):
    n: int = 0


class Opaque:
    def __init__(self, x: int = 0) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Book, Book([Order(1.5, 2)], {"a": Order(2.0)}, 3.0)),
        (Fast, Fast(5)),
        (int, 5),
        (float, 0.5),
        (list[Order], [Order(1.0)]),
        (dict[str, list[int]], {"a": [1]}),
        (set[str], {"a"}),
        (int | None, None),
    ],
)
def test_state_of_a_declared_type_comes_back_as_it_was_also_in_another_process(
    kind: Any, value: Any
) -> None:
    declared = logic(state=kind).state
    shipped = pickle.loads(cloudpickle.dumps(declared))  # noqa: S301 - it was made here
    assert shipped.decoder()(declared.encoder()(value)) == value
    assert (
        declared.decoder()(declared.encoder()(logic(state=kind).make())) == logic(state=kind).make()
    )


def test_only_types_that_the_class_names_are_pickled() -> None:
    evil = msgspec.msgpack.encode(pickle.dumps(Opaque(3)))
    opted = logic(state=Opaque, pickled=(Opaque,)).state
    assert opted.decoder()(opted.encoder()(Opaque(3))) == Opaque(3)
    assert opted.decoder()(evil) == Opaque(3)
    with pytest.raises(msgspec.ValidationError, match="a dict is where a Opaque should be"):
        opted.decoder()(msgspec.msgpack.encode(pickle.dumps({})))
    with pytest.raises(NotImplementedError, match="cannot be read"):
        StateType(Opaque).decoder()(evil)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({"n": int}, {"n": int, "m": int}, None),
        ({"n": int}, {"n": float}, None),
        ({"n": int}, {"n": int | None}, None),
        ({"n": list[int]}, {"n": list[float]}, None),
        ({"n": Literal["a"]}, {"n": Literal["a", "b"]}, None),
        ({"n": int, "m": int}, {"n": int}, "state.m is gone"),
        ({"n": int}, {"n": str}, "state.n was int and is str"),
        ({"n": int | None}, {"n": int}, "state.n was none and is int"),
        ({"n": dict[str, int]}, {"n": dict[int, int]}, "keys of state.n was str and is int"),
        ({"n": Literal["a", "b"]}, {"n": Literal["a"]}, "state.n may hold b"),
        ({"n": Colour}, {"n": Order}, "state.n was one of blue, red and is Order"),
    ],
)
def test_another_state_is_accepted_where_it_reads_what_is_stored(
    old: dict[str, Any], new: dict[str, Any], told: str | None
) -> None:
    def described(fields: dict[str, Any]) -> Any:
        return StateType(
            msgspec.defstruct("S", [(name, kind, None) for name, kind in fields.items()])
        ).described()

    found = incompatibilities(described(old), described(new))
    assert found == [] if told is None else any(told in line for line in found), found


def test_a_new_field_without_a_default_cannot_be_read() -> None:
    old, new = (
        StateType(msgspec.defstruct("S", fields)).described()
        for fields in (["a"], ["a", ("b", int)])
    )
    assert incompatibilities(old, new) == ["state.b is new and has no default"]


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
    _, told = open_or_create(files, plan_with(made(state=Before)), 4)
    assert told is None
    _, told = open_or_create(
        files, plan_with(made(state=After, output="other string", ttl="1 hour")), 4
    )
    assert told == "operator 'p': state has state.n, state.names new"
    with pytest.raises(
        CheckpointError,
        match=r"operator 'p': state.n is gone; state.names is gone.*new fields that have a default",
    ):
        open_or_create(files, plan_with(made(state=Less)), 4)
    columns = made(state={"n": "bigint"}, process=vector)
    with pytest.raises(CheckpointError, match="the checkpoint has it per key"):
        open_or_create(files, plan_with(columns), 4)


def test_columns_of_state_may_be_added_behind_those_that_there_are() -> None:
    class Counted:
        state: ClassVar = {"n": "bigint"}
        output = "n bigint"

        def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
            state.n += np.bincount(rows.key, minlength=len(state))
            return {"n": state.n}

    class Also(Counted):
        state: ClassVar = {"n": "bigint", "top": ("double", 7.0)}

    first, second = (
        ProcessTester(cls, by="k", schema="k string, at timestamp", event_time="at")
        for cls in (Counted, Also)
    )
    first.step([("a", 0), ("a", 1)])
    second._cells.cells = dict(first._cells.cells)
    assert second.state("a") == {"n": 2, "top": 7.0}
    assert second.step([("a", 2)]) == [{"k": "a", "n": 3}]
    old, new = (tester._plan.logic.described() for tester in (first, second))
    assert incompatibilities(old, new) == []
    assert "by place" in incompatibilities(new | {"fields": new["fields"][::-1]}, new)[0]

"""Types of state: values come back, and types say which others they can read."""

from __future__ import annotations

import enum
import pickle
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import pytest
from pyspark import cloudpickle

import anabranch as ab
from anabranch.testing import ProcessTester
from anabranch.topology.graph import Field
from anabranch.topology.process import logic_of
from anabranch.topology.state_types import StateType, incompatibilities

FIELDS = (Field("k", "string"), Field("at", "timestamp"), Field("v", "double"))


def made(**parts: Any) -> type:
    """A class of `process` with some parts changed, or None for those that it lacks."""

    def process(self: Any, key: Any, rows: Any, state: Any, ctx: Any) -> None: ...

    given = {"state": int, "output": "n bigint", "process": process, **parts}
    return type("Made", (), {name: value for name, value in given.items() if value is not None})


def logic(order: str = "event_time", **parts: Any) -> Any:
    return logic_of(made(**parts), order, FIELDS[:1], FIELDS)


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
    with pytest.raises(msgspec.ValidationError, match="a dict is stored where a Opaque belongs"):
        opted.decoder()(msgspec.msgpack.encode(pickle.dumps({})))
    with pytest.raises(NotImplementedError, match="cannot be read"):
        StateType(Opaque).decoder()(evil)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("old", "new", "message"),
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
    old: dict[str, Any], new: dict[str, Any], message: str | None
) -> None:
    def described(fields: dict[str, Any]) -> Any:
        return StateType(
            msgspec.defstruct("S", [(name, kind, None) for name, kind in fields.items()])
        ).described()

    found = incompatibilities(described(old), described(new))
    assert found == [] if message is None else any(message in line for line in found), found


def test_a_new_field_without_a_default_cannot_be_read() -> None:
    old, new = (
        StateType(msgspec.defstruct("S", fields)).described()
        for fields in (["a"], ["a", ("b", int)])
    )
    assert incompatibilities(old, new) == ["state.b is new and has no default"]


def test_columns_of_state_may_be_added_after_the_existing_ones() -> None:
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
    assert "by position" in incompatibilities(new | {"fields": new["fields"][::-1]}, new)[0]

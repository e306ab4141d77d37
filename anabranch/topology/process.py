"""The spec of a `process`: the user's class, inspected and checked when the topology is built.

There are two forms. Per key: the class declares `state` as a type, and is called with the rows of
one key. Vectorised: it declares `state` as columns, and is called with all rows of a slot at once.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np

from anabranch.aggregates.custom import without_spaces
from anabranch.errors import TopologyError, unknown
from anabranch.topology.columns import own_names
from anabranch.topology.durations import duration_us
from anabranch.topology.graph import Clock, Field
from anabranch.topology.state_types import StateType
from anabranch.types import FLOATING, WHOLE, Array, column_type, split_fields

ORDERS = ("event_time", "arrival")
_TIMES = ("timestamp", "timestamp_ntz")
_FIXED = {
    **{name: np.dtype(kind.to_pandas_dtype()) for name, kind in (WHOLE | FLOATING).items()},
    "boolean": np.dtype(bool),
}
_FIXED["timestamp"] = _FIXED["timestamp_ntz"] = np.dtype("datetime64[us]")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateColumn:
    """A column of vectorised state. A new key starts with its default."""

    name: str
    type: str
    default: Any

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = _FIXED[self.type].newbyteorder("<")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Logic:
    """What the user's class declares and does. It can be sent to workers, with what it calls."""

    name: str
    given: Any  # the object whose methods are called
    order: str
    output: tuple[Field, ...]  # columns of results besides the keys
    event_time: str | None  # the column of output with the event time of a result
    columns: tuple[str, ...] | None  # the columns of the stream that the class reads; None: all
    ttl_us: int | None
    state: StateType | tuple[StateColumn, ...]

    @property
    def vectorised(self) -> bool:
        return isinstance(self.state, tuple)

    @property
    def make(self) -> Callable[[], Any]:
        """The function that makes the state of a new key."""
        if hasattr(self.given, "init"):
            init: Callable[[], Any] = self.given.init
            return init
        maker = self.state.maker() if isinstance(self.state, StateType) else None
        assert maker is not None, "checked when the topology was built"
        return maker

    @property
    def clock(self) -> Clock | None:
        """Where results have their event time; None if they have none."""
        kinds = {each.name: each.type for each in self.output}
        return None if self.event_time is None else Clock(self.event_time, kinds[self.event_time])

    def described(self) -> dict[str, Any]:
        """The state's type as plain data, which a checkpoint stores and compares."""
        if isinstance(self.state, StateType):
            return self.state.described()
        fields = [
            {"name": each.name, "type": {"kind": each.type}, "required": False}
            for each in self.state
        ]
        return {"kind": "object", "name": "columns", "fields": fields, "by_place": True}


def logic_of(
    given: Any,
    order: str,
    keys: Sequence[Field],
    fields: Sequence[Field],
    *,
    any_case: bool = True,
) -> Logic:
    """The class as it will run. Mistakes are refused with a message that names them.

    any_case: the class may name the columns that it reads in any case.
    """
    kind = given if isinstance(given, type) else type(given)
    who = f"process({kind.__qualname__})"
    if order not in ORDERS:
        raise TopologyError(f"{who}: {unknown('order', order, ORDERS)}")
    if isinstance(given, type):
        try:
            given = given()
        except TypeError as error:
            raise TopologyError(
                f"{who} cannot be created without arguments ({error}); pass an object instead"
            ) from None
    for method in ("process", *(name for name in ("on_timer", "init") if hasattr(given, name))):
        if not callable(getattr(given, method, None)):
            raise TopologyError(
                f"{who} has no method {method}; it needs: process(), output and state"
            )
    declared = _declared_state(kind, given, who)
    vectorised = isinstance(declared, Mapping)
    _check_arguments(
        given.process,
        ("rows", "state", "ctx") if vectorised else ("key", "rows", "state", "ctx"),
        who,
    )
    if hasattr(given, "on_timer"):
        if vectorised:
            raise TopologyError(
                f"{who}: a vectorised process has no timers; "
                "declare state as a type and work per key"
            )
        _check_arguments(given.on_timer, ("key", "state", "ctx"), who)
    output = _output(getattr(given, "output", None), keys, who)
    read = getattr(given, "columns", None)
    if not isinstance(read, Mapping):
        read = own_names(read, [each.name for each in fields], any_case=any_case)
    logic = Logic(
        name=kind.__qualname__,
        given=given,
        order=order,
        output=output,
        event_time=_event_time(getattr(given, "event_time", None), output, who),
        columns=_columns(read, keys, fields, order, who),
        ttl_us=None
        if getattr(given, "ttl", None) is None
        else duration_us(given.ttl, f"{who}: ttl"),
        state=_state_columns(declared, who)
        if vectorised
        else StateType(declared, _pickled(given, who)),
    )
    if isinstance(logic.state, StateType):
        if not hasattr(given, "init") and logic.state.maker() is None:
            raise TopologyError(
                f"{who}: {logic.state} does not say what the state of a new key is; "
                "write def init(self) that returns it"
            )
        logic.state.check(logic.make, who)
    return logic


def _declared_state(kind: type, given: Any, who: str) -> Any:
    """The state that the class declares: columns in a dict, or a type.

    It is an attribute or an annotation.
    """
    if hasattr(given, "state"):
        return given.state
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        raise TopologyError(
            f"{who}: the annotations of the class cannot be read ({error})"
        ) from None
    if "state" not in hints:
        raise TopologyError(
            f"{who} has no state; write `state: Account` (a dataclass or built-in types), "
            "or state = {'n': 'bigint'} for columns"
        )
    return hints["state"]


def _check_arguments(method: Callable[..., Any], names: tuple[str, ...], who: str) -> None:
    try:
        inspect.signature(method).bind(*names)
    except TypeError:
        raise TopologyError(
            f"{who}: {method.__name__}{inspect.signature(method)} cannot be called with "
            f"({', '.join(names)})"
        ) from None


def _output(text: object, keys: Sequence[Field], who: str) -> tuple[Field, ...]:
    """The declared columns of results."""
    found = columns_of(text, f"{who}: output")
    for each in found:
        if each.name in {key.name for key in keys}:
            raise TopologyError(
                f"{who}: {each.name!r} in output is a key column; "
                "results have the key columns anyway, so leave it out"
            )
    return found


def columns_of(text: object, what: str) -> tuple[Field, ...]:
    """Columns from a string as in Spark: "price double, at timestamp"."""
    if not isinstance(text, str) or not text.strip():
        raise TopologyError(
            f'{what}={text!r}; valid: columns with their types, such as "n bigint, at timestamp"'
        )
    found: list[Field] = []
    for part in split_fields(text):
        match = re.fullmatch(r"\s*(?:`([^`]+)`|(\w+))\s*:?\s+(.+?)\s*", part)
        if match is None:
            raise TopologyError(
                f"{what}: {part.strip()!r} is not a name and a type, such as 'n bigint'"
            )
        name, kind = (
            match[1] or match[2],
            _SYNONYMS.get(match[3].lower(), without_spaces(match[3].lower())),
        )
        try:
            column_type(kind)
        except TopologyError as error:
            raise TopologyError(f"{what}: column {name!r}: {error}") from None
        if name in {each.name for each in found}:
            raise TopologyError(f"{what}: duplicate column {name!r}")
        found.append(Field(name, kind))
    return tuple(found)


_SYNONYMS = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "bool": "boolean",
}


def _event_time(name: object, output: Sequence[Field], who: str) -> str | None:
    if name is None:
        return None
    kinds = {each.name: each.type for each in output}
    if not isinstance(name, str) or kinds.get(name) not in _TIMES:
        times = [each for each, kind in kinds.items() if kind in _TIMES]
        raise TopologyError(
            f"{who}: event_time={name!r}; valid: a timestamp column of output: "
            f"{', '.join(times) or 'it has none'}"
        )
    return name


def aggregates_of(given: Any) -> Mapping[str, Any]:
    """The aggregates that a class reads for each key, by name.

    Empty if it reads the rows themselves.
    """
    found = getattr(given, "columns", None)
    return found if isinstance(found, Mapping) else {}


def _columns(
    names: object, keys: Sequence[Field], fields: Sequence[Field], order: str, who: str
) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, Mapping):
        if not names:
            raise TopologyError(
                f"{who}: columns = {{}} reads nothing; "
                "write columns = {'n': ab.count()}, or names of columns"
            )
        for name in names:
            if not isinstance(name, str) or name in {each.name for each in keys}:
                raise TopologyError(
                    f"{who}: columns has an aggregate named {name!r}; valid: a string that is not "
                    "the name of a key column"
                )
        if order != "arrival":
            raise TopologyError(
                f"{who}: columns are aggregates of all rows of a key in a step, including late "
                "ones; confirm that with order='arrival'"
            )
        return ()
    listed = (
        [names]
        if isinstance(names, str)
        else list(names)
        if isinstance(names, Iterable)
        else [names]
    )
    known = [each.name for each in fields]
    for name in listed:
        if name not in known:
            raise TopologyError(f"{who}: {unknown('column', name, known)}")
    return tuple(listed)


def _pickled(given: Any, who: str) -> tuple[type, ...]:
    named = getattr(given, "pickled", ())
    kinds = tuple(named) if isinstance(named, Iterable) else (named,)
    for each in kinds:
        if not isinstance(each, type):
            raise TopologyError(
                f"{who}: pickled={named!r}; valid: the types that may be pickled, such as (Model,)"
            )
    return kinds


def _state_columns(declared: Mapping[Any, Any], who: str) -> tuple[StateColumn, ...]:
    """The columns of vectorised state. Each has a Spark type of fixed size, and maybe a default."""
    if not declared:
        raise TopologyError(f"{who}: state has no columns; write state = {{'n': 'bigint'}}")
    found = []
    for name, value in declared.items():
        kind, default = value if isinstance(value, tuple) else (value, 0)
        kind = _SYNONYMS.get(kind, kind)
        if (
            not isinstance(name, str)
            or not name.isidentifier()
            or name.startswith("_")
            or name in _TAKEN
        ):
            raise TopologyError(
                f"{who}: {name!r} cannot be a column of state; valid: "
                f"a name such as n, but not {', '.join(_TAKEN)}"
            )
        if kind not in _FIXED:
            raise TopologyError(f"{who}: {unknown(f'type of state column {name}', kind, _FIXED)}")
        try:
            np.full(1, default, dtype=_FIXED[kind])
        except (TypeError, ValueError) as error:
            raise TopologyError(
                f"{who}: default {default!r} of state column {name!r}: {error}"
            ) from None
        found.append(StateColumn(name=name, type=kind, default=default))
    return tuple(found)


_TAKEN = ("new", "columns")


def record_of(columns: Sequence[StateColumn]) -> np.dtype[Any]:
    """The layout of vectorised state: a byte that says that it has no timers, then the columns."""
    return np.dtype([("_", "u1"), *((each.name, each.dtype) for each in columns)])


def defaults_of(columns: Sequence[StateColumn], count: int) -> Array:
    """The state of this many new keys."""
    found = np.zeros(count, dtype=record_of(columns))
    for each in columns:
        found[each.name] = each.default
    return found

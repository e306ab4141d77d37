"""Aggregates that users write: in plain Python, value by value, or vectorised, with arrays.

The JVM collects the values of a key and pane in one step, and the slot task folds them. Only the
folded state is stored. State is typed: MessagePack of a declared type, or columns of Spark types.
It is never unpickled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

import msgspec
import msgspec.inspect
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.aggregates.groups import keep_some, split, valid
from anabranch.aggregates.partials import At, Grouped, Partial, PartialColumn, objectwise
from anabranch.aggregates.specs import Aggregate, Expression
from anabranch.errors import AnabranchError, StepError, TopologyError, place_of
from anabranch.types import (
    Array,
    column_type,
    dtype_of,
    exact_array,
    objects,
    struct_fields,
    to_array,
    to_arrow,
)

_PLAIN = {
    "init": True,
    "add": True,
    "merge": True,
    "finish": True,
    "state_type": False,
    "result_type": False,
}
_VECTORISED = {
    "lift": True,
    "merge": True,
    "finish": True,
    "state_types": False,
    "identities": False,
    "result_type": False,
}


def udaf(given: Any) -> Callable[..., Aggregate]:
    """An aggregate of your own, from a class or an object.

    It returns a function. Call that like other aggregates, with one or more expressions and
    `where=`. Rows in which one of the expressions is null are skipped.

    In plain Python, the class has these methods and attributes:

    - `init() -> state`, `add(state, *values) -> state`, `merge(state, state) -> state` and
      `finish(state) -> value`.
    - `state_type`: a dataclass or built-in types, such as `tuple[float, int]`.
    - `result_type`: a Spark type, such as "double".

    Vectorised, it works on NumPy arrays:

    - `lift(group, size, *values) -> arrays`, `merge(into, at, arrays)` and
      `finish(*arrays) -> array`.
    - `state_types`: the Spark types of the arrays. `identities`: their values that change nothing
      when merged.
    - `result_type`: a Spark type.

    A class is created without arguments. To give it parameters, make it a dataclass and pass an
    object. What is missing or does not fit is a TopologyError.
    """
    name = _name(given)
    if isinstance(given, type):
        try:
            given = given()
        except TypeError as error:
            raise TopologyError(
                f"udaf({name}) cannot be created without arguments ({error}); "
                "pass an object instead"
            ) from None
    vectorised = hasattr(given, "lift")
    for part, method in (_VECTORISED if vectorised else _PLAIN).items():
        if not hasattr(given, part) or (method and not callable(getattr(given, part))):
            valid = ", ".join(
                f"{each}()" if called else each
                for each, called in (_VECTORISED if vectorised else _PLAIN).items()
            )
            raise TopologyError(
                f"udaf({name}) has no {'method' if method else 'attribute'} {part}; it needs: "
                f"{valid}"
            )
    column_type(without_spaces(_text(name, "result_type", given.result_type)))
    made: type[_UserOf] = VectorisedOf if vectorised else PlainOf
    made.check(name, given)

    def aggregate(*expressions: Expression, where: Expression | None = None) -> Aggregate:
        if not expressions:
            raise TopologyError(f"udaf({name}) needs at least one expression")
        return made(expressions, where, given)

    return aggregate


class Custom(Grouped, ABC):
    """The state of a user's aggregate. `type` is a struct of the inputs."""

    given: Any

    @property
    def parameters(self) -> dict[str, int]:
        return {}

    @property
    def lift(self) -> tuple[str, ...]:
        missing = " or ".join(f"{{x}}.{each} is null" for each in struct_fields(self.type) or ())
        return (f"collect_list(if({missing}, null, {{x}}))",)

    def arrive(self, lifted: Sequence[pa.ChunkedArray]) -> Sequence[Array]:
        lists = lifted[0].combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        return self._lifted(lists.flatten().flatten(), lengths)

    def of_groups(self, values: pa.Array, t: Array, lengths: Array) -> Sequence[Array]:
        del t
        here = np.logical_and.reduce([valid(each) for each in values.flatten()])
        values, lengths = keep_some(values, here, lengths)
        return self._lifted(values.flatten(), lengths)

    @abstractmethod
    def _lifted(self, inputs: Sequence[pa.Array], lengths: Array) -> Sequence[Array]:
        """The columns of groups of rows. The inputs have no nulls."""


@dataclass(frozen=True, slots=True)
class Folded(Custom):
    """State of an aggregate in plain Python, encoded.

    It is not stored as objects, because a user's method may change its arguments.
    """

    given: Any

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (PartialColumn("binary", None),)

    def _lifted(self, inputs: Sequence[pa.Array], lengths: Array) -> Sequence[Array]:
        rows = list(zip(*(each.to_pylist() for each in inputs), strict=True))
        init, add, encode = self.given.init, self.given.add, msgspec.msgpack.encode

        def folded(values: list[tuple[Any, ...]]) -> bytes:
            state = init()
            for each in values:
                state = add(state, *each)
            return encode(state)

        with _calling(self.given, "init() or add()"):
            return [objects(folded(values) if values else None for values in split(rows, lengths))]

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        decode, encode, merge = self.decoder.decode, msgspec.msgpack.encode, self.given.merge
        with _calling(self.given, "merge()"):
            into[0][at] = objectwise(lambda a, b: encode(merge(decode(a), decode(b))))(
                into[0][at], values[0]
            )

    @property
    def decoder(self) -> msgspec.msgpack.Decoder[Any]:
        return msgspec.msgpack.Decoder(self.given.state_type)


@dataclass(frozen=True, slots=True)
class Aligned(Custom):
    """State columns of a vectorised aggregate."""

    given: Any

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return tuple(map(PartialColumn, self.given.state_types, self.given.identities))

    def _lifted(self, inputs: Sequence[pa.Array], lengths: Array) -> Sequence[Array]:
        kinds = (struct_fields(self.type) or {}).values()
        values = [
            to_array(each, dtype_of(kind), None) for each, kind in zip(inputs, kinds, strict=True)
        ]
        group, size = np.repeat(np.arange(len(lengths)), lengths), len(lengths)
        with _calling(self.given, "lift()"):
            arrays = [np.asarray(each) for each in self.given.lift(group, size, *values)]
        shapes = [each.shape for each in arrays]
        if shapes != [(size,)] * len(self.columns):
            raise StepError(
                f"udaf({_name(self.given)}): lift returned arrays of shape {shapes}; valid: "
                f"{len(self.columns)} of length {size}"
            )
        return [
            each.astype(column.dtype, copy=False)
            for each, column in zip(arrays, self.columns, strict=True)
        ]

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        with _calling(self.given, "merge()"):
            self.given.merge(into, at, values)


@dataclass(frozen=True, slots=True)
class _UserOf(Aggregate, ABC):
    given: Any = None

    kind = "udaf"

    @property
    def parameters(self) -> dict[str, object]:
        return {"class": _name(self.given), "state": self._state(), "result": self.result_type("")}

    @staticmethod
    @abstractmethod
    def check(name: str, given: Any) -> None:
        """Refuses a user's object that cannot work."""

    @abstractmethod
    def _state(self) -> str: ...

    def result_type(self, input_type: str) -> str:  # noqa: ARG002
        return without_spaces(self.given.result_type)

    def _made(self, values: object) -> pa.Array:
        """The result column. Values that do not fit the declared type are a StepError."""
        kind = self.result_type("")
        declared = column_type(kind)
        try:
            if isinstance(values, pa.Array | pa.ChunkedArray):
                return values.cast(declared)
            if isinstance(values, np.ndarray) and values.dtype.kind in "if":
                return to_arrow(values, kind)
            return exact_array(values, declared)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise StepError(
                f"udaf({_name(self.given)}): finish returned values not of type {kind}: {error}"
            ) from error


class PlainOf(_UserOf):
    """An aggregate in plain Python."""

    @staticmethod
    def check(name: str, given: Any) -> None:
        try:
            msgspec.msgpack.decode(msgspec.msgpack.encode(given.init()), type=given.state_type)
        except (TypeError, msgspec.MsgspecError) as error:
            raise TopologyError(
                f"udaf({name}): init() does not return a state of type "
                f"{type_name(given.state_type)} ({error}); "
                "valid: a dataclass or built-in types"
            ) from None
        make_picklable(msgspec.inspect.type_info(given.state_type))

    def _state(self) -> str:
        return type_name(self.given.state_type)

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        column_type(input_type)
        return (Folded(input_type, self.given),)

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        decode, init, finish = (
            Folded(input_type, self.given).decoder.decode,
            self.given.init,
            self.given.finish,
        )
        with _calling(self.given, "finish()"):
            values = [finish(init() if each is None else decode(each)) for each in columns[0]]
        return self._made(values)


class VectorisedOf(_UserOf):
    """An aggregate that works on arrays."""

    @staticmethod
    def check(name: str, given: Any) -> None:
        types, identities = given.state_types, given.identities
        if isinstance(types, str) or not types or len(types) != len(identities):
            raise TopologyError(
                f"udaf({name}): state_types={types!r} and identities={identities!r}; valid: "
                "the same number of each, at least one"
            )
        for each, identity in zip(types, identities, strict=True):
            try:
                PartialColumn(_text(name, "state_types", each), identity).empty(1)
            except (TypeError, ValueError) as error:
                raise TopologyError(
                    f"udaf({name}): identity {identity!r} of a column of type {each}: {error}"
                ) from None

    def _state(self) -> str:
        return ", ".join(self.given.state_types)

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        column_type(input_type)
        return (Aligned(input_type, self.given),)

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:  # noqa: ARG002
        with _calling(self.given, "finish()"):
            values = self.given.finish(*columns)
        return self._made(values)


@contextmanager
def _calling(given: Any, method: str) -> Iterator[None]:
    """Adds the class and the method to errors of the user's code."""
    try:
        yield
    except AnabranchError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise StepError(
            f"udaf({_name(given)}): {method} raised {type(error).__name__}: {text}{place_of(error)}"
        ) from error


def _name(given: Any) -> str:
    """The name of the class, with the parameters of a dataclass.

    In a checkpoint, it distinguishes one aggregate from another.
    """
    kind = given if isinstance(given, type) else type(given)
    if kind is given or not is_dataclass(given):
        return kind.__qualname__
    values = ", ".join(f"{each.name}={getattr(given, each.name)!r}" for each in fields(given))
    return f"{kind.__qualname__}({values})"


def make_picklable(part: object) -> None:
    """Makes the classes of a state type picklable, because a worker may not have their module.

    Annotations in quotes are resolved. msgspec's cache on the class cannot be pickled, and is
    deleted.
    """
    if isinstance(part, msgspec.Struct):
        kind = getattr(part, "cls", None)
        if kind is not None and "__msgspec_cache__" in vars(kind):
            kind.__annotations__ = get_type_hints(kind, include_extras=True)
            del kind.__msgspec_cache__
        for each in part.__struct_fields__:
            make_picklable(getattr(part, each))
    elif isinstance(part, tuple):
        for each in part:
            make_picklable(each)


def type_name(kind: Any) -> str:
    """A type as a user would write it."""
    return (
        kind.__qualname__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    )


def _text(name: str, what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TopologyError(
            f'udaf({name}): {what}={value!r} is not the name of a Spark type, such as "double"'
        )
    return value


def without_spaces(kind: str) -> str:
    """A type as Spark writes it, however the user did: `struct<a: int, b: decimal(9, 2)>`."""
    return "".join(kind.split())

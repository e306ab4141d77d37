"""Types of `process` state: how values are encoded, and which types can read each other.

Values are MessagePack of a declared type. Dataclasses and structs are stored with the names of
their fields. What is read is checked against the type, and runs no code. Only for types that the
user has named is pickle used.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import msgspec.inspect

from anabranch.aggregates.custom import make_picklable, type_name
from anabranch.errors import TopologyError

_BUILT_IN = (bool, int, float, str, bytes, list, dict, set, tuple)
_RESTS = {
    "list": ("item_type",),
    "set": ("item_type",),
    "frozenset": ("item_type",),
    "dict": ("key_type", "value_type"),
}


@dataclass(frozen=True, slots=True)
class StateType:
    """A declared type of state, and the types in it that the user allows to be pickled."""

    type: Any
    pickled: tuple[type, ...] = ()

    def __reduce__(self) -> tuple[Callable[..., StateType], tuple[Any, ...]]:
        make_picklable(self._info())  # a worker may not have the module of these classes
        return StateType, (self.type, self.pickled)

    def __str__(self) -> str:
        return type_name(self.type)

    def encoder(self) -> Callable[[Any], bytes]:
        """A function that encodes a value. It does not check the type."""
        return msgspec.msgpack.Encoder(enc_hook=self._enc_hook).encode

    def decoder(self) -> Callable[[bytes], Any]:
        """A function that decodes a value. Raises msgspec.ValidationError if it does not fit."""
        decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(
            self.type, dec_hook=self._dec_hook
        ).decode
        return decode

    def maker(self) -> Callable[[], Any] | None:
        """The function that makes the state of a new key; None if the type has no default."""
        kind = getattr(self.type, "__origin__", self.type)
        if kind in _BUILT_IN and kind is not tuple:
            return kind  # type: ignore[no-any-return]
        if isinstance(kind, type) and kind is not tuple:
            return kind
        return (lambda: None) if _fits_none(self.type) else None

    def described(self) -> dict[str, Any]:
        """The type as plain data, which a checkpoint stores and compares."""
        found = _described(self._info(), (), self.pickled)
        make_picklable(self._info())
        return found

    def check(self, make: Callable[[], Any], who: str) -> None:
        """Refuses a type that cannot be stored, and a first value that does not fit it."""
        try:
            self.described()
        except TypeError as error:
            raise TopologyError(
                f"{who}: state of type {self} cannot be stored ({error}); valid: "
                "dataclasses, msgspec.Struct, built-in types; others "
                "if the class names them in pickled = (...)"
            ) from None
        try:
            self.decoder()(self.encoder()(make()))
        except Exception as error:  # noqa: BLE001 - a user's constructor may raise anything
            raise TopologyError(
                f"{who}: the first state of a key does not fit {self} ({error}); "
                "give every field a default, or write "
                "def init(self) that returns it"
            ) from None
        finally:
            make_picklable(self._info())

    def _info(self) -> msgspec.inspect.Type:
        return msgspec.inspect.type_info(self.type)

    def _enc_hook(self, value: Any) -> Any:
        if isinstance(value, self.pickled):
            return pickle.dumps(value, protocol=5)
        raise NotImplementedError(f"a value of type {type(value).__name__} cannot be stored")

    def _dec_hook(self, kind: type, value: Any) -> Any:
        if kind not in self.pickled:
            raise NotImplementedError(f"a value of type {kind.__name__} cannot be read")
        found = pickle.loads(value)  # noqa: S301 - the user has opted in for this type
        if not isinstance(found, kind):
            raise TypeError(f"a {type(found).__name__} is stored where a {kind.__name__} belongs")
        return found


def _fits_none(kind: Any) -> bool:
    try:
        msgspec.convert(None, kind)
    except msgspec.ValidationError:
        return False
    return True


def _described(  # noqa: PLR0911 - one kind of type per return
    info: Any, inside: tuple[str, ...], pickled: tuple[type, ...]
) -> dict[str, Any]:
    kind = type(info).__name__.removesuffix("Type").lower()
    if kind in {"struct", "dataclass", "typeddict", "namedtuple"}:
        name = info.cls.__qualname__.rpartition(".")[2]
        if name in inside:
            return {"kind": "again", "name": name}
        fields = [
            {
                "name": each.encode_name,
                "type": _described(each.type, (*inside, name), pickled),
                "required": each.required,
            }
            for each in info.fields
        ]
        by_place = kind == "namedtuple" or bool(getattr(info, "array_like", False))
        return {"kind": "object", "name": name, "fields": fields, "by_place": by_place}
    if kind in _RESTS:
        return {
            "kind": kind,
            "of": [_described(getattr(info, part), inside, pickled) for part in _RESTS[kind]],
        }
    if kind == "vartuple":
        return {"kind": "list", "of": [_described(info.item_type, inside, pickled)]}
    if kind == "tuple":
        return {"kind": kind, "of": [_described(each, inside, pickled) for each in info.item_types]}
    if kind == "union":
        return {
            "kind": kind,
            "of": sorted((_described(each, inside, pickled) for each in info.types), key=str),
        }
    if kind in {"literal", "enum"}:
        values = info.values if kind == "literal" else tuple(each.value for each in info.cls)
        return {"kind": kind, "values": sorted(map(str, values))}
    if kind == "custom":
        if info.cls not in pickled:
            raise TypeError(f"{info.cls.__qualname__} has no MessagePack type")
        return {"kind": "pickled", "name": info.cls.__qualname__}
    return {"kind": kind}


def spell_type(described: Mapping[str, Any]) -> str:
    """A described type as a user would write it."""
    kind = described["kind"]
    if kind == "object":
        inner = ", ".join(
            f"{each['name']}: {spell_type(each['type'])}" for each in described["fields"]
        )
        return f"{described['name']}({inner})"
    if kind == "union":
        return " | ".join(map(spell_type, described["of"]))
    if "of" in described:
        return f"{kind}[{', '.join(map(spell_type, described['of']))}]"
    if "values" in described:
        return f"one of {', '.join(described['values'])}"
    return str(described.get("name", kind))


def incompatibilities(  # noqa: PLR0911 - one rule per return
    old: Mapping[str, Any], new: Mapping[str, Any], where: str = "state"
) -> list[str]:
    """Why values of one described type cannot be read as another; empty if they can."""
    a, b = old["kind"], new["kind"]
    if a == b == "object":
        return _object_incompatibilities(old, new, where)
    if (
        b == "any"
        or (a, b) == ("int", "float")
        or (a == b == "again" and old["name"] == new["name"])
    ):
        return []
    if a == "union":
        return [line for each in old["of"] for line in incompatibilities(each, new, where)]
    if b == "union":
        return (
            []
            if any(not incompatibilities(old, each, where) for each in new["of"])
            else [_changed(old, new, where)]
        )
    if a == b and "of" in old and len(old["of"]) == len(new["of"]):
        names = ("keys of ", "") if a == "dict" else ("",) * len(old["of"])
        pairs = zip(names, old["of"], new["of"], strict=True)
        return [
            line
            for name, mine, other in pairs
            for line in incompatibilities(mine, other, f"{name}{where}")
        ]
    if a == b and "values" in old:
        gone = sorted({*old["values"]} - {*new["values"]})
        return [f"{where} may hold {', '.join(gone)}, which the type no longer has"] if gone else []
    return [] if old == new else [_changed(old, new, where)]


def _object_incompatibilities(
    old: Mapping[str, Any], new: Mapping[str, Any], where: str
) -> list[str]:
    mine, other = ({each["name"]: each for each in side["fields"]} for side in (old, new))
    found = [f"{where}.{name} is gone" for name in mine if name not in other]
    found += [
        f"{where}.{name} is new and has no default"
        for name, each in other.items()
        if name not in mine and each["required"]
    ]
    if old["by_place"] != new["by_place"]:
        found.append(f"{where} is encoded {'by position' if new['by_place'] else 'by name'} now")
    elif old["by_place"] and list(other)[: len(mine)] != list(mine):
        found.append(
            f"{where} is encoded by position, and its first fields are no longer {', '.join(mine)}"
        )
    for name in mine:
        if name in other:
            found += incompatibilities(mine[name]["type"], other[name]["type"], f"{where}.{name}")
    return found


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], where: str) -> str:
    return f"{where} was {spell_type(old)} and is {spell_type(new)}"


def new_fields(
    old: Mapping[str, Any], new: Mapping[str, Any], where: str = "state"
) -> Sequence[str]:
    """The fields that the new type has and the old one has not."""
    if old["kind"] != "object" or new["kind"] != "object":
        return [] if old == new else [where]
    mine = {each["name"]: each["type"] for each in old["fields"]}
    found: list[str] = []
    for each in new["fields"]:
        name = f"{where}.{each['name']}"
        found += (
            [name]
            if each["name"] not in mine
            else new_fields(mine[each["name"]], each["type"], name)
        )
    return found

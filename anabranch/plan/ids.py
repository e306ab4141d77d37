"""Identities in a plan, as values. Text is made from them for people, and is never parsed."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.topology.graph import ALL_APPLIES


class _Shown:
    """Formats and quotes like its text, so that messages read the same as with names."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


@dataclass(frozen=True, slots=True, order=True, repr=False)
class PartId(_Shown):
    """The owner of state: an operator, or a part of it, such as a session or one side of a join."""

    operator: str
    part: str = ""  # empty: the operator as a whole

    def __str__(self) -> str:
        return f"{self.operator}: {self.part}" if self.part else self.operator


@dataclass(frozen=True, slots=True, order=True, repr=False)
class ComponentId(_Shown):
    """The operators that share a component, in the order of the topology."""

    operators: tuple[str, ...]

    def __str__(self) -> str:
        return " + ".join(self.operators) or ALL_APPLIES


APPLIES = ComponentId(())  # all applies, which share their slots and belong to no component

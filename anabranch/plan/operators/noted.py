"""Partials as a checkpoint notes them, and which of them go on when aggregates change.

State names its columns by the ids of partials. A reader takes the columns that it wants: one that
is missing is empty, one that nobody wants is left behind, and the next snapshot is without it. So
aggregates may come and go, and no state is written again for that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

import msgspec

from anabranch.aggregates.custom import Custom
from anabranch.aggregates.partials import Partial
from anabranch.errors import CheckpointError
from anabranch.plan.operators.base import Contents, KeptPartial


class NotedPartial(msgspec.Struct, frozen=True, kw_only=True):
    """One partial of the state: its class, its type, and the text of what it is lifted from."""

    kind: str
    type: str
    input: str
    parameters: dict[str, int] = {}
    # The aggregates that are made of it, where the text of its input does not say all: a Spark
    # Column may hold any function, and users' aggregates are their own code.
    only_of: tuple[str, ...] = ()
    id: str = ""  # the name of its columns in state
    complete_from: int | None = None  # of what starts before, it lacks rows; None: it has all

    def continues(self, old: NotedPartial) -> bool:
        """Whether it is the same as one of before, so that its state goes on."""
        mine, other = (
            (each.kind, each.type, each.input, each.parameters, bool(each.only_of))
            for each in (self, old)
        )
        return mine == other and (not self.only_of or not set(old.only_of).isdisjoint(self.only_of))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuedPartials:
    """The partials of aggregates that have changed: those of before under their ids, and others."""

    partials: tuple[NotedPartial, ...]
    begun: frozenset[int]  # the numbers of those that start empty


def begun_partials(
    wanted: Sequence[NotedPartial], step: int, taken: Collection[str] = ()
) -> tuple[NotedPartial, ...]:
    """Partials that start empty after a step, each with an id that no other has or had.

    The id tells what it is of and when it began: two drivers that give it agree.
    """
    used, found = set(taken), []
    for each in wanted:
        what = (each.kind, each.type, each.input, sorted(each.parameters.items()), each.only_of)
        digest = blake2b(repr(what).encode(), digest_size=6).hexdigest()
        names = (f"{digest}{f'.{i}' if i else ''}@{step}" for i in range(len(used) + 1))
        name = next(name for name in names if name not in used)
        used.add(name)
        found.append(msgspec.structs.replace(each, id=name))
    return tuple(found)


def continued_partials(
    old: Sequence[NotedPartial],
    wanted: Sequence[NotedPartial],
    step: int,
    complete_from: Callable[[int], int | None],
    renewed: Collection[int] = (),
) -> ContinuedPartials:
    """The partials that changed aggregates want: what was kept before goes on, the rest begins.

    `renewed` are the numbers of those that begin in any case, `complete_from` says of one that
    begins from when on it has all rows.
    """
    found: dict[int, NotedPartial] = {}
    left = list(old)
    for number, each in enumerate(wanted):
        same = next((one for one in left if each.continues(one)), None)
        if same is not None and number not in renewed:
            left.remove(same)
            found[number] = msgspec.structs.replace(
                each, id=same.id, complete_from=same.complete_from
            )
    begun = [number for number in range(len(wanted)) if number not in found]
    made = begun_partials([wanted[number] for number in begun], step, {one.id for one in old})
    for number, each in zip(begun, made, strict=True):
        found[number] = msgspec.structs.replace(each, complete_from=complete_from(number))
    return ContinuedPartials(
        partials=tuple(found[number] for number in range(len(wanted))), begun=frozenset(begun)
    )


class AggregateContents(Contents, frozen=True, kw_only=True):
    """What windows over partials keep."""

    partials: tuple[NotedPartial, ...]
    aggregates: dict[str, str]  # the results, each as text

    def has_layout_of(self, other: Contents) -> bool:
        """Whether the partials are the same: a Column that two share may become two Columns."""
        theirs = other.partials if isinstance(other, AggregateContents) else ()
        return len(self.partials) == len(theirs) and all(
            mine.continues(old) for mine, old in zip(self.partials, theirs, strict=True)
        )

    def settled(self, watermark_us: int | None) -> Self:
        """Without completeness that is over: windows that lack rows have all closed."""
        longest_us = self.longest_us
        if watermark_us is None or longest_us is None:
            return self
        partials = tuple(
            msgspec.structs.replace(each, complete_from=None)
            if each.complete_from is not None and each.complete_from + longest_us <= watermark_us
            else each
            for each in self.partials
        )
        return msgspec.structs.replace(self, partials=partials)

    def kept(self) -> tuple[KeptPartial, ...]:
        """The partials, as a plan has them; refused where only the topology's code knows them."""
        classes = _subclasses(Partial)  # type: ignore[type-abstract]
        kinds = {kind.__name__: kind for kind in classes}
        kept: list[KeptPartial] = []
        for each in self.partials:
            if each.kind not in kinds:
                raise CheckpointError(
                    f"the checkpoint holds partials of kind {each.kind}, "
                    "which this version does not know"
                )
            if issubclass(kinds[each.kind], Custom):
                raise CheckpointError(
                    "no rows can be shown: only the topology's own code can merge the state of "
                    f"udaf({each.input})"
                )
            first = kept[-1].columns.stop if kept else 0
            partial = kinds[each.kind](each.type, **each.parameters)
            columns = slice(first, first + len(partial.columns))
            kept.append(KeptPartial(partial=partial, input=0, columns=columns, id=each.id))
        return tuple(kept)


def _subclasses(kind: type[Partial]) -> list[type[Partial]]:
    found = []
    for each in kind.__subclasses__():
        found += [each, *_subclasses(each)]
    return found

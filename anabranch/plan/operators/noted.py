"""Partials as a checkpoint notes them, and which of them continue when aggregates change.

State names its columns by the ids of partials. A reader takes the columns that it wants. A missing
one is empty, and the next snapshot leaves out those that nobody wants. So aggregates may be added
and removed, and no state is rewritten for that.
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
    """One partial of the state: its class, its type, and the text of its input."""

    kind: str
    type: str
    input: str
    parameters: dict[str, int] = {}
    # The aggregates that use it, if the text of its input does not say everything. A Spark Column
    # may hold any function, and users' aggregates are their own code.
    only_of: tuple[str, ...] = ()
    id: str = ""  # the name of its columns in state
    complete_from: int | None = None  # windows that start before lack rows; None: it has all rows

    def continues(self, old: NotedPartial) -> bool:
        """Whether it is the same as an earlier one, so that its state continues."""
        mine, other = (
            (each.kind, each.type, each.input, each.parameters, bool(each.only_of))
            for each in (self, old)
        )
        return mine == other and (not self.only_of or not set(old.only_of).isdisjoint(self.only_of))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuedPartials:
    """The partials of changed aggregates: earlier ones under their ids, and new ones."""

    partials: tuple[NotedPartial, ...]
    begun: frozenset[int]  # the numbers of those that start empty


def begun_partials(
    wanted: Sequence[NotedPartial], step: int, taken: Collection[str] = ()
) -> tuple[NotedPartial, ...]:
    """Partials that start empty after a step, each with an id that was never used before.

    The id depends on what it is and when it began, so two drivers choose the same one.
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
    """The partials that changed aggregates need. Those that were stored continue, the rest begin.

    `renewed` are the numbers of those that begin in any case. `complete_from` gives the time from
    which a partial that begins has all rows.
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
    """What windows over partials store."""

    partials: tuple[NotedPartial, ...]
    aggregates: dict[str, str]  # the results, each as text

    def has_layout_of(self, other: Contents) -> bool:
        """Whether the partials are the same: a Column that two share may become two Columns."""
        theirs = other.partials if isinstance(other, AggregateContents) else ()
        return len(self.partials) == len(theirs) and all(
            mine.continues(old) for mine, old in zip(self.partials, theirs, strict=True)
        )

    def settled(self, watermark_us: int | None) -> Self:
        """Without times of completeness that have passed: all windows that lack rows are closed."""
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
        """The partials for a plan. Refused if only the topology's code can make them."""
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

"""The header of a checkpoint, and how a topology may change while its checkpoint lives.

Each operator's state belongs to its name and depends on its fingerprint. Operators may be added and
removed. The kind of an operator decides which other changes are possible. Any other change is
refused, and the error names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from anabranch.errors import CheckpointError
from anabranch.plan.ids import PartId
from anabranch.plan.model import Node, Plan
from anabranch.plan.notes import OperatorNote, note_of
from anabranch.plan.operators.base import Evolved, Reached
from anabranch.plan.operators.fingerprint import differences
from anabranch.state.checkpoint.commits import FORMAT, Checkpoint, Header, open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.records import encode_header

# The nodes that feed an operator, and their new notes in the checkpoint.
Upstream: TypeAlias = Sequence[tuple[Node, OperatorNote]]


def open_or_create(files: Files, plan: Plan, shards: int) -> tuple[Checkpoint, str | None]:
    """The checkpoint for a topology, with its header written; and what has changed, as text."""
    found = open_checkpoint(files)
    fitted, changed = fit_checkpoint(found, files, plan, shards)
    write_header(fitted, found)
    return fitted, changed


def fit_checkpoint(
    found: Checkpoint | None, files: Files, plan: Plan, shards: int
) -> tuple[Checkpoint, str | None]:
    """The checkpoint as a topology continues it; and what has changed since it was made, as text.

    Nothing is written. A checkpoint that does not fit is refused, and the error says what differs.
    """
    if found is None:
        header = Header(
            format=FORMAT,
            id=uuid.uuid4().hex,
            topology=plan.topology,
            shards=shards,
            sources=tuple(source.name for source in plan.sources),
            operators={node.name: note_of(node) for node in plan.nodes},
        )
        return Checkpoint(files, header, {}, {}), None
    header, changes = _changed(found, plan, shards)
    if header == found.header:
        return found, None
    return found.with_header(header), "; ".join(changes) or None


def write_header(fitted: Checkpoint, found: Checkpoint | None) -> None:
    """Writes the header of a checkpoint that is new, or that has changed since it was opened."""
    files, header = fitted.files, encode_header(fitted.header)
    if found is None:
        files.make()
        if not files.create("anabranch.json", header):
            raise CheckpointError(
                f"another driver has just made checkpoint {files.location}; start again"
            )
    elif fitted is not found:
        files.replace("anabranch.json", header)


def sharing_of(found: Checkpoint | None) -> dict[str, bool]:
    """Whether the windows of each operator share panes, for operators that the checkpoint knows.

    An operator keeps the layout with which its state began.
    """
    shared: dict[str, bool] = {}
    for part, note in found.header.operators.items() if found else ():
        shares = note.contents.shares_panes(part)
        if shares is not None:
            shared[part.operator] = shares
    return shared


def components_of(found: Checkpoint | None) -> list[frozenset[str]]:
    """The operators of each component in the last step of a checkpoint."""
    routes = found.last.routes if found and found.last else {}
    return [frozenset(component.operators) for component in routes]


def over_checkpoint(plan: Plan, found: Checkpoint) -> Plan:
    """The plan as it continues a checkpoint: with its panes, and its statistics."""
    order = {name: i for i, name in enumerate(found.header.sources)}
    sources = tuple(sorted(plan.sources, key=lambda source: order.get(source.name, len(order))))
    return replace(plan.with_nodes([_over(node, found) for node in plan.nodes]), sources=sources)


def _over(node: Node, found: Checkpoint) -> Node:
    note, last = found.header.operators.get(node.name), found.last
    if note is None:
        return node
    keys_in = last.keys_in.get(node.name, {}) if last else {}
    contents = note.contents.settled(last.watermark_us if last else None)
    return node.continued(replace(note, contents=contents), keys_in)


def _changed(found: Checkpoint, plan: Plan, shards: int) -> tuple[Header, list[str]]:
    """The header for a changed topology, and what has changed. Impossible changes are refused."""
    old = found.header.operators
    new, changes, stuck = _notes_of(found, plan)
    gone = [name for name in old if name not in new]
    changes += [f"operator {name!r} is gone, its state is forgotten" for name in gone]
    refused = [*_other_frame(found.header, plan, shards), *stuck, *_renamed(old, new)]
    if old and not any(name in old for name in new) and not refused:
        refused.append(
            f"operators: the checkpoint has [{_listed(old)}], the topology has [{_listed(new)}]"
        )
        if len(old) == len(new) == 1:
            refused += differences(
                next(iter(old.values())).fingerprint, next(iter(new.values())).fingerprint
            )
    if refused:
        advice = "Use another checkpoint directory, or the topology that it was made with"
        if refused == stuck and len(new) > len(stuck):
            advice += ". Or give the operator another name=: it starts empty, the others continue"
        raise CheckpointError(
            f"checkpoint {found.files.location} is of another topology ({found.header.topology}): "
            f"{'; '.join(refused)}. {advice}"
        )
    return replace(found.header, operators=new), changes


def _other_frame(header: Header, plan: Plan, shards: int) -> list[str]:
    """What differs about shards and sources, which must stay the same."""
    refused = []
    if header.shards != shards:
        refused.append(f"shards: the checkpoint has [{header.shards}], the topology has [{shards}]")
    names = sorted(source.name for source in plan.sources)
    if sorted(header.sources) != names:
        had = ", ".join(sorted(header.sources))
        refused.append(
            f"sources: the checkpoint has [{had}], the topology reads [{', '.join(names)}]"
        )
    return refused


def _notes_of(
    found: Checkpoint, plan: Plan
) -> tuple[dict[PartId, OperatorNote], list[str], list[str]]:
    """The notes of all operators; then, as text, their changes, and those that are refused."""
    new: dict[PartId, OperatorNote] = {}
    columns: dict[PartId, frozenset[str]] = {}  # result columns whose meaning has changed
    changes, refused = [], []
    for node in plan.nodes:
        upstream = [(part, new[part.name]) for part in plan.parts_of(node.feed.stream)]
        if node.name in found.header.operators:
            changed = frozenset().union(*(columns.get(part.name, ()) for part, _ in upstream))
            evolved = _again(found, node, upstream, changed)
            new[node.name], columns[node.name] = evolved.note, evolved.columns
            changes += [f"operator {node.name!r}: {each}" for each in evolved.changed]
            if evolved.refused:
                refused.append(f"operator {node.name!r}: {'; '.join(evolved.refused)}")
        else:
            new[node.name] = _added(found, node, upstream)
            changes.append(f"operator {node.name!r} is new: {node.added}")
    return new, changes, refused


def _renamed(old: Mapping[PartId, OperatorNote], new: Mapping[PartId, OperatorNote]) -> list[str]:
    """Operators that seem to have a new name. Their state would be dropped, so this is refused."""
    refused = []
    for name in (name for name in old if name not in new):
        alike = [n for n in new if n not in old and new[n].fingerprint == old[name].fingerprint]
        if alike:
            refused.append(
                f"operator {name!r} seems to be called {alike[0]!r} now; state belongs to the "
                f"name: give it name={name!r}"
            )
    return refused


def _listed(parts: Iterable[PartId]) -> str:
    return ", ".join(map(str, parts))


def _again(found: Checkpoint, node: Node, upstream: Upstream, changed: frozenset[str]) -> Evolved:
    """How an operator that the checkpoint knows continues. `changed` are columns of its input."""
    note, fresh = found.header.operators[node.name], note_of(node)
    same = note.fingerprint == fresh.fingerprint and fresh.contents.has_layout_of(note.contents)
    if same and not changed:
        return Evolved(note=note)
    return node.evolved(note, fresh, _reached(found, node, upstream, changed))


def _reached(
    found: Checkpoint, node: Node, upstream: Upstream, changed: frozenset[str] = frozenset()
) -> Reached | None:
    """How far an operator has come; None before the first step.

    Its newest row may be as late as the newest row of the sources, or later if a map has changed
    event times. Rows of another operator have event times of their own.
    """
    last = found.last
    if last is None:
        return None
    taken = [last.taken.get(node.name), None if upstream else last.max_event_us]
    incomplete: dict[str, int | None] = {}
    for part, note in upstream:
        for column, us in part.incomplete(note).items():
            end = None if note.contents.longest_us is None else us + note.contents.longest_us
            before = incomplete.get(column, end)
            incomplete[column] = None if end is None or before is None else max(end, before)
    return Reached(
        step=last.step,
        watermark_us=last.watermark_us,
        newest_us=max((us for us in taken if us is not None), default=None),
        incomplete=incomplete,
        changed=changed,
    )


def _added(found: Checkpoint, node: Node, upstream: Upstream) -> OperatorNote:
    """The note of a new operator, which has seen none of the earlier rows.

    Its results are complete even later if what feeds it, or some of its columns, came later too.
    """
    note, at = note_of(node), _reached(found, node, upstream)
    if at is None or found.last is None:
        return note
    newest = found.last.max_event_us
    for _, each in upstream:
        longest_us = each.contents.longest_us or 0
        complete = [us + longest_us for us in each.complete_from.values()]
        known = [newest, at.watermark_us, *complete, *at.incomplete.values()]
        newest = max((us for us in known if us is not None), default=None)
    since = {}
    if newest is not None:
        since = {key: newest + us for key, us in node.complete_after.items()}
    return replace(note, complete_from=since, after_step=at.step)

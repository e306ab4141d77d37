"""What a checkpoint is of, and what of a topology may change while it lives.

Each operator's state belongs to its name and depends on its fingerprint. Operators may come and go, windows too as long as the panes
that are there serve them; anything else is refused by name.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from anabranch.errors import CheckpointError
from anabranch.plan.evolution import (
    complete_from,
    forgotten_before,
    join_since,
    misfits,
    on_panes,
    session_since,
    window_key,
)
from anabranch.plan.fingerprint import differences, fingerprint
from anabranch.plan.model import JOINED, Node, Plan
from anabranch.plan.operators.joins import SIDES, JoinSide
from anabranch.state.checkpoint.commits import (
    FORMAT,
    Checkpoint,
    Contents,
    Header,
    Kept,
    KeptPartial,
    open_checkpoint,
)
from anabranch.state.checkpoint.files import Files
from anabranch.topology.state_types import incompatibilities, new_fields
from anabranch.topology.windows import Session, Window


def open_or_create(files: Files, plan: Plan, shards: int) -> tuple[Checkpoint, str | None]:
    """The checkpoint for a topology, written, and what has changed since it was made."""
    found = open_checkpoint(files)
    fitted, changed = fit_checkpoint(found, files, plan, shards)
    write_header(fitted, found)
    return fitted, changed


def fit_checkpoint(
    found: Checkpoint | None, files: Files, plan: Plan, shards: int
) -> tuple[Checkpoint, str | None]:
    """The checkpoint as a topology goes on with it, and what has changed since it was made.

    Nothing is written. One that does not fit is refused, with what differs.
    """
    if found is None:
        header = Header(
            format=FORMAT,
            id=uuid.uuid4().hex,
            topology=plan.topology,
            shards=shards,
            sources=tuple(source.name for source in plan.sources),
            operators={node.name: kept_of(node) for node in plan.nodes},
        )
        return Checkpoint(files, header, {}, {}), None
    header, told = _changed(found, plan, shards)
    if header == found.header:
        return found, None
    return found.with_header(header), "; ".join(told) or None


def write_header(fitted: Checkpoint, found: Checkpoint | None) -> None:
    """Writes the header of a checkpoint that is new, or that has changed since it was opened."""
    files, header = fitted.files, msgspec.json.encode(fitted.header)
    if found is None:
        files.make()
        if not files.create("anabranch.json", header):
            raise CheckpointError(
                f"another driver has just made checkpoint {files.location}; start again"
            )
    elif fitted is not found:
        files.replace("anabranch.json", header)


def sharing_of(found: Checkpoint | None) -> dict[str, bool]:
    """Of operators that a checkpoint knows, whether their windows share panes; state is kept as it was begun."""
    shared: dict[str, bool] = {}
    for name, kept in found.header.operators.items() if found else ():
        operator, colon, _ = name.partition(": ")
        if kept.contents.windows:
            shared[operator if colon else name] = not colon
    return shared


def components_of(found: Checkpoint | None) -> list[frozenset[str]]:
    """The operators that share a component, as the last step of a checkpoint ran."""
    names = found.last.routes if found and found.last else {}
    return [frozenset(name.split(JOINED)) for name in names]


def over_checkpoint(plan: Plan, found: Checkpoint) -> Plan:
    """The plan as it goes on with a checkpoint: over its panes, by its statistics."""
    order = {name: i for i, name in enumerate(found.header.sources)}
    sources = tuple(sorted(plan.sources, key=lambda source: order.get(source.name, len(order))))
    return replace(plan.with_nodes([_over(node, found) for node in plan.nodes]), sources=sources)


def _over(node: Node, found: Checkpoint) -> Node:
    kept = found.header.operators.get(node.name)
    if kept is None:
        return node
    if node.session is not None:
        return session_since(node, kept.complete_from)
    if node.side is not None:
        return join_since(node, kept.complete_from)
    panes = replace(node.slotted.panes, width_us=kept.pane_us, offset_us=kept.pane_offset_us)
    keys = found.last.keys_in.get(node.name, {}) if found.last else {}
    if panes != node.slotted.panes or kept.complete_from or keys:
        node = on_panes(node, panes, kept.complete_from, keys)
    return replace(node, slotted=replace(node.slotted, forgotten_us=kept.forgotten_us))


def kept_of(node: Node) -> Kept:
    """What a checkpoint notes of an operator when its state begins."""
    return Kept(
        fingerprint=fingerprint(node),
        contents=contents_of(node),
        pane_us=node.slotted.panes.width_us,
        pane_offset_us=node.slotted.panes.offset_us,
    )


def contents_of(node: Node) -> Contents:
    """What the slot tasks keep for an operator."""
    slotted = node.slotted
    sides = (
        [[(each.name, each.type) for each in slotted.join.payload(s)] for s in SIDES]
        if isinstance(slotted, JoinSide)
        else []
    )
    return Contents(
        keys=tuple(field.name for field in node.compute.by),
        windows=node.windows,
        session=node.session,
        join=node.side is not None,
        process=None if node.process is None else node.process.logic.described(),
        vectorised=node.process is not None and node.process.logic.vectorised,
        left=tuple(sides[0]) if sides else (),
        right=tuple(sides[1]) if sides else (),
        partials=tuple(
            KeptPartial(
                kind=type(kept.partial).__name__,
                type=kept.partial.type,
                input=str(node.inputs[kept.input]),
                parameters=kept.partial.parameters,
            )
            for kept in node.slotted.kept
        ),
    )


def _changed(found: Checkpoint, plan: Plan, shards: int) -> tuple[Header, list[str]]:
    """The header for a topology that has changed, and what has; what cannot change is refused."""
    old, refused, told = found.header.operators, [], []
    if found.header.shards != shards:
        refused.append(
            f"shards: the checkpoint has [{found.header.shards}], the topology has [{shards}]"
        )
    names = sorted(source.name for source in plan.sources)
    if sorted(found.header.sources) != names:
        had = ", ".join(sorted(found.header.sources))
        refused.append(
            f"sources: the checkpoint has [{had}], the topology reads [{', '.join(names)}]"
        )
    new: dict[str, Kept] = {}
    for node in plan.nodes:
        if node.name in old:
            new[node.name], why, wrong = _again(found, node)
            told += [f"operator {node.name!r}: {each}" for each in why]
            refused += [f"operator {node.name!r}: {each}" for each in wrong]
        else:
            new[node.name] = _added(
                found, node, [each for name, each in new.items() if name in _feeding(plan, node)]
            )
            what = (
                "windows with rows from before are incomplete"
                if node.process is None
                else "it sees rows from now on"
            )
            told.append(f"operator {node.name!r} is new: {what}")
    gone = [name for name in old if name not in new]
    for name in gone:
        told.append(f"operator {name!r} is gone, its state is forgotten")
        alike = [n for n in new if n not in old and new[n].fingerprint == old[name].fingerprint]
        if alike:
            refused.append(
                f"operator {name!r} seems to be called {alike[0]!r} now; state belongs to the name: give it name={name!r}"
            )
    if old and not any(name in old for name in new) and not refused:
        refused.append(
            f"operators: the checkpoint has [{', '.join(old)}], the topology has [{', '.join(new)}]"
        )
        if len(old) == len(new) == 1:
            refused += differences(
                next(iter(old.values())).fingerprint, next(iter(new.values())).fingerprint
            )
    if refused:
        raise CheckpointError(
            f"checkpoint {found.files.location} is of another topology ({found.header.topology}): {'; '.join(refused)}. "
            "Use another checkpoint directory, or the topology that it was made with"
        )
    return replace(found.header, operators=new), told


def _again(found: Checkpoint, node: Node) -> tuple[Kept, list[str], list[str]]:
    """What the checkpoint notes of an operator that it knows, what has changed, and what must not."""
    kept = found.header.operators[node.name]
    fresh = kept_of(node)
    unlike = differences(kept.fingerprint, fresh.fingerprint)
    if not unlike:
        return kept, [], []
    if node.process is not None and kept.contents.process is not None:
        return _evolved(kept, fresh, unlike)
    same = {part for part, text in fresh.fingerprint.items() if kept.fingerprint.get(part) == text}
    if same | {"windows"} != {*kept.fingerprint} or node.side is not None:
        return kept, [], unlike
    wrong = misfits(node.windows, kept.pane_us, kept.pane_offset_us)
    if node.session is not None:
        wrong = unlike
    if wrong:
        return kept, [], [f"{'; '.join(wrong)} ({'; '.join(unlike)})"]
    return _with_windows(found, kept, fresh), unlike, []


def _evolved(kept: Kept, fresh: Kept, unlike: list[str]) -> tuple[Kept, list[str], list[str]]:
    """A user's class with another state: fields may be added that have a default, and types may become wider."""
    old, new = kept.contents.process or {}, fresh.contents.process or {}
    same = all(
        kept.fingerprint.get(part) == text
        for part, text in fresh.fingerprint.items()
        if part != "state"
    )
    wrong = incompatibilities(old, new) if same else unlike
    if kept.contents.vectorised != fresh.contents.vectorised:
        wrong = [
            f"state: the checkpoint has it {'as columns' if kept.contents.vectorised else 'per key'}"
        ]
    if wrong and same:
        wrong = [
            f"{'; '.join(wrong)}. What is stored can be read with new fields that have a default, and wider types"
        ]
    told = [f"state has {', '.join(new_fields(old, new))} new"]
    return (
        (kept, [], wrong)
        if wrong
        else (replace(kept, fingerprint=fresh.fingerprint, contents=fresh.contents), told, [])
    )


def _with_windows(found: Checkpoint, kept: Kept, fresh: Kept) -> Kept:
    """An operator with other windows over its panes; the new ones are complete from some time on."""
    last, old = found.last, kept.contents.windows
    since = None if last is None else complete_from(old, last.watermark_us, last.max_event_us)
    known = {window_key(window) for window in old}
    wanted = {window_key(window) for window in fresh.contents.windows}
    return replace(
        kept,
        fingerprint=fresh.fingerprint,
        contents=fresh.contents,
        complete_from={
            **{key: us for key, us in kept.complete_from.items() if key in wanted},
            **{key: since for key in wanted if since is not None and key not in known},
        },
        forgotten_us=None if last is None else forgotten_before(old, last.watermark_us),
    )


def _feeding(plan: Plan, node: Node) -> set[str]:
    return {each.name for each in plan.parts_of(node.feed.stream)}


def _added(found: Checkpoint, node: Node, upstream: Sequence[Kept]) -> Kept:
    """An operator that comes later: it has seen nothing of what came before; nor complete results, where these come later too."""
    kept, last = kept_of(node), found.last
    if last is None:
        return kept
    newest = last.max_event_us
    windows: list[Window | Session] = [*node.windows, *([node.session] if node.session else [])]
    # A session takes rows up to a gap before the first that it sees.
    first = {
        window_key(each): 1 + (each.gap_us if isinstance(each, Session) else 0) for each in windows
    }
    for each in upstream:
        longest = max((window.length_us for window in each.contents.windows), default=0)
        known = [us + longest for us in each.complete_from.values()]
        newest = max(
            (us for us in (newest, last.watermark_us, *known) if us is not None), default=None
        )
    since = {} if newest is None else {key: newest + us for key, us in first.items()}
    return replace(kept, complete_from=since, after_step=last.step)

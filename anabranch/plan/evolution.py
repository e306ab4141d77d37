"""What of a topology may change while a checkpoint lives: windows that its panes serve.

State is panes, so windows may come and go as long as every start and end lies on an edge of the panes that are there. A window
that comes later lacks rows that were forgotten before: its first intervals are incomplete, and their results are named so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.plan.consolidation import keys_from, plan_consolidation
from anabranch.plan.model import Node
from anabranch.plan.operators.joins import JoinSide
from anabranch.plan.panes import Panes, first_end
from anabranch.topology.durations import format_duration
from anabranch.topology.windows import Session, Window

INCOMPLETE = " (incomplete)"


def window_key(window: Window | Session) -> str:
    """What tells windows of an operator apart; those of a cumulative one share their name."""
    return f"{window.name} | {window.gap_us if isinstance(window, Session) else window.length_us}"


def misfits(windows: Iterable[Window], width_us: int, offset_us: int) -> list[str]:
    """The windows that are not made of these panes."""
    return [
        f"{window.name!r} is not made of the checkpoint's panes of {format_duration(width_us)}"
        for window in windows
        if any(
            part % width_us
            for part in (window.length_us, window.every_us, window.offset_us - offset_us)
        )
    ]


def complete_from(
    old: Sequence[Window], watermark_us: int | None, newest_us: int | None
) -> int | None:
    """From when on all rows are in the panes that windows have kept up to a watermark; None where nothing was forgotten.

    Rows before the start of every window that is open are forgotten, and where windows have gaps, rows of the gaps.
    """
    if not any(window.gapless for window in old):
        return newest_us if newest_us is None else newest_us + 1
    if watermark_us is None:
        return None
    return min(
        first_end(window, watermark_us) - window.length_us for window in old if window.gapless
    )


def forgotten_before(old: Sequence[Window], watermark_us: int | None) -> int | None:
    """The start of the first window that is open at a watermark: none needs a pane before it."""
    return (
        None
        if watermark_us is None
        else min(first_end(window, watermark_us) - window.length_us for window in old)
    )


def on_panes(node: Node, panes: Panes, since: Mapping[str, int], keys: Mapping[int, float]) -> Node:
    """The node over the panes of a checkpoint, with windows that it has only since some time, planned by what it measured."""
    windows = node.windows
    incomplete = {
        i: since[window_key(window)]
        for i, window in enumerate(windows)
        if window_key(window) in since
    }
    slotted = replace(
        node.slotted,
        panes=panes,
        consolidation=plan_consolidation(panes, keys_from(keys)),
        complete_from=incomplete,
    )
    return replace(node, slotted=slotted)


def join_since(node: Node, since: Mapping[str, int]) -> Node:
    """A join that there is only since some time: windows that began before are incomplete."""
    assert isinstance(node.slotted, JoinSide)
    incomplete = {
        i: since[window_key(window)]
        for i, window in enumerate(node.windows)
        if window_key(window) in since
    }
    join = replace(node.slotted.join, complete_from=incomplete)
    return replace(node, slotted=replace(node.slotted, join=join, complete_from=incomplete))


def session_since(node: Node, since: Mapping[str, int]) -> Node:
    """A session that there is only since some time: what began before is incomplete."""
    assert node.session is not None
    return replace(
        node, slotted=replace(node.slotted, complete_from=dict(enumerate(since.values())))
    )

"""What a checkpoint notes about an operator, or a part of one, when its state begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.plan.operators.base import Node
from anabranch.plan.operators.kinds import AnyContents


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorNote:
    """What state depends on, what it consists of, and its panes."""

    fingerprint: Mapping[str, str]
    contents: AnyContents
    pane_us: int | None  # None: panes are cut at the edges of windows only
    pane_offset_us: int
    complete_from: Mapping[str, int] = field(default_factory=dict)  # windows that were added later
    # When windows were last added, no window needed panes before this time.
    forgotten_us: int | None = None
    # The state begins after this step. Anything earlier belongs to another operator.
    after_step: int = 0


def note_of(node: Node) -> OperatorNote:
    """What a checkpoint notes about an operator whose state begins."""
    contents = node.contents()
    assert isinstance(contents, AnyContents)
    return OperatorNote(
        fingerprint=node.fingerprint(),
        contents=contents,
        pane_us=node.plan.panes.width_us,
        pane_offset_us=node.plan.panes.offset_us,
    )

"""Shards between slots: a resize changes the route, by `plan/route.py`; state stays where it is."""

from __future__ import annotations

from anabranch.plan.route import Route, even_route
from docs.site.svg import Canvas

SHARDS, BEFORE, AFTER = 12, 2, 3

_CELL = 40.0
_COLUMN = 3 * _CELL + 30.0


def draw_shards() -> Canvas:
    """The route before and after a resize, and the state below both."""
    before = even_route(SHARDS, BEFORE)
    after = before.resized(AFTER)
    moved = {i for i in range(SHARDS) if before.slot_of[i] != after.slot_of[i]}
    left, right = 20.0, 20.0 + BEFORE * _COLUMN + 90.0
    width = right + AFTER * _COLUMN + 5
    canvas = Canvas(width, 330, "Shards move between slots, state does not move")
    _draw_slots(canvas, left, f"step 7, route version {before.version}", before, moved)
    _draw_slots(canvas, right, f"step 8, route version {after.version}", after, moved)
    middle = left + BEFORE * _COLUMN
    canvas.line((middle + 8, 104), (right - 16, 104), arrow=True)
    canvas.text((middle + right) / 2 - 4, 78, "resize(3)", colour="faint")
    canvas.text((middle + right) / 2 - 4, 122, "between\ntwo steps", colour="faint", size=12)
    _draw_state(canvas, width, moved)
    return canvas


def _draw_slots(canvas: Canvas, x: float, title: str, route: Route, moved: set[int]) -> None:
    wide = route.slots * _COLUMN - 15
    canvas.text(x + wide / 2, 22, title, bold=True)
    for slot in range(route.slots):
        left = x + slot * _COLUMN
        mine = [shard for shard in range(SHARDS) if route.slot_of[shard] == slot]
        canvas.rect(left, 42, 3 * _CELL + 14, 2 * _CELL + 44, fill="box", radius=8)
        canvas.text(left + 1.5 * _CELL + 7, 58, f"slot {slot}", colour="faint")
        for i, shard in enumerate(mine):
            _draw_shard(
                canvas, left + 8 + i % 3 * _CELL, 74 + i // 3 * _CELL, shard, shard in moved
            )


def _draw_shard(canvas: Canvas, x: float, y: float, shard: int, moved: bool) -> None:  # noqa: FBT001
    colour = "orange" if moved else "blue"
    canvas.rect(x, y, _CELL - 6, _CELL - 6, fill=f"{colour}-fill", stroke=colour)
    canvas.text(x + (_CELL - 6) / 2, y + (_CELL - 6) / 2, str(shard), bold=True)


def _draw_state(canvas: Canvas, width: float, moved: set[int]) -> None:
    top = 206.0
    canvas.rect(20, top, width - 40, 80, fill="none", dashed=True, radius=8)
    canvas.text(
        32, top + 17, "state of the shards, in shared memory of the host", anchor="start", bold=True
    )
    for shard in range(SHARDS):
        _draw_shard(canvas, 32 + shard * _CELL, top + 34, shard, shard in moved)
    canvas.text(
        32 + SHARDS * _CELL + 8,
        top + 51,
        "every slot on the host\nreaches every shard",
        anchor="start",
        colour="faint",
    )
    canvas.text(
        20,
        308,
        f"{len(moved)} of {SHARDS} shards have another slot (orange). No state is copied.",
        anchor="start",
        colour="faint",
    )

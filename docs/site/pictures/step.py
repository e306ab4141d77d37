"""A step with its exchange: rows are combined where they are read, then merged into shards.

A small example that is computed, not drawn by eye: counts per key and pane on both sides of the
exchange are the same rows.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from anabranch.plan.route import even_route
from docs.site.svg import Canvas

# Rows of each input partition: (key, pane).
PARTITIONS = (
    (("a", 0), ("b", 0), ("a", 0), ("c", 0), ("a", 0)),
    (("b", 0), ("b", 0), ("d", 0), ("a", 0), ("d", 0)),
)
SHARD_OF = {"a": 0, "b": 1, "c": 2, "d": 3}  # by a hash of the key
ROUTE = even_route(4, 2)

_ROW, _WIDE = 26.0, 62.0


def combined(partition: int) -> Counter[str]:
    """What one partition sends: one count per key, as all rows are of one pane."""
    return Counter(key for key, _ in PARTITIONS[partition])


def received(slot: int) -> Counter[str]:
    """What a slot has after it has merged what all partitions sent."""
    total: Counter[str] = sum((combined(i) for i in range(len(PARTITIONS))), Counter())
    return Counter({k: n for k, n in total.items() if ROUTE.slot_of[SHARD_OF[k]] == slot})


def draw_step() -> Canvas:
    """From rows to the commit, left to right."""
    canvas = Canvas(960, 420, "One step with its exchange")
    _draw_stages(canvas)
    sent: list[tuple[str, float, float]] = []
    for i in range(len(PARTITIONS)):
        sent += _draw_partition(canvas, i, 60 + i * 172)
    places: dict[str, tuple[float, float]] = {}
    for slot in range(ROUTE.slots):
        places |= _draw_slot(canvas, slot, 60 + slot * 172)
    for key, x, y in sent:
        to_x, to_y = places[key]
        canvas.path(
            f"M {x:.1f} {y:.1f} "
            f"C {x + 70:.1f} {y:.1f} {to_x - 80:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}",
            stroke="orange",
            arrow=True,
        )
    _draw_end(canvas)
    return canvas


def _draw_stages(canvas: Canvas) -> None:
    canvas.rect(8, 28, 330, 344, fill="none", dashed=True, radius=8)
    canvas.text(173, 16, "JVM: one task per input partition", bold=True)
    canvas.text(428, 16, "exchange", bold=True, colour="orange")
    canvas.rect(500, 28, 244, 344, fill="none", dashed=True, radius=8)
    canvas.text(622, 16, "Python worker: one task per slot", bold=True)
    canvas.text(860, 16, "driver", bold=True)
    rows, parts = sum(map(len, PARTITIONS)), sum(len(combined(i)) for i in range(len(PARTITIONS)))
    canvas.text(
        8,
        398,
        f"{rows} rows are read, {parts} partials pass the exchange: "
        "one per key, pane and partition. Python never sees the rows.",
        anchor="start",
        colour="faint",
    )


def _draw_partition(canvas: Canvas, number: int, top: float) -> list[tuple[str, float, float]]:
    """A partition's rows, and beside them the counts that it sends, each with where it leaves."""
    canvas.text(55, top - 14, "rows", colour="faint", size=12)
    canvas.text(268, top - 14, "lift: per key and pane", colour="faint", size=12)
    for i, (key, _) in enumerate(PARTITIONS[number]):
        y = top + i * _ROW
        canvas.rect(24, y, _WIDE, _ROW - 5, fill="purple-fill", stroke="purple")
        canvas.text(24 + _WIDE / 2, y + (_ROW - 5) / 2, f"{key}, 10:0{i}")
    canvas.line((100, top + 2.4 * _ROW), (214, top + 2.4 * _ROW), arrow=True)
    sent = []
    for i, (key, count) in enumerate(sorted(combined(number).items())):
        y = top + i * _ROW + _ROW / 2
        canvas.rect(224, y, 100, _ROW - 5, fill="blue-fill", stroke="blue")
        canvas.text(274, y + (_ROW - 5) / 2, f"{key}, 10:00: {count}")
        sent.append((key, 326.0, y + (_ROW - 5) / 2))
    return sent


def _draw_slot(canvas: Canvas, slot: int, top: float) -> dict[str, tuple[float, float]]:
    """A slot's shards with their counts; where the partials of each key arrive."""
    canvas.rect(516, top - 22, 212, 160, fill="box", radius=8)
    canvas.text(622, top - 8, f"slot {slot}", colour="faint")
    places = {}
    for i, (key, count) in enumerate(sorted(received(slot).items())):
        y = top + 8 + i * 40
        canvas.rect(530, y, 184, 34, fill="green-fill", stroke="green")
        canvas.text(622, y + 17, f"shard {SHARD_OF[key]}  |  {key}, 10:00: {count}", bold=True)
        places[key] = (528.0, y + 17)
    canvas.text(622, top + 111, "close windows;\nwrite results and deltas", colour="faint")
    return places


def _draw_end(canvas: Canvas) -> None:
    for slot in range(ROUTE.slots):
        y = 114 + slot * 172
        canvas.line((732, y), (800, 146 + slot * 14), arrow=True)
    canvas.text(762, 104, "report", colour="faint", size=12)
    texts = ("collect reports", "write sinks", "commit the step")
    tops = [138 + i * 50.0 for i in range(len(texts))]
    for text, y in zip(texts, tops, strict=True):
        canvas.rect(804, y, 132, 30, fill="orange-fill", stroke="orange")
        canvas.text(870, y + 15, text)
    for a, b in pairwise(tops):
        canvas.line((870, a + 30), (870, b - 1), arrow=True)

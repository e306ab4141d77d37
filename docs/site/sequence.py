"""Sequences: who says what to whom, from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from docs.site.mermaid import Entry, Message, Note, Optional, Sequence
from docs.site.svg import LINE, Canvas, text_width

_MARGIN, _HEAD, _GAP = 12.0, 36.0, 14.0
_SELF = 34.0  # how far a message to oneself goes aside


def draw_sequence(sequence: Sequence, title: str) -> str:
    """A sequence as SVG for a page."""
    at = _columns(sequence)
    right = max((at[_where(e)] + _half(e) for e in _flat(sequence.entries)), default=0.0)
    last = list(at.values())[-1] + _head_width(list(sequence.people.values())[-1]) / 2
    width = max(right, last) + 2 * _MARGIN
    height = _HEAD + 2 * _MARGIN + sum(map(_height, sequence.entries)) + _GAP
    canvas = Canvas(width, height, title)
    for name, text in sequence.people.items():
        x, wide = at[name], _head_width(text)
        canvas.line((x, _MARGIN + _HEAD), (x, height - _MARGIN), dashed=True)
        canvas.rect(x - wide / 2, _MARGIN, wide, _HEAD, fill="blue-fill", stroke="blue")
        canvas.text(x, _MARGIN + _HEAD / 2, text, bold=True)
    _draw(canvas, sequence.entries, at, _MARGIN + _HEAD + _GAP)
    return canvas.svg()


def _head_width(text: str) -> float:
    return max(map(text_width, text.split("\n"))) + 28.0


def _flat(entries: tuple[Entry, ...]) -> Iterator[Message | Note]:
    for each in entries:
        if isinstance(each, Optional):
            yield from _flat(each.inner)
        else:
            yield each


def _where(entry: Message | Note) -> str:
    return entry.over if isinstance(entry, Note) else entry.of


def _wide(text: str) -> float:
    return max(map(text_width, text.split("\n")))


def _half(entry: Message | Note) -> float:
    """How far an entry reaches to the right of the one that it belongs to."""
    if isinstance(entry, Note):
        return _wide(entry.text) / 2 + 12.0
    return _SELF + _wide(entry.text) + 8.0 if entry.of == entry.to else 0.0


def _columns(sequence: Sequence) -> dict[str, float]:
    """Where everybody stands: far enough apart for heads, notes and what they say to each other."""
    names = list(sequence.people)
    heads = {name: _head_width(text) / 2 for name, text in sequence.people.items()}
    notes = dict.fromkeys(names, 0.0)
    said: dict[tuple[str, str], float] = {}
    for each in _flat(sequence.entries):
        if isinstance(each, Note):
            notes[each.over] = max(notes[each.over], _half(each))
        else:
            ends = tuple(sorted((each.of, each.to), key=names.index))
            needed = _half(each) if each.of == each.to else _wide(each.text) + 24.0
            said[ends[0], ends[1]] = max(said.get((ends[0], ends[1]), 0.0), needed)
    first = names[0]
    at = {first: _MARGIN + max(heads[first], notes[first])}
    for a, b in pairwise(names):
        apart = max(heads[a] + heads[b] + 20.0, said.get((a, b), 0.0), said.get((a, a), 0.0) + 12)
        apart = max(apart, notes[a] + 12.0, notes[b] + 12.0)
        at[b] = at[a] + apart
        for (c, d), needed in said.items():
            if d == b and c != d and c in at:
                at[b] = max(at[b], at[c] + needed)
    return at


def _height(entry: Entry) -> float:
    if isinstance(entry, Optional):
        return LINE + sum(map(_height, entry.inner)) + 2 * _GAP
    lines = entry.text.count("\n") + 1
    return lines * LINE + (_GAP + 10.0 if isinstance(entry, Note) else _GAP)


def _draw(canvas: Canvas, entries: tuple[Entry, ...], at: dict[str, float], y: float) -> None:
    for each in entries:
        if isinstance(each, Optional):
            names = [
                n
                for e in _flat(each.inner)
                for n in ((_where(e),) if isinstance(e, Note) else (e.of, e.to))
            ]
            left, right = min(at[n] for n in names) - 30, max(at[n] for n in names) + 30
            left = min(left, right - _wide(each.text) - 40)
            height = _height(each) - _GAP / 2
            canvas.rect(left, y, right - left, height, fill="none", stroke="orange", dashed=True)
            canvas.text(
                left + 8, y + LINE / 2 + 2, f"if {each.text}", colour="orange", anchor="start"
            )
            _draw(canvas, each.inner, at, y + LINE + _GAP)
        elif isinstance(each, Note):
            wide, high = 2 * _half(each) - 4, _height(each) - _GAP
            canvas.rect(at[each.over] - wide / 2, y, wide, high, fill="box")
            canvas.text(at[each.over], y + high / 2, each.text)
        else:
            _draw_message(canvas, each, at, y)
        y += _height(each)


def _draw_message(canvas: Canvas, message: Message, at: dict[str, float], y: float) -> None:
    of, to = at[message.of], at[message.to]
    lines = message.text.count("\n") + 1
    line = y + lines * LINE + 2
    if message.of == message.to:
        canvas.line((of, y), (of + _SELF, y), (of + _SELF, line), (of + 3, line), arrow=True)
        canvas.text(of + _SELF + 6, (y + line) / 2, message.text, anchor="start")
        return
    canvas.text((of + to) / 2, y + lines * LINE / 2, message.text)
    aside = 3 if to > of else -3
    canvas.line((of, line), (to - aside, line), dashed=message.dotted, arrow=True)

"""Flowcharts: groups are laid out from the inside out, each as a graph of its nodes and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from docs.site.layers import place
from docs.site.mermaid import Chart, Group, Link, Node
from docs.site.svg import LINE, Canvas, Point, text_width

_MARGIN, _PAD, _TITLE = 12.0, 16.0, 26.0
_BELOW = 46.0  # room for links that lead back


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Box:
        return Box(self.x + x, self.y + y, self.width, self.height)

    @property
    def middle(self) -> Point:
        return Point(self.x + self.width / 2, self.y + self.height / 2)


@dataclass
class _Frame:
    """A group with places for all that is in it, from its own corner."""

    width: float
    height: float
    nodes: dict[str, Box] = field(default_factory=dict)
    frames: list[tuple[Box, str]] = field(default_factory=list)
    points: dict[Link, list[Point]] = field(default_factory=dict)
    back: dict[Link, None] = field(default_factory=dict)
    down: dict[Link, bool] = field(default_factory=dict)


def draw_chart(chart: Chart, title: str) -> str:
    """A flowchart as SVG for a page."""
    frame = _laid_out(chart.whole, chart.links)
    below = _BELOW if frame.back else 0.0
    canvas = Canvas(frame.width + 2 * _MARGIN, frame.height + 2 * _MARGIN + below, title)
    for inner, text in frame.frames:
        box = inner.moved(_MARGIN, _MARGIN)
        canvas.rect(box.x, box.y, box.width, box.height, fill="none", dashed=True, radius=8)
        lines = text.count("\n")
        canvas.text(box.middle.x, box.y + _TITLE / 2 + 2 + lines * LINE / 2, text, colour="faint")
    places = {name: box.moved(_MARGIN, _MARGIN) for name, box in frame.nodes.items()}
    for link in chart.links:
        _draw_link(canvas, link, places, frame)
    for name, node in chart.whole.all_nodes().items():
        _draw_node(canvas, node, places[name])
    return canvas.svg()


def _size(node: Node) -> tuple[float, float]:
    lines = node.text.split("\n")
    extra = 40.0 if node.shape == "hexagon" else 24.0
    return max(map(text_width, lines)) + extra, len(lines) * LINE + 16.0


def _room(text: str, *, down: bool) -> float:
    """What a link takes between two layers, with its text on it."""
    lines = text.split("\n") if text else []
    needed = len(lines) * LINE if down else max(map(text_width, lines), default=0.0)
    return max(34.0, needed + 26.0)


def _laid_out(group: Group, links: Sequence[Link]) -> _Frame:
    inner = {each.id: _laid_out(each, links) for each in group.groups}
    home = {name: name for name in group.nodes}
    home |= {name: each for each, frame in inner.items() for name in frame.nodes}
    size = {name: _size(node) for name, node in group.nodes.items()}
    size |= {each: (frame.width, frame.height) for each, frame in inner.items()}
    own = [
        link
        for link in links
        if link.of in home and link.to in home and home[link.of] != home[link.to]
    ]
    rooms: dict[tuple[str, str], float] = {}
    for link in own:
        ends = home[link.of], home[link.to]
        rooms[ends] = max(rooms.get(ends, 0.0), _room(link.text, down=group.down))
    placed = place(
        {name: (h, w) if group.down else (w, h) for name, (w, h) in size.items()},
        rooms,
        gap_across=22.0,
    )
    titled = bool(group.title)
    left, top = (_PAD, _TITLE + group.title.count("\n") * LINE + 6.0) if titled else (0.0, 0.0)

    def point(along: float, across: float) -> Point:
        x, y = (across, along) if group.down else (along, across)
        return Point(x + left, y + top)

    wide, high = (placed.across, placed.along) if group.down else (placed.along, placed.across)
    frame = _Frame(wide + 2 * left, high + top + (_PAD if titled else 0.0))
    if titled:
        needed = max(map(text_width, group.title.split("\n"))) + 2 * _PAD
        shift = max(0.0, needed - frame.width) / 2
        frame.width = max(frame.width, needed)
        left += shift
    for name, (w, h) in size.items():
        at = point(*placed.centres[name])
        corner = Box(at.x - w / 2, at.y - h / 2, w, h)
        if name not in inner:
            frame.nodes[name] = corner
            continue
        frame.frames.append((corner, next(g.title for g in group.groups if g.id == name)))
        _adopt(frame, inner[name], corner)
    for link in own:
        ends = home[link.of], home[link.to]
        frame.points[link] = [point(*each) for each in placed.passes.get(ends, [])]
        frame.down[link] = group.down
        if ends in placed.back:
            frame.back[link] = None
    return frame


def _adopt(frame: _Frame, inner: _Frame, corner: Box) -> None:
    frame.nodes |= {n: b.moved(corner.x, corner.y) for n, b in inner.nodes.items()}
    frame.frames += [(b.moved(corner.x, corner.y), text) for b, text in inner.frames]
    frame.points |= {
        link: [Point(p.x + corner.x, p.y + corner.y) for p in points]
        for link, points in inner.points.items()
    }
    frame.back |= inner.back
    frame.down |= inner.down


def _draw_node(canvas: Canvas, node: Node, box: Box) -> None:
    if node.shape == "hexagon":
        cut, right, bottom, y = 12.0, box.x + box.width, box.y + box.height, box.middle.y
        canvas.path(
            f"M {box.x + cut:.1f} {box.y:.1f} H {right - cut:.1f} L {right:.1f} {y:.1f} "
            f"L {right - cut:.1f} {bottom:.1f} H {box.x + cut:.1f} L {box.x:.1f} {y:.1f} Z",
            fill="orange-fill",
            stroke="orange",
        )
    else:
        colour = "green" if node.shape == "slanted" else "blue"  # a sink, as `explain` draws it
        radius = box.height / 2 if node.shape == "round" else 5.0
        size = box.x, box.y, box.width, box.height
        canvas.rect(*size, fill=f"{colour}-fill", stroke=colour, radius=radius)
    canvas.text(box.middle.x, box.middle.y, node.text)


def _draw_link(canvas: Canvas, link: Link, places: dict[str, Box], frame: _Frame) -> None:
    a, b = places[link.of], places[link.to]
    style = {"dashed": link.dotted, "arrow": link.arrow}
    if link in frame.back:
        low = frame.height + _MARGIN + _BELOW / 2
        start, end = Point(a.middle.x, a.y + a.height), Point(b.middle.x, b.y + b.height)
        data = (
            f"M {start.x:.1f} {start.y:.1f} C {start.x:.1f} {low + 20:.1f} {end.x:.1f} "
            f"{low + 20:.1f} {end.x:.1f} {end.y:.1f}"
        )
        canvas.path(data, **style)
        middle = Point((start.x + end.x) / 2, low)
    else:
        down = frame.down[link]
        if down:
            start, end = Point(a.middle.x, a.y + a.height), Point(b.middle.x, b.y)
        else:
            start, end = Point(a.x + a.width, a.middle.y), Point(b.x, b.middle.y)
        points = [Point(p.x + _MARGIN, p.y + _MARGIN) for p in frame.points[link]]
        canvas.curve([start, *points, end], down=down, **style)
        middle = Point((start.x + end.x) / 2, (start.y + end.y) / 2)
    if link.text:
        lines = link.text.split("\n")
        width, height = max(map(text_width, lines)) + 6, len(lines) * LINE
        x, y = middle.x - width / 2, middle.y - height / 2
        canvas.rect(x, y, width, height, fill="paper", stroke="none")
        canvas.text(middle.x, middle.y, link.text, colour="faint")

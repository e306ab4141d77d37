"""Pictures as SVG: boxes, texts and arrows in colours that have a light and a dark form.

A picture is written with names of colours. In a page the theme's mode chooses their values
(`stylesheet`); a picture in a file of its own follows the system's mode (`standalone`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

# Name -> its value in light mode, in dark mode.
COLOURS = {
    "ink": ("#1f2933", "#e4e7eb"),
    "faint": ("#7b8794", "#9aa5b1"),
    "line": ("#9aa5b1", "#616e7c"),
    "paper": ("#ffffff", "#14181e"),
    "box": ("#eef2f6", "#29313a"),
    "blue": ("#2f6fb5", "#7db4ee"),
    "blue-fill": ("#d6e6f7", "#1f3c5a"),
    "orange": ("#b8620b", "#f0a75a"),
    "orange-fill": ("#fbe3c8", "#573511"),
    "green": ("#2d7d46", "#77cb91"),
    "green-fill": ("#d5eedd", "#1c4629"),
    "purple": ("#7a4fb0", "#c0a2ec"),
    "purple-fill": ("#e7dcf5", "#3d2a5a"),
}
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
SIZE = 13.0
LINE = 17.0

_NARROW, _WIDE = frozenset("ijlftrI.,:;'|!()[]{} -"), frozenset("mwMW@%")


def text_width(text: str, size: float = SIZE) -> float:
    """About how wide a line of text is."""
    units = sum(0.34 if c in _NARROW else 0.9 if c in _WIDE else 0.6 for c in text)
    return units * size


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


@dataclass
class Canvas:
    """Elements of a picture, in the order in which they are drawn."""

    width: float
    height: float
    title: str
    parts: list[str] = field(default_factory=list)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "box",
        stroke: str = "line",
        dashed: bool = False,
        radius: float = 4.0,
    ) -> None:
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="{radius:g}" style="fill:{_paint(fill)};stroke:{_paint(stroke)}"{dash}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        colour: str = "ink",
        anchor: str = "middle",
        size: float = SIZE,
        bold: bool = False,
    ) -> None:
        """Lines of text, centred around y."""
        lines = text.split("\n")
        first = y - (len(lines) - 1) * LINE / 2
        weight = ' font-weight="600"' if bold else ""
        for i, line in enumerate(lines):
            self.parts.append(
                f'<text x="{x:.1f}" y="{first + i * LINE:.1f}" text-anchor="{anchor}" '
                f'dominant-baseline="central" font-size="{size:g}"{weight} '
                f'style="fill:{_paint(colour)}">{escape(line, quote=False)}</text>'
            )

    def path(
        self,
        data: str,
        *,
        stroke: str = "line",
        fill: str = "none",
        width: float = 1.4,
        dashed: bool = False,
        arrow: bool = False,
    ) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        head = ' marker-end="url(#arrow)"' if arrow else ""
        self.parts.append(
            f'<path d="{data}" stroke-width="{width:g}"{dash}{head} '
            f'style="fill:{_paint(fill)};stroke:{_paint(stroke)}"/>'
        )

    def line(self, *points: tuple[float, float], **style: object) -> None:
        data = " L ".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.path(f"M {data}", **style)  # type: ignore[arg-type]

    def curve(self, points: Sequence[Point], *, down: bool, **style: object) -> None:
        """A smooth line through points that leaves and reaches each of them in one direction."""
        data = f"M {points[0].x:.1f} {points[0].y:.1f}"
        for a, b in itertools.pairwise(points):
            if down:
                middle = (a.y + b.y) / 2
                bend = f"{a.x:.1f} {middle:.1f} {b.x:.1f} {middle:.1f}"
            else:
                middle = (a.x + b.x) / 2
                bend = f"{middle:.1f} {a.y:.1f} {middle:.1f} {b.y:.1f}"
            data += f" C {bend} {b.x:.1f} {b.y:.1f}"
        self.path(data, **style)  # type: ignore[arg-type]

    def svg(self, style: str = "") -> str:
        """The picture for a page; its colours are defined there, or by `style`."""
        drawn = "\n".join(self.parts)
        arrow = f"arrow-{crc32(drawn.encode()):08x}"  # a page may have several pictures
        head = (
            f'<defs><marker id="{arrow}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse">'
            f'<path d="M 0 0.5 L 8 4 L 0 7.5 z" style="fill:{_paint("line")}"/></marker></defs>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{self.width:.0f}" '
            f'height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
            f'font-family="{FONT}"><title>{escape(self.title)}</title>{style}{head}\n'
            + drawn.replace("url(#arrow)", f"url(#{arrow})")
            + "\n</svg>\n"
        )

    def standalone(self) -> str:
        """The picture for a file of its own, in light or dark as the reader's system is."""
        light, dark = (_values(mode) for mode in (0, 1))
        style = f"svg{{{light}}}@media (prefers-color-scheme: dark){{svg{{{dark}}}}}"
        return self.svg(f"<style>{style}</style>")


def stylesheet() -> str:
    """The colours of all pictures in a page, by the mode of the theme."""
    light, dark = (_values(mode) for mode in (0, 1))
    return f'html{{{light}}}\nhtml[data-theme="dark"]{{{dark}}}\n'


def _values(mode: int) -> str:
    return "".join(f"--ab-{name}:{values[mode]};" for name, values in COLOURS.items())


def _paint(name: str) -> str:
    return "none" if name == "none" else f"var(--ab-{name})"

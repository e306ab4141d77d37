"""The picture of the live view needs nothing from elsewhere, and is small enough for the repository."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.table import Table

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "live-picture"
PICTURES = sorted((ROOT / "docs").glob("*.svg"))


def test_a_terminal_is_drawn_with_its_texts() -> None:
    table = Table("step", "rows in", box=None)
    table.add_row("7", "36,000", style="bold green")
    svg = runpy.run_path(str(SCRIPT))["drawn"](table)
    texts = [each.text or "" for each in ET.fromstring(svg).iter() if each.tag.endswith("text")]  # noqa: S314
    assert any("36,000" in text for text in texts)
    assert "anabranch\xa0run\xa0examples/lending.py" in "".join(texts).replace(" ", "\xa0")
    assert loads_nothing(svg)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_pictures_in_the_repository_are_small_and_load_nothing(path: Path) -> None:
    assert path.stat().st_size < 100_000
    assert loads_nothing(path.read_text(encoding="utf-8"))


def loads_nothing(svg: str) -> bool:
    """True if no address is in it but that of SVG itself."""
    return "http" not in svg.replace("http://www.w3.org/2000/svg", "")

"""The site draws the Mermaid of our pages itself, and refuses what it cannot draw."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from docs.site.flowchart import draw_chart
from docs.site.layers import place
from docs.site.mermaid import (
    Chart,
    Link,
    MermaidError,
    Message,
    Node,
    Note,
    Optional,
    Sequence,
    read,
)
from docs.site.sequence import draw_sequence

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [block for page in sorted(DOCS.rglob("*.md")) for block in BLOCK.findall(page.read_text())]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(block: str) -> ET.Element:
    found = read(block)
    svg = draw_chart(found, "t") if isinstance(found, Chart) else draw_sequence(found, "t")
    return ET.fromstring(svg)  # noqa: S314 - our own


def drawn_chart(chart: Chart) -> ET.Element:
    return ET.fromstring(draw_chart(chart, "t"))  # noqa: S314 - our own


def boxes(svg: ET.Element) -> list[tuple[float, float, float, float]]:
    """The filled rectangles: x, y, right, bottom."""
    found = []
    for each in svg.iter(f"{SVG}rect"):
        if "fill:none" not in each.attrib["style"] and "stroke:none" not in each.attrib["style"]:
            x, y, width, height = (float(each.attrib[n]) for n in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


def test_a_flowchart_is_read_with_groups_labels_and_shapes() -> None:
    chart = read(
        'graph LR\n subgraph g["the group"]\n  a["one<br/>two"] --> b\n end\n'
        ' b -- "says" --> c{{"x"}}\n c -. "back" .-> a\n b --- d'
    )
    assert isinstance(chart, Chart)
    assert not chart.whole.down
    (group,) = chart.whole.groups
    assert group.title == "the group"
    assert group.nodes == {"a": Node("a", "one\ntwo"), "b": Node("b", "b")}
    assert chart.whole.nodes["c"] == Node("c", "x", "hexagon")
    assert chart.links == (
        Link("a", "b"),
        Link("b", "c", "says"),
        Link("c", "a", "back", dotted=True),
        Link("b", "d", arrow=False),
    )


def test_what_explain_prints_is_drawn() -> None:
    chart = read(
        'graph LR\n  %% cost: 2\n  n0["clicks"]\n'
        '  subgraph component0["component pages by (page)<br/>level 1, at most 64 slots"]\n'
        '    n1["pages"]\n  end\n  n0 == route ==> n1\n  n1 -->|late| s0[/"memory"/]'
    )
    assert isinstance(chart, Chart)
    assert chart.links == (Link("n0", "n1", "route"), Link("n1", "s0", "late"))
    assert chart.whole.nodes["s0"] == Node("s0", "memory", "slanted")
    texts = [each.text for each in drawn_chart(chart).iter(f"{SVG}text")]
    assert {"clicks", "route", "late", "memory", "level 1, at most 64 slots"} <= set(texts)


def test_a_sequence_is_read_with_notes_and_options() -> None:
    found = read(
        "sequenceDiagram\n participant D as driver\n participant T\n D->>T: go\n"
        " Note over T: works\n opt it fails\n  T-->>D: no\n end"
    )
    assert found == Sequence(
        {"D": "driver", "T": "T"},
        (
            Message("D", "T", "go", dotted=False),
            Note("T", "works"),
            Optional("it fails", (Message("T", "D", "no", dotted=True),)),
        ),
    )


@pytest.mark.parametrize(
    "block", ["", "pie\n a: 1", "graph LR\n a ~~ b", "graph LR\n -->", "sequenceDiagram\n loop x"]
)
def test_what_cannot_be_drawn_is_refused(block: str) -> None:
    with pytest.raises(MermaidError):
        read(block)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_charts_of_our_pages_have_all_texts_and_no_box_upon_another(number: int) -> None:
    svg = drawn(BLOCKS[number])
    texts = {each.text for each in svg.iter(f"{SVG}text")}
    for label in re.findall(r'"([^"]+)"', BLOCKS[number]):
        for line in re.split("<br/>", label):
            assert line.strip() in texts
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    found = boxes(svg)
    assert found
    for x, y, right, bottom in found:
        assert x >= 0
        assert y >= 0
        assert right <= width + 1
        assert bottom <= height + 1
    for a, b in combinations(found, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (a, b)


def test_arrows_lead_to_later_layers_and_circles_are_found() -> None:
    sizes = dict.fromkeys("abcd", (10.0, 20.0))
    rooms = {("a", "b"): 30.0, ("b", "c"): 50.0, ("a", "c"): 30.0, ("c", "a"): 30.0}
    placed = place(sizes, {**rooms, ("a", "d"): 30.0}, gap_across=5.0)
    along = {name: at for name, (at, _) in placed.centres.items()}
    assert along["a"] < along["b"] == along["d"] < along["c"]
    assert along["c"] - along["b"] == 60.0
    assert placed.back == {("c", "a")}
    assert len(placed.passes["a", "c"]) == 1

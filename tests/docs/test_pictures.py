"""Pictures say what the code says, and nothing is outside of the frame or upon something else."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from anabranch.plan.consolidation import plan_consolidation
from anabranch.plan.panes import panes_of
from docs.site.pictures import PICTURES, panes, scaling, shards, step
from docs.site.svg import COLOURS, SIZE, stylesheet, text_width

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PICTURES)
def test_texts_and_boxes_are_inside_the_frame(name: str) -> None:
    canvas = PICTURES[name]()
    svg = ET.fromstring(canvas.svg())  # noqa: S314 - our own
    assert svg.find(f"{SVG}title") is not None
    for each in svg.iter(f"{SVG}text"):
        text, x = str(each.text), float(each.attrib["x"])
        wide = text_width(text, float(each.attrib.get("font-size", SIZE)))
        left = {"start": 0.0, "middle": wide / 2, "end": wide}[each.attrib["text-anchor"]]
        assert x - left >= 0, text
        assert x - left + wide <= canvas.width, text
        assert 0 < float(each.attrib["y"]) < canvas.height, text
    for each in svg.iter(f"{SVG}rect"):
        assert float(each.attrib["x"]) + float(each.attrib["width"]) <= canvas.width
        assert float(each.attrib["y"]) + float(each.attrib["height"]) <= canvas.height


@pytest.mark.parametrize("name", PICTURES)
def test_every_colour_has_a_value_in_both_modes(name: str) -> None:
    used = set(re.findall(r"var\(--ab-([\w-]+)\)", PICTURES[name]().svg()))
    assert used
    assert used <= set(COLOURS)
    for colour in used:
        assert stylesheet().count(f"--ab-{colour}:") == 2


def test_each_window_has_the_rows_of_its_panes() -> None:
    shared = panes_of(panes.WINDOWS)
    found = panes.formed(shared, plan_consolidation(shared))
    per_window = [[each.rows for each in found if each.window == i] for i in range(3)]
    assert per_window[0] == list(panes.ROWS)
    assert sum(per_window[1]) == sum(panes.ROWS)
    thirds = per_window[1]
    assert per_window[2] == [thirds[0] + thirds[1], thirds[1] + thirds[2], thirds[2] + thirds[3]]


def test_the_slots_of_the_step_have_all_rows() -> None:
    rows = sum(len(each) for each in step.PARTITIONS)
    assert sum(step.received(slot).total() for slot in range(step.ROUTE.slots)) == rows


def test_the_shards_that_move_are_as_few_as_can_be() -> None:
    text = shards.draw_shards().svg()
    assert f"{shards.SHARDS // shards.AFTER} of {shards.SHARDS} shards have another slot" in text


def test_the_surge_is_answered_and_the_same_each_time() -> None:
    found = scaling.simulated()
    scaling.simulated.cache_clear()
    assert scaling.simulated() == found
    up = [at for at, before, after in found.resizes if after > before]
    down = [at for at, before, after in found.resizes if after < before]
    assert up
    assert down
    assert max(up) < min(down)
    settled = [
        latency for at, latency in zip(found.at, found.latency_s, strict=True) if at > max(up) + 20
    ]
    assert max(settled) < scaling.TARGET_S

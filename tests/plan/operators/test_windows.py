"""Windows as nodes: they continue over the panes of a checkpoint, and come and go with them."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from anabranch.plan.notes import note_of
from anabranch.plan.operators.base import Reached
from anabranch.plan.operators.noted_windows import noted
from anabranch.plan.operators.windows import WindowsContents, WindowsNode, formation
from anabranch.topology.windows import tumbling
from tests.plan.every_kind import nodes

MINUTE = 60_000_000
MINUTELY, TEN = tumbling("1 minute"), tumbling("10 minutes")


def node() -> WindowsNode:
    found = nodes()["windows"]
    assert isinstance(found, WindowsNode)
    return found


def test_narrower_panes_of_a_checkpoint_are_kept() -> None:
    assert node().plan.panes.width_us == MINUTE
    note = replace(note_of(node()), pane_us=MINUTE // 2, forgotten_us=7)
    plan = node().continued(note, {}).plan
    assert (plan.panes.width_us, plan.panes.windows) == (MINUTE // 2, (MINUTELY, TEN))
    assert plan.forgotten_us == 7
    assert plan.consolidation != node().plan.consolidation


def test_a_window_that_is_added_is_complete_from_the_first_one_that_is_open() -> None:
    fresh = note_of(node())
    assert isinstance(fresh.contents, WindowsContents)
    before = msgspec.structs.replace(fresh.contents, windows=noted([MINUTELY]))
    old = replace(fresh, fingerprint={**fresh.fingerprint, "windows": "fewer"}, contents=before)
    at = Reached(step=3, watermark_us=5 * MINUTE, newest_us=6 * MINUTE)
    found = node().evolved(old, fresh, at)
    assert found.refused == ()
    assert found.note.contents == fresh.contents
    assert found.note.complete_from == {TEN.key: 5 * MINUTE}
    assert found.note.forgotten_us == 5 * MINUTE
    assert node().evolved(old, fresh, None).note.complete_from == {}


def test_windows_that_do_not_fit_the_panes_and_other_keys_are_refused() -> None:
    fresh = note_of(node())
    wide = replace(
        fresh, pane_us=10 * MINUTE, fingerprint={**fresh.fingerprint, "windows": "wider"}
    )
    [refused] = node().evolved(wide, fresh, None).refused
    assert refused.startswith("'1 minute' is not made of the checkpoint's panes of 10 minutes")
    other = replace(fresh, fingerprint={**fresh.fingerprint, "keys": "another"})
    assert "[another]" in node().evolved(other, fresh, None).refused[0]


def test_explain_says_how_each_window_is_formed() -> None:
    found = formation(node().plan.panes, node().plan.consolidation)
    assert found["windows"]["1 minute"] == "1 pane"
    assert found["windows"]["10 minutes"] == "10 panes"
    assert found["merges_chosen_by"].endswith("nothing is measured yet")


def test_other_names_of_the_same_windows_are_no_other_windows() -> None:
    fresh = note_of(node())
    assert isinstance(fresh.contents, WindowsContents)
    windows = tumbling("60s"), tumbling("600s", name="ten")
    before = msgspec.structs.replace(fresh.contents, windows=noted(windows))
    text = "; ".join(each.described for each in windows)
    old = replace(fresh, fingerprint={**fresh.fingerprint, "windows": text}, contents=before)
    found = node().evolved(
        old, fresh, Reached(step=3, watermark_us=5 * MINUTE, newest_us=6 * MINUTE)
    )
    assert (found.refused, found.note.complete_from) == ((), {})
    assert found.note.contents == fresh.contents
    assert node().continued(found.note, {}).plan.window_names == ["1 minute", "10 minutes"]

"""The commit log: what it holds after a restart, what it deletes, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.errors import CheckpointError
from anabranch.plan.evolution import complete_from, forgotten_before, window_key
from anabranch.plan.panes import panes_of
from anabranch.state.commits import Checkpoint, Commit, Contents, Stored, open_checkpoint, open_or_create
from anabranch.state.files import Files
from anabranch.state.version import Version
from anabranch.topology.windows import Window, hopping, sliding, tumbling

MINUTE = 60_000_000
PRINT = {"keys": "k: bigint", "windows": "5"}
CONTENTS = Contents(operator="o", keys=("k",), windows=(tumbling("5 minutes"),), partials=())


def commit(step: int, shards: dict[int, bool], epoch: int = 1) -> Commit:
    """A step that changed some shards, with a snapshot of those that are true."""
    stored = {
        shard: Stored(
            version=Version(step, "t"),
            file=f"state/{step:08d}/0-t.bin",
            delta=(0, 2),
            snapshot=(2, 2) if snapshot else None,
        )
        for shard, snapshot in shards.items()
    }
    return Commit(
        step=step,
        epoch=epoch,
        batch_id=step - 1,
        watermark_us=None,
        max_event_us=5,
        slots=1,
        route=(0, 0),
        route_version=1,
        stored=stored,
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    found, _ = open_or_create(Files(str(tmp_path / "chk")), "t", PRINT, 2, CONTENTS, panes_of(CONTENTS.windows))
    found.take_over()
    return found


def run(checkpoint: Checkpoint, step: int, shards: dict[int, bool]) -> None:
    checkpoint.files.write(f"state/{step:08d}/0-t.bin", [b"dd", b"ss"])
    checkpoint.files.write(f"state/{step:08d}/0-orphan.bin", [b"of an attempt that died"])
    checkpoint.files.write(f"results/{step:08d}/results-0-t.parquet", [b""])
    checkpoint.commit(commit(step, shards))


def test_what_is_committed_is_there_after_a_restart(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False, 1: False})
    run(checkpoint, 2, {0: True})
    again = open_checkpoint(checkpoint.files)
    assert again is not None
    assert again.last == checkpoint.last
    assert again.chains == checkpoint.chains
    assert (again.version(0), again.version(1)) == (Version(2, "t"), Version(1, "t"))
    assert [write.snapshot for write in again.writes(0)] == [b"ss"]
    assert [write.delta for write in again.writes(1)] == [b"dd"]


def test_garbage_collection_keeps_what_a_restart_needs(checkpoint: Checkpoint) -> None:
    for step in range(1, 6):
        run(checkpoint, step, {0: step in {2, 4}, 1: step == 3})
    checkpoint.clean()
    assert checkpoint.files.list("state") == ["00000003", "00000004", "00000005"]
    assert checkpoint.files.list("state/00000004") == ["0-t.bin"]
    assert checkpoint.files.list("commits") == ["00000003.json", "00000004.json", "00000005.json"]
    assert checkpoint.files.list("results") == []
    again = open_checkpoint(checkpoint.files)
    assert again is not None
    assert [len(again.writes(shard)) for shard in (0, 1)] == [2, 3]


def test_a_checkpoint_of_another_topology_is_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match=r"keys: the checkpoint has \[k: bigint\], the topology has \[k: string\]"):
        open_or_create(checkpoint.files, "t", {**PRINT, "keys": "k: string"}, 2, CONTENTS, panes_of(CONTENTS.windows))


def test_a_driver_that_was_replaced_can_commit_nothing(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False})
    newer, _ = open_or_create(checkpoint.files, "t", PRINT, 2, CONTENTS, panes_of(CONTENTS.windows))
    newer.take_over()
    with pytest.raises(CheckpointError, match="another driver has taken over"):
        checkpoint.commit(commit(2, {0: False}))
    newer.commit(commit(2, {0: False}, epoch=2))


def test_a_step_is_committed_once(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False})
    with pytest.raises(CheckpointError, match="holds step 1 already"):
        checkpoint.commit(commit(1, {0: False}))


def test_a_damaged_record_is_named(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False})
    checkpoint.files.write("commits/00000001.json", [b"{"])
    with pytest.raises(CheckpointError, match=r"commits/00000001.json is damaged"):
        open_checkpoint(checkpoint.files)


def test_a_location_may_be_a_path_or_a_file_uri(tmp_path: Path) -> None:
    for location in (str(tmp_path / "a"), f"file://{tmp_path}/a", f"file:{tmp_path}/a"):
        assert Files(location).path("x") == f"{tmp_path}/a/x"
        assert Files(location).local
    with pytest.raises(CheckpointError, match="nosuch"):
        Files("nosuch://bucket/a").exists("x")


def with_windows(checkpoint: Checkpoint, text: str, *windows: Window) -> tuple[Checkpoint, str | None]:
    contents = replace(CONTENTS, windows=windows)
    return open_or_create(checkpoint.files, "t", {**PRINT, "windows": text}, 2, contents, panes_of(windows))


def test_windows_that_the_panes_serve_may_come_and_go(checkpoint: Checkpoint) -> None:
    checkpoint.commit(replace(commit(1, {0: True}), watermark_us=12 * MINUTE, max_event_us=13 * MINUTE))
    five, hour, quarter = tumbling("5 minutes"), tumbling("1 hour"), sliding("15 minutes", every="5 minutes")
    changed, what = with_windows(checkpoint, "hour", five, hour)
    assert what is not None
    assert "windows" in what
    assert changed.header.pane_us == 5 * MINUTE
    assert changed.header.complete_from == {window_key(hour): 10 * MINUTE}
    assert open_checkpoint(checkpoint.files).header == changed.header  # type: ignore[union-attr]
    assert with_windows(checkpoint, "hour", five, hour) == (changed, None)
    # The hour that is open has kept all rows since it began: what comes now is complete from then on.
    again, _ = with_windows(checkpoint, "quarter", hour, quarter)
    assert again.header.complete_from == {window_key(hour): 10 * MINUTE, window_key(quarter): 0}


def test_windows_that_the_panes_do_not_serve_are_refused_by_name(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match="'7 minutes' is not made of the checkpoint's panes of 5 minutes"):
        with_windows(checkpoint, "7", tumbling("5 minutes"), tumbling("7 minutes"))
    assert open_checkpoint(checkpoint.files).header == checkpoint.header  # type: ignore[union-attr]


def test_rows_in_gaps_were_never_kept(checkpoint: Checkpoint) -> None:
    gaps = (hopping("5 minutes", every="10 minutes"),)
    assert complete_from(gaps, 12 * MINUTE, 13 * MINUTE) == 13 * MINUTE + 1
    assert complete_from((*gaps, tumbling("5 minutes")), 12 * MINUTE, 13 * MINUTE) == 10 * MINUTE
    assert complete_from((tumbling("5 minutes"),), None, None) is None


def test_what_an_open_window_with_gaps_needs_is_not_forgotten() -> None:
    long = hopping("3 hours", every="4 hours")
    assert forgotten_before((long, tumbling("5 minutes")), 62 * MINUTE) == 0
    assert forgotten_before((long, tumbling("5 minutes")), 200 * MINUTE) == 200 * MINUTE
    assert forgotten_before((long,), None) is None

"""The commit log: what it holds after a restart, what it deletes, what it refuses."""

from __future__ import annotations

import pytest

from anabranch.errors import CheckpointError
from anabranch.state.checkpoint.commits import Checkpoint, open_checkpoint
from anabranch.state.checkpoint.header import open_or_create
from anabranch.state.store.version import Version
from tests.state.checkpoint.one_checkpoint import PART, commit, plan, run


def test_what_is_committed_is_there_after_a_restart(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False, 1: False})
    run(checkpoint, 2, {0: True})
    again = open_checkpoint(checkpoint.files)
    assert again is not None
    assert again.last == checkpoint.last
    assert again.chains == checkpoint.chains
    assert again.versions(PART) == {0: Version(2, "t"), 1: Version(1, "t")}
    assert [write.snapshot for write in again.writes(PART, 0)] == [b"ss"]
    assert [write.delta for write in again.writes(PART, 1)] == [b"dd"]


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
    assert [len(again.writes(PART, shard)) for shard in (0, 1)] == [2, 3]


def test_a_driver_that_was_replaced_can_commit_nothing(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False})
    newer, _ = open_or_create(checkpoint.files, plan(), 2)
    newer.take_over()
    with pytest.raises(CheckpointError, match="another driver has taken over"):
        checkpoint.commit(commit(2, {0: False}))
    newer.commit(commit(2, {0: False}, epoch=2))


@pytest.mark.parametrize(
    ("gone", "said"),
    [("", "was deleted while"), ("epochs", "was deleted in part while")],
)
def test_a_checkpoint_that_is_deleted_under_a_run_is_not_taken_for_another_driver(
    checkpoint: Checkpoint, gone: str, said: str
) -> None:
    run(checkpoint, 1, {0: False})
    checkpoint.files.remove(gone)
    with pytest.raises(CheckpointError) as error:
        checkpoint.commit(commit(2, {0: False}))
    assert said in str(error.value)
    assert "step 2 was not committed" in str(error.value)
    assert not checkpoint.files.exists("commits/00000002.json")


def test_a_step_is_committed_once(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False})
    with pytest.raises(CheckpointError, match="already holds step 1"):
        checkpoint.commit(commit(1, {0: False}))


def test_a_damaged_record_is_named(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False})
    checkpoint.files.write("commits/00000001.json", [b"{"])
    with pytest.raises(CheckpointError, match=r"commits/00000001.json is damaged"):
        open_checkpoint(checkpoint.files)

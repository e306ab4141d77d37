"""Cells that get other shards: none is lost, and shards that hold nothing say so."""

from __future__ import annotations

import numpy as np

from anabranch.plan.ids import PartId
from anabranch.state.checkpoint.commits import Checkpoint
from anabranch.state.checkpoint.log import log_file
from anabranch.state.checkpoint.moved_cells import cell_snapshots, cells_of, whole_cells
from anabranch.state.codec.cells import Blob, sealed_blob
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version

P = PartId("p")


def test_cells_are_read_from_all_shards_and_written_to_others(checkpoint: Checkpoint) -> None:
    before = log_file(1, "0", "t")
    for shard, cells in ((0, {b"a": b"1", b"b": b"2"}), (1, {b"c": b"3"})):
        blob = sealed_blob(Blob(list(cells), list(cells.values()), [], [], 1, b""))
        checkpoint.chains.setdefault(P, {})[shard] = [before.add(Write(Version(1, "t"), blob))]
    before.write(checkpoint.files)
    cells = whole_cells(checkpoint, P)
    assert cells == {b"a": b"1", b"b": b"2", b"c": b"3"}

    after = log_file(2, "plan-0", "t")
    places = cell_snapshots(cells, np.array([2, 2, 0]), Version(2, "t"), after, shards=3)
    after.write(checkpoint.files)
    checkpoint.chains[P] = {shard: [each] for shard, each in places.items()}
    found = {shard: cells_of(checkpoint, P, shard) for shard in range(3)}
    assert found == {0: {b"c": b"3"}, 1: {}, 2: {b"a": b"1", b"b": b"2"}}
    assert all(each.snapshot is not None for each in places.values()), "older steps are not needed"


def test_an_operator_without_state_has_no_cells(checkpoint: Checkpoint) -> None:
    assert whole_cells(checkpoint, PartId("unknown")) == {}

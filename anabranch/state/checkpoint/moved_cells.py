"""The cells of an operator, read from the durable log and moved to other shards."""

from __future__ import annotations

from anabranch.plan.ids import PartId
from anabranch.state.checkpoint.commits import Checkpoint
from anabranch.state.checkpoint.log import LogFile, Stored
from anabranch.state.codec.cells import Blob, replayed, sealed_blob
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version
from anabranch.types import Array


def cells_of(checkpoint: Checkpoint, operator: PartId, shard: int) -> dict[bytes, bytes]:
    """The cells of a shard by key."""
    writes = checkpoint.writes(operator, shard)
    cells, _ = replayed(write.snapshot or write.delta for write in writes)
    return cells


def whole_cells(checkpoint: Checkpoint, operator: PartId) -> dict[bytes, bytes]:
    """The cells of all shards by key. Each key is in one shard only."""
    found: dict[bytes, bytes] = {}
    for shard in checkpoint.chains.get(operator, {}):
        found.update(cells_of(checkpoint, operator, shard))
    return found


def cell_snapshots(
    cells: dict[bytes, bytes], placed: Array, version: Version, log: LogFile, shards: int
) -> dict[int, Stored]:
    """Adds a snapshot of every shard to a log file. A shard without cells gets an empty one."""
    by_shard: dict[int, dict[bytes, bytes]] = {shard: {} for shard in range(shards)}
    for (key, cell), shard in zip(cells.items(), placed.tolist(), strict=True):
        by_shard[shard][key] = cell
    stored: dict[int, Stored] = {}
    for shard, held in by_shard.items():
        blob = sealed_blob(Blob(list(held), list(held.values()), [], [], version.step, b""))
        stored[shard] = log.add(Write(version, b"", blob))
    return stored

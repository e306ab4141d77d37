"""The cells of all shards of an operator, from the durable log, and the same cells in other shards."""

from __future__ import annotations

from anabranch.plan.ids import PartId
from anabranch.state.checkpoint.commits import Checkpoint, Stored
from anabranch.state.codec.cells import Blob, replayed, sealed_blob
from anabranch.state.store.version import Version
from anabranch.types import Array


def cells_of(checkpoint: Checkpoint, operator: PartId, shard: int) -> dict[bytes, bytes]:
    """The cells of a shard by key."""
    return replayed(write.snapshot or write.delta for write in checkpoint.writes(operator, shard))[
        0
    ]


def whole_cells(checkpoint: Checkpoint, operator: PartId) -> dict[bytes, bytes]:
    """The cells of all shards by key; no key is in two of them."""
    found: dict[bytes, bytes] = {}
    for shard in checkpoint.chains.get(operator, {}):
        found.update(cells_of(checkpoint, operator, shard))
    return found


def cell_snapshots(
    cells: dict[bytes, bytes], placed: Array, version: Version, name: str, shards: int
) -> tuple[dict[int, Stored], list[bytes]]:
    """A snapshot of every shard, side by side in one file; those that hold nothing say so."""
    mine: dict[int, dict[bytes, bytes]] = {shard: {} for shard in range(shards)}
    for (key, cell), shard in zip(cells.items(), placed.tolist(), strict=True):
        mine[shard][key] = cell
    blobs: list[bytes] = []
    stored: dict[int, Stored] = {}
    at = 0
    for shard, held in mine.items():
        blob = sealed_blob(Blob(list(held), list(held.values()), [], [], version.step, b""))
        blobs.append(blob)
        stored[shard] = Stored(version=version, file=name, delta=(at, 0), snapshot=(at, len(blob)))
        at += len(blob)
    return stored, blobs

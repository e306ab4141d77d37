"""The durable log. This module alone names, lays out, reads and deletes its files.

A file holds deltas and snapshots one after the other, and nothing else. The commit record says
where each of them is (`Stored`). What no record names does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.state.checkpoint.files import CheckpointFiles, disk_full_as_state_error
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version

_ROOT = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where the log holds one step of one shard: a file, and (offset, length) of its blobs."""

    version: Version
    file: str
    delta: tuple[int, int]
    snapshot: tuple[int, int] | None = None
    # After this step, the log has the whole shard from step `since` on.
    since: int | None = None


@dataclass(slots=True)
class LogFile:
    """A log file that is being built: `add` appends blobs, `write` makes the file durable."""

    name: str
    _blobs: list[bytes] = field(default_factory=list)
    _size: int = 0

    def add(self, write: Write) -> Stored:
        """Appends what a step adds to a shard, and returns where it will be."""
        delta = self._place(write.delta)
        snapshot = None if write.snapshot is None else self._place(write.snapshot)
        return Stored(
            version=write.version,
            file=self.name,
            delta=delta,
            snapshot=snapshot,
            since=write.since,
        )

    def write(self, files: CheckpointFiles) -> None:
        """Writes the file, which is durable when this returns. Without blobs there is no file."""
        if self._blobs:
            with disk_full_as_state_error(files.location):
                files.write(self.name, self._blobs)

    def _place(self, blob: bytes) -> tuple[int, int]:
        place = self._size, len(blob)
        self._blobs.append(blob)
        self._size += len(blob)
        return place


def log_file(step: int, writer: str, token: str) -> LogFile:
    """A new log file for a step. Its name is unique to this attempt of this writer."""
    return LogFile(f"{_ROOT}/{step:08d}/{writer}-{token}.bin")


def needed_before(chain: Sequence[Stored], last: Stored) -> list[Stored]:
    """The part of a shard's chain that is still needed together with its last step."""
    if last.snapshot is not None:
        return []
    if last.since is None:
        return list(chain)
    return [each for each in chain if each.version.step >= last.since]


def read_chain(files: CheckpointFiles, chain: Iterable[Stored]) -> list[Write]:
    """The blobs of a chain. If a step has a snapshot, its delta is not read."""
    writes = []
    for stored in chain:
        if stored.snapshot is not None:
            writes.append(Write(stored.version, b"", files.read(stored.file, *stored.snapshot)))
        else:
            writes.append(Write(stored.version, files.read(stored.file, *stored.delta)))
    return writes


def delete_unneeded(
    files: CheckpointFiles,
    chains: Iterable[Sequence[Stored]],
    last_step: int,
    known: Mapping[str, frozenset[str]],
) -> dict[str, frozenset[str]]:
    """Deletes files that no chain needs, of steps up to the last one.

    Returns the files that are left, by directory. A directory that needs the same files as in
    `known` is not listed again.
    """
    needed: dict[str, set[str]] = {}
    for file in {stored.file for chain in chains for stored in chain}:
        _, directory, name = file.split("/")
        needed.setdefault(directory, set()).add(name)
    left: dict[str, frozenset[str]] = {}
    for directory in files.list(_ROOT):
        if int(directory) > last_step:
            continue
        kept = frozenset(needed.get(directory, ()))
        if not kept:
            files.remove(f"{_ROOT}/{directory}")
            continue
        if known.get(directory) != kept:
            for name in set(files.list(f"{_ROOT}/{directory}")) - kept:
                files.remove(f"{_ROOT}/{directory}/{name}")
        left[directory] = kept
    return left

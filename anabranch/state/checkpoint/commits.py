"""The commit log of a checkpoint: one record a step, written atomically; what no record names does not exist.

A record says which version of each shard is committed and where the durable log holds it, up to which batch the input is
processed, the watermark and the route. The newest record is the truth; older ones stay while a shard's chain needs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from anabranch.errors import CheckpointError
from anabranch.plan.ids import PartId
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.records import (
    FORMAT,
    Commit,
    Header,
    Stored,
    decode_commit,
    decode_header,
    encode_commit,
)
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version

__all__ = [
    "FORMAT",
    "Checkpoint",
    "Commit",
    "Header",
    "Stored",
    "open_checkpoint",
    "read_chain",
]


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint's directory: its header, its commits, and from them the chain of each operator's shards."""

    files: Files
    header: Header
    commits: dict[int, Commit]
    chains: dict[PartId, dict[int, list[Stored]]]
    epoch: int = 0
    tidied: dict[str, frozenset[str]] = field(
        default_factory=dict
    )  # directories of the log that hold what is needed and no more

    @property
    def last(self) -> Commit | None:
        return self.commits[max(self.commits)] if self.commits else None

    def versions(self, operator: PartId) -> dict[int, Version]:
        """The committed version of each shard of an operator that has one."""
        return {
            shard: chain[-1].version
            for shard, chain in self.chains.get(operator, {}).items()
            if chain
        }

    def writes(self, operator: PartId, shard: int) -> list[Write]:
        """A shard's snapshot and deltas, read from the durable log."""
        return read_chain(self.files, self.chains.get(operator, {}).get(shard, []))

    def take_over(self) -> None:
        """Makes this driver the only one: an older one that is still alive can commit nothing any more."""
        newest = max(self._epochs(), default=0)
        while not self.files.create(f"epochs/{newest + 1:08d}", b""):
            newest += 1
        self.epoch = newest + 1
        for epoch in self._epochs():
            if epoch < self.epoch:
                self.files.remove(f"epochs/{epoch:08d}")

    def commit(self, commit: Commit) -> None:
        """Writes the record of a step; only then the step has happened."""
        if max(self._epochs(), default=0) != self.epoch:
            raise CheckpointError(
                f"another driver has taken over checkpoint {self.files.location}; this one stops"
            )
        if not self.files.create(_record(commit.step), encode_commit(commit)):
            raise CheckpointError(
                f"checkpoint {self.files.location} holds step {commit.step} already: another driver runs"
            )
        self._take(commit)

    def clean(self) -> None:
        """Deletes what no shard's chain and no restart needs any more, and files that no record names."""
        last = self.last
        if last is None:
            return
        chains = [chain for shards in self.chains.values() for chain in shards.values()]
        needed: dict[str, set[str]] = {}
        for file in {stored.file for chain in chains for stored in chain}:
            _, name, each = file.split("/")
            needed.setdefault(name, set()).add(each)
        for name in self.files.list("state"):
            kept = frozenset(needed.get(name, ()))
            if int(name) > last.step or (kept and self.tidied.get(name) == kept):
                continue
            self.tidied.pop(name, None)
            if not kept:
                self.files.remove(f"state/{name}")
                continue
            for file in set(self.files.list(f"state/{name}")) - kept:
                self.files.remove(f"state/{name}/{file}")
            self.tidied[name] = kept
        oldest = min((chain[0].version.step for chain in chains if chain), default=last.step)
        for step in [step for step in self.commits if step < min(oldest, last.step)]:
            self.files.remove(_record(step))
            del self.commits[step]
        for name in self.files.list("results"):
            if int(name) <= last.step:
                self.files.remove(f"results/{name}")

    def _epochs(self) -> list[int]:
        """The epochs that were begun; a driver that died in the middle may have left a draft of one."""
        return [int(name) for name in self.files.list("epochs") if name.isdigit()]

    def _take(self, commit: Commit) -> None:
        self.commits[commit.step] = commit
        for operator, kept in self.header.operators.items():
            if commit.step > kept.after_step:
                chains = self.chains.setdefault(operator, {})
                for shard, stored in commit.stored.get(operator, {}).items():
                    chains[shard] = [*_needed(chains.get(shard, []), stored), stored]


def _needed(chain: list[Stored], last: Stored) -> list[Stored]:
    """What a shard's chain still needs of the steps before its last one."""
    if last.snapshot is not None:
        return []
    return (
        chain if last.since is None else [each for each in chain if each.version.step >= last.since]
    )


def read_chain(files: Files, chain: list[Stored]) -> list[Write]:
    """The blobs of a chain; only its first element may have a snapshot."""
    writes = []
    for stored in chain:
        if stored.snapshot is not None:
            writes.append(Write(stored.version, b"", files.read(stored.file, *stored.snapshot)))
        else:
            writes.append(Write(stored.version, files.read(stored.file, *stored.delta)))
    return writes


def open_checkpoint(files: Files) -> Checkpoint | None:
    """The checkpoint at a location, None where there is none."""
    if not files.exists("anabranch.json"):
        return None
    try:
        header = decode_header(files.read("anabranch.json"))
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{files.location}/anabranch.json is damaged: {error}") from error
    if header.format != FORMAT:
        raise CheckpointError(
            f"checkpoint {files.location} has format {header.format}; this version reads {FORMAT}"
        )
    checkpoint = Checkpoint(files, header, {}, {})
    for name in files.list("commits"):
        if name.endswith(".json"):
            try:
                checkpoint._take(decode_commit(files.read(f"commits/{name}")))  # noqa: SLF001
            except msgspec.DecodeError as error:
                raise CheckpointError(
                    f"{files.location}/commits/{name} is damaged: {error}"
                ) from error
    return checkpoint


def _record(step: int) -> str:
    return f"commits/{step:08d}.json"

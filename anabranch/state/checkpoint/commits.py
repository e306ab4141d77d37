"""The commit records of a checkpoint: one per step, written atomically.

A record says which version of each shard is committed, and where the durable log stores it. It also
has the last batch of the input, the watermark and the routes. The newest record is the truth. Older
ones stay while a shard's chain needs them. What no record names does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from anabranch.errors import CheckpointError
from anabranch.plan.ids import PartId
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.log import Stored, delete_unneeded, needed_before, read_chain
from anabranch.state.checkpoint.records import (
    FORMAT,
    Commit,
    Header,
    decode_commit,
    decode_header,
    encode_commit,
)
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version

__all__ = ["FORMAT", "Checkpoint", "Commit", "Header", "Stored", "open_checkpoint"]


@dataclass(slots=True)
class Checkpoint:
    """An open checkpoint: its header, its commits, and from them the chain of each shard."""

    files: Files
    header: Header
    commits: dict[int, Commit]
    chains: dict[PartId, dict[int, list[Stored]]]
    epoch: int = 0
    # Directories of the log that hold only what is needed.
    cleaned: dict[str, frozenset[str]] = field(default_factory=dict)

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
        """Makes this driver the only one. An older driver that is still alive cannot commit."""
        newest = max(self._epochs(), default=0)
        while not self.files.create(f"epochs/{newest + 1:08d}", b""):
            newest += 1
        self.epoch = newest + 1
        for epoch in self._epochs():
            if epoch < self.epoch:
                self.files.remove(f"epochs/{epoch:08d}")

    def with_header(self, header: Header) -> Checkpoint:
        """The same commits under another header. Nothing is written."""
        again = Checkpoint(self.files, header, {}, {}, self.epoch)
        for _, commit in sorted(self.commits.items()):
            again._take(commit)
        return again

    def catch_up(self) -> bool:
        """Reads what another driver has written since. Returns False if there is nothing new.

        If the topology has changed, so has the header.
        """
        header = _read_header(self.files)
        if header != self.header:
            again = self.with_header(header)
            self.header, self.commits, self.chains = header, again.commits, again.chains
            self.catch_up()
            return True
        known = {_record(step) for step in self.commits}
        names = [each for each in self.files.list("commits") if each.endswith(".json")]
        new = [name for name in names if f"commits/{name}" not in known]
        for name in new:
            self._take(_read_commit(self.files, name))
        return bool(new)

    def commit(self, commit: Commit) -> None:
        """Writes the record of a step. The step has happened only after this."""
        epochs = self._epochs()
        if max(epochs, default=0) < self.epoch:  # no driver removes the newest epoch
            raise self.deleted() or CheckpointError(
                f"checkpoint {self.files.location} was deleted in part while the run was active: "
                f"epochs/{self.epoch:08d} is missing; step {commit.step} was not committed"
            )
        if max(epochs, default=0) != self.epoch:
            raise CheckpointError(
                f"another driver has taken over checkpoint {self.files.location}; this one stops"
            )
        if not self.files.create(_record(commit.step), encode_commit(commit)):
            raise CheckpointError(
                f"checkpoint {self.files.location} already holds step {commit.step}: "
                "another driver is running"
            )
        self._take(commit)

    def deleted(self) -> CheckpointError | None:
        """The error to raise if the checkpoint was deleted while its run was active, else None."""
        if self.files.exists("anabranch.json"):
            return None
        step = self.last.step + 1 if self.last else 1
        return CheckpointError(
            f"checkpoint {self.files.location} was deleted while the run was active; step {step} "
            "was not committed. Restore it and start again, or start with a new checkpoint"
        )

    def clean(self) -> None:
        """Deletes what no chain and no restart needs any more, and files that no record names."""
        last = self.last
        if last is None:
            return
        chains = [chain for shards in self.chains.values() for chain in shards.values()]
        self.cleaned = delete_unneeded(self.files, chains, last.step, self.cleaned)
        oldest = min((chain[0].version.step for chain in chains if chain), default=last.step)
        for step in [step for step in self.commits if step < min(oldest, last.step)]:
            self.files.remove(_record(step))
            del self.commits[step]
        for name in self.files.list("results"):
            if int(name) <= last.step:
                self.files.remove(f"results/{name}")

    def _epochs(self) -> list[int]:
        """The epochs that were begun. Drafts, which a driver leaves when it dies, do not count."""
        return [int(name) for name in self.files.list("epochs") if name.isdigit()]

    def _take(self, commit: Commit) -> None:
        self.commits[commit.step] = commit
        for operator, kept in self.header.operators.items():
            if commit.step > kept.after_step:
                chains = self.chains.setdefault(operator, {})
                for shard, stored in commit.stored.get(operator, {}).items():
                    chains[shard] = [*needed_before(chains.get(shard, []), stored), stored]


def open_checkpoint(files: Files) -> Checkpoint | None:
    """The checkpoint at a location, or None if there is none."""
    if not files.exists("anabranch.json"):
        return None
    checkpoint = Checkpoint(files, _read_header(files), {}, {})
    for name in files.list("commits"):
        if name.endswith(".json"):
            checkpoint._take(_read_commit(files, name))  # noqa: SLF001
    return checkpoint


def _read_header(files: Files) -> Header:
    try:
        header = decode_header(files.read("anabranch.json"))
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{files.location}/anabranch.json is damaged: {error}") from None
    if header.format != FORMAT:
        raise CheckpointError(
            f"checkpoint {files.location} has format {header.format}; this version reads {FORMAT}"
        )
    return header


def _read_commit(files: Files, name: str) -> Commit:
    try:
        return decode_commit(files.read(f"commits/{name}"))
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{files.location}/commits/{name} is damaged: {error}") from None


def _record(step: int) -> str:
    return f"commits/{step:08d}.json"

"""The commit records of a checkpoint: one per step, written atomically.

A record says which version of each shard is committed and where the durable log holds it, up to
which batch the input is processed, the watermark and the route. The newest record is the truth;
older ones stay while a shard's chain needs them. What no record names does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from anabranch.errors import CheckpointError
from anabranch.plan.route import Route
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.log import Stored, delete_unneeded, needed_before, read_chain
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version
from anabranch.topology.windows import Session, Window

# Of everything that a checkpoint holds. Raise it when the golden files (tests/golden) change.
FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One committed step."""

    step: int
    epoch: int
    batch_id: int | None
    watermark_us: int | None
    next_us: int | None  # the watermark of the step after it
    seen: Mapping[str, int]  # the largest event time of each source so far
    routes: Mapping[str, Route]  # of each component
    stored: Mapping[str, Mapping[int, Stored]]  # the shards of each operator that this step changed
    # What is hashed to find the shards of each operator.
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # How many of the steps so far only wrote state again, for a plan with other attributes.
    replans: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    # Of each operator, distinct keys by interval length in panes, a moving mean.
    keys_in: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def max_event_us(self) -> int | None:
        return max(self.seen.values(), default=None)

    @property
    def slots(self) -> int:
        """The slots of the component that has most."""
        return max(route.slots for route in self.routes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPartial:
    """One partial of the state: its class, its type, and the text of the input that it is lifted from."""

    kind: str
    type: str
    input: str
    parameters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What the state consists of, so that it can be shown where the topology is not at hand. Nothing else depends on it."""

    keys: tuple[str, ...]
    windows: tuple[Window, ...]
    session: Session | None = None
    join: bool = False
    process: Mapping[str, Any] | None = None  # the state of a user's class, described
    vectorised: bool = False
    left: tuple[
        tuple[str, str], ...
    ] = ()  # of a join: the columns of either side that are no keys, and their types
    right: tuple[tuple[str, str], ...] = ()
    partials: tuple[KeptPartial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a checkpoint is of, for one operator: what its state depends on, and over which panes it is."""

    fingerprint: Mapping[str, str]
    contents: Contents
    pane_us: int
    pane_offset_us: int
    complete_from: Mapping[str, int] = field(default_factory=dict)  # windows that were added later
    forgotten_us: int | None = (
        None  # panes before were of no use to any window when windows were added last
    )
    after_step: int = 0  # its state begins after this step; what there is of earlier ones is of another operator of that name


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint is of."""

    format: int
    id: str
    topology: str
    shards: int
    sources: tuple[str, ...]  # in the order in which Spark's own checkpoint knows them
    operators: Mapping[str, Kept]


@dataclass(slots=True)
class Checkpoint:
    """An open checkpoint: its header, its commits, and from them the chain of each shard."""

    files: Files
    header: Header
    commits: dict[int, Commit]
    chains: dict[str, dict[int, list[Stored]]]
    epoch: int = 0
    # Directories of the log that hold what is needed and no more.
    cleaned: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def last(self) -> Commit | None:
        return self.commits[max(self.commits)] if self.commits else None

    def versions(self, operator: str) -> dict[int, Version]:
        """The committed version of each shard of an operator that has one."""
        return {
            shard: chain[-1].version
            for shard, chain in self.chains.get(operator, {}).items()
            if chain
        }

    def writes(self, operator: str, shard: int) -> list[Write]:
        """A shard's snapshot and deltas, read from the durable log."""
        return read_chain(self.files, self.chains.get(operator, {}).get(shard, []))

    def take_over(self) -> None:
        """Makes this driver the only one: an older one that is still alive can no longer commit."""
        newest = max(self._epochs(), default=0)
        while not self.files.create(f"epochs/{newest + 1:08d}", b""):
            newest += 1
        self.epoch = newest + 1
        for epoch in self._epochs():
            if epoch < self.epoch:
                self.files.remove(f"epochs/{epoch:08d}")

    def with_header(self, header: Header) -> Checkpoint:
        """The same commits under another header; nothing is written."""
        again = Checkpoint(self.files, header, {}, {}, self.epoch)
        for _, commit in sorted(self.commits.items()):
            again._take(commit)
        return again

    def catch_up(self) -> bool:
        """Takes in what another driver has committed since; False where that is nothing."""
        known = {_record(step) for step in self.commits}
        names = [each for each in self.files.list("commits") if each.endswith(".json")]
        new = [name for name in names if f"commits/{name}" not in known]
        for name in new:
            self._take(_read_commit(self.files, name))
        return bool(new)

    def commit(self, commit: Commit) -> None:
        """Writes the record of a step; only then the step has happened."""
        if max(self._epochs(), default=0) != self.epoch:
            raise CheckpointError(
                f"another driver has taken over checkpoint {self.files.location}; this one stops"
            )
        if not self.files.create(_record(commit.step), msgspec.json.encode(commit)):
            raise CheckpointError(
                f"checkpoint {self.files.location} holds step {commit.step} already: "
                "another driver runs"
            )
        self._take(commit)

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
        """The epochs that were begun. A driver that died meanwhile may have left a draft."""
        return [int(name) for name in self.files.list("epochs") if name.isdigit()]

    def _take(self, commit: Commit) -> None:
        self.commits[commit.step] = commit
        for operator, kept in self.header.operators.items():
            if commit.step > kept.after_step:
                chains = self.chains.setdefault(operator, {})
                for shard, stored in commit.stored.get(operator, {}).items():
                    chains[shard] = [*needed_before(chains.get(shard, []), stored), stored]


def open_checkpoint(files: Files) -> Checkpoint | None:
    """The checkpoint at a location, None where there is none."""
    if not files.exists("anabranch.json"):
        return None
    try:
        header = msgspec.json.decode(files.read("anabranch.json"), type=Header)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{files.location}/anabranch.json is damaged: {error}") from error
    if header.format != FORMAT:
        raise CheckpointError(
            f"checkpoint {files.location} has format {header.format}; this version reads {FORMAT}"
        )
    checkpoint = Checkpoint(files, header, {}, {})
    for name in files.list("commits"):
        if name.endswith(".json"):
            checkpoint._take(_read_commit(files, name))  # noqa: SLF001
    return checkpoint


def _read_commit(files: Files, name: str) -> Commit:
    try:
        return msgspec.json.decode(files.read(f"commits/{name}"), type=Commit)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{files.location}/commits/{name} is damaged: {error}") from error


def _record(step: int) -> str:
    return f"commits/{step:08d}.json"

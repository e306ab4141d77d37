"""The commit log of a checkpoint: one record a step, written atomically; what no record names does not exist.

A record says which version of each shard is committed and where the durable log holds it, up to which batch the input is
processed, the watermark and the route. The newest record is the truth; older ones stay while a shard's chain needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from anabranch.errors import CheckpointError
from anabranch.plan.route import Route
from anabranch.state.checkpoint.files import Files
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version
from anabranch.topology.windows import Session, Window

FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where the durable log holds one step of one shard: a file, and the places of delta and snapshot in it."""

    version: Version
    file: str
    delta: tuple[int, int]
    snapshot: tuple[int, int] | None = None
    since: int | None = (
        None  # with this step, all that the shard holds is in the log from that step on
    )


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
    attributes: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # what is hashed to find the shards of each operator
    replans: int = (
        0  # how many of the steps so far only wrote state anew, for a plan with other attributes
    )
    rows: Mapping[str, int] = field(default_factory=dict)
    # For each operator, keys with rows in an interval of so many panes, a moving mean.
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
    """A checkpoint's directory: its header, its commits, and from them the chain of each operator's shards."""

    files: Files
    header: Header
    commits: dict[int, Commit]
    chains: dict[str, dict[int, list[Stored]]]
    epoch: int = 0
    tidied: dict[str, frozenset[str]] = field(
        default_factory=dict
    )  # directories of the log that hold what is needed and no more

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
        """Makes this driver the only one: an older one that is still alive can commit nothing any more."""
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

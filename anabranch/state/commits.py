"""The commit log of a checkpoint: one record a step, written atomically; what no record names does not exist.

A record says which version of each shard is committed and where the durable log holds it, up to which batch the input is
processed, the watermark and the route. The newest record is the truth; older ones stay while a shard's chain needs them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from anabranch.errors import CheckpointError
from anabranch.plan.component import Component
from anabranch.plan.evolution import complete_from, forgotten_before, misfits, on_panes, window_key
from anabranch.plan.fingerprint import differences
from anabranch.plan.panes import Panes
from anabranch.state.files import Files
from anabranch.state.shard import Write
from anabranch.state.version import Version
from anabranch.topology.windows import Window

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where the durable log holds one step of one shard: a file, and the places of delta and snapshot in it."""

    version: Version
    file: str
    delta: tuple[int, int]
    snapshot: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One committed step."""

    step: int
    epoch: int
    batch_id: int | None
    watermark_us: int | None
    max_event_us: int | None
    slots: int
    route: tuple[int, ...]
    route_version: int
    stored: Mapping[int, Stored]  # the shards that this step changed
    rows: Mapping[str, int] = field(default_factory=dict)
    keys_in: Mapping[int, float] = field(default_factory=dict)  # keys with rows in an interval of so many panes, a moving mean


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

    operator: str
    keys: tuple[str, ...]
    windows: tuple[Window, ...]
    partials: tuple[KeptPartial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint is of."""

    format: int
    id: str
    topology: str
    fingerprint: Mapping[str, str]
    shards: int
    contents: Contents | None = None
    pane_us: int | None = None
    pane_offset_us: int = 0
    complete_from: Mapping[str, int] = field(default_factory=dict)  # windows that were added later
    forgotten_us: int | None = None  # panes before were of no use to any window when windows were added last


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint's directory: its header, its commits, and from them the chain of each shard."""

    files: Files
    header: Header
    commits: dict[int, Commit]
    chains: dict[int, list[Stored]]
    epoch: int = 0

    @property
    def last(self) -> Commit | None:
        return self.commits[max(self.commits)] if self.commits else None

    def version(self, shard: int) -> Version | None:
        chain = self.chains.get(shard)
        return chain[-1].version if chain else None

    def writes(self, shard: int) -> list[Write]:
        """A shard's snapshot and deltas, read from the durable log."""
        return read_chain(self.files, self.chains.get(shard, []))

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
            raise CheckpointError(f"another driver has taken over checkpoint {self.files.location}; this one stops")
        if not self.files.create(_record(commit.step), msgspec.json.encode(commit)):
            raise CheckpointError(f"checkpoint {self.files.location} holds step {commit.step} already: another driver runs")
        self._take(commit)

    def clean(self) -> None:
        """Deletes what no shard's chain and no restart needs any more, and files that no record names."""
        last = self.last
        if last is None:
            return
        needed = {stored.file for chain in self.chains.values() for stored in chain}
        for name in self.files.list("state"):
            directory = f"state/{name}"
            if int(name) > last.step:
                continue
            files = self.files.list(directory)
            kept = [file for file in files if f"{directory}/{file}" in needed]
            if not kept:
                self.files.remove(directory)
            else:
                for file in set(files) - set(kept):
                    self.files.remove(f"{directory}/{file}")
        oldest = min((chain[0].version.step for chain in self.chains.values() if chain), default=last.step)
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
        for shard, stored in commit.stored.items():
            chain = [] if stored.snapshot is not None else self.chains.get(shard, [])
            self.chains[shard] = [*chain, stored]


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
        raise CheckpointError(f"checkpoint {files.location} has format {header.format}; this version reads {FORMAT}")
    checkpoint = Checkpoint(files, header, {}, {})
    for name in files.list("commits"):
        if name.endswith(".json"):
            try:
                checkpoint._take(msgspec.json.decode(files.read(f"commits/{name}"), type=Commit))  # noqa: SLF001
            except msgspec.DecodeError as error:
                raise CheckpointError(f"{files.location}/commits/{name} is damaged: {error}") from error
    return checkpoint


def over_checkpoint(component: Component, found: Checkpoint) -> Component:
    """The component as it goes on with a checkpoint: over its panes, by its statistics."""
    header, slotted = found.header, component.slotted
    panes = slotted.panes
    if header.pane_us is not None:
        panes = replace(panes, width_us=header.pane_us, offset_us=header.pane_offset_us)
    keys = found.last.keys_in if found.last else {}
    if panes != slotted.panes or header.complete_from or keys:
        component = on_panes(component, panes, header.complete_from, keys)
    return replace(component, slotted=replace(component.slotted, forgotten_us=header.forgotten_us))


def contents_of(component: Component) -> Contents:
    """What the slot tasks of a component keep."""
    return Contents(
        operator=component.name,
        keys=tuple(field.name for field in component.compute.by),
        windows=component.consolidate.windows,
        partials=tuple(
            KeptPartial(
                kind=type(kept.partial).__name__,
                type=kept.partial.type,
                input=str(component.inputs[kept.input]),
                parameters=kept.partial.parameters,
            )
            for kept in component.slotted.kept
        ),
    )


def open_or_create(
    files: Files, topology: str, fingerprint: Mapping[str, str], shards: int, contents: Contents | None, panes: Panes
) -> tuple[Checkpoint, str | None]:
    """The checkpoint for a topology, and what has changed since; one that does not fit is refused, with what differs."""
    found = open_checkpoint(files)
    if found is None:
        header = Header(
            format=FORMAT,
            id=uuid.uuid4().hex,
            topology=topology,
            fingerprint=fingerprint,
            shards=shards,
            contents=contents,
            pane_us=panes.width_us,
            pane_offset_us=panes.offset_us,
        )
        files.make()
        files.create("anabranch.json", msgspec.json.encode(header))
        found = open_checkpoint(files)
        assert found is not None
    unlike = differences(found.header.fingerprint, fingerprint)
    if not unlike:
        return found, None
    why = "; ".join(unlike)
    header = found.header
    same = {part for part, text in fingerprint.items() if header.fingerprint.get(part) == text}
    if same | {"windows"} == {*header.fingerprint} and header.contents and contents and header.pane_us:
        wrong = misfits(contents.windows, header.pane_us, header.pane_offset_us)
        if not wrong:
            return _with_windows(found, fingerprint, contents), why
        why = "; ".join(wrong) + f" ({why})"
    raise CheckpointError(
        f"checkpoint {files.location} is of another topology ({header.topology}): {why}. "
        "Use another checkpoint directory, or the topology that it was made with"
    )


def _with_windows(found: Checkpoint, fingerprint: Mapping[str, str], contents: Contents) -> Checkpoint:
    """The checkpoint with other windows over its panes; the new ones are complete from some time on."""
    header, last = found.header, found.last
    assert header.contents is not None
    old = header.contents.windows
    since = None if last is None else complete_from(old, last.watermark_us, last.max_event_us)
    known = {window_key(window) for window in old}
    kept = {key: us for key, us in header.complete_from.items() if key in {window_key(w) for w in contents.windows}}
    fresh = {window_key(w): since for w in contents.windows if since is not None and window_key(w) not in known}
    changed = replace(
        header,
        fingerprint=fingerprint,
        contents=contents,
        complete_from={**kept, **fresh},
        forgotten_us=None if last is None else forgotten_before(old, last.watermark_us),
    )
    found.files.replace("anabranch.json", msgspec.json.encode(changed))
    return replace(found, header=changed)


def _record(step: int) -> str:
    return f"commits/{step:08d}.json"

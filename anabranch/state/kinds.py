"""The kinds of state in a checkpoint: how each is read, moved to other shards, and shown to people.

State has the kind of its operator's plan. It is read from the durable log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.plan.ids import PartId
from anabranch.plan.operators.base import OperatorPlan
from anabranch.plan.operators.process import ProcessContents, ProcessPlan
from anabranch.state.checkpoint.commits import Checkpoint
from anabranch.state.checkpoint.log import LogFile, Stored
from anabranch.state.checkpoint.moved_cells import cell_snapshots, cells_of, whole_cells
from anabranch.state.codec.cells import decoded_keys
from anabranch.state.memory.cells import shown_cell
from anabranch.state.memory.keyed import NumberedState
from anabranch.state.memory.kinds import DECODED, decoded, encoded, state_of
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version
from anabranch.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownState:
    """The state of a shard as people see it: how much there is, and some rows of it."""

    pane: str | None  # what a pane is; None if there is one row per key
    total: int
    rows: list[dict[str, Any]]


class StateKind(ABC):
    """What one kind of state is in the durable log."""

    @abstractmethod
    def moved(
        self,
        checkpoint: Checkpoint,
        plan: OperatorPlan,
        shards_of: Callable[[pa.Table], Array],
        version: Version,
        log: LogFile,
    ) -> dict[int, Stored]:
        """Adds all state of an operator to a file of the log, as snapshots of its new shards.

        `shards_of` gives the shard of each key.
        """

    @abstractmethod
    def shown(
        self,
        checkpoint: Checkpoint,
        part: PartId,
        shard: int,
        most: int,
        instant: Callable[[int], str],
    ) -> ShownState:
        """The merged state of a shard, and at most `most` rows of it."""


class DecodedState(StateKind):
    """State that is decoded as a whole: one row per key and pane."""

    def moved(
        self,
        checkpoint: Checkpoint,
        plan: OperatorPlan,
        shards_of: Callable[[pa.Table], Array],
        version: Version,
        log: LogFile,
    ) -> dict[int, Stored]:
        state = self._whole(checkpoint, plan)
        state.shard_of = shards_of(state.keys.table())
        return {
            shard: log.add(Write(version, b"", encoded(plan, entries)))
            for shard, entries in sorted(state.snapshot(range(checkpoint.header.shards)).items())
        }

    def _whole(self, checkpoint: Checkpoint, plan: OperatorPlan) -> NumberedState[Any, Any]:
        state = state_of(plan)
        for shard in checkpoint.chains.get(plan.part, {}):
            for write in checkpoint.writes(plan.part, shard):
                state.absorb([(shard, decoded(plan, write.snapshot or write.delta))])
        state.forget(plan.forgotten_us)
        state.drop(checkpoint.last.watermark_us if checkpoint.last else None)
        return state

    def shown(
        self,
        checkpoint: Checkpoint,
        part: PartId,
        shard: int,
        most: int,
        instant: Callable[[int], str],
    ) -> ShownState:
        note, last = checkpoint.header.operators[part], checkpoint.last
        plan = note.contents.plan(part, note)
        state = state_of(plan)
        for write in checkpoint.writes(part, shard):
            state.absorb([(shard, decoded(plan, write.snapshot or write.delta))])
        state.forget(note.forgotten_us)
        state.drop(last.watermark_us if last else None)
        merged = state.snapshot([shard])[shard]
        table = DECODED[plan.kind].table(merged, note.contents, plan, instant)
        rows = table.sort_by([("pane", "ascending")]).slice(0, most).to_pylist()
        return ShownState(pane=str(plan.panes), total=len(merged), rows=rows)


class CellState(StateKind):
    """One cell per key, each read and written separately."""

    def moved(
        self,
        checkpoint: Checkpoint,
        plan: OperatorPlan,
        shards_of: Callable[[pa.Table], Array],
        version: Version,
        log: LogFile,
    ) -> dict[int, Stored]:
        cells = whole_cells(checkpoint, plan.part)
        placed = shards_of(decoded_keys(list(cells), plan.keys))
        return cell_snapshots(cells, placed, version, log, checkpoint.header.shards)

    def shown(
        self,
        checkpoint: Checkpoint,
        part: PartId,
        shard: int,
        most: int,
        instant: Callable[[int], str],
    ) -> ShownState:
        contents = checkpoint.header.operators[part].contents
        assert isinstance(contents, ProcessContents)
        cells = cells_of(checkpoint, part, shard)
        keys = decoded_keys(list(cells), contents.key_fields())
        names = [name for name, _ in contents.keys] or ["key"]
        rows = []
        for key, cell in zip(keys.slice(0, most).to_pylist(), cells.values(), strict=False):
            named = dict(zip(names, key.values(), strict=True))
            rows.append({**named, **shown_cell(cell, contents, instant)})
        columns = list(dict.fromkeys(name for row in rows for name in row))
        filled = [{name: row.get(name) for name in columns} for row in rows]
        return ShownState(pane=None, total=len(cells), rows=filled)


STATES: Mapping[str, StateKind] = {
    **dict.fromkeys(DECODED, DecodedState()),
    ProcessPlan.kind: CellState(),
}

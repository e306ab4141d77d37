"""Statistics of a topology while it ran, stored in its checkpoint for planners.

Only plans depend on them. If the file is lost or damaged, nothing counts as measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from anabranch.plan.ids import PartId
from anabranch.plan.planners.measured import Measures, OperatorMeasures
from anabranch.state.checkpoint.files import Files

_NAME = "statistics.json"
_WINDOWS = 120


@dataclass(slots=True)
class OperatorStatistics:
    """One operator: rows in and out of each step with input, rows in by shard, bytes of state."""

    rows_in: list[int] = field(default_factory=list)
    rows_out: list[int] = field(default_factory=list)
    loads: list[list[int]] = field(default_factory=list)
    state_bytes: int = 0
    by: tuple[str, ...] = ()  # the attributes that its rows were partitioned by


@dataclass(slots=True)
class Statistics:
    """What was measured for each operator in its last steps with input."""

    operators: dict[str, OperatorStatistics] = field(default_factory=dict)
    groupings: dict[str, str] = field(default_factory=dict)  # of each apply, with the reason

    def add(
        self,
        operator: str,
        by: tuple[str, ...],
        loads: Sequence[int],
        rows_out: int,
        state_bytes: int,
    ) -> None:
        """Adds the figures of one operator in one step.

        Loads are by shard. If the attributes of the shards have changed, older loads are dropped.
        """
        measured = self.operators.setdefault(operator, OperatorStatistics())
        if measured.by != by:
            measured.by, measured.loads = by, []
        row = list(loads)
        measured.rows_in = [*measured.rows_in, sum(row)][-_WINDOWS:]
        measured.rows_out = [*measured.rows_out, rows_out][-_WINDOWS:]
        measured.loads = [*measured.loads, row][-_WINDOWS:]
        measured.state_bytes = state_bytes

    def rates(self) -> dict[str, float] | None:
        """The mean rows per step that each operator takes; None if nothing was measured."""
        found = {
            name: sum(each.rows_in) / len(each.rows_in)
            for name, each in self.operators.items()
            if each.rows_in
        }
        return found or None

    def measures(self, shards: int, keys_in: Mapping[PartId, Mapping[int, float]]) -> Measures:
        """The same for planners. `keys_in`: distinct keys per operator and interval, in panes."""
        found = {
            name: OperatorMeasures(
                rate=sum(each.rows_in) / len(each.rows_in),
                loads=tuple(map(tuple, each.loads)),
                by=each.by,
                state=float(each.state_bytes),
                keys=max(keys_in.get(PartId(name), {}).values(), default=None),
            )
            for name, each in self.operators.items()
            if each.rows_in
        }
        return Measures(shards=shards, operators=found)

    def save(self, files: Files) -> None:
        """Writes the statistics to the checkpoint."""
        files.replace(_NAME, msgspec.json.encode(self))


def read_statistics(files: Files) -> Statistics:
    """The statistics so far."""
    try:
        return (
            msgspec.json.decode(files.read(_NAME), type=Statistics)
            if files.exists(_NAME)
            else Statistics()
        )
    except (msgspec.DecodeError, OSError):
        return Statistics()

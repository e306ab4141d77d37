"""What a run has measured about its operators, for planners and `explain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.plan.planners.problem import PlannerOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMeasures:
    """One operator: rows per step, loads by statistics window and shard, its state and its keys."""

    rate: float
    loads: Sequence[Sequence[int]] = ()
    by: tuple[str, ...] = ()  # the attributes by which its shards were chosen
    state: float = 0.0
    keys: float | None = None

    @property
    def loaded_shards(self) -> int | None:
        """How many shards have had rows; None if none is known."""
        return (
            int((np.asarray(self.loads).sum(axis=0) > 0).sum()) or None if len(self.loads) else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What is known about a topology: the number of its shards, and each operator."""

    shards: int
    operators: Mapping[str, OperatorMeasures] = field(default_factory=dict)

    def rates(self) -> dict[str, float]:
        """The rows per step that each operator takes."""
        return {name: each.rate for name, each in self.operators.items()}

    def of(self, operators: Sequence[PlannerOperator]) -> tuple[PlannerOperator, ...]:
        """Operators with the histograms of their loads, over the windows that all of them have."""
        known = [
            each
            for operator in operators
            if (each := self.operators.get(operator.name)) is not None and each.loads
        ]
        windows = min((len(each.loads) for each in known), default=0)

        def filled(operator: PlannerOperator) -> PlannerOperator:
            each = self.operators.get(operator.name)
            if each is None or not each.loads:
                return operator
            loads = np.asarray(each.loads[-windows:], dtype=np.float64)
            return PlannerOperator(
                name=operator.name, attributes=operator.attributes, state=each.state, loads=loads
            )

        return tuple(map(filled, operators))

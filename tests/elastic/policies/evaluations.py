"""Evaluations as policies get them, made by hand."""

from __future__ import annotations

import numpy as np

from anabranch.elastic import Evaluation
from anabranch.elastic.observation import ComponentEvaluation
from anabranch.plan.route import even_route


def loaded(name: str = "a", **changed: object) -> ComponentEvaluation:
    figures: dict[str, object] = {
        "name": name,
        "level": 0,
        "parents": (),
        "route": even_route(64, 4),
        "share": np.full(64, 1 / 64),
        "cost_s": 1e-3,
        "selectivity": 0.5,
        "rate": 3000.0,
        "rates": tuple((float(t), 3000.0) for t in range(10)),
        "pending": 0.0,
        "busy": 0.75,
    }
    return ComponentEvaluation(**{**figures, **changed})  # type: ignore[arg-type]


def evaluation(*components: ComponentEvaluation, cores: int = 32) -> Evaluation:
    return Evaluation(
        step=9,
        now=9.0,
        step_s=0.5,
        period_s=1.0,
        fixed_s=0.2,
        overhead_s=0.02,
        cores=cores,
        components=components,
        backlog=0.0,
        waits=False,
        drains=True,
        idle=False,
    )

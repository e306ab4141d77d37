"""Every figure is declared once, and what is made from the declarations fits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from anabranch.cli.live import FORMATS
from anabranch.metrics import (
    METRICS,
    ApplyProgress,
    Metric,
    MetricUnit,
    Progress,
    Shown,
    as_table,
    label_of,
    shown_in,
)
from anabranch.state.checkpoint.history import SCHEMA

ORDINARY = Progress(
    step=1,
    batch_id=0,
    rows_in=1000,
    rows_out=10,
    left_out={"late": 3},
    slots=2,
    shards=64,
    watermark_us=-5,
    max_event_us=None,
    slot_s={0: 0.1},
    slot_phases_s={"merge": 0.1},
    state_bytes=5,
    attempts=1,
    restored=0,
    duration_s=0.5,
)


def declared_type(metric: Metric, by: str) -> Any:
    """The type of the field that a figure has in `Progress`."""
    if metric.unit is MetricUnit.FIGURES:
        return Mapping[str, ApplyProgress]
    kind = metric.unit.type
    key = int if by == "slot" else str
    if by:
        return Mapping[key, kind]  # type: ignore[valid-type]
    return kind | None if metric.optional else kind


def test_progress_has_a_field_for_each_declared_figure_and_of_its_type() -> None:
    hints = get_type_hints(Progress)
    declared = {
        each.name: declared_type(each, each.shown[Shown.PROGRESS])
        for each in shown_in(Shown.PROGRESS)
    }
    assert {each.name: hints[each.name] for each in fields(Progress)} == declared
    applies = {each.name for each in fields(ApplyProgress)}
    assert applies == {each.name for each in shown_in(Shown.APPLY)}


def test_no_figure_is_declared_twice() -> None:
    names = [each.name for each in METRICS]
    assert len(names) == len(set(names))
    assert len({each.text for each in METRICS}) == len(METRICS)


def test_the_history_has_a_column_for_each_declared_figure() -> None:
    assert SCHEMA.names == [each.name for each in shown_in(Shown.HISTORY)]
    source = SCHEMA.field("sources").type.value_type
    assert [each.name for each in source] == [each.name for each in shown_in(Shown.SOURCE)]


@pytest.mark.parametrize("where", [Shown.LIVE, Shown.STEPS])
def test_what_the_live_view_shows_has_a_label_and_a_format(where: Shown) -> None:
    for each in shown_in(where):
        assert label_of(each.name)
        assert each.unit in FORMATS
        assert hasattr(ORDINARY, each.name), "the view reads it from the progress of a step"


def test_ranges_are_checked() -> None:
    assert all(each.holds(getattr(ORDINARY, each.name)) for each in shown_in(Shown.PROGRESS))
    none: Any = None
    wrong = replace(ORDINARY, step=0, rows_in=-1, left_out={"late": -1}, slots=none)
    broken = [
        each.name for each in shown_in(Shown.PROGRESS) if not each.holds(getattr(wrong, each.name))
    ]
    assert set(broken) == {"step", "rows_in", "left_out", "slots"}


def test_the_table_in_the_docs_is_made_from_the_declarations() -> None:
    rows = as_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [each.name for each in METRICS]
    page = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
    assert "```{metrics}\n```\n" in page.read_text(encoding="utf-8")


def test_a_step_without_input_is_closing_and_a_rate_is_rows_over_time() -> None:
    assert ORDINARY.rows_per_s == 2000
    assert not ORDINARY.closing
    assert replace(ORDINARY, batch_id=None).closing

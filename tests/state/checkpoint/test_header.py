"""What of a topology may change while its checkpoint lives, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.aggregates.functions import count
from anabranch.errors import CheckpointError
from anabranch.plan import Plan, make_plan
from anabranch.plan.ids import PartId
from anabranch.state.checkpoint.commits import Checkpoint, open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create, over_checkpoint
from anabranch.topology import Compute, Consolidate, Field, Graph, Source
from anabranch.topology.graph import Named
from anabranch.topology.windows import Window, sliding, tumbling
from tests.state.checkpoint.one_checkpoint import FIVE, MINUTE, PART, commit, plan, run


def test_a_checkpoint_of_another_topology_is_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(
        CheckpointError,
        match=r"keys: the checkpoint has \[k: bigint\], the topology has \[k: string\]",
    ):
        open_or_create(checkpoint.files, plan(key="string"), 2)
    with pytest.raises(
        CheckpointError, match=r"shards: the checkpoint has \[2\], the topology has \[3\]"
    ):
        open_or_create(checkpoint.files, plan(), 3)


def with_windows(checkpoint: Checkpoint, *windows: Window) -> tuple[Checkpoint, str | None]:
    return open_or_create(checkpoint.files, plan(*windows), 2)


def test_windows_that_the_panes_serve_may_come_and_go(checkpoint: Checkpoint) -> None:
    checkpoint.commit(
        replace(commit(1, {0: True}), watermark_us=12 * MINUTE, seen={"s": 13 * MINUTE})
    )
    five, hour, quarter = (
        tumbling("5 minutes"),
        tumbling("1 hour"),
        sliding("15 minutes", every="5 minutes"),
    )
    changed, what = with_windows(checkpoint, five, hour)
    assert what is not None
    assert "windows" in what
    assert changed.header.operators[PART].pane_us == 5 * MINUTE
    assert changed.header.operators[PART].complete_from == {hour.key: 10 * MINUTE}
    assert open_checkpoint(checkpoint.files).header == changed.header  # type: ignore[union-attr]
    assert with_windows(checkpoint, five, hour) == (changed, None)
    # The open hour has kept all rows since it began: what is added now is complete from then on.
    again, _ = with_windows(checkpoint, hour, quarter)
    assert again.header.operators[PART].complete_from == {
        hour.key: 10 * MINUTE,
        quarter.key: 0,
    }


def test_windows_that_the_panes_do_not_serve_are_refused_by_name(checkpoint: Checkpoint) -> None:
    with pytest.raises(
        CheckpointError, match="'7 minutes' is not made of the checkpoint's panes of 5 minutes"
    ):
        with_windows(checkpoint, tumbling("5 minutes"), tumbling("7 minutes"))
    assert open_checkpoint(checkpoint.files).header == checkpoint.header  # type: ignore[union-attr]


def test_operators_may_come_and_go_and_one_that_comes_back_begins_anew(
    checkpoint: Checkpoint,
) -> None:
    run(checkpoint, 1, {0: False})
    both, told = open_or_create(checkpoint.files, plan(names=("o", "p")), 2)
    assert told == "operator 'p' is new: windows with rows from before are incomplete"
    assert both.header.operators[PartId("p")].complete_from == {FIVE.key: 6}
    assert both.header.operators[PART] == checkpoint.header.operators[PART]
    other, told = open_or_create(checkpoint.files, plan(names=("p",)), 2)
    assert told == "operator 'o' is gone, its state is forgotten"
    assert other.versions(PART) == {}
    again, _ = open_or_create(checkpoint.files, plan(names=("p", "o")), 2)
    assert again.versions(PART) == {}, "what it had before it went must not come back"
    assert again.header.operators[PART].after_step == 1


def test_an_operator_under_another_name_is_refused_with_the_name_that_its_state_has(
    checkpoint: Checkpoint,
) -> None:
    with pytest.raises(
        CheckpointError, match=r"operator 'o' seems to be called 'other' now; .* give it name='o'"
    ):
        open_or_create(checkpoint.files, plan(names=("other",)), 2)


def test_sources_keep_the_order_in_which_spark_knows_them_and_others_are_refused(
    tmp_path: Path,
) -> None:
    def of(*names: str) -> Plan:
        fields = (Field("k", "bigint"), Field("at", "timestamp"))
        counts = (Named(name="n", aggregate=count(), input_type="int"),)
        graph = Graph(name="t")
        for name in names:
            graph = graph.add(
                Source(name=name, fields=fields, event_time="at", unit_us=None, delay_us=0)
            )
        for name in names:
            graph = graph.add(
                Compute(name=f"c_{name}", input=name, by=fields[:1], aggregates=counts)
            )
            graph = graph.add(Consolidate(name=f"w_{name}", input=f"c_{name}", windows=(FIVE,)))
        return make_plan(graph)

    found, _ = open_or_create(Files(str(tmp_path / "chk")), of("a", "b"), 2)
    swapped = over_checkpoint(of("b", "a"), found)
    assert [source.name for source in swapped.sources] == ["a", "b"]
    with pytest.raises(
        CheckpointError, match=r"sources: the checkpoint has \[a, b\], the topology reads \[a\]"
    ):
        open_or_create(found.files, of("a"), 2)

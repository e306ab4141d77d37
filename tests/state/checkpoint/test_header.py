"""What of a topology may change while its checkpoint lives, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.aggregates.functions import count
from anabranch.errors import CheckpointError
from anabranch.plan import Plan, make_plan
from anabranch.plan.evolution import complete_from, forgotten_before
from anabranch.state.checkpoint.commits import Checkpoint, open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create, over_checkpoint
from anabranch.topology import Compute, Consolidate, Field, Graph, Source
from anabranch.topology.graph import Named
from anabranch.topology.windows import Window, hopping, sliding, tumbling
from tests.state.checkpoint.one_checkpoint import FIVE, MINUTE, commit, plan, run


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
    assert changed.header.operators["o"].pane_us == 5 * MINUTE
    assert changed.header.operators["o"].complete_from == {hour.key: 10 * MINUTE}
    assert open_checkpoint(checkpoint.files).header == changed.header  # type: ignore[union-attr]
    assert with_windows(checkpoint, five, hour) == (changed, None)
    # The open hour has kept all rows since it began: what is added now is complete from then on.
    again, _ = with_windows(checkpoint, hour, quarter)
    assert again.header.operators["o"].complete_from == {
        hour.key: 10 * MINUTE,
        quarter.key: 0,
    }


def test_windows_that_the_panes_do_not_serve_are_refused_by_name(checkpoint: Checkpoint) -> None:
    with pytest.raises(
        CheckpointError, match="'7 minutes' is not made of the checkpoint's panes of 5 minutes"
    ):
        with_windows(checkpoint, tumbling("5 minutes"), tumbling("7 minutes"))
    assert open_checkpoint(checkpoint.files).header == checkpoint.header  # type: ignore[union-attr]


def test_rows_in_gaps_were_never_kept(checkpoint: Checkpoint) -> None:
    gaps = (hopping("5 minutes", every="10 minutes"),)
    assert complete_from(gaps, 12 * MINUTE, 13 * MINUTE) == 13 * MINUTE + 1
    assert complete_from((*gaps, tumbling("5 minutes")), 12 * MINUTE, 13 * MINUTE) == 10 * MINUTE
    assert complete_from((tumbling("5 minutes"),), None, None) is None


def test_what_an_open_window_with_gaps_needs_is_not_forgotten() -> None:
    long = hopping("3 hours", every="4 hours")
    assert forgotten_before((long, tumbling("5 minutes")), 62 * MINUTE) == 0
    assert forgotten_before((long, tumbling("5 minutes")), 200 * MINUTE) == 200 * MINUTE
    assert forgotten_before((long,), None) is None


def test_operators_may_come_and_go_and_one_that_comes_back_begins_anew(
    checkpoint: Checkpoint,
) -> None:
    run(checkpoint, 1, {0: False})
    both, told = open_or_create(checkpoint.files, plan(names=("o", "p")), 2)
    assert told == "operator 'p' is new: windows with rows from before are incomplete"
    assert both.header.operators["p"].complete_from == {FIVE.key: 6}
    assert both.header.operators["o"] == checkpoint.header.operators["o"]
    other, told = open_or_create(checkpoint.files, plan(names=("p",)), 2)
    assert told == "operator 'o' is gone, its state is forgotten"
    assert other.versions("o") == {}
    again, _ = open_or_create(checkpoint.files, plan(names=("p", "o")), 2)
    assert again.versions("o") == {}, "what it had before it went must not come back"
    assert again.header.operators["o"].after_step == 1


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

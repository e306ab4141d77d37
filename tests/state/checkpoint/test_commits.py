"""The commit log: what it holds after a restart, what it deletes, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.errors import CheckpointError
from anabranch.plan import Plan, make_plan
from anabranch.plan.evolution import complete_from, forgotten_before
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.route import even_route
from anabranch.state.checkpoint.commits import Checkpoint, Commit, Stored, open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create, over_checkpoint
from anabranch.state.store.version import Version
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, count
from anabranch.topology.graph import Named
from anabranch.topology.windows import Window, hopping, sliding, tumbling

MINUTE = 60_000_000
FIVE = tumbling("5 minutes")


def plan(*windows: Window, key: str = "bigint", names: tuple[str, ...] = ("o",)) -> Plan:
    """Some operators that count rows by a key."""
    fields = (Field("k", key), Field("at", "timestamp"))
    counts = (Named(name="n", aggregate=count(), input_type="int"),)
    graph = Graph(name="t").add(
        Source(name="s", fields=fields, event_time="at", unit_us=None, delay_us=0)
    )
    for name in names:
        graph = graph.add(Compute(name=f"{name}_keys", input="s", by=fields[:1], aggregates=counts))
        graph = graph.add(Consolidate(name=name, input=f"{name}_keys", windows=windows or (FIVE,)))
    return make_plan(graph)


def commit(step: int, shards: dict[int, bool], epoch: int = 1) -> Commit:
    """A step that changed some shards, with a snapshot of those that are true."""
    stored = {
        shard: Stored(
            version=Version(step, "t"),
            file=f"state/{step:08d}/0-t.bin",
            delta=(0, 2),
            snapshot=(2, 2) if snapshot else None,
        )
        for shard, snapshot in shards.items()
    }
    return Commit(
        step=step,
        epoch=epoch,
        batch_id=step - 1,
        watermark_us=None,
        next_us=None,
        seen={"s": 5},
        routes={ComponentId(("o",)): even_route(2, 1)},
        stored={PartId("o"): stored},
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    found, _ = open_or_create(Files(str(tmp_path / "chk")), plan(), 2)
    found.take_over()
    return found


def run(checkpoint: Checkpoint, step: int, shards: dict[int, bool]) -> None:
    checkpoint.files.write(f"state/{step:08d}/0-t.bin", [b"dd", b"ss"])
    checkpoint.files.write(f"state/{step:08d}/0-orphan.bin", [b"of an attempt that died"])
    checkpoint.files.write(f"results/{step:08d}/results-0-t.parquet", [b""])
    checkpoint.commit(commit(step, shards))


def test_what_is_committed_is_there_after_a_restart(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False, 1: False})
    run(checkpoint, 2, {0: True})
    again = open_checkpoint(checkpoint.files)
    assert again is not None
    assert again.last == checkpoint.last
    assert again.chains == checkpoint.chains
    assert again.versions(PartId("o")) == {0: Version(2, "t"), 1: Version(1, "t")}
    assert [write.snapshot for write in again.writes(PartId("o"), 0)] == [b"ss"]
    assert [write.delta for write in again.writes(PartId("o"), 1)] == [b"dd"]


def test_garbage_collection_keeps_what_a_restart_needs(checkpoint: Checkpoint) -> None:
    for step in range(1, 6):
        run(checkpoint, step, {0: step in {2, 4}, 1: step == 3})
    checkpoint.clean()
    assert checkpoint.files.list("state") == ["00000003", "00000004", "00000005"]
    assert checkpoint.files.list("state/00000004") == ["0-t.bin"]
    assert checkpoint.files.list("commits") == ["00000003.json", "00000004.json", "00000005.json"]
    assert checkpoint.files.list("results") == []
    again = open_checkpoint(checkpoint.files)
    assert again is not None
    assert [len(again.writes(PartId("o"), shard)) for shard in (0, 1)] == [2, 3]


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


def test_a_driver_that_was_replaced_can_commit_nothing(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False})
    newer, _ = open_or_create(checkpoint.files, plan(), 2)
    newer.take_over()
    with pytest.raises(CheckpointError, match="another driver has taken over"):
        checkpoint.commit(commit(2, {0: False}))
    newer.commit(commit(2, {0: False}, epoch=2))


def test_a_step_is_committed_once(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False})
    with pytest.raises(CheckpointError, match="holds step 1 already"):
        checkpoint.commit(commit(1, {0: False}))


def test_a_damaged_record_is_named(checkpoint: Checkpoint) -> None:
    run(checkpoint, 1, {0: False})
    checkpoint.files.write("commits/00000001.json", [b"{"])
    with pytest.raises(CheckpointError, match=r"commits/00000001.json is damaged"):
        open_checkpoint(checkpoint.files)


def test_a_location_may_be_a_path_or_a_file_uri(tmp_path: Path) -> None:
    for location in (str(tmp_path / "a"), f"file://{tmp_path}/a", f"file:{tmp_path}/a"):
        assert Files(location).path("x") == f"{tmp_path}/a/x"
        assert Files(location).local
    with pytest.raises(CheckpointError, match="nosuch"):
        Files("nosuch://bucket/a").exists("x")


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
    assert changed.header.operators[PartId("o")].pane_us == 5 * MINUTE
    assert changed.header.operators[PartId("o")].complete_from == {hour.key: 10 * MINUTE}
    assert open_checkpoint(checkpoint.files).header == changed.header  # type: ignore[union-attr]
    assert with_windows(checkpoint, five, hour) == (changed, None)
    # The hour that is open has kept all rows since it began: what comes now is complete from then on.
    again, _ = with_windows(checkpoint, hour, quarter)
    assert again.header.operators[PartId("o")].complete_from == {
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
    assert both.header.operators[PartId("p")].complete_from == {FIVE.key: 6}
    assert both.header.operators[PartId("o")] == checkpoint.header.operators[PartId("o")]
    other, told = open_or_create(checkpoint.files, plan(names=("p",)), 2)
    assert told == "operator 'o' is gone, its state is forgotten"
    assert other.versions(PartId("o")) == {}
    again, _ = open_or_create(checkpoint.files, plan(names=("p", "o")), 2)
    assert again.versions(PartId("o")) == {}, "what it had before it went must not come back"
    assert again.header.operators[PartId("o")].after_step == 1


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

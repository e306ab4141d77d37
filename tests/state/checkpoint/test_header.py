"""What may change in a topology while its checkpoint exists, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.aggregates.functions import avg, count, max, min, sum
from anabranch.errors import CheckpointError
from anabranch.plan import Plan, make_plan
from anabranch.plan.ids import PartId
from anabranch.plan.operators.windows import WindowsPlan
from anabranch.state.checkpoint.commits import Checkpoint, open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create, over_checkpoint
from anabranch.topology import Aggregate, Compute, Consolidate, Field, Graph, Source
from anabranch.topology.graph import Map, Named
from anabranch.topology.windows import Window, WindowDefinition, session, sliding, tumbling
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


def test_an_operator_that_cannot_go_on_may_start_empty_under_another_name(
    tmp_path: Path,
) -> None:
    def of(key: str, name: str = "p") -> Plan:
        fields = (Field("k", "bigint"), Field("area", "string"), Field("at", "timestamp"))
        counts = (Named(name="n", aggregate=count(), input_type="int"),)
        source = Source(name="s", fields=fields, event_time="at", unit_us=None, delay_us=0)
        graph = Graph(name="t").add(source)
        for operator, by in (("o", fields[0]), (name, next(f for f in fields if f.name == key))):
            graph = graph.add(
                Compute(name=f"{operator}_keys", input="s", by=(by,), aggregates=counts)
            )
            graph = graph.add(Consolidate(name=operator, input=f"{operator}_keys", windows=(FIVE,)))
        return make_plan(graph)

    found, _ = open_or_create(Files(str(tmp_path / "chk")), of("k"), 2)
    with pytest.raises(
        CheckpointError,
        match=r"operator 'p': keys: the checkpoint has \[k: bigint\], the topology has "
        r"\[area: string\]\. .* Or give the operator another name=: it starts empty, the others continue",
    ):
        open_or_create(found.files, of("area"), 2)
    after, _ = open_or_create(found.files, of("area", "by_area"), 2)
    assert after.header.operators[PartId("o")] == found.header.operators[PartId("o")]


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


def test_operators_may_come_and_go_and_one_that_comes_back_starts_empty(
    checkpoint: Checkpoint,
) -> None:
    run(checkpoint, 1, {0: False})
    both, notice = open_or_create(checkpoint.files, plan(names=("o", "p")), 2)
    assert notice == "operator 'p' is new: windows with rows from before are incomplete"
    assert both.header.operators[PartId("p")].complete_from == {FIVE.key: 6}
    assert both.header.operators[PART] == checkpoint.header.operators[PART]
    other, notice = open_or_create(checkpoint.files, plan(names=("p",)), 2)
    assert notice == "operator 'o' is gone, its state is forgotten"
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


def with_aggregates(
    checkpoint: Checkpoint, **aggregates: Aggregate
) -> tuple[Checkpoint, WindowsPlan, str | None]:
    """The checkpoint, the plan over it, and what has changed."""
    made = plan(aggregates=aggregates)
    found, notice = open_or_create(checkpoint.files, made, 2)
    over = over_checkpoint(made, found).nodes[0].plan
    assert isinstance(over, WindowsPlan)
    return found, over, notice


def ids(over: WindowsPlan) -> dict[str, set[str]]:
    """The names of the partials of each result, in state."""
    return {
        each.named.name: {over.kept[number].id for number in each.kept} for each in over.results
    }


def complete(over: WindowsPlan) -> dict[str, int | None]:
    return {each.named.name: each.complete_from for each in over.results}


def reach(checkpoint: Checkpoint, step: int, newest_us: int, watermark_us: int) -> None:
    checkpoint.commit(
        replace(
            commit(step, {0: True}, checkpoint.epoch),
            watermark_us=watermark_us,
            seen={"s": newest_us},
            taken={PART: newest_us},
        )
    )


def test_aggregates_may_come_and_go_and_what_is_new_is_complete_after_the_newest_row(
    checkpoint: Checkpoint,
) -> None:
    reach(checkpoint, 1, 13 * MINUTE, 12 * MINUTE)
    _, first, _ = with_aggregates(checkpoint, n=count())
    found, over, notice = with_aggregates(checkpoint, n=count(), s=sum("v"), a=avg("v"))
    since = 13 * MINUTE + 1
    assert complete(over) == {"n": None, "s": since, "a": since}
    assert ids(over)["n"] == ids(first)["n"]
    assert notice == (
        "operator 'o': aggregate 's' is new and starts empty: null in windows that started before "
        "1970-01-01 00:13:00.000001 UTC; operator 'o': aggregate 'a' is new and starts empty: null "
        "in windows that started before 1970-01-01 00:13:00.000001 UTC"
    )
    assert with_aggregates(checkpoint, n=count(), s=sum("v"), a=avg("v")) == (found, over, None)
    # Partials serve several aggregates: c needs what s has, b what a has.
    _, shared, notice = with_aggregates(checkpoint, c=count("v"), b=avg("v"))
    assert ids(shared)["b"] == ids(over)["a"]
    assert complete(shared) == {"c": since, "b": since}
    assert notice is not None
    kept = "aggregate 'c' is new, and complete: other aggregates already keep its partials"
    assert kept in notice
    assert "aggregate 'n' is gone, its state is forgotten" in notice


def test_another_filter_and_one_that_comes_back_start_empty(checkpoint: Checkpoint) -> None:
    made = checkpoint
    reach(made, 1, MINUTE, 0)
    _, old, _ = with_aggregates(made, n=count(), s=sum("v"))
    made, other, notice = with_aggregates(made, n=count(), s=sum("v", where="v > 0"))
    assert notice is not None
    assert "aggregate 's' was sum(v: double) and is sum(v: double) where v > 0" in notice
    assert not ids(old)["s"] & ids(other)["s"]
    made.take_over()
    reach(made, 2, 7 * MINUTE, 0)
    made, back, _ = with_aggregates(made, n=count(), s=sum("v"))
    assert complete(back) == {"n": None, "s": 7 * MINUTE + 1}
    assert not ids(back)["s"] & (ids(old)["s"] | ids(other)["s"])


def test_an_aggregate_is_incomplete_while_a_window_without_all_its_rows_is_open(
    checkpoint: Checkpoint,
) -> None:
    reach(checkpoint, 1, 13 * MINUTE, 12 * MINUTE)
    made, _, _ = with_aggregates(checkpoint, n=count(), s=sum("v"))
    made.take_over()
    reach(made, 2, 40 * MINUTE, 18 * MINUTE)
    assert complete(with_aggregates(made, n=count(), s=sum("v"))[1])["s"] is not None
    reach(made, 3, 40 * MINUTE, 18 * MINUTE + 1)
    assert complete(with_aggregates(made, n=count(), s=sum("v"))[1])["s"] is None


def test_windows_and_aggregates_may_change_at_once(checkpoint: Checkpoint) -> None:
    reach(checkpoint, 1, 13 * MINUTE, 12 * MINUTE)
    hour = tumbling("1 hour")
    made = plan(FIVE, hour, aggregates={"s": sum("v")})
    found, notice = open_or_create(checkpoint.files, made, 2)
    note = found.header.operators[PART]
    assert note.complete_from == {hour.key: 10 * MINUTE}
    over = over_checkpoint(made, found).nodes[0].plan
    assert isinstance(over, WindowsPlan)
    assert (complete(over), over.complete_from) == ({"s": 13 * MINUTE + 1}, {1: 10 * MINUTE})
    assert notice is not None
    assert "windows: the checkpoint has [5 minutes" in notice
    assert "aggregates: " not in notice


def test_a_driver_that_was_overtaken_while_it_started_goes_on_from_the_other_header(
    checkpoint: Checkpoint,
) -> None:
    reach(checkpoint, 1, MINUTE, 0)
    behind = open_checkpoint(checkpoint.files)
    assert behind is not None
    found, _, _ = with_aggregates(checkpoint, n=count(), s=sum("v"))
    found.take_over()
    reach(found, 2, 2 * MINUTE, 0)
    assert behind.catch_up()
    assert (behind.header, set(behind.commits)) == (found.header, {1, 2})
    assert behind.chains == found.chains
    assert not behind.catch_up()


def chain(
    first: Mapping[str, Aggregate],
    second: Mapping[str, Aggregate],
    *,
    window: WindowDefinition = FIVE,
    mapped: bool = False,
) -> Plan:
    """Windows over a source (w), and an operator that reads their results (then)."""
    fields = (Field("k", "bigint"), Field("at", "timestamp"), Field("v", "double"))
    named = [
        tuple(Named(name=name, aggregate=each, input_type="double") for name, each in given.items())
        for given in (first, second)
    ]
    read = "mapped" if mapped else "w"
    graph = (
        Graph(name="t")
        .add(Source(name="s", fields=fields, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="c", input="s", by=fields[:1], aggregates=named[0]))
        .add(Consolidate(name="w", input="c", windows=(window,)))
    )
    if mapped:
        graph = graph.add(
            Map(name="mapped", input="w", fn=lambda rows: rows, fields=graph.fields_of("w"))
        )
    graph = graph.add(Compute(name="c2", input=read, by=fields[:1], aggregates=named[1]))
    hour = tumbling("1 hour")
    return make_plan(graph.add(Consolidate(name="then", input="c2", windows=(hour,))))


READS = {"rows": count(), "top": max("m"), "low": min("n")}


@pytest.mark.parametrize("mapped", [False, True])
def test_what_reads_a_column_that_has_changed_starts_empty_too(
    tmp_path: Path, mapped: bool
) -> None:
    def of(where: str) -> Plan:
        return chain({"m": max("v", where=where), "n": min("v")}, READS, mapped=mapped)

    made, _ = open_or_create(Files(str(tmp_path / "chk")), of("v > 0"), 2)
    made.take_over()
    then = PartId("then")
    step = replace(commit(1, {}), watermark_us=11 * MINUTE, seen={"s": 13 * MINUTE})
    made.commit(replace(step, taken={PartId("w"): 15 * MINUTE - 1, then: 60 * MINUTE - 1}))
    found, notice = open_or_create(made.files, of("v > 1"), 2)
    nodes = over_checkpoint(of("v > 1"), found).nodes
    results = {each.named.name: each.complete_from for each in nodes[1].plan.results}
    # Its rows came up to an hour; windows without m close up to 20 minutes.
    since = 60 * MINUTE
    assert results == {"rows": None, "top": since, "low": since if mapped else None}
    assert notice is not None
    empty = "operator 'then': aggregate 'top' reads a column that has changed and starts empty"
    assert empty in notice
    # With fewer rows taken, the windows before decide: the last that lacks m ends at 20 minutes.
    early = replace(step, step=2, taken={PartId("w"): 15 * MINUTE - 1}, stored={})
    made.commit(early)
    again, _ = open_or_create(made.files, of("v > 2"), 2)
    nodes = over_checkpoint(of("v > 2"), again).nodes
    results = {each.named.name: each.complete_from for each in nodes[1].plan.results}
    assert results["top"] == 20 * MINUTE


def test_a_column_that_is_new_in_sessions_cannot_be_read_by_another_operator(
    tmp_path: Path,
) -> None:
    def of(*names: str) -> Plan:
        reads = {"rows": count(), **({"top": max("m")} if "m" in names else {})}
        first = {"n": min("v"), **{name: max("v") for name in names}}
        return chain(first, reads, window=session("5 minutes"))

    made, _ = open_or_create(Files(str(tmp_path / "chk")), of(), 2)
    made.take_over()
    made.commit(replace(commit(1, {}), watermark_us=11 * MINUTE, seen={"s": 13 * MINUTE}))
    with pytest.raises(
        CheckpointError, match="aggregate 'top' reads 'm' of 'w', which start empty, and sessions"
    ):
        open_or_create(made.files, of("m"), 2)

"""Random topologies: everything is drawn, and the reference gets the same windows."""

from __future__ import annotations

import itertools
import random

from anabranch.testing.chaos.topologies import (
    TopologySpec,
    draw_changes,
    draw_events,
    draw_second,
    draw_topology,
)


def drawn(count: int = 80) -> list[TopologySpec]:
    found = []
    for seed in range(count):
        rng = random.Random(seed)
        found.append(draw_topology(rng, tuple(draw_events(rng, 4).key_columns)))
    return found


def test_everything_that_a_topology_can_have_is_drawn() -> None:
    topologies = drawn()
    for name in (
        "then",
        "restless",
        "process",
        "grouping",
        "gathered",
        "gaps",
        "spark_sink",
        "calendars",
    ):
        assert 0.1 < sum(bool(getattr(each, name)) for each in topologies) / 80 < 0.9, name
    assert {kind for each in topologies for kind, *_ in each.windows} == {
        "tumbling",
        "sliding",
        "hopping",
        "cumulative",
    }


def test_the_reference_gets_the_windows_that_are_built() -> None:
    for each in drawn():
        query = each.query()
        windows = [*each.built_windows(), *each.built_calendars()]
        assert [name for name, *_ in query.windows] == [w.name for w in windows]
        assert [name for name, _ in query.sessions] == [s.name for s in each.sessions()]


def test_a_second_operator_shares_a_key_where_it_must() -> None:
    for seed in range(20):
        assert draw_second(random.Random(seed), ("k",), shares_a_key=True).keys == ("k",)


def test_a_topology_prints_what_it_has() -> None:
    for each in drawn():
        assert ("a process" in str(each)) == each.process
        assert ("other routes before every step" in str(each)) == each.restless


def test_aggregates_come_go_come_back_and_have_other_filters() -> None:
    seen = dict.fromkeys(("new", "gone", "back", "filtered"), 0)
    for number, each in enumerate(drawn()):
        changed = draw_changes(random.Random(number), each, [2, 1])
        assert [portion for portion, _ in changed.changes] == [1, 2]
        assert changed.at(0).aggregates == each.aggregates
        runs = [{a[0]: a for a in changed.at(i).aggregates} for i in range(4)]
        assert runs[2] == runs[3]
        for before, after in itertools.pairwise(runs[:3]):
            assert before != after
            seen["new"] += bool(after.keys() - runs[0].keys() - before.keys())
            seen["gone"] += bool(before.keys() - after.keys())
            seen["filtered"] += any(before[n] != after[n] for n in before.keys() & after.keys())
        seen["back"] += bool((runs[0].keys() - runs[1].keys()) & runs[2].keys())
        # A name stands for one kind and one expression: its column has one type in all files.
        kinds = {(name, *a[1:3]) for run in runs for name, a in run.items()}
        assert len({name for name, *_ in kinds}) == len(kinds)
    assert min(seen.values()) > 10

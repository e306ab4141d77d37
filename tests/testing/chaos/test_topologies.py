"""Random topologies: everything is drawn, and the reference gets the same windows."""

from __future__ import annotations

import random

from anabranch.testing.chaos.topologies import TopologySpec, draw_events, draw_second, draw_topology


def drawn(count: int = 80) -> list[TopologySpec]:
    found = []
    for seed in range(count):
        rng = random.Random(seed)
        found.append(draw_topology(rng, tuple(draw_events(rng, 4).key_columns)))
    return found


def test_everything_that_a_topology_can_have_is_drawn() -> None:
    topologies = drawn()
    for name in ("then", "restless", "process", "grouping", "gathered", "gaps", "spark_sink"):
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
        assert [name for name, *_ in query.windows] == [w.name for w in each.built_windows()]
        assert [name for name, _ in query.sessions] == [s.name for s in each.sessions()]


def test_a_second_operator_shares_a_key_where_it_must() -> None:
    for seed in range(20):
        assert draw_second(random.Random(seed), ("k",), shares_a_key=True).keys == ("k",)


def test_a_topology_prints_what_it_has() -> None:
    for each in drawn():
        assert ("a process" in str(each)) == each.process
        assert ("other routes before every step" in str(each)) == each.restless

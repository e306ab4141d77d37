"""Latency models: queues against known formulas, steps against hand-made ones."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.elastic.policies.latency import (
    ComponentWork,
    Network,
    Station,
    StepModel,
    Stepwise,
    allocate,
    makespan,
    network_latency_s,
    waits,
)
from anabranch.plan.route import even_route
from tests.elastic.policies.evaluations import evaluation, loaded


def test_one_server_is_the_mm1_queue_and_more_follow_erlang() -> None:
    assert Station(0.5, 1.0).latency_s(1) == pytest.approx(2.0)  # 1 / (mu - lambda)
    assert waits(2, 1.0) == pytest.approx(1 / 3)
    assert Station(1.0, 1.0).latency_s(2) == pytest.approx(4 / 3)
    assert waits(10, 8.0) == pytest.approx(0.40918, abs=1e-4)
    assert Station(2.0, 1.0).latency_s(2) == inf
    assert Station(2.0, 1.0).least == 3


@given(st.floats(0.01, 200), st.floats(0.01, 50))
def test_the_latency_falls_with_slots_to_the_time_of_service(arrives: float, serves: float) -> None:
    station = Station(arrives, serves)
    found = [station.latency_s(k) for k in range(station.least, station.least + 20)]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(found))
    assert found[-1] >= 1 / serves * (1 - 1e-9)


def test_allocation_adds_slots_where_the_latency_falls_most() -> None:
    stations = [Station(10.0, 3.0), Station(5.0, 6.0), Station(2.0, 10.0)]
    least = [each.least for each in stations]
    assert least == [4, 1, 1]
    start = network_latency_s(stations, least, 10.0)
    assert allocate(stations, 10.0, start, 99).slots == (4, 1, 1)
    one_more = [
        network_latency_s(stations, [k + (i == j) for i, k in enumerate(least)], 10.0)
        for j in range(3)
    ]
    found = allocate(stations, 10.0, start * 0.99, 7)
    assert found.latency_s == pytest.approx(min(one_more))
    assert not allocate(stations, 10.0, 0.01, 8).met
    assert sum(allocate(stations, 10.0, 0.01, 8).slots) == 8


def test_a_greedy_allocation_is_the_best_one() -> None:
    stations = [Station(10.0, 3.0), Station(5.0, 6.0)]
    every = {
        (a, b): network_latency_s(stations, (a, b), 10.0) for a in range(4, 12) for b in range(1, 8)
    }
    for target in (0.9, 0.6, 0.5, 0.45):
        fewest = min(sum(slots) for slots, latency in every.items() if latency <= target)
        assert sum(allocate(stations, 10.0, target, 99).slots) == fewest


def test_the_longest_tasks_start_first_on_the_cores() -> None:
    assert makespan([3.0, 1.0, 2.0], 4) == 3
    assert makespan([1.0] * 3, 2) == 2
    assert makespan([3.0, 2.0, 2.0, 1.0], 2) == 4
    assert makespan([], 2) == 0


def test_the_time_of_a_step_is_fixed_and_the_longest_slot_of_each_level() -> None:
    model = StepModel(fixed_s=0.2, overhead_s=0.05, cores=4, interval_s=1.0, uneven=1.0)
    works = [ComponentWork(0, 1.2), ComponentWork(1, 0.4)]
    # 0.2 + (0.05 + 1.2 / 4) + (0.05 + 0.4 / 2) for a second of input
    assert model.predict(works, [4, 2]).step_s == pytest.approx(0.8)
    assert model.predict(works, [4, 2]).latency_s == pytest.approx(1.8)
    # 0.3 + 0.4 + 0.4 > 1: the next step follows at once and takes 0.3 / (1 - 0.8)
    assert model.predict(works, [3, 1]).step_s == pytest.approx(1.5)
    assert model.predict(works, [1, 1]).step_s == inf
    # three tasks on two cores: two of them one after another
    two = StepModel(fixed_s=0.2, overhead_s=0.05, cores=2, interval_s=1.0, uneven=1.0)
    assert two.predict([ComponentWork(0, 0.6)], [3]).step_s == pytest.approx(
        0.2 + 2 * 0.05 + 2 * 0.2
    )
    assert two.predict([ComponentWork(0, 0.6)], [2]).step_s == pytest.approx(0.2 + 0.05 + 0.3)


def test_a_hot_shard_bounds_what_slots_can_do() -> None:
    model = StepModel(fixed_s=0.1, overhead_s=0.0, cores=16, uneven=1.0)
    found = model.fewest([ComponentWork(0, 1.5, hot_share=0.5)], 0.5, 16)
    assert not found.met
    assert found.slots == (2,)


def test_components_of_one_level_share_its_slots() -> None:
    model = StepModel(fixed_s=0.1, overhead_s=0.01, cores=8, uneven=1.0)
    found = model.fewest([ComponentWork(0, 1.0), ComponentWork(0, 1.0)], 0.4, 8)
    assert found.met
    assert found.slots == (3, 3)  # 0.11 / (1 - 1/3), twice


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.floats(0.0, 3.0), st.floats(0.0, 0.3)),
        min_size=1,
        max_size=4,
    ),
    st.floats(0.3, 5),
)
def test_the_step_model_keeps_to_its_limits(
    given_works: list[tuple[int, float, float]], target: float
) -> None:
    works = [ComponentWork(*each) for each in given_works]
    model = StepModel(fixed_s=0.1, overhead_s=0.01, cores=8)
    found = model.fewest(works, target, 8)
    for level in range(3):
        assert (
            sum(k for k, each in zip(found.slots, works, strict=True) if each.level == level) <= 8
        )
    assert found.met == (found.latency_s <= target)
    assert found.latency_s == model.predict(works, found.slots).latency_s


def test_slots_stay_between_what_is_needed_and_what_is_comfortable() -> None:
    seen = evaluation(loaded(route=even_route(64, 10)))
    # 3.3 s of work for a second of input: with 6 slots 0.22 / (1 - 3.3 / 6), twice, is below 1 s;
    # with 8 it is below 0.8 s.
    assert Stepwise().wanted(seen, 1.0, 32).slots == {"a": 8}
    for kept in (6, 7, 8):
        assert Stepwise().wanted(evaluation(loaded(route=even_route(64, kept))), 1.0, 32).slots == {
            "a": kept
        }
    assert Stepwise().wanted(evaluation(loaded(route=even_route(64, 4))), 1.0, 32).slots == {"a": 8}
    impossible = Stepwise().wanted(seen, 0.1, 32)
    assert "no number of slots meets it" in impossible.reason


def test_the_network_policy_asks_for_the_papers_allocation() -> None:
    wanted = Network().wanted(evaluation(loaded(), loaded("b", level=1, rate=1500.0)), 0.0022, 32)
    assert wanted.slots == {
        "a": allocate([Station(3000, 1000), Station(1500, 1000)], 3000, 0.0022, 32).slots[0],
        "b": 3,
    }
    assert Network().wanted(evaluation(loaded(rate=0.0)), None, 32).slots == {"a": 4}

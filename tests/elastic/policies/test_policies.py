"""The papers' formulas, with figures computed by hand or known from the books."""

from __future__ import annotations

from itertools import pairwise
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch.elastic.policies.autoscale as plus
from anabranch.elastic import AutoScale, Elastic, Evaluation
from anabranch.elastic.observation import ComponentEvaluation
from anabranch.elastic.policies.baselines import (
    EXECUTOR_CENTRIC,
    RESOURCE_CENTRIC,
    Incremental,
    Static,
)
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
from anabranch.errors import TopologyError
from anabranch.place.split import (
    COMBINE,
    SPLIT,
    Period,
    PeriodCost,
    choose,
    combine_cost,
    split_cost,
)
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


@pytest.mark.parametrize(
    ("law", "ahead"),
    [
        (lambda t: 100 + 5 * t, 167.5),
        (lambda t: 100 + 50 * log(t), None),
        (lambda t: 100 * exp(0.02 * t), None),
    ],
    ids=["linear", "logarithmic", "exponential"],
)
def test_the_best_regression_finds_the_law(law, ahead) -> None:  # type: ignore[no-untyped-def]
    past = [(float(t), law(t + 1)) for t in range(10)]
    coming = float(np.mean([law(t + 1) for t in range(10, 16)]))
    assert plus.forecast(past, 6.0) == pytest.approx(coming)
    if ahead is not None:
        assert coming == ahead


def test_a_forecast_stays_in_bounds() -> None:
    assert plus.forecast([], 10) == 0
    assert plus.forecast([(0, 5.0)], 10) == 5
    assert plus.forecast([(0, 300.0), (1, 200.0), (2, 100.0)], 10) == 0
    assert plus.forecast([(float(t), 2.0**t) for t in range(10)], 60) == 2 * 2.0**9


def test_usable_cpu_is_what_is_reserved_in_part_and_a_share_of_what_others_leave() -> None:
    """Fig. 3 of the paper, three threads on one core: 0.3 * 0.6 + (1 - 0.4) / 3, 0.3 * 0.3 + (1 - 0.8) / 3."""
    assert plus.usable_cpu([0.6, 0.2, 0.2], [0.4, 0.3, 0.3]) == pytest.approx(
        [0.38, 0.09 + 0.2 / 3, 0.09 + 0.2 / 3]
    )
    assert plus.usable_cpu([0.5], [1.0]) == [1.0]


def test_the_working_interval() -> None:
    assert plus.capacity(10, 0.002, 0.5) == 2500
    assert plus.new_slots(10, 900, 100, 90) == 10  # 9 is within [8, 10]
    assert plus.new_slots(10, 800, 100, 90) == 10  # its lower end
    assert plus.new_slots(10, 1010, 100, 90) == 12
    assert plus.new_slots(10, 500, 100, 90) == 6


@given(
    st.integers(1, 300),
    st.floats(0, 1e6),
    st.floats(1, 1e4),
    st.floats(0.1, 1.0),
    st.floats(0.1, 1.0),
)
def test_slots_change_only_outside_the_working_interval(
    k: int, needed: float, usable: float, part: float, beta: float
) -> None:
    new = plus.new_slots(k, needed, usable, part * usable, beta)
    ideal = needed / usable
    if beta * k <= ideal <= k:
        assert new == k
    if new > k:
        assert ideal > k
    if new < k:
        assert ideal < beta * k
        assert new >= ideal * 0.999


def test_autoscale_takes_the_larger_of_the_own_past_and_the_parents_output() -> None:
    parent = loaded(
        rates=tuple((float(t), 1000.0 * (t + 1)) for t in range(10)),
        route=even_route(64, 16),
        selectivity=0.5,
    )
    child = loaded("b", level=1, parents=("a",))
    wanted = AutoScale().wanted(evaluation(parent, child), None, 32)
    # a: 11,000 to 20,000 rows a second, a mean of 15,500; b: half of that, 7,750, although 3,000 arrive now.
    assert wanted.figures["a: input"] == pytest.approx(155_000)
    assert wanted.figures["b: input"] == pytest.approx(77_500)
    assert wanted.slots == {"a": 16, "b": 9}
    assert AutoScale(combine=min).wanted(evaluation(parent, child), None, 32).slots["b"] == 4


def test_what_is_pending_is_added() -> None:
    assert AutoScale().estimated_input(loaded(pending=500.0), 0.0) == pytest.approx(35_000)


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


def test_tasks_on_cores() -> None:
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
    # 3.3 s of work for a second of input: with 6 slots 0.22 / (1 - 3.3 / 6), twice, is below 1 s; with 8 it is below 0.8 s.
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


def test_incremental_and_static() -> None:
    assert Incremental().wanted(evaluation(loaded(busy=0.9)), None, 32).slots == {"a": 5}
    assert Incremental().wanted(evaluation(loaded(busy=0.9)), None, 4).slots == {"a": 4}
    assert Incremental().wanted(evaluation(loaded(busy=0.2)), None, 32).slots == {"a": 3}
    assert Incremental().wanted(evaluation(loaded(busy=0.6)), None, 32).slots == {"a": 4}
    assert Incremental().wanted(evaluation(loaded(busy=0.6, pending=500.0)), None, 32).slots == {
        "a": 4
    }  # usage alone counts
    assert Static().wanted(evaluation(loaded(busy=2.0)), None, 32).slots == {"a": 4}


def test_a_global_route_costs_more_the_more_is_upstream() -> None:
    assert EXECUTOR_CENTRIC.pause_s(1, 1, 0) == EXECUTOR_CENTRIC.pause_s(1, 256, 0) == 0.002
    assert RESOURCE_CENTRIC.pause_s(1, 1, 0) >= 100 * EXECUTOR_CENTRIC.pause_s(1, 1, 0)
    assert RESOURCE_CENTRIC.pause_s(1, 256, 0) > RESOURCE_CENTRIC.pause_s(1, 1, 0)
    assert EXECUTOR_CENTRIC.pause_s(1, 1, 125e6) == pytest.approx(1.002)
    assert RESOURCE_CENTRIC.pause_s(0, 9, 0) == 0


PERIOD = Period(
    rows=1000,
    row_cost_s=0.001,
    windows=5,
    partials=10,
    shards=16,
    moved=4,
    state_cost_s=0.01,
    move_s=0.2,
)


def test_the_costs_of_split_and_combine() -> None:
    assert split_cost(PERIOD) == PeriodCost(pytest.approx(1 + 1.6 + 0.04), 0.0)
    assert combine_cost(PERIOD) == PeriodCost(pytest.approx(5 + 0.4), pytest.approx(0.8))


def test_the_cheaper_way_is_chosen_within_the_latency() -> None:
    assert choose(PERIOD, COMBINE).way == SPLIT
    dear = Period(
        rows=1000,
        row_cost_s=0.001,
        windows=2,
        partials=10,
        shards=64,
        moved=4,
        state_cost_s=0.01,
        move_s=0.2,
    )
    assert choose(dear, SPLIT).way == COMBINE
    bounded = choose(dear, SPLIT, latency_s=0.5)
    assert bounded.way == SPLIT
    assert bounded.reason == "4 moved shards would hold rows up for 0.8 s, more than 0.5 s"
    even = Period(
        rows=1000,
        row_cost_s=0.001,
        windows=2.6,
        partials=10,
        shards=16,
        moved=0,
        state_cost_s=0.01,
        move_s=0.2,
    )
    assert {choose(even, way).way for way in (SPLIT, COMBINE)} == {SPLIT, COMBINE}, (
        "a change must be worth it"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "magic"}, "policy 'magic' is unknown; valid: auto, autoscale, latency"),
        ({"mode": "maybe"}, "mode 'maybe' is unknown; valid: on, advise, off"),
        ({"balance": "x"}, "balance 'x' is unknown"),
        ({"min_slots": 0}, "min_slots 0"),
        ({"min_slots": 4, "max_slots": 3}, "max_slots 3 is below min_slots 4"),
        ({"latency": "soon"}, "latency 'soon' is not a time"),
        ({"theta": 0.9}, "theta 0.9"),
    ],
)
def test_bad_settings_are_refused_by_name(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Elastic(**arguments)  # type: ignore[arg-type]


def test_settings_have_defaults_that_work() -> None:
    assert isinstance(Elastic().chosen, AutoScale)
    assert isinstance(Elastic(latency="2 seconds").chosen, Stepwise)
    assert Elastic(latency="2 seconds").latency_s == 2.0
    assert (Elastic().most(8), Elastic(max_slots=3).most(8)) == (8, 3)

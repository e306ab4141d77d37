"""The simulator against results by hand: no row is lost or made, queues and networks limit."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.lab.elasticutor.micro import Micro, dip_s, simulate, start
from anabranch.lab.elasticutor.paradigms import ELASTICUTOR, RESOURCE, STATIC, WAYS
from anabranch.lab.simulator import Cluster, Job, Moves, SimulatedTotals, Simulation

TINY = Micro(hosts=4, executors=4, shards=16, keys=200, seconds=30)


def one_job(shares: list[float], cores: int = 4, **more: float) -> Simulation:
    job = Job(name="j", cost_s=0.001, shards=len(shares), **more)  # type: ignore[arg-type]
    table = np.arange(len(shares)) % cores
    return Simulation(Cluster(hosts=cores, cores_per_host=1), [job], [table], [np.array(shares)])


def inside(run: Simulation) -> float:
    return float(run.buffer + run.rows.sum() + sum(kept.sum() for kept in run.kept))


def test_rows_are_neither_lost_nor_made() -> None:
    run = one_job([0.4, 0.3, 0.2, 0.1])
    done = sum(run.run(3, 2000, 0.01))
    run.move(Moves(0, np.array([0, 1]), np.array([3, 3]), np.array([run.now + 0.5, run.now + 1.0])))
    done += sum(run.run(3, 2000, 0.01))
    assert done + inside(run) == pytest.approx(6 * 2000)
    assert run.core_of[0].tolist() == [3, 3, 2, 3]


def test_a_full_queue_holds_the_source_back_to_what_the_hottest_core_can_do() -> None:
    run = one_job([0.5, 0.3, 0.1, 0.1])
    run.run(60, 4000, 0.01)
    assert run.run(1, 4000, 0.01)[0] == pytest.approx(
        2000, rel=0.01
    )  # 1000 per second on the core with half of the rows
    assert run.rows[0, 0] == pytest.approx(1024, rel=0.02)
    run.totals = SimulatedTotals()
    run.run(10, 4000, 0.01)
    assert run.totals.latency_s(0.001) == pytest.approx(
        inside(run) / 2000, rel=0.05
    )  # Little's law


def test_a_job_that_keeps_up_has_the_latency_of_a_random_queue() -> None:
    run = one_job([0.25] * 4)
    run.run(2, 2000, 0.01)
    run.totals = SimulatedTotals()
    run.run(10, 2000, 0.01)
    assert run.totals.latency_s(0.001) == pytest.approx(
        0.001 / (1 - 0.5), rel=0.01
    )  # M/M/1 at half its capacity


def test_a_network_card_lets_no_more_bytes_pass_than_it_can() -> None:
    run = one_job([0.25] * 4, row_bytes=125_000)
    run.run(30, 10_000, 0.01)
    assert run.run(1, 10_000, 0.01)[0] == pytest.approx(4 * 1000, rel=0.01)
    run.home_of = [np.zeros(4, dtype=np.int64)]
    run.share(run.shares)
    run.run(30, 10_000, 0.01)
    assert run.run(1, 10_000, 0.01)[0] == pytest.approx(1000, rel=0.01)  # one card takes all rows


def test_rows_of_a_held_shard_wait_and_those_that_cross_hosts_are_counted() -> None:
    run = one_job([0.5, 0.5])
    run.run(1, 1000, 0.01)
    run.move(Moves(0, np.array([0]), np.array([2]), np.array([run.now + 1.5])))
    assert run.run(1, 1000, 0.01)[0] == pytest.approx(500, rel=0.05)
    assert run.kept[0][0] == pytest.approx(500, rel=0.05)
    run.run(3, 1000, 0.01)
    assert inside(run) == pytest.approx(0, abs=30)
    assert run.totals.moved_bytes == 32 * 1024


def test_a_child_gets_its_part_of_the_rows_and_holds_its_parent_back() -> None:
    jobs = [
        Job(name="a", cost_s=0.001, shards=2),
        Job(name="b", cost_s=0.004, shards=2, parent=0, per_parent=0.5),
    ]
    table = [np.array([0, 1]), np.array([2, 3])]
    run = Simulation(Cluster(hosts=1, cores_per_host=4), jobs, table, [np.array([0.5, 0.5])] * 2)
    run.run(30, 1500, 0.01)
    assert run.run(1, 1500, 0.01)[0] == pytest.approx(2 * 250 / 0.5, rel=0.02)


def test_data_between_an_executor_and_its_cores_is_what_comes_in_and_what_goes_out_once() -> None:
    jobs = [Job(name="a", cost_s=0.001, shards=2, row_bytes=96)]
    jobs += [
        Job(name=n, cost_s=0.001, shards=2, parent=0, per_parent=0.5, row_bytes=160) for n in "bc"
    ]
    table = [np.array([0, 1])] * 3
    run = Simulation(Cluster(hosts=2, cores_per_host=1), jobs, table, [np.array([0.5, 0.5])] * 3)
    assert run.row_bytes.tolist() == [96 + 80, 160, 160]


@pytest.mark.parametrize("way", WAYS)
def test_one_seed_gives_one_result_and_shards_stay_with_their_units(way: str) -> None:
    first, again = simulate(TINY, way), simulate(TINY, way)
    assert (first.rows_per_s, first.latency_s, first.by_second) == (
        again.rows_per_s,
        again.latency_s,
        again.by_second,
    )
    run, moves, shares = start(TINY, way)
    run.run(3, 20_000, 0.02, moves)
    run.share([shares[0]])
    run.run(30, 20_000, 0.02, moves)
    if moves is None:
        return
    owners = [core for unit in moves.units for core in unit.cores]
    assert len(owners) == len(set(owners)) <= run.cluster.cores
    for unit in moves.units:
        held = run.held[unit.job][unit.shards]
        at = run.core_of[unit.job][unit.shards]
        assert (held | (at == np.array(unit.cores)[list(unit.route.slot_of)])).all()


def test_balancing_serves_more_than_a_static_deployment_and_agreeing_with_all_upstream_takes_longer() -> (
    None
):
    ran = {way: simulate(TINY, way) for way in (STATIC, RESOURCE, ELASTICUTOR)}
    assert ran[STATIC].rows_per_s < ran[RESOURCE].rows_per_s
    offered = TINY.load * 32 / TINY.cost_s
    assert dip_s(ran[ELASTICUTOR].by_second, offered, 30) <= 3
    assert dip_s([1, 0, 1, 1, 0, 0], 1, 3) == 2.5

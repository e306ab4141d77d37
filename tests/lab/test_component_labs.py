"""The experiments on component plans, small: they run, and one seed gives the same figures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from anabranch.cli import main
from anabranch.errors import AnabranchError
from anabranch.lab.cbp import experiment as cbp
from anabranch.lab.cbp.claims import claims_of
from anabranch.lab.cbp.graphs import Load, linear_road, random_graph
from anabranch.lab.cbp.linear_road import Road, deployments, latency, row_cost_s
from anabranch.lab.claims import Claim
from anabranch.lab.enorm import fusion as enorm_fusion
from anabranch.lab.report import LabReport
from anabranch.plan.planners.cbp import plan_greedily
from anabranch.plan.planners.cost import Adaptation
from anabranch.plan.planners.fusion import Score, fuse
from anabranch.plan.planners.problem import Space


def lab(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], str]:
    with pytest.raises(SystemExit) as ended:
        main(["lab", *arguments, "--json"])
    assert not ended.value.code
    *table, line = capsys.readouterr().out.splitlines()
    return json.loads(line), "\n".join(table)


def check_claims(facts: dict[str, Any]) -> None:
    for claim in facts["claims"]:
        assert claim["test"].split()[-1] == "paper"
        assert claim["holds"] is eval(f"{claim['ours']} {claim['test']}", {"paper": claim["paper"]})  # noqa: S307


def test_random_jobs_are_fused_by_both_scores_and_the_baseline(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ("enorm-fusion", "--sizes", "20,30", "--jobs", "5", "--seed", "3")
    facts, table = lab(capsys, *command)
    check_claims(facts)
    assert facts["lab"] == "enorm-fusion"
    ids = [
        f"enorm-{figure}-{other}-{size}"
        for size in (20, 30)
        for figure in (14, 15)
        for other in ("pa", "baseline")
    ]
    assert [claim["id"] for claim in facts["claims"]] == ids
    assert facts["settings"] | {"jobs": 5, "seed": 3, "attributes": 30} == facts["settings"]
    assert "baseline alone" in table
    assert lab(capsys, *command)[0]["claims"] == facts["claims"]
    for each in facts["figures"]:
        assert each["communication_percent"]["comm"] < each["communication_percent"]["pa"]


def test_plans_that_run_level_by_level_communicate_more(capsys: pytest.CaptureFixture[str]) -> None:
    free, ordered = (
        lab(capsys, "enorm-fusion", "--sizes", "20", "--jobs", "5", *more)[0]["figures"][0][
            "communication_percent"
        ]["comm"]
        for more in ([], ["--ordered"])
    )
    assert free <= ordered


def test_component_plans_by_cost_save_more_communication_than_placement(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts, table = lab(
        capsys,
        "cbp",
        "--degrees",
        "3",
        "--operators",
        "24",
        "--repeats",
        "1",
        "--minutes",
        "20",
        "--most",
        "300",
        "--hosts",
        "8",
        "--networks",
        "1",
    )
    check_claims(facts)
    ids = {claim["id"] for claim in facts["claims"]}
    assert {"-".join(each.split("-")[:2]) for each in ids} == {
        "cbp-3a",
        "cbp-3b",
        "cbp-4",
        "cbp-5",
        "cbp-t1a",
        "cbp-t1b",
    }
    by = {(f["stream"], f["way"], f["every"]): f for f in facts["figures"]}
    assert len(by) == 2 * (4 + 3)
    for stream in ("uniform", "skewed"):
        assert by[stream, "mwsc", 1]["saved"] > by[stream, "baseline", 1]["saved"]
    assert "Linear Road, 180 operators" in table


def test_a_claim_holds_as_its_test_says() -> None:
    def holds(ours: float, test: str) -> bool:
        return Claim(id="x", what="", paper=10, ours=ours, test=test).holds

    assert holds(15, "<= 1.5 * paper")
    assert not holds(15.1, "<= 1.5 * paper")
    assert not holds(10, "> paper")
    assert holds(10, "== paper")


def test_two_claims_of_one_report_never_share_an_id() -> None:
    claims = [
        Claim(id=f"cbp-{each}", what="", paper=1, ours=1, test="== paper")
        for each in ("3a", "4", "3a")
    ]
    with pytest.raises(AnabranchError, match="twice: cbp-3a; valid"):
        LabReport(lab="cbp", claims=claims, settings={})


SMALL = cbp.CbpSetting(operators=60, repeats=2, minutes=20, most=50)


def cbp_verdicts(setting: cbp.CbpSetting) -> dict[str, bool]:
    return {claim.id: claim.holds for claim in claims_of(cbp.figures(setting, [10]))}


@pytest.mark.parametrize("seed", [1, 2])
def test_verdicts_on_component_plans_are_the_same_whatever_the_seed(seed: int) -> None:
    found = cbp_verdicts(replace(SMALL, seed=seed))
    assert [each for each, holds in found.items() if not holds] == ["cbp-3b-baseline"]
    assert len(found) == 17


def test_planners_that_fuse_nothing_fail_the_claims_on_communication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        cbp,
        "plan_greedily",
        lambda streams, rules, **_: plan_greedily(
            streams, replace(rules, bound=0.0), ordered=False
        ),
    )
    monkeypatch.setattr(
        cbp, "refine_partition", lambda costs, _: [1 << i for i in range(len(costs.space.units))]
    )
    found = cbp_verdicts(replace(SMALL, repeats=1))
    for each in ("cbp-3a-mwsc-10", "cbp-4-mwsc-uniform", "cbp-4-mwsc-skewed"):
        assert not found[each], each


def test_latencies_on_linear_road_are_below_those_of_placed_slots_only_where_operators_are_fused() -> (
    None
):
    streams = linear_road(1, Load(minutes=20, skewed=True, shards=64))
    road = Road(rows=3000)
    deployed = deployments(streams, Adaptation(capacity=road.capacity), road, 50)
    cost_s = row_cost_s(streams, deployed["baseline"].sent, road)
    base, fused = (
        latency(streams, deployed[way], 1, road, cost_s) for way in ("baseline", "greedy")
    )
    alone = replace(deployed["baseline"], remote=1.0, sent=streams.rate)
    assert fused.mean < base.mean < latency(streams, alone, 1, road, cost_s).mean
    never = latency(streams, deployed["baseline"], 20, road, cost_s)
    assert never.p95 < base.p95  # nothing pauses if nothing is adapted


@pytest.mark.parametrize("seed", [1, 2])
def test_verdicts_on_fusion_are_the_same_whatever_the_seed(seed: int) -> None:
    assert all(claim.holds for claim in enorm_fusion.experiment([50], jobs=100, seed=seed).claims)


def test_fusion_that_forgets_rates_fails_the_claims_on_communication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enorm_fusion, "fuse", lambda job, _, **more: fuse(job, Score.PA, **more))
    found = {claim.id: claim.holds for claim in enorm_fusion.experiment([30], jobs=5).claims}
    assert not found["enorm-14-pa-30"]
    assert not found["enorm-15-pa-30"]


def test_graphs_are_as_large_as_asked_for_and_rows_that_leave_an_operator_arrive_at_all_that_follow() -> (
    None
):
    drawn = random_graph(1, 40, 3, Load(minutes=20))
    for graph in (drawn.seen, drawn.run):
        assert (len(graph.operators), len(graph.streams)) == (40, 120)
        assert all(
            each.loads is not None and each.loads.shape == (20, 256) for each in graph.operators
        )
        for operator in graph.operators:
            sent = {stream.rate for stream in graph.streams if stream.source == operator.name}
            into = sum(stream.rate for stream in graph.streams if stream.target == operator.name)
            assert len(sent) <= 1
            assert operator.loads is not None
            assert into == 0 or operator.loads.sum() == pytest.approx(into)
    skewed = random_graph(1, 40, 3, Load(minutes=20, skewed=True))
    assert [s.rate for s in skewed.run.streams] == [s.rate for s in drawn.run.streams]
    road = linear_road(1, Load(minutes=20))
    assert len(road.operators) == 180
    Space(road)

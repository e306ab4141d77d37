"""The experiments on component plans, small: they run, one seed gives the same figures, and a claim holds as its test says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.cli import main
from anabranch.lab.claims import Claim
from anabranch.lab.graphs import Load, linear_road, random_graph
from anabranch.plan.streams import Space


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


def test_random_jobs_are_fused_by_both_scores_and_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("enorm-fusion", "--sizes", "20,30", "--jobs", "5", "--seed", "3")
    facts, table = lab(capsys, *command)
    check_claims(facts)
    assert facts["lab"] == "enorm-fusion"
    assert {claim["id"] for claim in facts["claims"]} == {"enorm-14", "enorm-15"}
    assert facts["settings"] | {"jobs": 5, "seed": 3, "attributes": 30} == facts["settings"]
    assert "baseline alone" in table
    assert lab(capsys, *command)[0]["claims"] == facts["claims"]
    for each in facts["figures"]:
        assert each["communication_percent"]["comm"] < each["communication_percent"]["pa"]


def test_plans_that_run_level_by_level_communicate_more(capsys: pytest.CaptureFixture[str]) -> None:
    free, ordered = (
        lab(capsys, "enorm-fusion", "--sizes", "20", "--jobs", "5", *more)[0]["figures"][0]["communication_percent"]["comm"]
        for more in ([], ["--ordered"])
    )
    assert free <= ordered


def test_component_plans_by_cost_save_more_communication_than_placement(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert {claim["id"] for claim in facts["claims"]} == {"cbp-3a", "cbp-3b", "cbp-4", "cbp-5", "cbp-t1a", "cbp-t1b"}
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


def test_graphs_are_as_large_as_asked_for() -> None:
    graph, sent = random_graph(1, 40, 3, Load(minutes=20))
    assert (len(graph.operators), len(graph.streams), sent) == (40, 120, 20 * 600_000)
    road = linear_road(1, Load(minutes=20))
    assert len(road.operators) == 180
    Space(road)

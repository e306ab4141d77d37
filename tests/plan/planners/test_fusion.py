"""Fusion by score: the paper's example, both scores, the baseline, and hints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import TopologyError
from anabranch.plan.planners.fusion import Score, fuse, fuse_baseline
from anabranch.plan.planners.problem import Hints, StreamGraph
from tests.plan.planners.component_graphs import check, graphs, streams

LENDING = streams(  # Enorm, Fig. 1 and 2: 2 and 3 by area, 4 and 5 over everything
    {"o1": None, "o2": "a", "o3": "a", "o4": "", "o5": ""},
    ("o1", "o2", 100),
    ("o2", "o3", 20),
    ("o3", "o4", 5),
    ("o4", "o5", 2),
)


@pytest.mark.parametrize("score", list(Score))
def test_the_papers_lending_job_has_one_component_by_area(score: Score) -> None:
    plan = fuse(LENDING, score)
    assert plan.partition == {frozenset({"o1", "o2", "o3"}), frozenset({"o4"}), frozenset({"o5"})}
    assert plan.components[0].attributes == {"a"}
    assert plan.communication == 7
    assert plan.reasons[0].text == "both may be partitioned by (a); that saves a rate of 100"
    assert plan.reasons[2].text == "no attribute in common: (a) and ()"


def test_the_largest_rate_goes_first_by_comm_and_the_most_attributes_by_pa() -> None:
    job = streams({"a": "xyz", "b": "xq", "c": "yz"}, ("a", "b", 10), ("a", "c", 3))
    assert fuse(job, Score.COMM).partition == {frozenset("ab"), frozenset("c")}
    assert fuse(job, Score.PA).partition == {frozenset("ac"), frozenset("b")}


def test_the_baseline_goes_on_downstream_from_the_operator_that_is_drawn() -> None:
    job = streams({"a": "x", "b": "xyz", "c": "yz"}, ("a", "b", 1), ("b", "c", 1))
    assert fuse_baseline(job).partition == {frozenset("ab"), frozenset("c")}
    assert fuse_baseline(job, order="bac").partition == {frozenset("a"), frozenset("bc")}
    chain = streams({"a": "x", "b": "x", "c": "x"}, ("a", "b", 1), ("b", "c", 1))
    assert fuse_baseline(chain, order="bac").partition == {frozenset("abc")}
    assert fuse_baseline(chain, order="bac", whole=False).partition == {
        frozenset("a"),
        frozenset("bc"),
    }
    with pytest.raises(TopologyError, match="every operator once"):
        fuse_baseline(job, order="ab")


@given(graphs(), st.sampled_from(Score), st.booleans())
def test_fusion_gives_a_valid_plan(graph: StreamGraph, score: Score, ordered: bool) -> None:
    check(fuse(graph, score, ordered=ordered), graph, ordered=ordered)
    check(fuse_baseline(graph, ordered=ordered), graph, ordered=ordered)
    check(fuse_baseline(graph, whole=False, ordered=ordered), graph, ordered=ordered)


@given(graphs())
def test_nothing_that_could_be_fused_by_attributes_is_left(graph: StreamGraph) -> None:
    plan = fuse(graph, Score.PA)
    allowed = ("no attribute", "would wait")
    assert all(
        reason.fused or any(text in reason.text for text in allowed) for reason in plan.reasons
    )


def test_fusion_keeps_hints() -> None:
    job = streams({"a": "xy", "b": "xy", "c": "y"}, ("a", "b", 1), ("b", "c", 9))
    hinted = fuse(job, hints=Hints(fuse=(frozenset("ab"),), apart=(frozenset("bc"),)))
    assert hinted.partition == {frozenset("ab"), frozenset("c")}
    assert [reason.text for reason in hinted.reasons] == [
        "fused by a hint, partitioned by (x, y)",
        "kept apart by a hint",
    ]
    apart = fuse(job, hints=Hints(apart=(frozenset("ac"),)))
    assert apart.partition == {frozenset("a"), frozenset("bc")}

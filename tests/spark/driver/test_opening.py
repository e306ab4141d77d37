"""Opening a checkpoint for a run, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.errors import CheckpointError, TopologyError
from anabranch.plan.make import make_plan
from anabranch.plan.route import even_route
from anabranch.spark.driver.opening import (
    check_slots,
    fit_run,
    located,
    routes_of_run,
    take_over,
)
from anabranch.state.checkpoint.commits import open_checkpoint
from anabranch.state.checkpoint.files import Files
from tests.spark.driver.reports_by_hand import FIRST, SECOND, SHARDS, commit, graph

if TYPE_CHECKING:
    from pathlib import Path


def test_a_directory_is_named_in_full_and_a_uri_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert located("chk/") == located(tmp_path / "chk") == str(tmp_path / "chk")
    assert located("/") == "/"
    for uri in ("s3://bucket/chk", "file:/chk", "file:///chk"):
        assert located(uri) == uri


def test_routes_are_those_of_the_last_step_and_fresh_for_new_components() -> None:
    plan = make_plan(graph(), "unfused")
    fresh, known = even_route(SHARDS, 2), even_route(SHARDS, 3)
    assert routes_of_run(plan, None, fresh, None) == {FIRST: fresh, SECOND: fresh}
    last = commit(1, {FIRST: known})
    assert routes_of_run(plan, last, fresh, None) == {FIRST: known, SECOND: fresh}
    resized = routes_of_run(plan, last, fresh, 2)
    assert resized == {FIRST: known.resized(2), SECOND: fresh}


def test_fitting_writes_nothing_and_taking_over_writes_the_header_once(tmp_path: Path) -> None:
    files = Files(str(tmp_path / "checkpoint"))
    plan = make_plan(graph(), "unfused")
    opening = fit_run(files, None, plan, SHARDS)
    assert not (tmp_path / "checkpoint").exists()
    assert take_over(opening) is opening
    found = open_checkpoint(files)
    assert found is not None
    assert found.header == opening.checkpoint.header
    with pytest.raises(CheckpointError, match="another driver has just made checkpoint"):
        take_over(fit_run(files, None, plan, SHARDS))


def test_what_another_driver_commits_while_one_starts_is_taken_in(tmp_path: Path) -> None:
    files, plan = Files(str(tmp_path)), make_plan(graph(), "unfused")
    older = take_over(fit_run(files, None, plan, SHARDS)).checkpoint
    older.commit(commit(1, {FIRST: even_route(SHARDS, 1)}))
    opening = fit_run(files, open_checkpoint(files), plan, None)
    older.commit(commit(2, {FIRST: even_route(SHARDS, 3)}))
    taken = take_over(opening)
    assert taken is not opening
    assert taken.checkpoint.last is not None
    assert taken.checkpoint.last.step == 2
    with pytest.raises(CheckpointError, match="another driver has taken over"):
        older.commit(commit(3, {FIRST: even_route(SHARDS, 3)}))
    taken.checkpoint.commit(replace(commit(3, {FIRST: even_route(SHARDS, 1)}), epoch=2))


@pytest.mark.parametrize("shards", [0, 40_000, "8"])
def test_a_number_of_shards_is_checked(tmp_path: Path, shards: Any) -> None:
    with pytest.raises(TopologyError, match="valid: 1 to 32768"):
        fit_run(Files(str(tmp_path)), None, make_plan(graph()), shards)


def test_a_number_of_slots_is_checked() -> None:
    check_slots(None, 4)
    check_slots(4, 4)
    for slots in (0, 5, "2"):
        with pytest.raises(TopologyError, match="valid: 1 to 4, the number of shards"):
            check_slots(slots, 4)  # type: ignore[arg-type]

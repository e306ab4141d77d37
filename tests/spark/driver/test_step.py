"""The step protocol without Spark: jobs are simulated, the checkpoint is real."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.elastic import Elastic
from anabranch.errors import CheckpointError, StepError
from anabranch.faults import DRIVER_POINTS
from anabranch.observer import Event, Observer, Observers, RecentSteps
from anabranch.plan.make import make_plan
from anabranch.plan.route import even_route
from anabranch.runtime.reports import NodeReport, SlotReport, encoded
from anabranch.runtime.tasks import ArrivingRows, StateSettings
from anabranch.spark.driver.context import RunContext, RunState, Settings
from anabranch.spark.driver.control import Controller
from anabranch.spark.driver.observe import Conditions, NoQuery
from anabranch.spark.driver.step import Stepper
from anabranch.state.checkpoint.commits import open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create
from anabranch.state.checkpoint.statistics import Statistics
from tests.spark.driver.reports_by_hand import (
    FUSED,
    SHARDS,
    W0,
    W1,
    graph,
    node_report,
    report,
    with_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from anabranch.runtime.slot import SlotTask

ROWS: Any = "the rows of a batch"


class Points:
    """Notes the points that the protocol passes."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, int]] = []

    def at(self, point: str, step: int, slot: int | None = None) -> None:
        self.passed.append((point, step))

    def not_counting(self, uncounted: int) -> Points:
        return self


def ordinary(task: SlotTask) -> list[SlotReport]:
    """Each slot of the only component has 10 rows in each of its shards."""
    [component] = task.components
    found = []
    for slot in range(component.slots):
        mine = [shard for shard in range(SHARDS) if component.route[shard] == slot]
        found.append(report(FUSED, slot, {W0: dict.fromkeys(mine, (10, 1)), W1: {}}))
    return found


def missing(task: SlotTask) -> list[SlotReport]:
    lost = NodeReport(part=W0, shards={}, missing=(2, 3))
    return [report(FUSED, 0, {W0: {}, W1: {}}), with_nodes(report(FUSED, 1, {}), lost)]


def broken(task: SlotTask) -> list[SlotReport]:
    raise RuntimeError("a worker died")


def silent(task: SlotTask) -> list[SlotReport]:
    return ordinary(task)[:1]


@dataclass
class PlayedLevels:
    """Simulates the job of each step; after the scripted ones, every job succeeds."""

    script: list[Callable[[SlotTask], list[SlotReport]]] = field(default_factory=list)
    tasks: list[SlotTask] = field(default_factory=list)
    onward: dict[str, Any] = field(default_factory=dict)
    stages: Any = field(default_factory=lambda: SimpleNamespace(stages=[]))
    lift: Any = field(
        default_factory=lambda: SimpleNamespace(nodes=(), watched={}, seen_in=lambda _: None)
    )

    def inflow(self, node: Any) -> Any:
        return SimpleNamespace(rows=ArrivingRows(columns={}, combined=True), emits=())

    def job(self, session: Any, rows: Any, tasks: Sequence[SlotTask], *rest: Any) -> Any:
        [task] = tasks
        self.tasks.append(task)
        play = self.script.pop(0) if self.script else ordinary
        return SimpleNamespace(
            collect=lambda: [SimpleNamespace(report=encoded(each)) for each in play(task)]
        )


class Played:
    """A run of two slots with simulated jobs."""

    def __init__(self, root: Path, *observers: Observer) -> None:
        self.files = Files(str(root / "checkpoint"))
        plan = make_plan(graph(), "fusion by attributes")
        checkpoint, _ = open_or_create(self.files, plan, SHARDS)
        checkpoint.take_over()
        self.levels, self.points, self.recent = PlayedLevels(), Points(), RecentSteps()
        played: Any = self.levels
        faults: Any = self.points
        context = RunContext(
            session=None,  # type: ignore[arg-type]
            checkpoint=checkpoint,
            outlets=(),
            settings=Settings(
                retries=3,
                state=StateSettings(root=None, wait_s=1.0, limit_bytes=None),
                faults=faults,
            ),
            statistics=Statistics(),
        )
        state = RunState(
            plan=plan,
            routes={FUSED: even_route(SHARDS, 2)},
            levels=played,
            groupings={},
            rows_at={"visits": 0.0},
            written_from=1,
        )
        self.stepper = Stepper(
            context,
            state,
            Controller(Elastic(mode="off")),
            Observers(self.recent, *observers),
            Conditions(cores=2),
        )

    def batch(self, number: int) -> Any:
        return self.stepper.batch(ROWS, number, NoQuery())

    def committed(self) -> int:
        found = open_checkpoint(self.files)
        assert found is not None
        return found.last.step if found.last else 0

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.recent.events]


@pytest.fixture
def played(tmp_path: Path) -> Played:
    return Played(tmp_path)


def test_a_step_passes_the_points_of_the_protocol_in_order(played: Played) -> None:
    progress = played.batch(0)
    points = [point for point in DRIVER_POINTS if point not in {"restore.before", "sinks.half"}]
    assert played.points.passed == [(point, 1) for point in points]
    assert (progress.step, progress.rows_in, progress.attempts, progress.restored) == (1, 40, 1, 0)
    assert list(progress.phases_s) == ["job", "sinks", "commit", "clean"]
    assert played.committed() == 1
    assert played.stepper.state.written_from is None
    assert list(played.recent.progress) == [progress]


def test_missing_shards_are_restored_by_running_the_step_again(played: Played) -> None:
    played.levels.script = [missing]
    progress = played.batch(0)
    first, again = played.levels.tasks
    assert [dict(node.restore) for node in first.components[0].nodes] == [{}, {}]
    assert [set(node.restore) for node in again.components[0].nodes] == [{2, 3}, set()]
    assert again.job == first.job + 1
    assert (progress.restored, progress.rows_in) == (2, 40)
    assert ("restore.before", 1) in played.points.passed
    assert [event.text for event in played.recent.events] == [
        "step 1: 2 shards restored from the durable log"
    ]


def test_shards_that_stay_missing_end_the_run(played: Played) -> None:
    played.levels.script = [missing] * 9
    with pytest.raises(StepError, match=r"step 1: shards \[2, 3\] of 'w0' could not be restored"):
        played.batch(0)
    assert played.committed() == 0


def test_a_job_that_fails_is_tried_again_and_then_distrusts_local_state(played: Played) -> None:
    played.levels.script = [broken, broken]
    assert played.batch(0).attempts == 3
    assert [task.distrust for task in played.levels.tasks] == [False, False, True]
    assert played.kinds == ["retry", "retry"]
    assert played.recent.events[0].text == "step 1: attempt 1 failed: a worker died"


def test_a_job_without_the_report_of_a_slot_is_tried_again(played: Played) -> None:
    played.levels.script = [silent]
    assert played.batch(0).attempts == 2
    [event] = played.recent.events
    assert event.text.endswith("slots that have not reported exactly once: w0 + w1 1")


def test_a_job_that_always_fails_ends_the_run_and_commits_nothing(played: Played) -> None:
    played.levels.script = [broken] * 9
    with pytest.raises(StepError, match="step 1 of 't' failed after 4 attempts: a worker died"):
        played.batch(0)
    assert played.committed() == 0
    assert [point for point, _ in played.points.passed] == ["step.begin", "job.before"]


def test_a_batch_that_comes_again_is_not_processed_again(played: Played) -> None:
    played.batch(0)
    assert played.batch(0) is None
    assert played.kinds == ["batch again"]
    assert len(played.levels.tasks) == 1
    with pytest.raises(CheckpointError, match="Spark runs batch 7"):
        played.batch(7)


def test_what_people_ask_for_changes_the_next_step(played: Played) -> None:
    played.batch(0)
    played.stepper.requests.resize(1)
    progress = played.batch(1)
    assert (progress.slots, progress.slots_of) == (1, {str(FUSED): 1})
    assert played.kinds == ["resize"]
    assert played.recent.events[0].step == 2
    assert played.stepper.state.routes[FUSED].version == 2


def test_an_observer_that_fails_is_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    class Full(Observer):
        def event(self, event: Event) -> None:
            raise OSError("no space left")

    played = Played(tmp_path, Full())
    played.levels.script = [broken]
    played.batch(0)
    played.batch(1)
    assert played.committed() == 2
    assert played.kinds == ["retry", "observer"]
    assert "OSError: no space left" in played.recent.events[1].text


def test_a_step_teaches_the_next_and_observers_see_it_once_spark_has_reported(
    tmp_path: Path,
) -> None:
    class Seen(Observer):
        def __init__(self) -> None:
            self.steps: list[int] = []

        def observation(self, seen: Any) -> None:
            self.steps.append(seen.step)

    seen = Seen()
    played = Played(tmp_path, seen)
    played.batch(0)
    assert seen.steps == []
    assert played.stepper.context.statistics.rates() == {"w0": 40.0, "w1": 0.0}
    played.stepper.close(NoQuery())
    assert seen.steps == [1]
    played.stepper.flush(NoQuery())
    played.stepper.flush(NoQuery())
    assert seen.steps == [1, 2]


def test_the_windows_that_a_closing_step_would_close_are_known(played: Played) -> None:
    ending = with_nodes(
        report(FUSED, 0, {}),
        node_report(W0, {0: (1, 0)}),
        NodeReport(part=W1, shards={}, next_end_us=5),
    )
    played.levels.script = [lambda task: [ending, *ordinary(task)[1:]]]
    played.batch(0)
    assert played.stepper.state.next_end_us == 5
    assert not played.stepper.can_close(), "there is no watermark yet"
    assert not played.stepper.watermark_advances()

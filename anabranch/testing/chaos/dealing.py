"""Deals faults to random topologies, and spreads them over the starts of each.

Pure and seeded: one seed gives one plan, in whatever order its cases run. A fault that does not fit
into a case is dealt to the next one, so every kind comes before any comes again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from anabranch.faults import APPLY_POINTS, SLOT_POINTS
from anabranch.plan.planners.registry import AUTO, PLANNERS
from anabranch.testing.chaos.plan import (
    APPLY_KILLS,
    COMMIT_LOST,
    DAMAGES,
    DRIVER_KILLS,
    JOB_FAILS,
    KINDS,
    LIVE,
    OTHER_AGGREGATES,
    OTHER_SLOTS,
    REPLAN,
    REROUTE,
    RESIZE,
    STOPPED,
    TWO,
    ZOMBIE,
    Act,
    CasePlan,
    PlannedFault,
    Start,
)
from anabranch.testing.chaos.topologies import (
    draw_changes,
    draw_events,
    draw_second,
    draw_topology,
)
from anabranch.testing.dags import random_dag
from anabranch.testing.events import MINUTE_US
from anabranch.topology.apply import OSG

MOST_SLOTS = 4
ZOMBIE_S = 600  # the chaos run itself continues the worker, once the next driver is at work
RESTORE_KILL = "driver killed: restore.before"

_DAGS = 0.9  # the share of DAGs with several sources and joins among cases that may be any
_COMPILED = 0.15  # the share of cases in which Spark compiles its queries: that takes long
_FAULTS_PER_PORTION = 5
# What takes long, or needs a topology of its kind, comes once in a deck; the others come twice.
_ONCE = frozenset({*DRIVER_KILLS, ZOMBIE, *APPLY_KILLS, OTHER_AGGREGATES})
_NEED_ROWS = frozenset({*JOB_FAILS, TWO, "worker killed: slot.half", *APPLY_KILLS})
# What comes before a start, in this order: what is deleted cannot be overwritten.
_BEFORE = (
    OTHER_AGGREGATES,
    OTHER_SLOTS,
    COMMIT_LOST,
    "state put back",
    "state overwritten",
    "state truncated",
    "state deleted",
)
_KILLS_OF_TWO = (
    "job.after",
    "sinks.before",
    "sinks.half",
    "sinks.after",
    "commit.before",
    "commit.after",
)


def plan_cases(seed: int, case_faults: int) -> Iterator[CasePlan]:
    """Endless cases; every kind of fault comes before any comes again."""
    deck = _deck(seed)
    waiting: list[str] = []
    number = 0
    while True:
        number += 1
        kinds = [*waiting, *(next(deck) for _ in range(case_faults - len(waiting)))]
        case, waiting = plan_case(seed, number, kinds)
        yield case


def plan_case(
    seed: int, number: int, kinds: Sequence[str], *, dag: bool | None = None
) -> tuple[CasePlan, list[str]]:
    """One case with these kinds of faults, and the kinds that do not fit into it.

    `dag` says whether the case is a DAG; None leaves it to chance.
    """
    rng = random.Random(f"chaos {seed} {number}")
    case = _draw_case(rng, number, kinds, dag=dag)
    layout = _Layout(case, rng)
    return replace(case, starts=layout.starts(kinds)), layout.left_out


def _deck(seed: int) -> Iterator[str]:
    rng = random.Random(f"chaos deck {seed}")
    while True:
        first, second = list(KINDS), [kind for kind in KINDS if kind not in _ONCE]
        rng.shuffle(first)
        rng.shuffle(second)
        yield from first
        yield from second


def _draw_case(
    rng: random.Random, number: int, kinds: Sequence[str], *, dag: bool | None
) -> CasePlan:
    """A random topology in which its faults can happen: with an apply, with operators to replan."""
    portions = tuple(
        rng.randint(3, 5) for _ in range(max(2, round(len(kinds) / _FAULTS_PER_PORTION)))
    )
    events = draw_events(rng, sum(portions))
    topology = draw_topology(rng, tuple(events.key_columns))
    something_closes = any(length <= 5 * MINUTE_US for _, length, _, _ in topology.windows)
    case = CasePlan(
        number=number,
        topology=topology,
        events=events,
        portions=portions,
        finish=rng.random() < 0.4 or not something_closes,
        slots=rng.randint(1, MOST_SLOTS),
        compiled=rng.random() < _COMPILED,
    )
    kills_applies = any(kind in APPLY_KILLS for kind in kinds)
    changes = min(kinds.count(OTHER_AGGREGATES), len(portions) - 1)
    if dag is None:
        dag = not kills_applies and not changes and rng.random() < _DAGS
    if dag:
        return _draw_dag(rng, case, planned_again=REPLAN in kinds)
    if kills_applies and topology.grouping is None:
        topology = replace(topology, grouping=OSG)
    if REPLAN in kinds and topology.keys and not case.has_other_plans:
        topology = replace(topology, then=draw_second(rng, topology.keys, shares_a_key=True))
    if changes:
        topology = draw_changes(rng, topology, rng.sample(range(1, len(portions)), changes))
    planner = AUTO if topology.then is None else topology.then.planner
    return replace(case, topology=topology, planner=planner)


def _draw_dag(rng: random.Random, case: CasePlan, *, planned_again: bool) -> CasePlan:
    while True:
        dag = random_dag(rng, operators=rng.randint(3, 6), rows=(30, 60))
        case = replace(case, dag=dag, planner=rng.choice((AUTO, *PLANNERS)))
        if case.has_other_plans or not planned_again:
            return case


@dataclass(slots=True)
class _Slice:
    """One start while it is being planned: the steps with a fault, and what comes before."""

    start: Start
    begins: int | None  # the first step of a portion; None after a kill of the driver
    steps: list[int] = field(default_factory=list)
    before: list[str] = field(default_factory=list)


class _Layout:
    """Gives each fault of a case its step, then cuts the steps into starts and adds the details."""

    def __init__(self, case: CasePlan, rng: random.Random) -> None:
        self.case, self.rng = case, rng
        self.kind_of: dict[int, str] = {}  # by step
        self.kills: set[int] = set()  # steps in which the driver dies
        self.left_out: list[str] = []  # kinds that do not fit

    def starts(self, kinds: Sequence[str]) -> tuple[Start, ...]:
        before: list[str] = []
        aimed: list[str] = []
        for kind in kinds:
            first = kind in {COMMIT_LOST, OTHER_SLOTS, OTHER_AGGREGATES}
            first = first or (kind in DAMAGES and self.rng.random() < 0.5)
            (before if first else aimed).append(kind)
        # The kill while state is restored has the fewest places.
        for kind in sorted(aimed, key=lambda kind: kind != RESTORE_KILL):
            self._aim(kind)
        slices = self._slices()
        for kind in before:
            self._put_before(kind, slices)
        return self._filled(slices)

    def _aim(self, kind: str) -> None:
        """Reserves a free step for a fault, among those where it can happen."""
        free = [step for step in self._steps_for(kind) if step not in self.kind_of]
        if not free:
            self.left_out.append(kind)
            return
        step = self.rng.choice(free)
        self.kind_of[step] = kind
        if kind in DRIVER_KILLS or kind == ZOMBIE or (kind == TWO and self.rng.random() < 0.4):
            self.kills.add(step)

    def _steps_for(self, kind: str) -> list[int]:
        """The steps in which a fault of this kind can happen."""
        case = self.case
        if (
            (kind == REPLAN and not case.has_other_plans)
            or (kind in APPLY_KILLS and not case.has_apply)
            or (kind in {RESIZE, REROUTE} and case.restless)
        ):
            return []
        portions = [case.steps(portion) for portion in range(len(case.portions))]
        if kind == RESTORE_KILL:  # needs damage before a start
            return [steps[0] for steps in portions[1:]]
        if kind in _NEED_ROWS:
            return [step for step, batch in enumerate(case.batches(), start=1) if batch is not None]
        if kind in DAMAGES or kind in LIVE:  # follow a step of the same run
            return [step for steps in portions for step in steps[1:] if step > 2]
        return [step for steps in portions for step in steps]

    def _slices(self) -> list[_Slice]:
        slices = []
        for portion, start in enumerate(self.case.undisturbed()):
            steps = self.case.steps(portion)
            current = _Slice(start, begins=steps[0])
            for step in steps:
                if step in self.kind_of:
                    current.steps.append(step)
                if step in self.kills:
                    slices.append(current)
                    current = _Slice(start, begins=None)
            slices.append(current)
        return slices

    def _put_before(self, kind: str, slices: Sequence[_Slice]) -> None:
        """Chooses the start before which something happens.

        Spark's last commit can be lost only after a whole portion. Other slots need a step that
        commits with them. A start after a kill may have no such step, and neither may a start whose
        first step is killed.
        """
        places = [each for each in slices[1:] if kind not in each.before]
        if kind == OTHER_AGGREGATES:
            portions = [portion for portion, _ in self.case.topology.changes]
            places = [
                each
                for each in places
                if each.begins is not None and each.start.portion in portions
            ]
        if kind in {COMMIT_LOST, OTHER_SLOTS}:
            places = [s for s in places if s.begins is not None and s.begins not in self.kills]
        if not places or (kind == OTHER_SLOTS and self.case.restless):
            self.left_out.append(kind)
        else:
            self.rng.choice(places).before.append(kind)

    def _filled(self, slices: Sequence[_Slice]) -> tuple[Start, ...]:
        starts, slots = [], self.case.slots
        for each in slices:
            restores = any(self.kind_of[step] == RESTORE_KILL for step in each.steps)
            if restores and DAMAGES[0] not in each.before:
                each.before.append(DAMAGES[0])
            faults = []
            for kind in sorted(each.before, key=_BEFORE.index):
                slots = self._other(slots) if kind == OTHER_SLOTS else slots
                faults.append(PlannedFault(kind=kind, act=self._act(kind, slots)))
            slots_at_start = slots
            for step in each.steps:
                slots = self._slots_in(step, slots)
                faults.append(self._fault(step, slots))
            starts.append(replace(each.start, slots=slots_at_start, faults=tuple(faults)))
        return tuple(starts)

    def _slots_in(self, step: int, slots: int) -> int:
        """The slots of a step; a reroute needs at least two, since one slot has only one route."""
        if self.kind_of[step] == RESIZE:
            return self._other(slots)
        return max(slots, 2) if self.kind_of[step] == REROUTE else slots

    def _other(self, slots: int) -> int:
        return self.rng.choice([n for n in range(1, MOST_SLOTS + 1) if n != slots])

    def _act(self, kind: str, slots: int, after: int | None = None) -> Act:
        return Act(
            kind=kind,
            after=after,
            slots=slots,
            planner=self.rng.choice(sorted(PLANNERS)),
            share=self.rng.choice((0.2, 0.5, 1.0)),
            seed=self.rng.randrange(1 << 30),
        )

    def _fault(self, step: int, slots: int) -> PlannedFault:
        kind = self.kind_of[step]
        if kind in DAMAGES or kind in LIVE:
            return PlannedFault(kind=kind, act=self._act(kind, slots, step - 1))
        name, _, point = kind.partition(": ")
        if name == "driver killed":
            points = [f"{point}@{step}=kill"]
        elif name == "worker killed":
            points = [self._at(point, step, slots, "kill")]
        elif name == "job failed":
            points = [self._at(point, step, slots, "fail")]
        elif kind in (STOPPED, ZOMBIE):
            seconds = self.rng.randint(1, 2) if kind == STOPPED else ZOMBIE_S
            points = [self._at(self.rng.choice(SLOT_POINTS[:4]), step, slots, f"stop{seconds}")]
        else:
            points = self._two(step, slots)
        return PlannedFault(kind=kind, points=tuple(points))

    def _at(self, point: str, step: int, slots: int, action: str) -> str:
        """A fault point in one slot, preferably a late one, so that other slots have written.

        In any slot if few of them have rows, or if slots change all the time.
        """
        events = self.case.events
        sparse = self.case.dag is not None or events.key_kind == "none" or events.keys < 20
        any_slot = self.case.topology.restless or point in APPLY_POINTS
        if any_slot or (sparse and point == "slot.half"):
            return f"{point}@{step}={action}"
        slot = max(self.rng.randrange(slots), self.rng.randrange(slots))
        return f"{point}@{step}/{slot}={action}"

    def _two(self, step: int, slots: int) -> list[str]:
        """A worker or a job fails; then another one fails, or the driver is killed."""
        first, second = self.rng.sample(
            ("slot.begin", "slot.held", "slot.merged", "slot.logged", "slot.stored"), 2
        )
        points = [self._at(first, step, slots, self.rng.choice(("kill", "fail")))]
        if step in self.kills:
            return [*points, f"{self.rng.choice(_KILLS_OF_TWO)}@{step}=kill"]
        return [*points, self._at(second, step, slots, self.rng.choice(("kill", "fail", "stop1")))]

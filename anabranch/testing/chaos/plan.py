"""The plan of a chaos run: random topologies, the faults dealt to them, and the starts that they are spread over.

Pure and seeded: one seed gives one plan. A case is a topology with its input, which arrives in portions; each portion is one
AvailableNow run, ending with a closing step. A driver kill splits a run in two starts. Step numbers are known beforehand:
a step that was killed before its commit has the same number again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from anabranch.faults import APPLY_POINTS, DRIVER_POINTS, SLOT_POINTS
from anabranch.plan.lifting import LIFT_FIRST, ROUTE_FIRST
from anabranch.plan.planners.registry import AUTO, PLANNERS, UNFUSED
from anabranch.testing.dags import Dag, random_dag
from anabranch.testing.events import HOUR_US, MINUTE_US, SECOND_US, EventPlan, KeyKind
from anabranch.testing.reference.chains import HAPPENED
from anabranch.testing.reference.windows import WindowQuery
from anabranch.topology.apply import HASH, OSG, ROUND_ROBIN
from anabranch.topology.windows import (
    Session,
    Window,
    cumulative,
    hopping,
    session,
    sliding,
    tumbling,
)

# Kinds of faults. Those at points of the protocol are done by anabranch.faults, the others by the driver process or from outside.
DRIVER_KILLS = tuple(f"driver killed: {point}" for point in DRIVER_POINTS)
WORKER_KILLS = tuple(f"worker killed: {point}" for point in SLOT_POINTS)
APPLY_KILLS = tuple(f"worker killed: {point}" for point in APPLY_POINTS)
STOPPED = "worker stopped and continued"
ZOMBIE = "worker stopped, driver killed, worker continued"
JOB_FAILS = ("job failed: slot.half", "job failed: slot.stored")
DAMAGES = ("state deleted", "state truncated", "state overwritten", "state put back")
COMMIT_LOST = "Spark's last commit deleted"
RESIZE = "resize"
REROUTE = "reroute"
REPLAN = "another plan between two steps"
OTHER_SLOTS = "restart with other slots"
TWO = "two in one step"
LIVE = (RESIZE, REROUTE, REPLAN)  # in the running query
KINDS = (
    *DRIVER_KILLS,
    *WORKER_KILLS,
    *APPLY_KILLS,
    STOPPED,
    ZOMBIE,
    *JOB_FAILS,
    *DAMAGES,
    COMMIT_LOST,
    *LIVE,
    OTHER_SLOTS,
    TWO,
)
_ONCE = frozenset(
    {*DRIVER_KILLS, ZOMBIE, *APPLY_KILLS}
)  # what takes long, or needs a topology of its kind; the others come twice

_DAGS = (
    0.6  # the share of cases with several sources, joins and components, of those that may be any
)
ZOMBIE_S = (
    14  # longer than a driver takes to start, so that the worker wakes up in the next driver's life
)
MOST_SLOTS = 4
NEED_ROWS = frozenset({*JOB_FAILS, TWO, "worker killed: slot.half", *APPLY_KILLS})
# What comes before a start, in this order: what is deleted cannot be overwritten.
_BEFORE = (
    OTHER_SLOTS,
    COMMIT_LOST,
    "state put back",
    "state overwritten",
    "state truncated",
    "state deleted",
)
RESTORE_KILL = "driver killed: restore.before"
_KILLS_OF_TWO = (
    "job.after",
    "sinks.before",
    "sinks.half",
    "sinks.after",
    "commit.before",
    "commit.after",
)
_UNDONE = DRIVER_POINTS[DRIVER_POINTS.index("job.after") : DRIVER_POINTS.index("commit.after")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What the driver process does itself: before a start (`after` is None), or when a step is committed."""

    kind: str
    after: int | None = None
    slots: int = 0
    planner: str = AUTO
    share: float = 0.3
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """One planned fault. It has happened when all its points have left a mark, and its act is in the journal."""

    kind: str
    points: tuple[str, ...] = ()
    act: Act | None = None

    @property
    def ends_driver(self) -> bool:
        return self.kind == ZOMBIE or any(
            point.split("@")[0] in DRIVER_POINTS for point in self.points
        )

    @property
    def undoes(self) -> bool:
        """True where the driver dies when the step's job has run and its commit record is not written."""
        return self.kind == ZOMBIE or any(point.split("@")[0] in _UNDONE for point in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpec:
    """A topology of windows as plain values."""

    keys: tuple[str, ...]
    windows: tuple[tuple[str, int, int, int], ...]  # kind, length, every, start; microseconds
    aggregates: tuple[tuple[str, str, str, str | None], ...]  # name, kind, expression, filter
    delay_us: int
    shards: int
    chain: int  # deltas after which a snapshot is due: short ones, so that snapshots are made, undone and restored
    lift: str
    late_sink: bool
    spark_sink: bool  # results written by Spark's writer, not linked
    gaps: tuple[int, ...] = ()  # of sessions
    share: bool | None = None
    then: Then | None = None
    restless: bool = False  # other routes and slots before every step
    process: bool = False  # a user's class with timers reads the source too
    grouping: str | None = None  # of a user's function that reads the source too
    gathered: bool = (
        False  # windows with sketches, users' aggregates and early results read the source too
    )

    def sessions(self) -> list[Session]:
        return [session(timedelta(microseconds=gap)) for gap in self.gaps]

    def built_windows(self) -> list[Window]:
        return [window for shape in self.windows for window in _windows(*shape)]

    def query(self) -> WindowQuery:
        """The same for the reference."""
        built = [(w.name, w.length_us, w.every_us, w.offset_us) for w in self.built_windows()]
        return WindowQuery(
            keys=self.keys,
            event_time="at",
            windows=built,
            aggregates=self.aggregates,
            delay_us=self.delay_us,
            sessions=[(each.name, each.gap_us) for each in self.sessions()],
        )

    def __str__(self) -> str:
        windows = ", ".join(
            dict.fromkeys(
                [*(w.name for w in self.built_windows()), *(s.name for s in self.sessions())]
            )
        )
        then = (
            ""
            if self.then is None
            else f", then by {', '.join(self.then.keys) or 'nothing'} ({self.then.planner})"
        )
        then += ", and a process" if self.process else ""
        then += f", and an apply by {self.grouping}" if self.grouping else ""
        then += ", and sketches with early results" if self.gathered else ""
        text = f"by {', '.join(self.keys) or 'nothing'}: {windows}; {', '.join(each[1] for each in self.aggregates)}{then}"
        return f"{text}; other routes before every step" if self.restless else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Then:
    """An operator that reads the results of the first: by some of its keys, in a window of its own; fused with it or not."""

    keys: tuple[str, ...]
    length_us: int
    planner: str

    @property
    def window(self) -> Window:
        return tumbling(timedelta(microseconds=self.length_us))

    def query(self) -> WindowQuery:
        """The same for the reference, which reads rows with the time at which they happened."""
        shape = (self.window.name, self.length_us, self.length_us, 0)
        aggregates = (("rows", "count", "*"), ("names", "max", "window_name"))
        return WindowQuery(
            keys=self.keys, event_time=HAPPENED, windows=[shape], aggregates=aggregates
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of the topology on its checkpoint; where it ends with a kill, the next one is a new driver process."""

    published: int  # files of the input that are there
    slots: int
    finish: bool
    blows: tuple[Blow, ...] = ()

    @property
    def killed(self) -> bool:
        return any(blow.ends_driver for blow in self.blows)


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePlan:
    """A topology, its input in portions, and the starts of its disturbed run."""

    number: int
    topology: TopologySpec
    events: EventPlan
    portions: tuple[int, ...]
    finish: bool
    slots: int
    starts: tuple[Start, ...] = ()
    dag: Dag | None = None  # operators of its own, instead of the topology's windows
    planner: str = AUTO

    @property
    def blows(self) -> list[Blow]:
        return [blow for start in self.starts for blow in start.blows]

    def undisturbed(self) -> tuple[Start, ...]:
        """The same run without a fault: one start for each portion."""
        seen = [sum(self.portions[: i + 1]) for i in range(len(self.portions))]
        return tuple(
            Start(published=n, slots=self.slots, finish=self.finish and n == seen[-1]) for n in seen
        )

    def batches(self) -> list[int | None]:
        """The batch of each step, None for a closing step; the step that finishes everything is not in it."""
        numbers = iter(range(sum(self.portions)))
        return [
            each for size in self.portions for each in (*(next(numbers) for _ in range(size)), None)
        ]

    def steps(self, portion: int) -> range:
        """The steps of one portion: its batches, the closing step, and at the end the one that finishes."""
        first = 1 + sum(self.portions[:portion]) + portion
        finishing = self.finish and portion == len(self.portions) - 1
        return range(first, first + self.portions[portion] + (2 if finishing else 1))


def plan_cases(seed: int, case_faults: int) -> Iterator[CasePlan]:
    """Cases without end; every kind of fault comes before any comes again."""
    cards = _deck(seed)
    number = 0
    while True:
        number += 1
        yield plan_case(seed, number, [next(cards) for _ in range(case_faults)])


def plan_case(seed: int, number: int, kinds: Sequence[str], *, dag: bool | None = None) -> CasePlan:
    """One case with these kinds of faults; those that find no place in it are left out. `dag`: whether it is one, or by chance."""
    rng = random.Random(f"chaos {seed} {number}")
    portions = tuple(rng.randint(3, 5) for _ in range(max(2, round(len(kinds) / 4))))
    case = _topology_case(rng, number, portions)
    if dag is None:
        dag = rng.random() < _DAGS
        if any(
            kind in APPLY_KILLS for kind in kinds
        ):  # there must be an apply whose workers can be killed
            case, dag = (
                replace(
                    case, topology=replace(case.topology, grouping=case.topology.grouping or OSG)
                ),
                False,
            )
    if dag:
        drawn = random_dag(rng, operators=rng.randint(3, 6), rows=(30, 60))
        case = replace(case, dag=drawn, planner=rng.choice((AUTO, *PLANNERS)))
    elif case.topology.then is not None:
        case = replace(case, planner=case.topology.then.planner)
    return replace(case, starts=_Layout(case, rng).starts(kinds))


def _deck(seed: int) -> Iterator[str]:
    rng = random.Random(f"chaos deck {seed}")
    while True:
        first, second = list(KINDS), [kind for kind in KINDS if kind not in _ONCE]
        rng.shuffle(first)
        rng.shuffle(second)
        yield from first
        yield from second


# Topologies ---------------------------------------------------------------------------------------------------------

_S, _M = SECOND_US, MINUTE_US
_SHAPES = (
    ("tumbling", 20 * _S, 20 * _S, 0),
    ("tumbling", _M, _M, 0),
    ("tumbling", _M, _M, 17 * _S),
    ("tumbling", 3 * _M, 3 * _M, 45 * _S),
    ("tumbling", HOUR_US, HOUR_US, 0),
    ("sliding", 2 * _M, 30 * _S, 0),
    ("sliding", 5 * _M, _M, 0),
    ("sliding", 5 * _M, _M, 10 * _S),
    ("sliding", 10 * _M, 2 * _M, 0),
    ("hopping", 40 * _S, _M, 10 * _S),
    ("hopping", 50 * _S, 70 * _S, 0),
    ("hopping", 3 * _M, 2 * _M, 30 * _S),
    ("cumulative", 6 * _M, 2 * _M, 0),
)
_AGGREGATES = {
    "count": ("*", "v", "s"),
    "sum": ("v", "x", "d", "v * 2 + 1"),
    "avg": ("v", "x", "d"),
    "min": ("v", "x", "s"),
    "max": ("v", "d", "v % 7"),
    "variance": ("v", "x"),
    "var_pop": ("v", "x"),
    "stddev": ("v", "x"),
    "stddev_pop": ("v", "x"),
    "first": ("v", "s", "d"),
    "last": ("v", "x", "s"),
    "bool_or": ("v > 900", "s = 'ash'"),
    "collect_set": ("v % 7", "s"),
    "count_distinct": ("v % 7", "s", "d"),
}
_FILTERS = ("v > 0", "x < 0", "v % 2 = 0", "s = 'ash'")
_KEY_KINDS: tuple[KeyKind, ...] = (
    "int",
    "string",
    "float",
    "several",
    "none",
    "int",
    "string",
    "several",
)


def _windows(kind: str, length_us: int, every_us: int, start_us: int) -> tuple[Window, ...]:
    length, every, start = (timedelta(microseconds=us) for us in (length_us, every_us, start_us))
    if kind == "cumulative":
        return cumulative(length, every=every, start=start)
    if kind == "tumbling":
        return (tumbling(length, start=start),)
    return ((sliding if kind == "sliding" else hopping)(length, every=every, start=start),)


def _then(rng: random.Random, keys: tuple[str, ...]) -> Then | None:
    if rng.random() < 0.4:
        return None
    some = tuple(key for key in keys if rng.random() < 0.7)
    return Then(
        keys=some, length_us=rng.choice((_M, 3 * _M, 5 * _M)), planner=rng.choice((AUTO, UNFUSED))
    )


def _topology_case(rng: random.Random, number: int, portions: tuple[int, ...]) -> CasePlan:
    events = EventPlan(
        seed=rng.randrange(1 << 30),
        batches=sum(portions),
        rows=rng.randint(150, 400),
        key_kind=rng.choice(_KEY_KINDS),
        keys=rng.choice((3, 20, 60, 200)),
        skew=rng.choice((0.0, 1.1)),
        churn=rng.choice((0.0, 0.1)),
        null_share=rng.choice((0.0, 0.03)),
        start_us=rng.choice((0, -7 * _M, 1_700_000_000 * _S)),
        span_us=_M,
        disorder_us=rng.choice((0, 10 * _S, 90 * _S)),
        late_share=rng.choice((0.02, 0.1)),
        late_us=15 * _M,
    )
    kinds = [
        *rng.sample(sorted(_AGGREGATES), rng.randint(1, 4)),
        rng.choice(("first", "last", "stddev")),
    ]
    topology = TopologySpec(
        keys=tuple(events.key_columns),
        windows=tuple(rng.sample(_SHAPES, rng.randint(1, 3))),
        aggregates=tuple(
            (
                f"{kind}_{i}",
                kind,
                rng.choice(_AGGREGATES[kind]),
                rng.choice((None, None, *_FILTERS)),
            )
            for i, kind in enumerate(kinds)
        ),
        delay_us=rng.choice((0, 10 * _S, _M)),
        shards=rng.choice((5, 8, 16)),
        chain=rng.choice((2, 4, 16)),
        lift=rng.choice((LIFT_FIRST, ROUTE_FIRST)),
        late_sink=rng.random() < 0.8,
        spark_sink=rng.random() < 0.25,
        gaps=tuple(rng.sample((2 * _S, 20 * _S, _M), rng.choice((0, 0, 1, 2)))),
        share=rng.choice((None, True, False)),
        then=_then(rng, tuple(events.key_columns)),
        restless=random.Random(f"restless {events.seed}").random() < 0.3,
        process=random.Random(f"chaos process {events.seed}").random() < 0.5,
        grouping=random.Random(f"chaos apply {events.seed}").choice(
            (None, None, ROUND_ROBIN, HASH, OSG)
        ),
        gathered=random.Random(f"chaos gathered {events.seed}").random() < 0.5,
    )
    return CasePlan(
        number=number,
        topology=topology,
        events=events,
        portions=portions,
        finish=rng.random() < 0.4
        or all(length > 5 * _M for _, length, _, _ in topology.windows),  # something must close
        slots=rng.randint(1, MOST_SLOTS),
    )


# Layout ---------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Slice:
    """One start while it is being planned: the steps in which something happens, and what happens before it."""

    start: Start
    begins: bool  # a portion begins here; else the driver was killed before
    steps: list[int] = field(default_factory=list)
    before: list[str] = field(default_factory=list)


class _Layout:
    """Gives each fault of a case its step, then cuts the steps into starts and fills in the details."""

    def __init__(self, case: CasePlan, rng: random.Random) -> None:
        self.case, self.rng = case, rng
        self.kind_of: dict[int, str] = {}  # by step
        self.kills: set[int] = set()  # steps in which the driver dies

    def starts(self, kinds: Sequence[str]) -> tuple[Start, ...]:
        before = [
            k
            for k in kinds
            if k in (COMMIT_LOST, OTHER_SLOTS) or (k in DAMAGES and self.rng.random() < 0.5)
        ]
        aimed = list(kinds)
        for kind in before:
            aimed.remove(kind)
        for kind in sorted(
            aimed, key=lambda kind: kind != RESTORE_KILL
        ):  # which has the fewest places
            self._take(kind)
        slices = self._slices()
        for kind in before:
            places = [
                s for s in slices[1:] if kind not in s.before and (s.begins or kind != COMMIT_LOST)
            ]
            if places:
                self.rng.choice(places).before.append(kind)
        return self._filled(slices)

    def _take(self, kind: str) -> None:
        """A step of its own for a fault, of those where it can happen."""
        portions = range(len(self.case.portions))
        steps = [step for portion in portions for step in self.case.steps(portion)]
        firsts = [self.case.steps(portion)[0] for portion in portions]
        if kind == RESTORE_KILL:  # needs damage before a start
            steps = firsts[1:]
        elif kind in NEED_ROWS:
            steps = [
                step for step, batch in enumerate(self.case.batches(), start=1) if batch is not None
            ]
        elif kind in DAMAGES or kind in LIVE:  # follow a step of the same run
            steps = [step for step in steps if step > 2 and step not in firsts]
        if kind == REPLAN and self.case.dag is None and self.case.topology.then is None:
            return  # one operator is one component, whatever the plan
        if kind in APPLY_KILLS and (
            self.case.dag is not None or self.case.topology.grouping is None
        ):
            return
        free = [step for step in steps if step not in self.kind_of]
        if free:
            step = self.rng.choice(free)
            self.kind_of[step] = kind
            if kind in DRIVER_KILLS or kind == ZOMBIE or (kind == TWO and self.rng.random() < 0.4):
                self.kills.add(step)

    def _slices(self) -> list[_Slice]:
        slices = []
        for portion, start in enumerate(self.case.undisturbed()):
            current = _Slice(start, begins=True)
            for step in self.case.steps(portion):
                if step in self.kind_of:
                    current.steps.append(step)
                if step in self.kills:
                    slices.append(current)
                    current = _Slice(start, begins=False)
            slices.append(current)
        return slices

    def _filled(self, slices: Sequence[_Slice]) -> tuple[Start, ...]:
        starts, slots = [], self.case.slots
        for each in slices:
            if (
                any(self.kind_of[step] == RESTORE_KILL for step in each.steps)
                and DAMAGES[0] not in each.before
            ):
                each.before.append(DAMAGES[0])
            blows = []
            for kind in sorted(each.before, key=_BEFORE.index):
                slots = self._other(slots) if kind == OTHER_SLOTS else slots
                blows.append(Blow(kind=kind, act=self._act(kind, slots)))
            slots_at_start = slots
            for step in each.steps:
                slots = self._other(slots) if self.kind_of[step] == RESIZE else slots
                blows.append(self._blow(step, slots))
            starts.append(replace(each.start, slots=slots_at_start, blows=tuple(blows)))
        return tuple(starts)

    def _other(self, slots: int) -> int:
        return self.rng.choice([n for n in range(1, MOST_SLOTS + 1) if n != slots])

    def _act(self, kind: str, slots: int, after: int | None = None) -> Act:
        share = self.rng.choice((0.2, 0.5, 1.0))
        planner = self.rng.choice(sorted(PLANNERS))
        return Act(
            kind=kind,
            after=after,
            slots=slots,
            planner=planner,
            share=share,
            seed=self.rng.randrange(1 << 30),
        )

    def _blow(self, step: int, slots: int) -> Blow:
        kind = self.kind_of[step]
        if kind in DAMAGES or kind in LIVE:
            return Blow(kind=kind, act=self._act(kind, slots, step - 1))
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
        return Blow(kind=kind, points=tuple(points))

    def _at(self, point: str, step: int, slots: int, action: str) -> str:
        """A point of one slot, rather of the last one, so that others have written; of any where few have rows or slots are any."""
        sparse = (
            self.case.dag is not None
            or self.case.events.key_kind == "none"
            or self.case.events.keys < 20
        )
        if (
            self.case.topology.restless
            or point in APPLY_POINTS
            or (sparse and point == "slot.half")
        ):
            return f"{point}@{step}={action}"
        return (
            f"{point}@{step}/{max(self.rng.randrange(slots), self.rng.randrange(slots))}={action}"
        )

    def _two(self, step: int, slots: int) -> list[str]:
        """A worker that dies or a job that fails, and then another one, or the driver's death."""
        first, second = self.rng.sample(
            ("slot.begin", "slot.held", "slot.merged", "slot.logged", "slot.stored"), 2
        )
        points = [self._at(first, step, slots, self.rng.choice(("kill", "fail")))]
        if step in self.kills:
            return [*points, f"{self.rng.choice(_KILLS_OF_TWO)}@{step}=kill"]
        return [*points, self._at(second, step, slots, self.rng.choice(("kill", "fail", "stop1")))]

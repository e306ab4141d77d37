"""Mistakes that show only when rows come: the step is not committed, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import anabranch as ab
from tests.mistakes.job import Job


@dataclass(frozen=True)
class RunningMistake:
    """What is added to the job's topology, or done to it, and what the message must say."""

    what: str
    says: tuple[str, ...]
    before: Callable[[ab.Stream], object] | None = None
    options: Callable[[Job], dict[str, object]] = lambda _: {}
    sink: object = None
    spoil: Callable[[Job], Callable[[], None]] | None = None  # does harm; returns what repairs it


class Raising:
    state: int
    output = "n bigint"

    def process(self, key, rows, state, ctx):
        return [{"n": 1 // 0}]


class Fractions(Raising):
    def process(self, key, rows, state, ctx):
        return [{"n": 1.5}]


class TooLarge(Raising):
    output = "n int"

    def process(self, key, rows, state, ctx):
        return [{"n": 2**40}]


class OtherColumns(Raising):
    def process(self, key, rows, state, ctx):
        return [{"m": 1}]


class NotRows(Raising):
    def process(self, key, rows, state, ctx):
        return 5


class UnknownColumn(Raising):
    def process(self, key, rows, state, ctx):
        return [{"n": rows.nothing[0]}]


class WithTimer(Raising):
    def on_timer(self, key, state, ctx):
        return None


class TimerInThePast(WithTimer):
    def process(self, key, rows, state, ctx):
        ctx.timer(datetime(1999, 1, 1, tzinfo=UTC))


class TimerWithoutMethod(Raising):
    def process(self, key, rows, state, ctx):
        ctx.timer(datetime(2027, 1, 1, tzinfo=UTC))


class TimerNamedSeven(WithTimer):
    def process(self, key, rows, state, ctx):
        ctx.timer(datetime(2027, 1, 1, tzinfo=UTC), 7)


class VectorisedShape:
    state = {"n": "bigint"}
    output = "n bigint"

    def process(self, rows, state, ctx):
        return {"n": [1, 2, 3, 4, 5, 6, 7, 8, 9]}


class VectorisedColumns(VectorisedShape):
    def process(self, rows, state, ctx):
        return {"m": state.n}


def _process(cls: type) -> Callable[[ab.Stream], object]:
    return lambda clicks: clicks.process("page", cls, name="mine").to(ab.memory(), name="mine")


def _apply(fn: Callable) -> Callable[[ab.Stream], object]:
    def added(clicks: ab.Stream) -> object:
        applied = clicks.apply(fn, schema="at timestamp, n int", form="rows", name="mine")
        return applied.to(ab.memory(), name="mine")

    return added


def _raises(row):
    return {"at": row["at"], "n": 1 // (row["ms"] - 7)}


def _other_columns(row):
    return {"m": 1}


def _other_type(row):
    return {"at": row["at"], "n": "seven"}


class Failing:
    """A udaf that fails on one value."""

    state_type = int
    result_type = "bigint"

    def init(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        return state + 1 // (value - 7)

    def merge(self, state: int, other: int) -> int:
        return state + other

    def finish(self, state: int) -> int:
        return state


def _udaf(clicks: ab.Stream) -> object:
    made = ab.udaf(Failing)
    windows = [ab.tumbling("1 hour")]
    found = clicks.aggregate(by="page", windows=windows, n=made("ms"), name="mine")
    return found.to(ab.memory(), name="mine")


def _failing_sink(rows, step):
    raise OSError(f"no rows today, in step {step}")


def _corrupt(job: Job) -> Callable[[], None]:
    path = sorted(job.input.iterdir())[1]
    whole = path.read_bytes()
    path.write_bytes(b"PAR1 not a parquet file at all PAR1")
    return lambda: path.write_bytes(whole)


def _other_types(job: Job) -> Callable[[], None]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = sorted(job.input.iterdir())[1]
    whole = path.read_bytes()
    pq.write_table(pa.table({"at": [1], "then": [1], "page": ["x"], "ms": ["seven"]}), path)
    return lambda: path.write_bytes(whole)


RUNNING = [
    RunningMistake("a process that raises", ("'mine'", "page ", "ZeroDivision"), _process(Raising)),
    RunningMistake("1.5 for a bigint", ("'mine'", "'n'", "1.5", "bigint"), _process(Fractions)),
    RunningMistake("2 ** 40 for an int", ("'mine'", "'n'", "type int"), _process(TooLarge)),
    RunningMistake("other columns", ("'mine'", "m", "n"), _process(OtherColumns)),
    RunningMistake("not rows", ("'mine'", "'int'"), _process(NotRows)),
    RunningMistake("an unknown column", ("'nothing'", "ms", "'mine'"), _process(UnknownColumn)),
    RunningMistake("a timer in the past", ("1999", "watermark"), _process(TimerInThePast)),
    RunningMistake("a timer for nothing", ("on_timer", "'mine'"), _process(TimerWithoutMethod)),
    RunningMistake("a timer named 7", ("7", "string"), _process(TimerNamedSeven)),
    RunningMistake("a vectorised shape", ("'mine'", "9", "'n'"), _process(VectorisedShape)),
    RunningMistake("vectorised columns", ("'mine'", "m", "n"), _process(VectorisedColumns)),
    RunningMistake("an apply that raises", ("'mine'", "ZeroDivision", "7"), _apply(_raises)),
    RunningMistake("an apply of other columns", ("'mine'", "m", "at, n"), _apply(_other_columns)),
    RunningMistake("an apply of other types", ("'mine'", "'n'", "seven"), _apply(_other_type)),
    RunningMistake("a udaf that raises", ("ZeroDivision", "Failing"), _udaf),
    RunningMistake("a sink that raises", ("pages", "no rows today"), sink=_failing_sink),
    RunningMistake("a corrupt file", ("01.parquet",), spoil=_corrupt),
    RunningMistake("a file of other types", ("01.parquet", "at", "timestamp"), spoil=_other_types),
    RunningMistake(
        "a state that is too large",
        ("state_limit", "nothing is lost"),
        options=lambda _: {"state_limit": 4096},
    ),
]

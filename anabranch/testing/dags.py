"""Random DAGs of operators as plain values: sources, maps, windows, joins, and their rows.

One random generator gives one DAG, so a failed case can print all of it. Hypothesis gives
generators that it can shrink (`hypothesis.strategies.randoms`), chaos runs give seeded ones.

Every source has the key columns a, b and c. The name of any other column begins with the name of
the operator that made it, so that two streams can be joined. Expressions mean the same in Spark SQL
and in DuckDB.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.testing.events import MINUTE_US, SECOND_US
from anabranch.testing.reference.windows import Window

Kind: TypeAlias = Literal["filter", "column", "explode", "rename", "windows", "join"]

KEYS = ("a", "b", "c")
_KEY_TYPES = {"a": "string", "b": "bigint", "c": "int"}
_ARROW = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32()}
HOWS = ("inner", "left", "right", "full")
WINDOW_COLUMNS = ("window_start", "window_end", "window_name")

_S, _M = SECOND_US, MINUTE_US
_SHAPES: tuple[Window, ...] = (
    ("1m", _M, _M, 0),
    ("2m", 2 * _M, 2 * _M, 0),
    ("2m/1m", 2 * _M, _M, 0),
    ("3m/1m", 3 * _M, _M, 0),
    ("3m+", 3 * _M, 3 * _M, 45 * _S),
    ("40s/1m", 40 * _S, _M, 10 * _S),
    ("5m/2m", 5 * _M, 2 * _M, 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DagSource:
    """Rows in batches of a minute each; some are late, some have no time or no key."""

    name: str
    delay_us: int
    seed: int
    rows: int  # per batch
    null_share: float = 0.0

    @property
    def time(self) -> str:
        return f"{self.name}_at"

    @property
    def value(self) -> str:
        return f"{self.name}_v"


@dataclass(frozen=True, slots=True, kw_only=True)
class DagNode:
    """An operator: a map (filter, new column, rows multiplied, renamed), windows, or a join."""

    name: str
    kind: Kind
    inputs: tuple[str, ...]
    text: str = ""  # of a map: its condition or expression
    by: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    aggregates: tuple[tuple[str, str, str], ...] = ()  # name, kind, expression
    how: str = "inner"

    @property
    def is_map(self) -> bool:
        return self.kind not in {"windows", "join"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dag:
    """A topology as plain values: each operator after those that feed it."""

    sources: tuple[DagSource, ...]
    nodes: tuple[DagNode, ...]
    start_us: int = 0

    @property
    def results(self) -> tuple[DagNode, ...]:
        """The operators that have results."""
        return tuple(node for node in self.nodes if not node.is_map)

    def __str__(self) -> str:
        drawn = [
            f"{n.name} = {n.kind}({', '.join(n.inputs)}{f'; {n.text}' if n.text else ''})"
            for n in self.nodes
            if n.is_map
        ]
        drawn += [
            f"{n.name} = {f'{n.how} join' if n.kind == 'join' else n.kind}({', '.join(n.inputs)} "
            f"by {', '.join(n.by) or 'nothing'}: {', '.join(name for name, *_ in n.windows)})"
            for n in self.results
        ]
        return f"{len(self.sources)} sources; {'; '.join(drawn)}"


def columns_of(dag: Dag, name: str) -> dict[str, str]:
    """The columns of a stream and their types; windows of results are left out."""
    source = next((each for each in dag.sources if each.name == name), None)
    if source is not None:
        return {**_KEY_TYPES, source.value: "bigint", source.time: "timestamp"}
    node = next(each for each in dag.nodes if each.name == name)
    given = [columns_of(dag, each) for each in node.inputs]
    if node.kind == "windows":
        return {key: given[0][key] for key in node.by} | {
            each: "bigint" for each, *_ in node.aggregates
        }
    if node.kind == "join":
        return {key: given[0][key] for key in node.by} | {
            n: t for each in given for n, t in each.items() if n not in node.by
        }
    if node.kind == "rename":
        return {renamed(node, column, kind): kind for column, kind in given[0].items()}
    return given[0] | ({} if node.kind == "filter" else {f"{node.name}_v": "bigint"})


def renamed(node: DagNode, column: str, kind: str) -> str:
    """The name of a column after a map that renames; event times keep their names."""
    return column if kind == "timestamp" or column in node.by else f"{node.name}_{column}"


def event_time_of(dag: Dag, name: str) -> DagSource | None:
    """The source whose rows a stream has, directly or through maps; None if it has results."""
    for source in dag.sources:
        if source.name == name:
            return source
    node = next(each for each in dag.nodes if each.name == name)
    return event_time_of(dag, node.inputs[0]) if node.is_map else None


def batches_of(dag: Dag, source: DagSource, count: int) -> Iterator[pa.Table]:
    """The rows of a source, batch by batch; each depends on the seed and its number only."""
    for number in range(count):
        chance = np.random.default_rng((source.seed, number))
        at = dag.start_us + number * _M + chance.integers(-100 * _S, 80 * _S, source.rows)

        def some(
            chance: np.random.Generator = chance,
        ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
            return chance.random(source.rows) < source.null_share

        columns = {
            "a": pa.array(
                [f"é{n}" if n else "" for n in chance.integers(0, 4, source.rows)],
                pa.string(),
                mask=some(),
            ),
            "b": pa.array(chance.integers(0, 3, source.rows), pa.int64(), mask=some()),
            "c": pa.array(chance.integers(0, 2, source.rows), pa.int32(), mask=some()),
            source.value: pa.array(chance.integers(-9, 10, source.rows), pa.int64(), mask=some()),
            source.time: pa.array(at, pa.int64(), mask=some()).cast(pa.timestamp("us", tz="UTC")),
        }
        yield pa.table(columns)


def random_dag(
    rng: random.Random, *, operators: int = 5, rows: Sequence[int] = (10, 16, 24)
) -> Dag:
    """A DAG with this many operators that have results: fan-out, fan-in, diamonds, chains."""
    sources = tuple(
        DagSource(
            name=f"s{i}",
            delay_us=rng.choice((0, 10 * _S, 40 * _S)),
            seed=rng.randrange(1 << 16),
            rows=rng.choice(rows),
            null_share=rng.choice((0.0, 0.06)),
        )
        for i in range(rng.randint(1, 3))
    )
    drawn = _Drawn(
        rng, Dag(sources=sources, nodes=(), start_us=rng.choice((0, -5 * _M, 1_700_000_000 * _S)))
    )
    for _ in range(operators):
        drawn.add()
    return pruned(drawn.dag)


class _Drawn:
    """A DAG while it is being drawn."""

    def __init__(self, rng: random.Random, dag: Dag) -> None:
        self.rng, self.dag = rng, dag

    def add(self) -> None:
        """Windows or a join over any streams, with a map before it now and then."""
        name = f"o{len(self.dag.results)}"
        pairs = list(self._pairs()) if self.rng.random() < 0.45 else []
        self._join(name, *self.rng.choice(pairs)) if pairs else self._windows(name)

    def _streams(self) -> list[str]:
        """Sources and operators, those that were drawn last more often."""
        return [
            *(each.name for each in self.dag.sources),
            *(each.name for each in self.dag.nodes[-3:]),
            *self._named(),
        ]

    def _named(self) -> list[str]:
        return [each.name for each in self.dag.nodes]

    def _windows(self, name: str) -> None:
        stream = self._mapped(self.rng.choice(self._streams()), name)
        columns = columns_of(self.dag, stream)
        numbers = [each for each, kind in columns.items() if kind == "bigint" and each not in KEYS]
        offered = [("n", "count", "*")]
        for column in self.rng.sample(numbers, min(2, len(numbers))):
            offered += [
                (f"s_{column}", "sum", column),
                (f"m_{column}", "max", column),
                (f"d_{column}", "count_distinct", column),
            ]
            offered += [(f"e_{column}", "sum", f"{column} + 1")] if self.rng.random() < 0.3 else []
        chosen = [offered[0], *(each for each in offered[1:] if self.rng.random() < 0.5)][:4]
        self._take(
            DagNode(
                name=name,
                kind="windows",
                inputs=(stream,),
                by=tuple(key for key in KEYS if key in columns and self.rng.random() < 0.65),
                windows=self._shapes(),
                aggregates=tuple(
                    (f"{name}_{i}", kind, given) for i, (_, kind, given) in enumerate(chosen)
                ),
            )
        )

    def _shapes(self) -> tuple[Window, ...]:
        return tuple(self.rng.sample(_SHAPES, self.rng.choice((1, 1, 2))))

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Streams that may be joined: they have a common key, and the join is not too large."""
        streams = list(dict.fromkeys([*(each.name for each in self.dag.sources), *self._named()]))
        for left in streams:
            for right in streams:
                keys = [
                    key
                    for key in KEYS
                    if key in columns_of(self.dag, left) and key in columns_of(self.dag, right)
                ]
                if (
                    left == right
                    or not keys
                    or sorted((self._weight(left), self._weight(right))) > [1, 1]
                ):
                    continue
                mine, theirs = event_time_of(self.dag, left), event_time_of(self.dag, right)
                if mine is None or mine is not theirs:  # event times keep their names
                    yield left, right

    def _weight(self, stream: str) -> int:
        """0: results of windows. 1: rows of a source. 2: joined rows."""
        source = event_time_of(self.dag, stream)
        if source is not None:
            return 1
        node = next(each for each in self.dag.nodes if each.name == stream)
        return self._weight(node.inputs[0]) if node.is_map else 0 if node.kind == "windows" else 2

    def _join(self, name: str, left: str, right: str) -> None:
        common = [
            key
            for key in KEYS
            if key in columns_of(self.dag, left) and key in columns_of(self.dag, right)
        ]
        by = tuple(
            common
            if self.rng.random() < 0.5
            else self.rng.sample(common, self.rng.randint(1, len(common)))
        )
        left, right = (
            self._mapped(left, f"{name}l", keep=by),
            self._mapped(right, f"{name}r", keep=by),
        )
        taken = {each for each in columns_of(self.dag, left) if each not in by}
        if taken & set(columns_of(self.dag, right)):
            right = self._take(DagNode(name=f"{name}_", kind="rename", inputs=(right,), by=by))
        windows, how = self._shapes(), self.rng.choice(HOWS)
        self._take(
            DagNode(name=name, kind="join", inputs=(left, right), by=by, windows=windows, how=how)
        )

    def _mapped(self, stream: str, name: str, keep: Sequence[str] = ()) -> str:
        """The stream itself, or a map of it."""
        numbers = [
            each
            for each, kind in columns_of(self.dag, stream).items()
            if kind == "bigint" and each not in KEYS
        ]
        if not numbers or self.rng.random() < 0.6:
            return stream
        column = self.rng.choice(numbers)
        kinds: tuple[Kind, ...] = (
            ("filter", "column", "explode") if self._weight(stream) < 2 else ("filter", "column")
        )
        kind = self.rng.choice(kinds)
        text = {
            "filter": self.rng.choice(
                (f"{column} > 0", f"{column} % 2 = 0", f"{column} IS NULL OR {column} < 5")
            ),
            "column": f"{column} * 2 + 1",
            "explode": column,
        }[kind]
        return self._take(
            DagNode(name=f"m_{name}", kind=kind, inputs=(stream,), text=text, by=tuple(keep))
        )

    def _take(self, node: DagNode) -> str:
        self.dag = replace(self.dag, nodes=(*self.dag.nodes, node))
        return node.name


def pruned(dag: Dag) -> Dag:
    """Without sources and maps that no operator reads."""
    read: set[str] = set()
    for node in reversed(dag.nodes):
        if not node.is_map or node.name in read:
            read.update(node.inputs)
    nodes = tuple(node for node in dag.nodes if not node.is_map or node.name in read)
    return replace(
        dag, sources=tuple(each for each in dag.sources if each.name in read), nodes=nodes
    )


def shapes_in(dag: Dag) -> Mapping[str, bool]:
    """Which shapes a DAG contains, by name; shows what a generator covers."""
    users = {
        name: [n for n in dag.nodes if name in n.inputs]
        for name in (*(s.name for s in dag.sources), *(n.name for n in dag.nodes))
    }
    joins = [node for node in dag.nodes if node.kind == "join"]
    raw = [tuple(event_time_of(dag, each) is not None for each in node.inputs) for node in joins]
    windows = [node for node in dag.nodes if node.kind == "windows"]
    return {
        "several sources": len(dag.sources) > 1,
        "different delays": len({each.delay_us for each in dag.sources}) > 1,
        "fan-out": any(len(each) > 1 for each in users.values()),
        "windows of windows": any(event_time_of(dag, each.inputs[0]) is None for each in windows),
        "join of sources": (True, True) in raw,
        "join of a source with results": any(sorted(each) == [False, True] for each in raw),
        "join of results": (False, False) in raw,
        "outer join": any(each.how != "inner" for each in joins),
        "rows multiplied": any(node.kind == "explode" for node in dag.nodes),
        "no keys": any(not node.by for node in windows),
        "diamond": any(
            _above(dag, left) & _above(dag, right)
            for left, right in (node.inputs for node in joins)
        ),
    }


def _above(dag: Dag, name: str) -> set[str]:
    """A stream and all streams that it is made of."""
    node = next((each for each in dag.nodes if each.name == name), None)
    return {name} | (
        set() if node is None else {above for given in node.inputs for above in _above(dag, given)}
    )

"""Sketches within their stated error, aggregates of users, and examples of the documentation."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasketches as ds
import duckdb
import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.app import app as command
from anabranch.testing import read_results, write_batches
from anabranch.testing.events import MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from anabranch.types import Array

DOCS = Path(__file__).parent.parent.parent / "docs" / "reference" / "aggregates.md"
KEEP = 40


def batches(count: int, rows: int) -> list[pa.Table]:
    """Rows of three keys, one minute per batch.

    `u` has many distinct values, `x` is skewed, `w` has a few frequent values.
    """
    made = []
    for number in range(count):
        random = np.random.default_rng(number)
        at = number * MINUTE_US + np.sort(random.integers(0, MINUTE_US, rows))
        made.append(
            pa.table(
                {
                    "k": random.integers(0, 3, rows),
                    "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
                    "u": random.integers(0, 30_000, rows),
                    "x": np.round(random.exponential(100, rows), 1),
                    "w": pa.array([f"w{each}" for each in random.zipf(1.2, rows) % 5_000]),
                }
            )
        )
    return made


def run(
    spark: SparkSession,
    root: Path,
    steps: Sequence[pa.Table],
    aggregates: dict[str, ab.Aggregate],
    first: int = 0,
) -> ab.Run:
    """Adds batches to a directory and runs a topology over them, from its checkpoint on.

    Windows are of one minute, and of two minutes every minute.
    """
    write_batches(steps, root / "in", first=first)
    frame = spark.readStream.schema(spark.read.parquet(str(root / "in")).schema).option(
        "maxFilesPerTrigger", 1
    )
    app = ab.Topology("aggregates")
    windows = [ab.tumbling("1 minute"), ab.sliding("2 minutes", every="1 minute")]
    results = app.source(frame.parquet(str(root / "in")), event_time="at").aggregate(
        by="k", windows=windows, name="results", **aggregates
    )
    results.to(ab.parquet(root / "out"))
    started = app.start(
        checkpoint=root / "checkpoint",
        slots=2,
        shards=4,
        availableNow=True,
        idle=None,
        state_root=root / "state",
    )
    assert started.awaitTermination(timeout=300)
    return started


def within(result: dict[str, Any]) -> str:
    """SQL for the rows of a result."""
    return f'k = {result["k"]} AND epoch_us("at") BETWEEN {result["window_start"]} AND {result["window_end"] - 1}'


def test_sketches_are_within_their_stated_error(spark: SparkSession, tmp_path: Path) -> None:
    ranks = [0.01, 0.25, 0.5, 0.75, 0.99]
    aggregates = {
        "n": ab.count(),
        "users": ab.approx_count_distinct("u"),
        "rough": ab.approx_count_distinct("u", 8),
        "q": ab.quantile("x", ranks),
        "top": ab.top_k("w", KEEP, KEEP),
        "exact": ab.top_k("w", 5, 100_000),
    }
    steps = batches(4, 15_000)
    run(spark, tmp_path, steps, aggregates).finish()
    results = read_results(tmp_path / "out").to_pylist()
    assert len(results) == 3 * (4 + 5)
    events = pa.concat_tables(steps)  # noqa: F841 - DuckDB finds it by its name
    distances: dict[str, list[float]] = {"users": [], "rough": [], "q": []}
    for result in results:
        inside = within(result)
        [(n, users)] = duckdb.sql(
            f"SELECT count(*), count(DISTINCT u) FROM events WHERE {inside}"
        ).fetchall()
        assert result["n"] == n
        for name, lg_k in (("users", 12), ("rough", 8)):
            distances[name].append(abs(result[name] - users) / users / (1.04 / math.sqrt(2**lg_k)))
        error = ds.kll_doubles_sketch.get_normalized_rank_error(200, False)
        for rank, value in zip(ranks, result["q"], strict=True):
            below, up_to = duckdb.sql(
                f"SELECT count(*) FILTER (x < {value}), count(*) FILTER (x <= {value}) FROM events WHERE {inside}"
            ).fetchall()[0]
            distances["q"].append(max(0.0, below / n - rank, rank - up_to / n) / error)
        counted = (
            f"SELECT w, count(*) AS c FROM events WHERE {inside} GROUP BY w ORDER BY c DESC, w"
        )
        true = dict(duckdb.sql(counted).fetchall())
        assert [(each["value"], each["count"]) for each in result["exact"]] == list(true.items())[
            :5
        ]
        found = {each["value"]: each["count"] for each in result["top"]}
        worst = 2 * n / KEEP
        assert all(true[word] - worst <= count <= true[word] for word, count in found.items())
        assert {word for word, count in true.items() if count > worst} <= set(found)
    for name in ("users", "rough"):  # in standard errors
        assert max(distances[name]) < 4
        assert sum(each < 2 for each in distances[name]) >= 0.9 * len(results)
    assert max(distances["q"]) < 2.5  # in errors that hold in 99 of 100 cases
    assert sum(each <= 1 for each in distances["q"]) >= 0.9 * len(distances["q"])


@dataclass
class Seen:
    n: int
    words: dict[str, int]


@dataclass(frozen=True)
class Repeats:
    """How many words came more often than a number of times."""

    times: int
    state_type = Seen
    result_type = "struct<rows:bigint,words:array<string>>"

    def init(self) -> Seen:
        return Seen(0, {})

    def add(self, state: Seen, word: str, weight: int) -> Seen:
        state.n += 1
        state.words[word] = state.words.get(word, 0) + weight
        return state

    def merge(self, left: Seen, right: Seen) -> Seen:
        for word, times in right.words.items():
            left.words[word] = left.words.get(word, 0) + times
        left.n += right.n
        return left

    def finish(self, state: Seen) -> dict[str, Any]:
        return {
            "rows": state.n,
            "words": sorted(word for word, times in state.words.items() if times > self.times),
        }


class LogMean:
    """The mean of logarithms, null without values."""

    state_types = ("double", "bigint")
    identities = (0.0, 0)
    result_type = "double"

    def lift(self, group: Array, size: int, value: Array) -> tuple[Array, Array]:
        return np.bincount(group, np.log1p(value), size), np.bincount(group, minlength=size)

    def merge(self, into: Sequence[Array], at: Any, lifted: Sequence[Array]) -> None:
        for column, values in zip(into, lifted, strict=True):
            column[at] += values

    def finish(self, total: Array, count: Array) -> pa.Array:
        return pa.array(total / np.maximum(count, 1), mask=count == 0)


def test_aggregates_of_users_over_several_batches_and_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    aggregates = {
        "repeats": ab.udaf(Repeats(3))("w", "1"),
        "logs": ab.udaf(LogMean)("x"),
        "total": ab.sum("x"),  # over the input of another aggregate, too
        "none": ab.udaf(LogMean)("x", where="u < 0"),
        "nothing": ab.udaf(Repeats(3))("w", "cast(null as int)"),
    }
    steps = batches(5, 600)
    steps.insert(
        2,
        steps[1].set_column(
            1, "at", pa.array([90 * SECOND_US] * 600).cast(pa.timestamp("us", tz="UTC"))
        ),
    )
    run(spark, tmp_path, steps[:3], aggregates)
    run(spark, tmp_path, steps[3:], aggregates, first=3).finish()
    events = pa.concat_tables(steps)  # noqa: F841 - DuckDB finds it by its name
    results = read_results(tmp_path / "out").to_pylist()
    assert len(results) == 3 * (5 + 6)
    for result in results:
        inside = within(result)
        [(n, logs, total)] = duckdb.sql(
            f"SELECT count(*), avg(ln(1 + x)), sum(x) FROM events WHERE {inside}"
        ).fetchall()
        words = duckdb.sql(
            f"SELECT w FROM events WHERE {inside} GROUP BY w HAVING count(*) > 3 ORDER BY w"
        ).fetchall()
        assert result["repeats"] == {"rows": n, "words": [word for (word,) in words]}
        assert (result["logs"], result["total"]) == (
            pytest.approx(logs, rel=1e-9),
            pytest.approx(total, rel=1e-9),
        )
        assert result["none"] is None
        assert result["nothing"] == {"rows": 0, "words": []}
    changed = {**aggregates, "repeats": ab.udaf(Repeats(4))("w", "1")}
    seen = run(spark, tmp_path, [], changed, first=6).events
    [event] = [each for each in seen if each.kind == "changed"]
    assert re.search(
        r"'repeats' was .*class=Repeats\(times=3\).* and is .*class=Repeats\(times=4\).* and starts",
        event.text,
    )
    invoked = CliRunner().invoke(command, ["state", str(tmp_path / "checkpoint"), "--shard", "0"])
    assert invoked.exit_code == 2
    assert "only the topology's own code can merge the state of udaf(w, 1)" in " ".join(
        invoked.output.split()
    )


def test_state_of_variable_size_can_be_shown(spark: SparkSession, tmp_path: Path) -> None:
    aggregates = {
        "words": ab.collect_set("w", 2),
        "firsts": ab.collect_list("x", 2),
        "users": ab.count_distinct("u"),
        "about": ab.approx_count_distinct("u"),
        "top": ab.top_k("w", 1),
        "best": ab.max_by("w", "x"),
    }
    run(spark, tmp_path, batches(1, 50), aggregates)
    shown = [
        json.loads(
            CliRunner()
            .invoke(command, ["state", str(tmp_path / "checkpoint"), "--shard", str(i), "--json"])
            .output
        )
        for i in range(4)
    ]
    rows = [row for each in shown for row in each["shard"]["rows"]]
    assert len(rows) == 3
    assert all(len(row["smallest(w)"]) == 2 and len(row["foremost(x)"]) == 2 for row in rows)
    assert all(row["atgreatest(w, x).count"] == len(row["distinct(u)"]) for row in rows)


def test_results_that_csv_cannot_hold_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    app = ab.Topology("csv")
    rows = app.source(
        spark.range(1).selectExpr("id", "timestamp_seconds(id) as at"), event_time="at"
    )
    listed = rows.aggregate(by="id", windows=ab.tumbling("1 minute"), ids=ab.collect_list("id"))
    with pytest.raises(
        ab.TopologyError, match=r"csv cannot hold 'ids' of type array<bigint>; valid: ab.parquet"
    ):
        listed.to(ab.csv(tmp_path / "out"))
    with pytest.raises(
        ab.TopologyError, match=r"aggregate 'best': id, missing does not fit the stream's columns"
    ):
        rows.aggregate(by="id", windows=ab.tumbling("1 minute"), best=ab.max_by("id", "missing"))
    with pytest.raises(
        ab.TopologyError, match=r"bool_or\(id\) has input of type bigint; valid: boolean"
    ):
        rows.aggregate(by="id", windows=ab.tumbling("1 minute"), one=ab.bool_or("id"))


def test_the_examples_in_the_documentation_give_what_it_says(spark: SparkSession) -> None:
    text = DOCS.read_text(encoding="utf-8")
    names: dict[str, Any] = {"spark": spark, "__name__": "documentation"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(block, str(DOCS), "exec", dont_inherit=True), names)  # noqa: S102
    [shown] = re.findall(r"```\n(\+--.*?)```", text, re.DOTALL)
    assert printed.getvalue().strip() == shown.strip()


def test_every_aggregate_is_in_the_documentation() -> None:
    listed: Callable[[str], bool] = lambda name: f"`{name}(" in DOCS.read_text(encoding="utf-8")  # noqa: E731
    from anabranch.aggregates import functions

    made = [
        name
        for name, each in vars(functions).items()
        if callable(each) and getattr(each, "__module__", "") == functions.__name__
    ]
    assert [name for name in made if not listed(name)] == []

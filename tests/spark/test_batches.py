"""Rows of any size go to Python in batches that fit into memory, and small ones in large batches."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark.batches import LIMITS, SUMMED, Batches, BatchLimit, guarded_sql, large_row

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_row_lowers_the_limit_as_far_as_it_must_and_time_raises_it_again() -> None:
    batches = Batches()
    assert batches.limit == LIMITS[0]
    assert batches.lower(LIMITS[0].row_bytes + 1)
    assert batches.limit == LIMITS[1]
    assert not batches.lower(5), "a row that fits was not the reason"
    assert batches.lower(1 << 30)
    assert batches.limit == SUMMED
    assert not batches.lower(1 << 31), "nothing lower is left"
    seen = []
    for _ in range(2000):
        batches.step_done()
        seen.append(batches.limit)
    assert [seen.index(each) for each in reversed(LIMITS)] == sorted(
        seen.index(each) for each in LIMITS
    )
    assert seen.index(LIMITS[1]) >= 64, "each time it went down, it waits longer"
    assert seen[-1] == LIMITS[0]


def test_batches_of_counted_rows_are_bounded_as_those_of_summed_bytes_are() -> None:
    for limit in LIMITS:
        most = limit.bytes if limit.row_bytes is None else limit.rows * limit.row_bytes
        assert most <= 128 << 20


def test_columns_of_fixed_size_need_no_guard() -> None:
    kinds = {"a": "bigint", "b": "timestamp", "c": "decimal(38,2)", "d": "struct<x:int,y:date>"}
    assert guarded_sql("shard", kinds, LIMITS[0]) == "shard"
    assert guarded_sql("shard", {"a": "string"}, SUMMED) == "shard"


@pytest.mark.parametrize(
    ("kind", "small", "large"),
    [
        ("string", "'a'", "repeat('ü', 60)"),
        ("binary", "cast('a' as binary)", "cast(repeat('a', 120) as binary)"),
        ("array<int>", "array(1, 2)", "sequence(1, 20)"),
        ("array<string>", "array('a', null)", "array('a', null, repeat('a', 120))"),
        ("array<binary>", "array(cast('a' as binary))", "array(cast(repeat('a', 120) as binary))"),
        ("array<array<string>>", "array(array('a'), null)", "array(array(repeat('a', 120)))"),
        (
            "array<struct<x:int,y:string>>",
            "array(named_struct('x', 1, 'y', 'a'), null)",
            "array(named_struct('x', 1, 'y', repeat('a', 120)))",
        ),
        ("map<string,int>", "map('a', 1)", "map(repeat('a', 120), 1)"),
        ("map<int,string>", "map(1, 'a')", "map(1, repeat('a', 120))"),
        (
            "struct<x:string,y:struct<z:string>>",
            "named_struct('x', 'a', 'y', cast(null as struct<z:string>))",
            "named_struct('x', 'a', 'y', named_struct('z', repeat('a', 120)))",
        ),
        (
            "struct<odd name:string>",
            "named_struct('odd name', 'a')",
            "named_struct('odd name', repeat('a', 120))",
        ),
        ("variant", "parse_json('1')", "parse_json(concat('\"', repeat('a', 120), '\"'))"),
    ],
)
def test_a_row_that_is_too_large_ends_its_job_with_its_size(
    spark: SparkSession, kind: str, small: str, large: str
) -> None:
    guard = guarded_sql("7", {"n": "bigint", "x": kind}, BatchLimit(10, 100))

    def values(x: str) -> list[Any]:
        rows = spark.sql(f"select 1L n, x from values ({x}), (null) as t(x)")
        assert dict(rows.dtypes)["x"] == kind
        return [row[0] for row in rows.selectExpr(f"{guard} as guarded").collect()]

    assert values(small) == [7, 7]
    with pytest.raises(Exception, match="a row has") as error:
        values(large)
    size = large_row(error.value)
    assert size is not None
    assert 100 < size < 1000


def test_other_errors_are_not_about_large_rows() -> None:
    assert large_row(RuntimeError("a row has 5 bytes")) is None


class Lengths:
    """The number of rows of a key, their total length, and a digest of them."""

    state: int
    output = "n bigint, bytes bigint, digest string, at timestamp"
    event_time = "at"

    def process(self, key: str, rows: ab.Rows, state: int, ctx: ab.Context) -> Any:
        docs = sorted(row.doc for row in rows)
        digest = hashlib.sha256("".join(docs).encode()).hexdigest()
        return [(len(docs), sum(map(len, docs)), digest, max(row.at for row in rows))]


def documents(count: int, size: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        block = hashlib.sha256(str(i).encode()).hexdigest()
        doc = (block * (size // 64 + 1))[:size]
        yield {"at": START + timedelta(seconds=i), "k": f"k{i % 5}", "doc": doc}


@pytest.mark.parametrize("lift", ["lift first", "route first"])
def test_rows_that_become_large_go_on_in_smaller_batches_with_the_same_results(
    spark: SparkSession, tmp_path: Path, lift: str
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    given = [list(documents(*each)) for each in ((40, 50), (60, 50_000), (100, 300_000), (40, 50))]
    for i, rows in enumerate(given):
        pq.write_table(pa.Table.from_pylist(rows), source / f"{i}.parquet")
    reader = spark.readStream.schema("at timestamp, k string, doc string")
    app = ab.Topology("documents")
    stream = app.source(
        reader.option("maxFilesPerTrigger", 1).parquet(str(source)),
        event_time="at",
        delay="1 day",
    )
    lengths = stream.process("k", Lengths, order="arrival", name="lengths")
    read = stream.apply(
        lambda row: {**row, "n": len(row["doc"])},
        schema="*, n int",
        form="rows",
        name="read",
    )
    longest = read.aggregate(
        by="k", windows=ab.tumbling("1 day"), longest=ab.max("doc"), n=ab.sum("n"), name="longest"
    )
    again = lengths.aggregate(
        by=[], windows=ab.tumbling("1 day"), all=ab.sum("bytes"), top=ab.max("digest"), name="again"
    )
    found, windows, total = ab.memory(), ab.memory(), ab.memory()
    lengths.to(found)
    longest.to(windows)
    again.to(total)
    run = app.start(checkpoint=tmp_path / "checkpoint", availableNow=True, retries=0, lift=lift)
    run.awaitTermination()
    run.finish()
    texts = [each.text for each in run.events if each.kind == "batches"]
    assert len(texts) == 2
    assert texts[0].startswith("step 2: a row has 50,0")
    assert texts[0].endswith("batches now have at most 1024 rows")
    assert texts[1].startswith("step 3: a row has 300,0")
    assert texts[1].endswith("batches now have at most 32 MB")
    expected = []
    docs: dict[str, list[str]] = defaultdict(list)
    for rows in given:
        by_key: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            by_key[row["k"]].append(row["doc"])
            docs[row["k"]].append(row["doc"])
        for key, mine in by_key.items():
            text = "".join(sorted(mine))
            digest = hashlib.sha256(text.encode()).hexdigest()
            expected.append((key, len(mine), len(text), digest))
    assert sorted((r["k"], r["n"], r["bytes"], r["digest"]) for r in found.rows()) == sorted(
        expected
    )
    assert {r["k"]: (r["longest"], r["n"]) for r in windows.rows()} == {
        key: (max(mine), sum(map(len, mine))) for key, mine in docs.items()
    }
    [last] = total.rows()
    assert last["all"] == sum(each[2] for each in expected)
    assert last["top"] == max(each[3] for each in expected)

"""The benchmark of fused operators: its pure parts, native's chain, and one small run."""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from anabranch.bench.data import DataSpec, InputFiles, generate
from anabranch.bench.fusion.chain import (
    CHAIN,
    TEXT,
    ChainReference,
    chain_topology,
    components_of,
    native_chain,
    split_key,
    write_chain_input,
)
from anabranch.bench.fusion.command import MeasuredSide, fusion
from anabranch.bench.fusion.shuffles import Shuffles
from anabranch.bench.measure import SideRun
from anabranch.bench.options import FusionOptions
from anabranch.bench.report import show_fusion
from anabranch.bench.turns import take_turns
from anabranch.errors import AnabranchError, TopologyError
from anabranch.testing.compare import differences
from anabranch.testing.reference.chains import expected_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND_US = 1_000_000
FEW = {"a": 4, "b": 3, "c": 3, "d": 2}
SMALL = DataSpec(
    rows=3_000, batch_rows=1_000, keys=72, skew=0.5, disorder_s=20.0, rows_per_minute=50, seed=7
)


def a_run(
    *batch_s: float, files: tuple[Path, ...] = (), watermark_us: int = 0, left_out: int = 0
) -> SideRun:
    return SideRun(
        side="some", batch_s=batch_s, watermark_us=watermark_us, files=files, left_out=left_out
    )


@pytest.fixture(name="source")
def small_input(tmp_path: Path) -> InputFiles:
    return write_chain_input(SMALL, FEW, tmp_path / "in")


def expected(source: InputFiles) -> dict[str, pa.Table]:
    """The results of all operators by the reference, as a side writes them."""
    rows = [pq.ParquetFile(file).read() for file in source.files]
    return expected_of(rows, CHAIN, "at", source.delay_s * SECOND_US, source.watermark_us())


def test_the_chain_is_the_one_of_the_help() -> None:
    assert (
        TEXT
        == "(a, b, c, d) per 1 minute -> (a, b, c) per 5 minutes -> (a, b) per 10 minutes -> (a) per 20 minutes"
    )


def test_a_key_is_one_combination_of_the_attributes() -> None:
    keys = pa.table({"key": pa.array(range(72)), "at": [0] * 72, "v": [0.0] * 72})
    split = split_key(keys, FEW)
    combinations = set(zip(*(split[name].to_pylist() for name in FEW), strict=True))
    assert len(combinations) == 72
    assert [len(set(split[name].to_pylist())) for name in FEW] == list(FEW.values())


def test_the_input_has_the_rows_of_its_seed_in_other_columns(source: InputFiles) -> None:
    [first, *_] = generate(SMALL)
    written = pq.ParquetFile(source.files[0]).read()
    assert written.column_names == ["a", "b", "c", "d", "at", "v"]
    assert written["v"].equals(first["v"])
    assert source.schema.startswith("a BIGINT")


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": 0},
        {"a": 0},
        {"d": -1},
        {"sinks": "some"},
        {"native_files": "x"},
        {"slots": 0},
        {"rounds": 0},
    ],
)
def test_an_option_out_of_range_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(TopologyError, match=f"--{next(iter(wrong)).replace('_', '-')}"):
        FusionOptions(**wrong)  # type: ignore[arg-type]


def test_every_combination_of_the_attributes_is_a_key_of_the_input() -> None:
    assert FusionOptions(**FEW).data().keys == 72


def test_sides_take_turns_and_the_order_of_a_round_is_that_of_the_last_reversed(
    source: InputFiles,
) -> None:
    order: list[str] = []

    def side(name: str) -> SideRun:
        order.append(name)
        return a_run(1.0, 1.0, 1.0)

    runs = take_turns(
        {name: lambda _, n=name: side(n) for name in "xyz"},
        source,
        2,
        time.monotonic() + 60,
        order.append,
    )
    assert [each for each in order if len(each) == 1] == list("xyzzyx")
    assert {name: len(each) for name, each in runs.items()} == {"x": 2, "y": 2, "z": 2}


def test_a_side_without_time_for_another_round_sits_it_out(source: InputFiles) -> None:
    runs = take_turns({"x": lambda _: a_run(1.0)}, source, 3, time.monotonic() - 1, lambda _: None)
    assert len(runs["x"]) == 1
    with pytest.raises(AnabranchError, match="x reported 4 batches for 3 files"):
        take_turns({"x": lambda _: a_run(1, 1, 1, 1)}, source, 1, time.monotonic(), lambda _: None)
    with pytest.raises(AnabranchError, match="x reported 0 batches"):
        take_turns({"x": lambda _: a_run()}, source, 1, time.monotonic(), lambda _: None)
    lines: list[str] = []
    take_turns(
        {"x": lambda _: replace(a_run(), lasted_s=9.0)}, source, 1, time.monotonic(), lines.append
    )
    assert lines == ["x, round 1: no batch within 9 s"]


def test_shuffled_bytes_are_the_mean_of_the_batches_that_count_and_exchanges_must_not_change() -> (
    None
):
    first, second = (
        {i: Shuffles(2, size, 0.5) for i, size in enumerate(sizes)}
        for sizes in ((9, 1, 2), (9, 3, 6))
    )
    side = MeasuredSide(name="x", runs=[], batches=[first, second])
    assert (
        side.exchanges(range(1, 3)),
        side.shuffle_bytes(range(1, 3)),
        side.task_s(range(1, 3)),
    ) == (2, 3, 0.5)
    with pytest.raises(AnabranchError, match=r"x: .* \[2, 3\] exchanges"):
        MeasuredSide(name="x", runs=[], batches=[{**first, 1: Shuffles(3, 0, 0.0)}]).exchanges(
            range(3)
        )


def test_the_comparison_sees_a_wrong_value_a_missing_row_and_an_operator_without_results(
    source: InputFiles, tmp_path: Path
) -> None:
    good = expected(source)
    files = []
    for name, table in good.items():
        files.append(tmp_path / "results" / name / "0.parquet")
        files[-1].parent.mkdir(parents=True)
        pq.write_table(table, files[-1])
    reference = ChainReference(source, list(good))
    run = a_run(files=tuple(files), watermark_us=source.watermark_us())
    assert reference.differences(run) == (sum(table.num_rows for table in good.values()), [])
    off = good["ab"].set_column(
        good["ab"].column_names.index("n"), "n", pa.array(range(good["ab"].num_rows))
    )
    pq.write_table(off, files[2])
    pq.write_table(good["abcd"].slice(1), files[0])
    found = reference.differences(
        a_run(files=tuple(files[:3]), watermark_us=source.watermark_us(), left_out=2)
    )[1]
    assert [line.split(":")[0] for line in found] == [
        "2 rows were left out of all windows",
        "abcd",
        "ab",
        "a",
    ]


@pytest.mark.parametrize("fused", [1, 2, 3, 4])
def test_the_first_operators_share_a_component_and_the_others_have_their_own(
    fused: int, source: InputFiles, spark: SparkSession
) -> None:
    rows = spark.read.schema(source.schema).parquet(str(source.directory))
    found = components_of(chain_topology(rows, source.delay_s, fused, {}))
    assert found == [
        ["abcd", "abc", "ab", "a"][:fused],
        *([name] for name in ["abcd", "abc", "ab", "a"][fused:]),
    ]


def test_natives_chain_computes_what_the_reference_says_for_every_operator(
    source: InputFiles, spark: SparkSession
) -> None:
    rows = spark.read.schema(source.schema).parquet(str(source.directory))
    everything = [pq.ParquetFile(file).read() for file in source.files]
    all_results = expected_of(everything, CHAIN, "at", source.delay_s * SECOND_US, "finish")
    for stage in CHAIN:
        found = native_chain(rows, source.delay_s, stage).toArrow()
        assert (
            differences(
                found,
                all_results[stage.name],
                [*stage.keys, "window_start", "window_end", "window_name"],
            )
            == []
        )


def test_a_small_benchmark_measures_all_sides_and_verifies_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    output = io.StringIO()
    options = FusionOptions(
        rows=6_000,
        batch_rows=1_500,
        rows_per_minute=100,
        rounds=1,
        sinks="last",
        native_files="quick",
        keep=tmp_path,
        **FEW,
    )
    figures = json.loads(json.dumps(fusion(options, output)))

    assert figures["bench"] == "fusion"
    cases = figures["cases"]
    assert [case["case"] for case in cases] == ["1 fused", "2 fused", "3 fused", "4 fused"]
    assert [case["exchanges"] for case in cases] == [4, 3, 2, 1]
    sizes = [case["shuffle_bytes"] for case in cases]
    assert sizes == sorted(sizes, reverse=True)
    for case in cases:
        assert case["verified"], case["differences"]
        assert set(case["rows_compared"]) == {case["case"], "native"}
        assert min(case["rows_compared"].values()) > 0
        assert case["counted_batches"] == [2, 3]
        assert case["native_exchanges"] == 4
        assert case["native_shuffle_bytes"] > 0
        assert case["ratio"] == pytest.approx(
            case["anabranch_rows_per_s"] / case["native_rows_per_s"], rel=0.05, abs=0.01
        )
    assert cases[0]["ratio_to_unfused"] == 1
    assert {path.name for path in tmp_path.iterdir()} == {"input", "runs"}
    assert "no differences" in output.getvalue()

    shown = io.StringIO()
    show_fusion(figures, Console(file=shown, width=120))
    assert "4 fused" in shown.getvalue()
    assert "writes results of a" in shown.getvalue()

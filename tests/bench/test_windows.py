"""The benchmark's pure parts, its rivals against each other, and one small run of all of it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from anabranch.bench.cases import CASES, WindowCase, choose_cases
from anabranch.bench.data import DataSpec, generate, write_input
from anabranch.bench.limit import ENGINES, PLANS, plan_builds
from anabranch.bench.measure import SideRun, counted, speed, warm_batches
from anabranch.bench.memory import peak_mb
from anabranch.bench.options import WindowsOptions
from anabranch.bench.report import show
from anabranch.bench.rivals import NativeSettings, Stop, committed_files, run_native
from anabranch.bench.verify import Reference
from anabranch.bench.windows import share_of_time, windows
from anabranch.errors import TopologyError
from anabranch.testing.compare import differences
from anabranch.topology.windows import parse_windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE_US = 60_000_000
SMALL = DataSpec(
    rows=3_000, batch_rows=1_000, keys=50, skew=1.0, disorder_s=20.0, rows_per_minute=100, seed=7
)


def custom(text: str) -> WindowCase:
    return WindowCase(name="custom", windows=parse_windows(text))


def a_run(
    *batch_s: float, files: tuple[Path, ...] = (), watermark_us: int = 0, left_out: int = 0
) -> SideRun:
    return SideRun(
        side="some", batch_s=batch_s, watermark_us=watermark_us, files=files, left_out=left_out
    )


def test_a_window_is_written_as_length_and_slide() -> None:
    assert [window.name for window in parse_windows("7m/3m, 5m,1h/90s")] == [
        "7 minutes every 3 minutes",
        "5 minutes",
        "1 hour every 90 seconds",
    ]


@pytest.mark.parametrize(
    "text", ["", "5", "5m/", "/1m", "1m/5m", "5x", "5m/0s", "5m,5m", "5m,300s"]
)
def test_a_window_that_makes_no_sense_is_refused_by_name(text: str) -> None:
    with pytest.raises(TopologyError, match="--windows"):
        parse_windows(text)


def test_a_case_may_be_about_other_data() -> None:
    options = WindowsOptions(keys=77)
    assert [options.data(CASES[name]).keys for name in ("A", "long")] == [77, 2_000]
    assert options.data(CASES["long"]).batch_span_s * 10 == pytest.approx(12 * 3600, rel=1e-3)


def test_windows_of_the_users_own_are_the_case_custom() -> None:
    assert [case.name for case in choose_cases("a, C,A", None)] == ["A", "C"]
    assert [case.name for case in choose_cases("A", "5m")] == ["custom"]


@pytest.mark.parametrize("names", ["D", "", "A,D"])
def test_an_unknown_case_is_refused_with_the_known_ones(names: str) -> None:
    with pytest.raises(TopologyError, match="A, B, C"):
        choose_cases(names, None)


def test_a_case_knows_its_pane_and_how_often_plain_spark_copies_a_row() -> None:
    assert (CASES["C"].pane_us, CASES["C"].copies) == (MINUTE_US, 140)
    assert (custom("7m/3m,21m/3m").pane_us, custom("7m/3m,21m/3m").copies) == (MINUTE_US, 3 + 7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": 0},
        {"keys": -1},
        {"batch_rows": 0},
        {"slots": 0},
        {"skew": -1.0},
        {"disorder_s": -1.0},
        {"minutes": 0},
        {"native_form": "x"},
    ],
)
def test_an_option_out_of_range_is_refused_by_name(wrong: dict[str, object]) -> None:
    name = next(iter(wrong)).removesuffix("_s").replace("_", "-")
    with pytest.raises(TopologyError, match=f"--{name}"):
        WindowsOptions(**wrong)  # type: ignore[arg-type]


def test_a_directory_with_something_in_it_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(TopologyError, match="not empty"):
        WindowsOptions(keep=tmp_path)


def test_the_input_follows_from_its_seed() -> None:
    first, again = pa.concat_tables(generate(SMALL)), pa.concat_tables(generate(SMALL))
    other = pa.concat_tables(generate(DataSpec(**{**_fields(SMALL), "seed": 8})))
    assert first.equals(again)
    assert not first.equals(other)


def test_no_row_of_the_input_is_ever_late() -> None:
    newest = None
    for table in generate(SMALL):
        times = table["at"].cast(pa.int64())
        if newest is not None:
            assert pc.min(times).as_py() >= newest - SMALL.delay_s * 1_000_000
        newest = pc.max(times).as_py()


def test_keys_follow_zipfs_law() -> None:
    spec = DataSpec(**{**_fields(SMALL), "rows": 50_000, "batch_rows": 50_000})
    [table] = generate(spec)
    sizes = sorted(pc.value_counts(table["key"]).field("counts").to_pylist(), reverse=True)
    assert len(sizes) == spec.keys
    assert sizes[0] / sizes[9] == pytest.approx(10, rel=0.15)


def test_files_are_a_batch_each_in_the_order_of_their_times(tmp_path: Path) -> None:
    source = write_input(DataSpec(**{**_fields(SMALL), "rows": 2_500}), tmp_path)
    assert source.rows == (1_000, 1_000, 500)
    times = [file.stat().st_mtime for file in source.files]
    assert times == sorted(set(times))
    assert pq.ParquetFile(source.files[0]).num_row_groups == 8
    assert source.watermark_us(1) < source.watermark_us() == source.newest_us[-1] - 20_000_000


def test_batches_count_when_the_longest_window_is_full() -> None:
    span = 822e6
    assert [warm_batches(CASES[name].longest_us, span, 10) for name in "ABC"] == [2, 2, 5]
    assert warm_batches(CASES["C"].longest_us, span, 4) == 2
    assert warm_batches(CASES["C"].longest_us, span, 1) == 0


def test_both_sides_are_measured_over_the_batches_that_all_runs_have() -> None:
    long, cut_short = a_run(9, 9, 1, 2, 3), a_run(9, 9, 4, 4)
    batches = counted([long, cut_short], warm=2)
    assert list(batches) == [2, 3]
    assert speed([long], batches, rows=[6, 6, 6, 6, 6]).batch_s == 1.5
    assert speed([long, long], batches, rows=[6, 6, 6, 6, 6]).rows_per_s == 4.5


def test_the_case_that_takes_native_spark_longest_gets_most_of_the_time() -> None:
    cases = tuple(CASES[name] for name in "ABC")
    assert share_of_time(cases) == pytest.approx(1 / 6)
    assert share_of_time(cases[2:]) == 1


@pytest.mark.parametrize(
    "text", ["1m", "10m/1m", "5m/1m,10m/1m,15m/1m,20m/1m,30m/1m,60m/1m", "7m/3m,21m/3m,5m,1h/7m"]
)
def test_the_pieces_of_a_window_cover_it_once(text: str) -> None:
    case = custom(text)
    tables = [(case.pane_us, case.pane_us)]
    for build in plan_builds(case):
        covered: list[int] = []
        for piece in build.pieces:
            length, every = tables[piece.table]
            assert build.window.every_us % every == 0
            for shift in piece.shifts_us:
                assert shift % every == 0
                covered += range(shift, shift + length, case.pane_us)
        assert sorted(covered) == list(range(0, build.window.length_us, case.pane_us))
        tables.append((build.window.length_us, build.window.every_us))


def test_long_windows_are_built_from_shorter_ones() -> None:
    builds = plan_builds(CASES["C"])
    assert [
        len([shift for piece in build.pieces for shift in piece.shifts_us]) for build in builds
    ] == [5, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("plan", sorted(PLANS))
@pytest.mark.parametrize("text", ["1m", "10m/1m,20m/1m", "7m/3m,21m/3m,5m"])
def test_the_limit_computes_what_the_reference_says(
    engine: str, plan: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", "2")
    case, source = custom(text), write_input(SMALL, tmp_path / "in")
    (tmp_path / "out").mkdir()
    ENGINES[engine](case, PLANS[plan](case), source.files, source.watermark_us(), tmp_path / "out")
    run = a_run(files=tuple((tmp_path / "out").iterdir()), watermark_us=source.watermark_us())
    with Reference(case, source.files) as reference:
        compared, found = reference.differences(run)
    assert compared > 500
    assert found == []


def test_a_comparison_sees_a_wrong_value_a_missing_row_a_row_too_many_and_an_unknown_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", "2")
    case, source = CASES["A"], write_input(SMALL, tmp_path / "in")
    ENGINES["polars"](case, plan_builds(case), source.files, source.watermark_us(), tmp_path)
    good = pq.ParquetFile(tmp_path / "1.parquet").read()
    totals = good["total"].to_pylist()
    off = good.set_column(4, "total", pa.array([totals[0] * (1 + 1e-7), *totals[1:]]))
    stranger = good.slice(0, 1).set_column(
        2, "window_name", pa.array(["2 minutes"], pa.large_string())
    )
    wrong = {
        "differ in 'total'": off,
        "rows only in right": good.slice(1),
        "more than once": pa.concat_tables([good, good.slice(0, 1)]),
        "unknown window '2 minutes'": pa.concat_tables([good, stranger]),
    }
    with Reference(case, source.files) as reference:
        for message, table in wrong.items():
            pq.write_table(table, tmp_path / "wrong.parquet")
            run = a_run(files=(tmp_path / "wrong.parquet",), watermark_us=source.watermark_us())
            [line] = reference.differences(run)[1]
            assert message in line
        nothing = a_run(watermark_us=source.watermark_us(), left_out=3)
        assert len(reference.differences(nothing)[1]) == 2


def test_the_reference_for_very_many_windows_per_row_equals_the_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, source = custom("5m/30s"), write_input(SMALL, tmp_path / "in")
    monkeypatch.setattr("anabranch.bench.verify._MANY_COPIES", 3)
    with Reference(case, source.files) as reference:
        [window] = case.windows
        quick = reference._expected(window, source.watermark_us())
        monkeypatch.undo()
        plain = reference._expected(window, source.watermark_us())
    assert quick.num_rows > 0
    assert differences(quick, plain, ["key", "window_start", "window_end"]) == []


def test_a_rival_that_does_not_get_anywhere_is_a_failure_and_not_a_figure(
    spark: SparkSession, tmp_path: Path
) -> None:
    case, source = custom("4m/1m"), write_input(SMALL, tmp_path / "in")
    stop = Stop(after_s=0.0, batches=99, at_last_s=0.0)
    run = run_native(
        spark, source, case, tmp_path / "cut", NativeSettings(store="memory", form="rows"), stop
    )
    assert len(run.batch_s) < 3


def test_peak_memory_is_that_of_this_process_and_its_children() -> None:
    peak = peak_mb()
    assert set(peak) == {"driver", "jvm", "python_workers"}
    assert peak["driver"] > 20


def test_results_of_a_batch_that_did_not_end_are_not_read(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    entries = [
        json.dumps({"path": f"file://{tmp_path}/a%20b{number}.parquet", "action": "add"})
        for number in range(3)
    ]
    (log / "1.compact").write_text("\n".join(["v1", *entries[:2]]))
    (log / "2").write_text("\n".join(["v1", entries[2]]))
    (log / ".2.crc").write_bytes(b"\xff")
    (tmp_path / "unfinished.parquet").touch()
    assert committed_files(tmp_path) == tuple(
        tmp_path / f"a b{number}.parquet" for number in range(3)
    )


@pytest.mark.parametrize("text", ["4m/1m", "5m/2m,2m"])
def test_all_native_forms_compute_what_the_reference_says(
    text: str, spark: SparkSession, tmp_path: Path
) -> None:
    case, source = custom(text), write_input(SMALL, tmp_path / "in")
    with Reference(case, source.files) as reference:
        for form in ("rows", "queries", "panes"):
            run = run_native(
                spark, source, case, tmp_path / form, NativeSettings(store="memory", form=form)
            )
            assert len(run.batch_s) == 3
            assert reference.differences(run)[1] == [], form


def test_a_small_benchmark_measures_all_sides_and_verifies_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    output = io.StringIO()
    options = WindowsOptions(
        windows="5m/1m,2m",
        rows=6_000,
        batch_rows=1_500,
        rows_per_minute=300,
        keys=100,
        rounds=1,
        small_batch=False,
        keep=tmp_path,
    )
    figures = windows(options, output)

    assert json.loads(json.dumps(figures))["bench"] == "windows"
    [case] = figures["cases"]
    assert case["verified"], case["differences"]
    assert set(case["rows_compared"]) == {
        "anabranch",
        "native",
        "native_panes",
        "limit",
        "limit_chained",
    }
    assert case["case"] == "custom"
    assert case["counted_batches"] == [2, 3]
    assert case["ratio"] == pytest.approx(
        case["anabranch_rows_per_s"] / case["native_rows_per_s"], rel=0.01
    )
    assert case["limit_rows_per_s"] > 0
    assert {path.name for path in tmp_path.iterdir()} == {"input", "custom"}
    sides = {"anabranch", "native-queries", "native-panes", "limit-plain", "limit-chained"}
    assert {path.name for path in (tmp_path / "custom").iterdir()} == sides
    assert "no differences" in output.getvalue()

    shown = io.StringIO()
    show(figures, Console(file=shown, width=100))
    assert "5 minutes every 1 minute, 2 minutes" in shown.getvalue()


def _fields(spec: DataSpec) -> dict[str, int | float]:
    return {name: getattr(spec, name) for name in DataSpec.__dataclass_fields__}

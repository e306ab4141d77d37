"""`anabranch bench fusion`: chained aggregations, ever more of them fused, and native Spark.

All sides read the same parquet files, one per batch, in one Spark session on all cores. They keep
their state durable and write parquet. They take turns, from an empty state each time; `measure`
explains the batches that count and the medians. Exchanges and shuffled bytes are what Spark itself
counts in these batches.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TextIO

from anabranch.bench.command import bench_command
from anabranch.bench.data import InputFiles
from anabranch.bench.fusion.chain import (
    CHAIN,
    LONGEST_US,
    TEXT,
    ChainReference,
    chain_topology,
    native_chain,
    write_chain_input,
)
from anabranch.bench.fusion.shuffles import Shuffles, shuffles_of
from anabranch.bench.measure import MIN_COUNTED, SideRun, counted, speed, warm_batches
from anabranch.bench.options import FusionOptions
from anabranch.bench.report import show_fusion
from anabranch.bench.rivals import Stop, read_stream, run_query
from anabranch.bench.side import (
    Bench,
    clear,
    clocked,
    emptied,
    open_bench,
    run_topology,
    scratch,
    settings_of,
)
from anabranch.bench.turns import Side, take_turns
from anabranch.bench.verify import verify_all
from anabranch.errors import AnabranchError
from anabranch.plan.planners.registry import UNFUSED
from anabranch.spark.tuning import LOCAL_QUERY

NATIVE = "native"
_FILES_TEXT = {
    "quick": "by the same file manager as Anabranch's",
    "default": "by Spark's own file manager, which starts a chmod process per file",
}
_WARM_BATCHES, _WARM_ROWS = 3, 20_000
_VERIFYING_S = 30.0  # kept for the comparison of all rows, which comes last


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSide:
    """One side in all its rounds."""

    name: str
    runs: Sequence[SideRun]
    batches: Sequence[Mapping[int, Shuffles]]  # of each run, by batch

    def exchanges(self, counts: range) -> int:
        """The exchanges per batch; they must be the same in all batches that count."""
        found = {run[batch].exchanges for run in self.batches for batch in counts}
        if len(found) != 1:
            raise AnabranchError(
                f"{self.name}: the batches that count have {sorted(found)} exchanges"
            )
        return found.pop()

    def shuffle_bytes(self, counts: range) -> int:
        """Bytes that a batch sends through its exchanges: the mean of all batches that count.

        It is the mean because windows do not close in every batch.
        """
        each = [run[batch].written_bytes for run in self.batches for batch in counts]
        return round(sum(each) / len(each))

    def task_s(self, counts: range) -> float:
        """The time of all tasks of a batch together; the median of all batches that count."""
        return round(median(run[batch].task_s for run in self.batches for batch in counts), 4)


def fusion(options: FusionOptions, out: TextIO) -> dict[str, Any]:
    """Runs the benchmark, and prints its progress on `out`.

    Returns the figures as in `--json`.
    """
    began = time.monotonic()
    with open_bench(options, began + options.minutes * 60, clocked(out)) as bench:
        spec = options.data()
        bench.say(
            f"input of {spec.rows:,} rows in {spec.batches} files, {spec.keys:,} combinations of "
            "a, b, c, d"
        )
        source = write_chain_input(spec, options.cardinalities, bench.root / "input")
        _warm_up(bench)
        warm = warm_batches(LONGEST_US, spec.batch_span_s * 1e6, len(source.files))
        bench.say(f"{TEXT}; batches {warm} to {len(source.files) - 1} of {len(source.files)} count")
        place = bench.root / "runs"
        measured = _measure(bench, source, place, warm)
        cases, native = _figures(measured, source, warm)
        if options.verify:
            _verify(bench, source, cases, measured)
        clear(bench, place)
        settings = _settings(bench, time.monotonic() - began)
    return {
        "bench": "fusion",
        "text": TEXT,
        "cases": cases,
        **({NATIVE: native} if native else {}),
        "settings": settings,
    }


def fused_name(number: int) -> str:
    """The name of the case with this many operators in one component."""
    return f"{number} fused"


def _warm_up(bench: Bench[FusionOptions]) -> None:
    """Runs the case with the most levels, and native Spark, over a few small batches.

    The JVM compiles, and Python workers start.
    """
    bench.say("warming up")
    spec = bench.options.data()
    rows = min(spec.batch_rows, _WARM_ROWS)
    minute = max(1, round(spec.rows_per_minute * rows / spec.batch_rows))
    spec = replace(
        spec, rows=rows * _WARM_BATCHES, batch_rows=rows, rows_per_minute=minute, seed=spec.seed + 1
    )
    with scratch(bench, "trial") as place:
        source = write_chain_input(spec, bench.options.cardinalities, place / "input")
        sides = _sides(bench, source, place, warm=0)
        for name in (fused_name(1), NATIVE):
            if name in sides:
                sides[name](bench.ends_at - time.monotonic())


def _sides(
    bench: Bench[FusionOptions], source: InputFiles, place: Path, warm: int
) -> dict[str, Side]:
    """Anabranch with 1, 2, 3 and 4 of the operators in one component, and native Spark."""
    sides: dict[str, Side] = {
        fused_name(number): partial(_run_fused, bench, source, place / f"{number}-fused", number)
        for number in range(1, len(CHAIN) + 1)
    }
    if bench.options.native:
        sides[NATIVE] = partial(_run_native, bench, source, place / NATIVE, warm)
    return sides


def _run_fused(
    bench: Bench[FusionOptions], source: InputFiles, place: Path, number: int, _left_s: float
) -> SideRun:
    sinks = {name: emptied(place) / "results" / name for name in written_operators(bench.options)}
    app = chain_topology(read_stream(bench.spark, source), source.delay_s, number, sinks)
    return replace(run_topology(bench, app, source, place, UNFUSED), side=fused_name(number))


def _run_native(
    bench: Bench[FusionOptions], source: InputFiles, place: Path, warm: int, left_s: float
) -> SideRun:
    """One query per operator whose results are written: a query has one sink.

    They run one after the other.
    """
    emptied(place)
    conf = bench.spark.conf
    for name, value in LOCAL_QUERY.items():
        conf.set(name, value) if bench.options.native_files == "quick" else conf.unset(name)
    stop = Stop(
        after_s=left_s,
        batches=warm + MIN_COUNTED,
        at_last_s=max(left_s, bench.ends_at - time.monotonic()) / 2,
    )
    runs = []
    for stage in CHAIN:
        if stage.name in (written := written_operators(bench.options)):
            results = native_chain(read_stream(bench.spark, source), source.delay_s, stage)
            target = place / "results" / stage.name
            runs.append(
                run_query(
                    results,
                    source,
                    place / stage.name,
                    target,
                    bench.store,
                    stop if len(written) == 1 else None,
                )
            )
    return SideRun(
        side=NATIVE,
        batch_s=tuple(sum(each) for each in zip(*(run.batch_s for run in runs), strict=True)),
        watermark_us=runs[0].watermark_us,
        files=tuple(file for run in runs for file in run.files),
        queries=tuple(query for run in runs for query in run.queries),
    )


def written_operators(options: FusionOptions) -> tuple[str, ...]:
    """The operators whose results both sides write."""
    return tuple(stage.name for stage in (CHAIN if options.sinks == "all" else CHAIN[-1:]))


def _measure(
    bench: Bench[FusionOptions], source: InputFiles, place: Path, warm: int
) -> list[MeasuredSide]:
    """All rounds of all sides; Spark's counts are read after each run, before it forgets them."""
    batches: dict[str, list[Mapping[int, Shuffles]]] = {}

    def observed(name: str, side: Side) -> Side:
        def run(left_s: float) -> SideRun:
            found = side(left_s)
            batches.setdefault(name, []).append(
                _together([shuffles_of(bench.spark, query) for query in found.queries])
            )
            return found

        return run

    sides = {
        name: observed(name, side) for name, side in _sides(bench, source, place, warm).items()
    }
    ends_at = bench.ends_at - (_VERIFYING_S if bench.options.verify else 0)
    runs = take_turns(sides, source, bench.options.rounds, ends_at, bench.say)
    return [MeasuredSide(name=name, runs=runs[name], batches=batches[name]) for name in sides]


def _together(queries: Sequence[Mapping[int, Shuffles]]) -> dict[int, Shuffles]:
    """What the queries of a side cost in each batch that all of them have."""
    common = set(queries[0]).intersection(*queries)
    return {
        batch: Shuffles(
            sum(each[batch].exchanges for each in queries),
            sum(each[batch].written_bytes for each in queries),
            sum(each[batch].task_s for each in queries),
        )
        for batch in sorted(common)
    }


def _figures(
    measured: Sequence[MeasuredSide], source: InputFiles, warm: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The figures of each number of fused operators, and native's own, over common batches."""
    usable = [
        each
        for each in measured
        if each.name != NATIVE or all(len(run.batch_s) > warm for run in each.runs)
    ]
    counts = counted([run for each in usable for run in each.runs], warm)
    found = {each.name: _figures_of(each, source, counts) for each in usable}
    native = found.pop(NATIVE, {})
    unfused = found[fused_name(1)]["rows_per_s"]
    cases = []
    for number, (name, mine) in enumerate(found.items(), 1):
        case: dict[str, Any] = {"case": name, "fused": number, "counted_batches": list(counts)}
        case |= {
            f"anabranch_{key}": mine[key]
            for key in ("rows_per_s", "batch_s", "task_s", "batches_s")
        }
        case |= {"ratio_to_unfused": round(mine["rows_per_s"] / unfused, 2)}
        case |= {key: mine[key] for key in ("exchanges", "shuffle_bytes")}
        if native:
            case |= {
                f"native_{key}": native[key]
                for key in ("rows_per_s", "batch_s", "exchanges", "shuffle_bytes")
            }
            case |= {"ratio": round(mine["rows_per_s"] / native["rows_per_s"], 2)}
        cases.append(case)
    return cases, native


def _figures_of(side: MeasuredSide, source: InputFiles, counts: range) -> dict[str, Any]:
    found = speed(side.runs, counts, source.rows)
    return {
        "rows_per_s": round(found.rows_per_s),
        "batch_s": found.batch_s,
        "exchanges": side.exchanges(counts),
        "shuffle_bytes": side.shuffle_bytes(counts),
        "task_s": side.task_s(counts),
        "batches_s": found.each_s,
    }


def _verify(
    bench: Bench[FusionOptions],
    source: InputFiles,
    cases: Sequence[dict[str, Any]],
    measured: Sequence[MeasuredSide],
) -> None:
    """Compares every row of each side, up to its final watermark, with the reference.

    Native's rows count in every case.
    """
    reference = ChainReference(source, written_operators(bench.options))
    last = {each.name: each.runs[-1] for each in measured}
    native = (
        verify_all(reference.differences, [last[NATIVE]], bench.say) if NATIVE in last else None
    )
    for case in cases:
        mine = verify_all(reference.differences, [last[case["case"]]], bench.say)
        for each in (mine, native) if native else (mine,):
            case["verified"] = case.get("verified", True) and each["verified"]
            case["rows_compared"] = {**case.get("rows_compared", {}), **each["rows_compared"]}
            case["differences"] = [*case.get("differences", []), *each["differences"]]


def _settings(bench: Bench[FusionOptions], seconds: float) -> dict[str, Any]:
    """What one must know to judge or repeat the figures."""
    found = settings_of(bench, seconds)
    writes = " and ".join(written_operators(bench.options))
    found["anabranch"] |= {
        "components": "the first operators of the chain in one, the others each in its own",
        "writes": f"results of {writes}",
    }
    found[NATIVE] |= {
        "query": "withWatermark, then groupBy(window, keys) over the windows of the one before, "
        "chained"
        + (
            "; one query per operator, one after the other"
            if bench.options.sinks == "all"
            else " in one query"
        ),
        "writes": f"results of {writes}",
        "checkpoint_files": _FILES_TEXT[bench.options.native_files],
    }
    found["both"] |= {
        "shuffle_bytes": "written to exchanges per batch, mean of the batches that count",
        "exchanges": "per batch",
    }
    return {**found, **bench.options.cardinalities, "sinks": bench.options.sinks}


fusion_command = bench_command(
    FusionOptions,
    fusion,
    show_fusion,
    """Four chained aggregations, 1 to 4 of them fused, and native Spark chained.

    Measures exchanges, shuffled bytes and rows per second. (a,b,c,d) per minute, (a,b,c) per 5,
    (a,b) per 10, (a) per 20 minutes; count, sum and max; parquet in, parquet out. Progress goes to
    standard error.

    Example: anabranch bench fusion --rows 3000000 --batch-rows 300000 --rows-per-minute 60000
    """,
)

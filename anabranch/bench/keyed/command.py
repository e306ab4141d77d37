"""`anabranch bench keyed`: running count and sum per key, `process` against Spark's ways.

The rivals are all ways that Spark has for Python state. All sides read the same parquet files, one
per batch, in one Spark session on all cores. They keep their state durable and write parquet. They
take turns, from an empty state each time. The first batches do not count, nor does a pass over the
input before each turn of ours and of the limits.

`process` runs per key and vectorised, each with aggregates that Spark SQL computes from the rows of
a key, and with all rows. There are two bare limits, which keep and write nothing: rows of each
batch combined by Spark SQL, and rows exchanged by key and brought to Python. `flat` measures the
cost of a small batch while ever more keys are stored.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from anabranch.bench.command import bench_command
from anabranch.bench.data import DataSpec, InputFiles, write_input
from anabranch.bench.keyed.flat import flat
from anabranch.bench.keyed.sides import FORMS, RIVALS, limit_of, run_bare, run_process, run_rival
from anabranch.bench.measure import MIN_WARM, SideRun, counted, speed
from anabranch.bench.options import KeyedOptions
from anabranch.bench.report import show_keyed
from anabranch.bench.rivals import Stop
from anabranch.bench.side import Bench, clocked, open_bench, scratch, settings_of
from anabranch.bench.turns import Side, take_turns
from anabranch.bench.verify import verify_all
from anabranch.errors import TopologyError
from anabranch.spark.tuning import LOCAL_QUERY
from anabranch.testing.compare import differences
from anabranch.testing.reference.database import connect

_WARM_ROWS = 5_000  # for rivals
_WARM_BATCHES, _WARM_BATCH_ROWS = (
    24,
    100_000,
)  # for sides so quick that the JVM would have compiled little of them
_LEAST_BATCHES = 2  # of a slow rival: one to warm up, one that counts
_FLAT_S = 240.0  # kept for the case `flat`


def keyed(options: KeyedOptions, out: TextIO) -> dict[str, Any]:
    """Runs the benchmark, and prints its progress on `out`.

    Returns the figures as in `--json`.
    """
    began = time.monotonic()
    forms = [form for form in FORMS if form in options.cases]
    cases: list[dict[str, Any]] = []
    with open_bench(options, began + options.minutes * 60, clocked(out)) as bench:
        for name, value in LOCAL_QUERY.items():
            bench.spark.conf.set(name, value)  # the same file manager as Anabranch's
        if options.rows > 3 * _WARM_ROWS:  # a smaller input is itself like a trial
            _warm_up(bench, forms)
        ends_at = bench.ends_at - (_FLAT_S if "flat" in options.cases else 0)
        for i, (keys, skew) in enumerate(options.grid if forms else []):
            left_s = (ends_at - time.monotonic()) / (len(options.grid) - i)
            cases += _measure(bench, forms, replace(options.data_of(keys), skew=skew), left_s)
        if "flat" in options.cases:
            with scratch(bench, "flat") as place:
                cases.append(flat(bench, place))
        settings = settings_of(bench, time.monotonic() - began)
    settings["native"] |= {"state_store": {name: store for name, (_, store) in RIVALS.items()}}
    return {
        "bench": "keyed",
        "text": "running count and sum per key",
        "cases": cases,
        "settings": settings,
    }


def _warm_up(bench: Bench[KeyedOptions], forms: Sequence[str]) -> None:
    bench.say("warming up")
    spec = replace(bench.options.data_of(500), seed=bench.options.seed + 1)
    few = replace(spec, rows=3 * _WARM_ROWS, batch_rows=_WARM_ROWS)
    size = min(_WARM_BATCH_ROWS, spec.batch_rows)
    more = replace(spec, rows=_WARM_BATCHES * size, batch_rows=size)
    with scratch(bench, "trial") as place:
        inputs = [write_input(each, place / f"input-{i}") for i, each in enumerate((few, more))]
        trial, quick = (_sides(bench, forms, source, place, 60.0) for source in inputs)
        for name, side in trial.items():
            if name in RIVALS:
                side(60.0)
        for name, side in quick.items():
            if name not in RIVALS:
                side(60.0)


def _sides(
    bench: Bench[KeyedOptions], forms: Sequence[str], source: InputFiles, place: Path, left_s: float
) -> dict[str, Side]:
    """`process` in its forms, their limits, and the rivals.

    A side that takes too long is cut short after enough batches.
    """
    sides: dict[str, Side] = {
        form: _twice(partial(run_process, bench, form, source, place / form)) for form in forms
    }
    for name in dict.fromkeys(limit_of(form) for form in forms):
        sides[name] = _twice(partial(run_bare, bench, name, source, place / name))
    if bench.options.native and forms:
        _need_protobuf()
        share = left_s / (len(RIVALS) * bench.options.rounds + 1)
        stop = Stop(after_s=share, batches=_LEAST_BATCHES, at_last_s=max(4 * share, 120.0))
        sides |= {
            rival: partial(run_rival, bench, rival, source, place / rival, stop) for rival in RIVALS
        }
    return sides


def _twice(side: Side) -> Side:
    """A side that runs over the input once before the run that counts.

    Its batches are so short that the JVM would compile within those that count. Rivals run for
    seconds before their batches count.
    """

    def run(left_s: float) -> SideRun:
        side(left_s)
        return side(left_s)

    return run


def _need_protobuf() -> None:
    try:
        found = importlib.util.find_spec("google.protobuf") is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise TopologyError(
            "Spark's transformWithState needs the package protobuf: install anabranch[bench], or "
            "give --no-native"
        )


def _measure(
    bench: Bench[KeyedOptions], forms: Sequence[str], spec: DataSpec, left_s: float
) -> list[dict[str, Any]]:
    """All sides over one input."""
    bench.say(
        f"{spec.rows:,} rows of {spec.keys:,} keys, zipf {spec.skew:g}, in {spec.batches} batches; "
        f"{left_s:.0f} s"
    )
    ends_at = time.monotonic() + left_s
    with scratch(bench, f"keys-{spec.keys}-{spec.skew:g}") as place:
        source = write_input(spec, place / "input")
        sides = _sides(bench, forms, source, place, left_s)
        runs = take_turns(sides, source, bench.options.rounds, ends_at, bench.say)
        rivals = {name: _rival(runs[name], source) for name in RIVALS if name in runs}
        limits = {
            name: _rival(runs.pop(name), source) for name in {limit_of(form) for form in forms}
        }
        checks = _verified(bench, source, runs) if bench.options.verify else {}
        fastest = max(rivals, key=lambda name: rivals[name]["rows_per_s"]) if rivals else None
        case = {"keys": spec.keys, "skew": spec.skew, "batch_rows": spec.batch_rows}
        common = {**case, "rivals": rivals, "fastest": fastest, **checks}
        return [
            {
                "case": form,
                **_figures(runs[form], source, {**common, "limit": limits[limit_of(form)]}),
            }
            for form in forms
        ]


def _counts(runs: Sequence[SideRun]) -> range:
    """The batches that count.

    Of a side that was cut short, the later ones: all batches have the same number of rows.
    """
    return counted(runs, min(MIN_WARM, min(len(run.batch_s) for run in runs) - 1))


def _rival(runs: Sequence[SideRun], source: InputFiles) -> dict[str, Any]:
    """The figures of a side with which we are compared."""
    found = speed(runs, _counts(runs), source.rows)
    return {
        "rows_per_s": round(found.rows_per_s),
        "batch_s": found.batch_s,
        "counted_batches": list(_counts(runs)),
        "batches_s": found.each_s,
    }


def _figures(runs: Sequence[SideRun], source: InputFiles, common: dict[str, Any]) -> dict[str, Any]:
    """The figures of one form, and its ratio to the fastest rival."""
    counts = _counts(runs)
    mine, fastest = speed(runs, counts, source.rows), common["fastest"]
    case = {
        "anabranch_rows_per_s": round(mine.rows_per_s),
        "anabranch_batch_s": mine.batch_s,
        "anabranch_batches_s": mine.each_s,
        "anabranch_slot_s": [run.slot_s for run in runs],
        "counted_batches": list(counts),
        **common,
    }
    case["of_limit"] = round(mine.rows_per_s / common["limit"]["rows_per_s"], 3)
    if fastest is not None:
        rival = common["rivals"][fastest]["rows_per_s"]
        case |= {
            "ratio": round(mine.rows_per_s / rival, 2),
            "limit_ratio": round(common["limit"]["rows_per_s"] / rival, 2),
        }
    return case


def _verified(
    bench: Bench[KeyedOptions], source: InputFiles, runs: dict[str, list[SideRun]]
) -> dict[str, Any]:
    """Compares every result row of the last run of each side with DuckDB."""
    database = connect()
    files = [str(file) for file in source.files]
    database.execute(
        """CREATE TEMP TABLE expected AS
           SELECT key, batch, sum(n) OVER so_far AS n, sum(total) OVER so_far AS total FROM (
               SELECT key, CAST(regexp_extract(filename, 'batch-(\\d+)', 1) AS INT) AS batch,
                      count(*) AS n, sum(v) AS total
               FROM read_parquet(?, filename = true) GROUP BY ALL)
           WINDOW so_far AS (PARTITION BY key ORDER BY batch)""",
        [files],
    )

    def compare(run: SideRun) -> tuple[int, list[str]]:
        found = database.sql(
            "SELECT key, n, total FROM read_parquet(?)", params=[[str(file) for file in run.files]]
        )
        actual = found.to_arrow_table()
        sizes = database.sql(
            "SELECT count(*) FROM expected GROUP BY batch ORDER BY batch"
        ).fetchall()
        sums = [sum(size for (size,) in sizes[:i]) for i in range(len(sizes) + 1)]
        if actual.num_rows not in sums or sums.index(actual.num_rows) < len(run.batch_s):
            return 0, [
                f"{actual.num_rows} rows do not match {len(run.batch_s)} batches or more: {sums}"
            ]
        wanted = database.sql(
            "SELECT key, CAST(n AS BIGINT) AS n, total FROM expected WHERE batch < ?",
            params=[sums.index(actual.num_rows)],
        ).to_arrow_table()
        left_out = [f"{run.left_out} rows were left out"] if run.left_out else []
        return wanted.num_rows, left_out + differences(actual, wanted, ["key", "n"])

    return verify_all(compare, [each[-1] for each in runs.values()], bench.say)


keyed_command = bench_command(
    KeyedOptions,
    keyed,
    show_keyed,
    """Python state per key: `process` in its forms, Spark's three ways, and the bare limit.

    Example: anabranch bench keyed --case per-key --keys 10000 --skew 0 --rows 800000
    """,
)

"""The bare limit: how fast one process computes the same results from the same files.

It has no stream, no state and no recovery. Polars and DuckDB read all files, group by (key, pane),
group the panes into each window, and write parquet: the faster of the two is the limit.

The engine builds windows from each other where they fit (10 minutes = 5 + 5 minutes earlier). What
Polars and DuckDB reach with a program that does the same is measured too, as `chained`. They run
in a process of their own: both choose their number of threads when they start, and they should not
share memory with Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from anabranch.bench.cases import WindowCase, choose_cases, copies
from anabranch.errors import AnabranchError
from anabranch.topology import Window

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPiece:
    """Part of a window: the windows of an earlier table, shifted back by each of these times.

    Table 0 has the panes. With `floor`, rows belong to the last window that begins at or before
    them, and to the windows that begin earlier by each of these times.
    """

    table: int
    shifts_us: tuple[int, ...]
    floor: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Table `number` has this window's results, combined from pieces that do not overlap."""

    number: int
    window: Window
    pieces: tuple[LimitPiece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BareLimit:
    """The result of the faster engine."""

    engine: str
    seconds: float
    each_s: dict[str, list[float]]
    files: tuple[Path, ...]


def plain_builds(case: WindowCase) -> tuple[Build, ...]:
    """Each window from all panes that it has."""
    pieces = [
        LimitPiece(table=0, shifts_us=tuple(i * w.every_us for i in range(copies(w))), floor=True)
        for w in case.windows
    ]
    numbered = enumerate(zip(case.windows, pieces, strict=True), 1)
    return tuple(
        Build(number=number, window=window, pieces=(piece,)) for number, (window, piece) in numbered
    )


def plan_builds(case: WindowCase) -> tuple[Build, ...]:
    """Shorter windows first.

    Each window is filled from its start with the longest earlier windows that fit and are aligned.
    """
    tables = [(case.pane_us, case.pane_us)]
    builds = []
    for window in sorted(case.windows, key=lambda each: (each.length_us, each.every_us)):
        shifts: dict[int, list[int]] = {}
        at = 0
        while at < window.length_us:
            table = max(
                number
                for number, (length, every) in enumerate(tables)
                if window.every_us % every == 0
                and at % every == 0
                and at + length <= window.length_us
            )
            shifts.setdefault(table, []).append(at)
            at += tables[table][0]
        pieces = tuple(
            LimitPiece(table=table, shifts_us=tuple(back)) for table, back in shifts.items()
        )
        builds.append(Build(number=len(tables), window=window, pieces=pieces))
        tables.append((window.length_us, window.every_us))
    return tuple(builds)


PLANS: dict[str, Callable[[WindowCase], tuple[Build, ...]]] = {
    "plain": plain_builds,
    "chained": plan_builds,
}


def with_duckdb(
    case: WindowCase,
    builds: Sequence[Build],
    files: Sequence[Path],
    watermark_us: int,
    target: Path,
) -> None:
    """All windows that end at or below the watermark, one parquet file per window."""
    import duckdb

    threads = os.environ["POLARS_MAX_THREADS"]
    pane = case.pane_us
    with duckdb.connect(config={"threads": threads, "preserve_insertion_order": "false"}) as db:
        db.execute(
            f"""CREATE TEMP TABLE w0 AS
                SELECT key, epoch_us("at") // {pane} * {pane} AS start,
                       count(*) AS n, sum(v) AS s, max(v) AS m
                FROM read_parquet(?) GROUP BY ALL""",
            [[str(file) for file in files]],
        )
        for build in builds:
            length, every = build.window.length_us, build.window.every_us
            parts = " UNION ALL ".join(
                f"SELECT key, {f'start // {every} * {every}' if piece.floor else 'start'} - back "
                f"AS start, n, s, m FROM w{piece.table}, (VALUES "
                f"{', '.join(f'(CAST({back} AS BIGINT))' for back in piece.shifts_us)}) AS "
                "shifts(back)"
                + (
                    f" WHERE start // {every} * {every} - back + {length} > start"
                    if piece.floor
                    else ""
                )
                for piece in build.pieces
            )
            db.execute(f"""
                CREATE TEMP TABLE w{build.number} AS
                SELECT key, start, CAST(sum(n) AS BIGINT) AS n, sum(s) AS s, max(m) AS m
                FROM ({parts})
                WHERE start % {every} = 0 AND start + {length} <= {watermark_us} GROUP BY key, start
            """)
            db.execute(f"""
                COPY (SELECT key,
                             struct_pack("start" := make_timestamp(start),
                                         "end" := make_timestamp(start + {length})) AS "window",
                             '{build.window.name}' AS window_name, n, s AS total, s / n AS mean,
                             m AS top FROM w{build.number})
                TO '{target / f"{build.number}.parquet"}' (FORMAT parquet)
            """)


def with_polars(
    case: WindowCase,
    builds: Sequence[Build],
    files: Sequence[Path],
    watermark_us: int,
    target: Path,
) -> None:
    """The same with Polars."""
    import polars as pl

    start = pl.col("at").dt.epoch("us") // case.pane_us * case.pane_us
    partials = (
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("v").sum().alias("s"),
        pl.col("v").max().alias("m"),
    )
    tables = [
        pl.scan_parquet([str(file) for file in files])
        .group_by("key", start.alias("start"))
        .agg(*partials)
        .collect()
    ]
    for build in builds:
        tables.append(_merge(tables, build, watermark_us))
        window = pl.struct(
            pl.col("start").cast(pl.Datetime("us", "UTC")),
            (pl.col("start") + build.window.length_us).cast(pl.Datetime("us", "UTC")).alias("end"),
        )
        tables[-1].select(
            "key",
            window.alias("window"),
            pl.lit(build.window.name).alias("window_name"),
            "n",
            pl.col("s").alias("total"),
            (pl.col("s") / pl.col("n")).alias("mean"),
            pl.col("m").alias("top"),
        ).write_parquet(target / f"{build.number}.parquet", compression="snappy", statistics=False)


def _merge(tables: list[pl.DataFrame], build: Build, watermark_us: int) -> pl.DataFrame:
    import polars as pl

    length, every = build.window.length_us, build.window.every_us
    closed = (pl.col("start") % every == 0) & (pl.col("start") + length <= watermark_us)

    def shifted(piece: LimitPiece, back: int) -> pl.LazyFrame:
        table = tables[piece.table].lazy()
        if not piece.floor:
            return table.with_columns(pl.col("start") - back)
        begin = pl.col("start") // every * every - back
        return table.filter(begin + length > pl.col("start")).with_columns(begin.alias("start"))

    parts = [
        shifted(piece, back).filter(closed) for piece in build.pieces for back in piece.shifts_us
    ]
    if len(parts) == 1 and not build.pieces[0].floor:
        return parts[0].collect()
    merged = (
        pl.concat(parts)
        .group_by("key", "start")
        .agg(pl.col("n").sum(), pl.col("s").sum(), pl.col("m").max())
    )
    return merged.collect()


Engine: TypeAlias = Callable[[WindowCase, Sequence[Build], Sequence[Path], int, Path], None]
ENGINES: dict[str, Engine] = {"polars": with_polars, "duckdb": with_duckdb}


def find_limit(
    case: WindowCase,
    files: Sequence[Path],
    watermark_us: int,
    target: Path,
    threads: int,
    *,
    plan: str = "plain",
    runs: int = 2,
) -> BareLimit:
    """Runs both engines in a process of their own and returns the faster."""
    windows = ",".join(f"{window.length_us} us/{window.every_us} us" for window in case.windows)
    job = {"windows": windows, "files": [str(file) for file in files], "watermark_us": watermark_us}
    job |= {"target": str(target), "plan": plan, "runs": runs}
    done = subprocess.run(
        [sys.executable, "-c", "from anabranch.bench.limit import main; main()"],
        input=json.dumps(job),
        env={**os.environ, "POLARS_MAX_THREADS": str(threads)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise AnabranchError(f"the bare limit could not be measured: {done.stderr.strip()[-500:]}")
    each: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    engine = min(each, key=lambda name: min(each[name]))
    results = tuple(sorted((target / engine).glob("*.parquet")))
    return BareLimit(engine=engine, seconds=min(each[engine]), each_s=each, files=results)


def main() -> None:
    """Reads a job from standard input and prints the seconds of each run of each engine."""
    job = json.load(sys.stdin)
    [case] = choose_cases("", job["windows"])
    each: dict[str, list[float]] = {name: [] for name in ENGINES}
    builds = PLANS[job["plan"]](case)
    for _ in range(job["runs"]):
        for name, compute in ENGINES.items():
            target = Path(job["target"]) / name
            target.mkdir(parents=True, exist_ok=True)
            began = time.perf_counter()
            compute(
                case, builds, [Path(file) for file in job["files"]], job["watermark_us"], target
            )
            each[name].append(round(time.perf_counter() - began, 4))
    print(json.dumps(each))

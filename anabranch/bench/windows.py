"""`anabranch bench windows`: event-time windows by Anabranch, native Spark, and the bare limit.

Both streaming sides read the same parquet files, one per batch, in one Spark session on all cores.
They keep their state durable and write parquet. They take turns, from an empty state each time;
`measure` explains the batches that count and the medians. On a machine of any speed, the benchmark
plans its rounds so that it ends within `minutes`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TextIO

from anabranch.bench.cases import CASES, WindowCase, choose_cases
from anabranch.bench.command import bench_command
from anabranch.bench.data import InputFiles, write_input
from anabranch.bench.limit import BareLimit, find_limit
from anabranch.bench.measure import MIN_COUNTED, SideRun, counted, speed, warm_batches
from anabranch.bench.options import WindowsOptions
from anabranch.bench.report import show
from anabranch.bench.rivals import NativeSettings, Stop, choose_state_store, forms_for, run_native
from anabranch.bench.side import (
    Bench,
    clear,
    clocked,
    emptied,
    open_bench,
    run_anabranch,
    scratch,
    settings_of,
)
from anabranch.bench.turns import Side, take_turns
from anabranch.bench.verify import Reference, verify_all

SMALL_ROWS = 1_000
SMALL_BATCHES = 24
_SMALL_ROUNDS = 2
_SMALL_RESERVE_S = 45.0  # kept for the small batches, which come last
_CASES_TEXT = "; ".join(f"{each.name} = {each.text}" for each in CASES.values())
_TRIAL_BATCHES = 3
_HEAVY_COPIES = 20  # from this many windows per row on, native Spark takes most of the time
_HEAVY_WEIGHT = 4
_MANY_WINDOWS = 40  # from this many on, slot time is also measured with fewer
_LIMIT_COPIES = 500
_MEASURING_SHARE = 0.7  # of a case's time; the rest is for the limit and for comparing all rows


def windows(options: WindowsOptions, out: TextIO) -> dict[str, Any]:
    """Runs the benchmark, and prints its progress on `out`.

    Returns the figures as in `--json`.
    """
    began = time.monotonic()
    cases = choose_cases(options.case, options.windows)
    with open_bench(options, began + options.minutes * 60, clocked(out)) as opened:
        trial, bench = _prepare(opened)
        reserve_s = _SMALL_RESERVE_S if options.small_batch else 0.0
        found = []
        for number, case in enumerate(cases):
            source = _input(bench, case)
            left_s = max(0.0, bench.ends_at - time.monotonic() - reserve_s)
            found.append(
                _measure_case(
                    bench, case, source, left_s * share_of_time(cases[number:]) * _MEASURING_SHARE
                )
            )
        small = _small_batch(bench) if options.small_batch else None
        settings = _settings(bench, trial, time.monotonic() - began)
    return {
        "bench": "windows",
        "cases": found,
        **({"small_batch": small} if small else {}),
        "settings": settings,
    }


def share_of_time(cases: Sequence[WindowCase]) -> float:
    """The share of the time left that the first of these cases may use."""
    weights = [_HEAVY_WEIGHT if case.copies > _HEAVY_COPIES else 1 for case in cases]
    return weights[0] / sum(weights)


def _input(bench: Bench[WindowsOptions], case: WindowCase) -> InputFiles:
    """The files of a case; cases over the same rows share them."""
    spec = bench.options.data(case)
    directory = bench.root / ("input" if spec == bench.options.data() else f"input-{case.name}")
    bench.say(
        f"case {case.name}: input of {spec.rows:,} rows in {spec.batches} files, {spec.keys:,} keys"
    )
    return write_input(spec, directory)


def _prepare(bench: Bench[WindowsOptions]) -> tuple[dict[str, float], Bench[WindowsOptions]]:
    """Warms both sides up on a small input, and uses it to choose native Spark's state store."""
    spec = bench.options.data()
    rows = max(1, min(spec.batch_rows, 100_000))
    spec = replace(spec, rows=rows * _TRIAL_BATCHES, batch_rows=rows, seed=spec.seed + 1)
    with scratch(bench, "trial") as place:
        source = write_input(spec, place / "input")
        bench.say("warming up")
        run_anabranch(bench, source, CASES["B"], place / "anabranch")
        if not bench.options.native:
            return {}, bench
        trial = choose_state_store(bench.spark, source, CASES["B"], place / "native")
    store = next(iter(trial))
    bench.say(
        "native state store: "
        + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in trial.items())
        + f": {store}"
    )
    return trial, replace(bench, store=store)


def _measure_case(
    bench: Bench[WindowsOptions], case: WindowCase, source: InputFiles, seconds: float
) -> dict[str, Any]:
    """All rounds of a case, its limit, and the comparison of all its results."""
    batches = len(source.files)
    warm = warm_batches(case.longest_us, bench.options.data(case).batch_span_s * 1e6, batches)
    bench.say(f"case {case.name}: {case.text}; batches {warm} to {batches - 1} of {batches} count")
    place = bench.root / case.name
    stop = Stop(
        after_s=seconds,
        batches=warm + MIN_COUNTED,
        at_last_s=max(seconds, bench.ends_at - time.monotonic()) / 2,
    )
    runs = _rounds(bench, case, source, place, stop)
    ours = runs.pop("anabranch")
    usable = {form: [run for run in each if len(run.batch_s) > warm] for form, each in runs.items()}
    figures = _figures(case, source, ours, usable, warm)
    for form, each in runs.items():
        if not usable[form]:
            figures.setdefault("native_failures", {})[form] = failure = _failure(
                each[-1], warm, figures["anabranch_batch_s"]
            )
            bench.say(
                f"case {case.name}: native as {form}: {failure['batches']} of {warm + 1} needed "
                f"batches; a batch takes at least {failure['batch_s_at_least']:.1f} s, "
                f"{failure['ratio_at_least']:.1f} times ours"
            )
    limits = _limits(bench, case, source, place) if bench.options.limit else {}
    for plan, limit in limits.items():
        name = "limit" if plan == "plain" else f"limit_{plan}"
        limit_rows = round(bench.options.rows / limit.seconds)
        bench.say(f"case {case.name}: bare limit, {plan}: {limit_rows:,} rows/s ({limit.engine})")
        figures |= {
            f"{name}_rows_per_s": limit_rows,
            f"{name}_engine": limit.engine,
            f"{name}_s": limit.each_s,
        }
    if len(case.windows) >= _MANY_WINDOWS:
        figures["slot_us_per_row"] = _by_number_of_windows(
            bench, case, source, place / "fewer", ours, warm
        )
    if bench.options.verify:
        native = [
            replace(each[-1], side=_side_name(form, usable))
            for form, each in usable.items()
            if each
        ]
        bare = [_as_run(limit, source, plan) for plan, limit in limits.items()]
        figures |= _verify(bench, case, source, [ours[-1], *native, *bare])
    clear(bench, place)
    return figures


def _failure(run: SideRun, warm: int, ours_s: float) -> dict[str, Any]:
    """What is known of a side without a batch that counts.

    It is its quickest batch, whose windows were not full, or the time of the run without any.
    """
    least_s = min(run.batch_s, default=run.lasted_s)
    return {
        "batches": len(run.batch_s),
        "batches_needed": warm + 1,
        "batch_s_at_least": round(least_s, 2),
        "ratio_at_least": round(least_s / ours_s, 1),
    }


def _limits(
    bench: Bench[WindowsOptions], case: WindowCase, source: InputFiles, place: Path
) -> dict[str, BareLimit]:
    """The bare limit, and for several windows also with windows built from each other.

    Empty if a row is in so many windows that Polars and DuckDB would need a special program.
    """
    if case.copies // len(case.windows) > _LIMIT_COPIES:
        return {}
    plans = ("plain", "chained") if len(case.windows) > 1 else ("plain",)
    return {
        plan: find_limit(
            case,
            source.files,
            source.watermark_us(),
            place / f"limit-{plan}",
            bench.cores,
            plan=plan,
        )
        for plan in plans
    }


def _by_number_of_windows(
    bench: Bench[WindowsOptions],
    case: WindowCase,
    source: InputFiles,
    place: Path,
    ours: Sequence[SideRun],
    warm: int,
) -> dict[str, float]:
    """Slot time per row in microseconds, without writing results, by number of windows."""
    found: dict[str, float] = {}
    for number in (1, len(case.windows) // 4):
        fewer = replace(case, name=f"{case.name}{number}", windows=case.windows[:number])
        run = run_anabranch(bench, source, fewer, place)
        found[str(number)] = round(
            median(1e6 * s / r for s, r in list(zip(run.slot_s, source.rows, strict=True))[warm:]),
            4,
        )
        shutil.rmtree(place, ignore_errors=True)
    each = [
        1e6 * s / r
        for run in ours
        for s, r in list(zip(run.slot_s, source.rows, strict=True))[warm:]
    ]
    found[str(len(case.windows))] = round(median(each), 4)
    bench.say(
        f"case {case.name}: slot time without results, us per row by number of windows: {found}"
    )
    return found


def _rounds(
    bench: Bench[WindowsOptions], case: WindowCase, source: InputFiles, place: Path, stop: Stop
) -> dict[str, list[SideRun]]:
    """All sides in turns, in as many rounds as there is time for.

    The sides are Anabranch, and native Spark in each of its forms.
    """
    forms = _forms(bench, case)
    stop = replace(stop, at_last_s=stop.at_last_s / max(len(forms), 1))

    def anabranch(_left_s: float) -> SideRun:
        return run_anabranch(bench, source, case, emptied(place / "anabranch"))

    def native(form: str, left_s: float) -> SideRun:
        settings = NativeSettings(store=bench.store, form=form)
        target = emptied(place / f"native-{form}")
        return run_native(
            bench.spark, source, case, target, settings, replace(stop, after_s=left_s / len(forms))
        )

    sides: dict[str, Side] = {
        "anabranch": anabranch,
        **{form: partial(native, form) for form in forms},
    }
    ends_at = time.monotonic() + stop.after_s
    return take_turns(
        sides,
        source,
        bench.options.rounds,
        ends_at,
        lambda text: bench.say(f"case {case.name}: {text}"),
    )


def _forms(bench: Bench[WindowsOptions], case: WindowCase) -> tuple[str, ...]:
    wanted = bench.options.native_form
    if not bench.options.native:
        return ()
    return forms_for(case) if wanted == "auto" else (wanted,)


def _side_name(form: str, forms: Iterable[str]) -> str:
    """The first form is called native; the names of others have the form, too."""
    return "native" if form == next(iter(forms)) else f"native_{form}"


def _figures(
    case: WindowCase,
    source: InputFiles,
    ours: Sequence[SideRun],
    native: Mapping[str, Sequence[SideRun]],
    warm: int,
) -> dict[str, Any]:
    """Rows per second of all sides over the batches that all runs have, with details."""
    batches = counted([*ours, *(run for each in native.values() for run in each)], warm)
    mine = speed(ours, batches, source.rows)
    figures: dict[str, Any] = {
        "case": case.name,
        "text": case.text,
        "windows": [window.name for window in case.windows],
    }
    figures |= {"anabranch_rows_per_s": round(mine.rows_per_s), "anabranch_batch_s": mine.batch_s}
    figures |= {
        "state_mb": max(run.state_bytes for run in ours) >> 20,
        "peak_mb": dict(ours[0].peak_mb),
    }
    for form, runs in native.items():
        if not runs:
            continue
        rival, name = speed(runs, batches, source.rows), _side_name(form, native)
        ratio = name.replace("native", "ratio")
        figures |= {f"{name}_rows_per_s": round(rival.rows_per_s), f"{name}_batch_s": rival.batch_s}
        figures |= {
            ratio: round(mine.rows_per_s / rival.rows_per_s, 2),
            f"{name}_batches_s": rival.each_s,
        }
    if native:
        figures["native_form"] = next(iter(native))
    return figures | {"counted_batches": list(batches), "anabranch_batches_s": mine.each_s}


def _as_run(limit: BareLimit, source: InputFiles, plan: str) -> SideRun:
    name = "limit" if plan == "plain" else f"limit_{plan}"
    return SideRun(side=name, batch_s=(), watermark_us=source.watermark_us(), files=limit.files)


def _verify(
    bench: Bench[WindowsOptions], case: WindowCase, source: InputFiles, runs: Sequence[SideRun]
) -> dict[str, Any]:
    """Compares every row of each side, up to its final watermark, with the reference."""
    with Reference(case, source.files) as reference:
        return verify_all(
            reference.differences, runs, lambda text: bench.say(f"case {case.name}: {text}")
        )


def _small_batch(bench: Bench[WindowsOptions]) -> dict[str, Any]:
    """The fixed cost of a batch: each has 1,000 rows and a minute of event time.

    So every batch closes a window.
    """
    spec = replace(
        bench.options.data(),
        rows=SMALL_ROWS * SMALL_BATCHES,
        batch_rows=SMALL_ROWS,
        rows_per_minute=SMALL_ROWS,
        disorder_s=1.0,
    )
    case, warm = CASES["A"], SMALL_BATCHES // 3
    with scratch(bench, "small") as place:
        source = write_input(spec, place / "input")
        ours, native = _rounds_small(bench, source, case, place)
    batches = counted([*ours, *native], warm)
    mine = speed(ours, batches, source.rows)
    steps = sorted(run.inner_s[batch] for run in ours for batch in batches)
    figures: dict[str, Any] = {
        "rows": SMALL_ROWS,
        "case": case.name,
        "counted_batches": [batches.start, batches.stop - 1],
    }
    figures |= {
        "anabranch_s": round(mine.batch_s, 4),
        "anabranch_step_s": round(steps[len(steps) // 2], 4),
    }
    if native:
        figures["native_s"] = round(speed(native, batches, source.rows).batch_s, 4)
    bench.say(
        f"a batch of {SMALL_ROWS:,} rows: "
        + ", ".join(f"{k[:-2]} {v} s" for k, v in figures.items() if k.endswith("_s"))
    )
    return figures


def _rounds_small(
    bench: Bench[WindowsOptions], source: InputFiles, case: WindowCase, place: Path
) -> tuple[list[SideRun], list[SideRun]]:
    ours: list[SideRun] = []
    native: list[SideRun] = []
    for number in range(_SMALL_ROUNDS):
        if number and time.monotonic() > bench.ends_at - _SMALL_RESERVE_S / 2:
            break
        ours.append(run_anabranch(bench, source, case, place / f"anabranch-{number}"))
        if bench.options.native:
            settings = NativeSettings(store=bench.store, form=_forms(bench, case)[0])
            native.append(
                run_native(bench.spark, source, case, place / f"native-{number}", settings)
            )
    return ours, native


def _settings(
    bench: Bench[WindowsOptions], trial: dict[str, float], seconds: float
) -> dict[str, Any]:
    """What one must know to judge or repeat the figures."""
    found = settings_of(bench, seconds)
    found["native"] |= {
        "state_store_trial_s": trial,
        "query": "withWatermark, groupBy(window, key); rows: each row into all of its windows; "
        "queries: one for each window, one after another; panes: chained, by pane first",
    }
    return {**found, "keys": bench.options.keys, "limit_threads": bench.cores}


windows_command = bench_command(
    WindowsOptions,
    windows,
    show,
    """Event-time windows: rows per second of Anabranch, of native Spark, and of the bare limit.

    Rows are keyed by Zipf's law; count, sum, avg and max; parquet in, parquet out. Progress goes to
    standard error.

    Example: anabranch bench windows --case A,C --rows 2000000
    """,
)

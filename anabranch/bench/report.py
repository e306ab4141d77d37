"""Prints the figures of a benchmark as a table."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

VERIFIED = {True: "yes", False: "NO", None: "-"}


def show(figures: dict[str, Any], console: Console) -> None:
    """Prints the table of all cases, the fixed cost of a small batch, and the settings."""
    table = Table(
        title="rows per second, medians over the batches that count", title_justify="left"
    )
    table.add_column("case")
    for heading in ("anabranch", "native", "ratio", "bare limit", "batches", "runs", "verified"):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in figures["cases"]:
        table.add_row(*_cells(case))
    console.print(Group(table, *_notes(figures)))


def _cells(case: dict[str, Any]) -> tuple[str, ...]:
    counted = case["counted_batches"]
    runs = f"{len(case['anabranch_batches_s'])}+{len(case.get('native_batches_s', ()))}"
    return (
        case["case"],
        f"{case['anabranch_rows_per_s']:,}",
        f"{case['native_rows_per_s']:,} ({case['native_form']})"
        if "native_rows_per_s" in case
        else "failed"
        if "native_failures" in case
        else "-",
        f"{case['ratio']:.2f}x" if "ratio" in case else "-",
        f"{case['limit_rows_per_s']:,} ({case['limit_engine']})"
        if "limit_rows_per_s" in case
        else "-",
        f"{counted[0]}-{counted[-1]}",
        runs,
        VERIFIED[case.get("verified")],
    )


def _notes(figures: dict[str, Any]) -> list[Text]:
    settings = figures["settings"]
    both, native = settings["both"], settings["native"]
    notes = [Text(f"{case['case']}: {case['text']}") for case in figures["cases"]]
    for case in figures["cases"]:
        if "native_panes_rows_per_s" in case:
            rate, ratio = case["native_panes_rows_per_s"], case["ratio_panes"]
            text = f"native by pane first {rate:,} rows/s, {ratio:.2f}x"
            notes.append(
                Text(
                    f"{case['case']}: {text} (it drops rows whose pane has closed, windows "
                    "open or not)"
                )
            )
        if "limit_chained_rows_per_s" in case:
            rate = case["limit_chained_rows_per_s"]
            text = f"bare limit with windows built from each other {rate:,} rows/s"
            notes.append(Text(f"{case['case']}: {text} ({case['limit_chained_engine']})"))
        for form, each in case.get("native_failures", {}).items():
            done = f"{each['batches']} of {each['batches_needed']} batches"
            text = f"native as {form} reached {done} in its time"
            least = f"{each['batch_s_at_least']:.1f} s per batch at least"
            least += f", {each['ratio_at_least']:.1f}x"
            notes.append(Text(f"{case['case']}: {text}; {least}"))
        if "slot_us_per_row" in case:
            each = ", ".join(
                f"{number} windows {us:.3f}" for number, us in case["slot_us_per_row"].items()
            )
            notes.append(Text(f"{case['case']}: slot time without results, us per row: {each}"))
        if case["peak_mb"]:
            each = ", ".join(
                f"{name.replace('_', ' ')} {mb:,} MB" for name, mb in case["peak_mb"].items()
            )
            notes.append(
                Text(f"{case['case']}: state {case['state_mb']:,} MB; peak memory so far: {each}")
            )
    if small := figures.get("small_batch"):
        rival = f", native {small['native_s']:.3f} s" if "native_s" in small else ""
        notes.append(
            Text(
                f"a batch of {small['rows']:,} rows: anabranch {small['anabranch_s']:.3f} s{rival}"
            )
        )
    notes.append(
        Text(
            f"{settings['rows']:,} rows, {settings['keys']:,} keys (zipf {settings['skew']}), "
            f"batches of {settings['batch_rows']:,}, {settings['cores']} cores, seed "
            f"{settings['seed']}; both: {both['source']}, {both['sink']} sink, {both['trigger']}"
        )
    )
    notes.append(
        Text(
            f"anabranch: {settings['anabranch']['slots']} slots, {settings['anabranch']['state']} "
            f"state; native: {native['shuffle_partitions']} shuffle partitions, state store "
            f"{native['state_store']}, {native['query']}"
        )
    )
    return notes


def show_fusion(figures: dict[str, Any], console: Console) -> None:
    """Prints the table of all numbers of fused operators and native's, and the settings."""
    table = Table(
        title="rows per second, medians over the batches that count", title_justify="left"
    )
    table.add_column("case")
    for heading in (
        "rows/s",
        "/ unfused",
        "/ native",
        "exchanges",
        "shuffled",
        "task s",
        "verified",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in figures["cases"]:
        table.add_row(
            case["case"],
            f"{case['anabranch_rows_per_s']:,}",
            f"{case['ratio_to_unfused']:.2f}x",
            f"{case['ratio']:.2f}x" if "ratio" in case else "-",
            str(case["exchanges"]),
            f"{case['shuffle_bytes'] / 1024:,.0f} KB",
            f"{case['anabranch_task_s']:.2f}",
            VERIFIED[case.get("verified")],
        )
    if native := figures.get("native"):
        sizes = (
            str(native["exchanges"]),
            f"{native['shuffle_bytes'] / 1024:,.0f} KB",
            f"{native['task_s']:.2f}",
        )
        table.add_row("native", f"{native['rows_per_s']:,}", "-", "1.00x", *sizes, "-")
    settings = figures["settings"]
    both, rival, ours = settings["both"], settings["native"], settings["anabranch"]
    counted = figures["cases"][0]["counted_batches"]
    values = ", ".join(f"{name} {settings[name]}" for name in "abcd")
    span_s = 60 * settings["batch_rows"] / settings["rows_per_event_minute"]
    notes = [
        figures["text"],
        (
            f"{settings['rows']:,} rows, {values} values (zipf {settings['skew']}), batches of "
            f"{settings['batch_rows']:,} over {span_s:.0f} s of event time, "
            f"{counted[0]}-{counted[-1]} count, shuffled and task time per batch; "
            f"{settings['cores']} cores, seed {settings['seed']}; both: {both['source']}, "
            f"{both['sink']} sink, {both['trigger']}"
        ),
        (
            f"anabranch: {ours['slots']} slots per component, {ours['state']} state, writes "
            f"{ours['writes']}"
        ),
        (
            f"native: {rival['shuffle_partitions']} shuffle partitions, state store "
            f"{rival['state_store']}, checkpoint files {rival['checkpoint_files']}, writes "
            f"{rival['writes']}; {rival['query']}"
        ),
    ]
    console.print(Group(table, *map(Text, notes)))


def show_keyed(figures: dict[str, Any], console: Console) -> None:
    """Prints all cases against the fastest rival, the cost of small batches, and the settings."""
    table = Table(
        title="rows per second, medians over the batches that count", title_justify="left"
    )
    table.add_column("case")
    for heading in (
        "keys",
        "zipf",
        "rows per batch",
        "anabranch",
        "fastest rival",
        "ratio",
        "bare limit",
        "its ratio",
        "verified",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    notes = []
    for case in figures["cases"]:
        if case["case"] == "flat":
            continue
        rival = f"{case['rivals'][case['fastest']]['rows_per_s']:,}" if case.get("fastest") else "-"
        ratio = f"{case['ratio']:.1f}x" if "ratio" in case else "-"
        most = f"{case['limit_ratio']:.1f}x" if "limit_ratio" in case else "-"
        figure, limit = (
            f"{each:,}" for each in (case["anabranch_rows_per_s"], case["limit"]["rows_per_s"])
        )
        cells = (figure, rival, ratio, limit, most, VERIFIED[case.get("verified")])
        table.add_row(
            case["case"],
            f"{case['keys']:,}",
            f"{case['skew']:g}",
            f"{case['batch_rows']:,}",
            *cells,
        )
        each = ", ".join(
            f"{name} {found['rows_per_s']:,}" for name, found in case["rivals"].items()
        )
        notes.append(f"{case['keys']:,} keys, zipf {case['skew']:g}: {each}") if each else None
    for case in (each for each in figures["cases"] if each["case"] == "flat"):
        levels = "; ".join(
            f"{each['stored']:,} keys {each['median_s'] * 1000:.1f} ({each['max_s'] * 1000:.1f}) ms"
            for each in case["levels"]
        )
        notes.append(f"slot time of {case['touched']:,} keys, median (maximum): {levels}")
        notes.append(
            f"most over least: median {case['median_ratio']:.2f}, maximum {case['max_ratio']:.2f}"
        )
    settings = figures["settings"]
    notes.append(
        f"{settings['batches']} batches, {settings['cores']} cores, seed {settings['seed']}; all: "
        f"{settings['both']['source']}, {settings['both']['sink']} sink, durable state; bare "
        "limits, which keep and write nothing: rows combined by Spark SQL, or (-rows) brought to "
        "Python"
    )
    console.print(Group(table, *map(Text, dict.fromkeys(notes))))

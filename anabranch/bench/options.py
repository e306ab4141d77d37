"""The options of the benchmarks of Anabranch against native Spark, and their valid values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Annotated

import typer

from anabranch.bench.cases import CASES, WindowCase
from anabranch.bench.command import (
    BatchRows,
    Disorder,
    Keep,
    Keys,
    Minutes,
    Native,
    Rounds,
    Rows,
    RowsPerMinute,
    Seed,
    Skew,
    Slots,
    Verify,
)
from anabranch.bench.data import DataSpec
from anabranch.errors import TopologyError, unknown

NATIVE_FORMS = ("auto", "rows", "queries", "panes")
SINKS = ("last", "all")
NATIVE_FILES = ("quick", "default")
_CASES_TEXT = "; ".join(f"{each.name} = {each.text}" for each in CASES.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SidesOptions:
    """The options that every benchmark of Anabranch against native Spark has."""

    rows: Rows
    batch_rows: BatchRows
    rows_per_minute: RowsPerMinute
    skew: Skew = 1.0
    disorder_s: Disorder = 10.0
    slots: Slots = None
    seed: Seed = 1
    native: Native = True
    verify: Verify = True
    rounds: Rounds = 3
    minutes: Minutes = 14.0
    keep: Keep = None

    def __post_init__(self) -> None:
        self.check_positive("rows", "batch_rows", "rows_per_minute", "rounds", "minutes")
        if self.slots is not None and self.slots <= 0:
            raise TopologyError(f"--slots {self.slots} must be above 0")
        if self.skew < 0 or self.disorder_s < 0:
            raise TopologyError(
                f"--skew {self.skew} and --disorder {self.disorder_s} must not be below 0"
            )
        if self.keep is not None and self.keep.exists() and any(self.keep.iterdir()):
            raise TopologyError(f"--keep {self.keep} is not empty")

    def check_positive(self, *names: str) -> None:
        """Refuses options that are not above 0."""
        for name in names:
            if getattr(self, name) <= 0:
                raise TopologyError(
                    f"--{name.replace('_', '-')} {getattr(self, name)} must be above 0"
                )

    def data_of(self, keys: int, rows_per_minute: int | None = None) -> DataSpec:
        """The input with this many keys."""
        return DataSpec(
            rows=self.rows,
            batch_rows=min(self.batch_rows, self.rows),
            keys=keys,
            skew=self.skew,
            disorder_s=self.disorder_s,
            rows_per_minute=rows_per_minute or self.rows_per_minute,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsOptions(SidesOptions):
    """The options of `anabranch bench windows`."""

    case: Annotated[
        str, typer.Option(metavar="A,B,C,many,long", help=f"Which cases: {_CASES_TEXT}.")
    ] = "A,B,C"
    windows: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH/SLIDE,...", help="Windows of your own instead, such as 7m/3m,21m/3m,5m."
        ),
    ] = None
    rows: Rows = 5_000_000
    keys: Keys = 10_000
    batch_rows: BatchRows = 500_000
    rows_per_minute: RowsPerMinute = 36_500
    native_form: Annotated[
        str,
        typer.Option(
            metavar="auto|rows|queries|panes",
            help="Native's query: rows into all windows, one query per window, or panes first. "
            "auto: for several windows one query per window, and panes first beside it.",
        ),
    ] = "auto"
    limit: Annotated[
        bool,
        typer.Option("--limit/--no-limit", help="Also measure Polars and DuckDB on the same rows."),
    ] = True
    small_batch: Annotated[
        bool,
        typer.Option(
            "--small-batch/--no-small-batch",
            help="Also measure the fixed cost of a batch of 1,000 rows.",
        ),
    ] = True

    def __post_init__(self) -> None:
        SidesOptions.__post_init__(self)
        self.check_positive("keys")
        if self.native_form not in NATIVE_FORMS:
            raise TopologyError(unknown("--native-form", self.native_form, NATIVE_FORMS))

    def data(self, case: WindowCase | None = None) -> DataSpec:
        """The input; some cases have their own number of keys or rows per minute."""
        return self.data_of(
            (case and case.keys) or self.keys, case.rows_per_minute if case else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionOptions(SidesOptions):
    """The options of `anabranch bench fusion`."""

    rows: Rows = 600_000
    a: Annotated[int, typer.Option("--a", metavar="N", help="Values of the attribute a.")] = 10
    b: Annotated[int, typer.Option("--b", metavar="N", help="Values of b, within each of a.")] = 20
    c: Annotated[int, typer.Option("--c", metavar="N", help="Values of c, within each of b.")] = 10
    d: Annotated[int, typer.Option("--d", metavar="N", help="Values of d, within each of c.")] = 10
    batch_rows: BatchRows = 20_000
    rows_per_minute: RowsPerMinute = 20_000
    skew: Skew = 0.5
    sinks: Annotated[
        str,
        typer.Option(
            metavar="last|all",
            help="Write the last operator's results, or all: native then needs a query for each.",
        ),
    ] = "last"
    native_files: Annotated[
        str,
        typer.Option(
            metavar="quick|default",
            help="Native's checkpoint files: quick, as Anabranch's own, or Spark's default, "
            "which starts a chmod process per file.",
        ),
    ] = "default"
    minutes: Minutes = 10.0

    def __post_init__(self) -> None:
        SidesOptions.__post_init__(self)
        self.check_positive("a", "b", "c", "d")
        if self.sinks not in SINKS:
            raise TopologyError(unknown("--sinks", self.sinks, SINKS))
        if self.native_files not in NATIVE_FILES:
            raise TopologyError(unknown("--native-files", self.native_files, NATIVE_FILES))

    @property
    def cardinalities(self) -> dict[str, int]:
        """How many values each attribute has."""
        return {name: getattr(self, name) for name in "abcd"}

    def data(self) -> DataSpec:
        """The input: one key per combination of the attributes."""
        return self.data_of(prod(self.cardinalities.values()))


KEYED_CASES = ("per-key", "vectorised", "per-key-rows", "vectorised-rows", "flat")
_MANY_KEYS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedOptions(SidesOptions):
    """The options of `anabranch bench keyed`."""

    case: Annotated[
        str,
        typer.Option(metavar="NAMES", help=f"{', '.join(KEYED_CASES)}, separated by commas."),
    ] = ",".join(KEYED_CASES)
    keys: Annotated[str, typer.Option(metavar="N,N", help="Numbers of keys.")] = "10000,1000000"
    skews: Annotated[
        str,
        typer.Option("--skew", metavar="S,S", help="Zipf exponents of the keys; 0 is uniform."),
    ] = "0,1"
    rows: Rows = 4_000_000
    batch_rows: BatchRows = 500_000
    many_batch_rows: Annotated[
        int,
        typer.Option(metavar="N", help="Most rows per batch if there are more than 100,000 keys."),
    ] = 100_000
    rounds: Rounds = 2
    minutes: Minutes = 30.0
    stored: Annotated[str, typer.Option(metavar="N,N", help="flat: numbers of stored keys.")] = (
        "10000,100000,1000000,5000000"
    )
    touched: Annotated[int, typer.Option(metavar="N", help="flat: keys of a small batch.")] = 1_000
    steps: Annotated[
        int, typer.Option(metavar="N", help="flat: small batches at each number of stored keys.")
    ] = 80
    # Not options of the command.
    skew: float = 1.0
    rows_per_minute: int = 100_000
    disorder_s: float = 1.0

    def __post_init__(self) -> None:
        SidesOptions.__post_init__(self)
        self.check_positive("touched", "steps", "many_batch_rows")
        for each in self.cases:
            if each not in KEYED_CASES:
                raise TopologyError(unknown("--case", each, KEYED_CASES))
        _numbers("--keys", self.keys, int, 1)
        _numbers("--stored", self.stored, int, self.touched)
        _numbers("--skew", self.skews, float, 0)

    def data_of(self, keys: int, rows_per_minute: int | None = None) -> DataSpec:
        """The input with this many keys.

        With many keys the batches are smaller: rivals need a second for some 5,000 keys.
        """
        spec = SidesOptions.data_of(self, keys, rows_per_minute)
        size = min(spec.batch_rows, self.many_batch_rows) if keys > _MANY_KEYS else spec.batch_rows
        return replace(spec, rows=min(spec.rows, size * spec.batches), batch_rows=size)

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(self.case.split(","))

    @property
    def grid(self) -> list[tuple[int, float]]:
        """Numbers of keys and skews to measure."""
        skews = _numbers("--skew", self.skews, float, 0)
        return [
            (int(keys), skew) for keys in _numbers("--keys", self.keys, int, 1) for skew in skews
        ]

    @property
    def levels(self) -> list[int]:
        """Numbers of stored keys, ascending."""
        return sorted(int(each) for each in _numbers("--stored", self.stored, int, self.touched))


def _numbers(name: str, text: str, kind: type[int | float], least: float) -> list[float]:
    try:
        found = [kind(each) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < least:
        raise TopologyError(f"{name} {text}; valid: numbers from {least} on, separated by commas")
    return list(found)

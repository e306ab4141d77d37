"""What the benchmarks of two streaming sides can be told, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from anabranch.bench.cases import WindowCase
from anabranch.bench.data import DataSpec
from anabranch.errors import TopologyError, unknown

NATIVE_FORMS = ("auto", "rows", "queries", "panes")
SINKS = ("last", "all")
NATIVE_FILES = ("quick", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class SidesOptions:
    """What every benchmark of Anabranch against native Spark can be told."""

    rows: int
    batch_rows: int
    rows_per_minute: int
    skew: float = 1.0
    disorder_s: float = 10.0
    slots: int | None = None
    seed: int = 1
    native: bool = True
    verify: bool = True
    rounds: int = 3
    minutes: float = 14.0
    keep: Path | None = None

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
        """The input with so many keys."""
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
    """What `anabranch bench windows` can be told."""

    case: str = "A,B,C"
    windows: str | None = None
    rows: int = 5_000_000
    keys: int = 10_000
    batch_rows: int = 500_000
    rows_per_minute: int = 36_500
    native_form: str = "auto"
    limit: bool = True
    small_batch: bool = True

    def __post_init__(self) -> None:
        SidesOptions.__post_init__(self)
        self.check_positive("keys")
        if self.native_form not in NATIVE_FORMS:
            raise TopologyError(unknown("--native-form", self.native_form, NATIVE_FORMS))

    def data(self, case: WindowCase | None = None) -> DataSpec:
        """The input; some cases are about other keys or another density than was asked for."""
        return self.data_of(
            (case and case.keys) or self.keys, case.rows_per_minute if case else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionOptions(SidesOptions):
    """What `anabranch bench fusion` can be told."""

    rows: int = 600_000
    a: int = 10
    b: int = 20
    c: int = 10
    d: int = 10
    batch_rows: int = 20_000
    rows_per_minute: int = 20_000
    skew: float = 0.5
    sinks: str = "last"
    native_files: str = "default"
    minutes: float = 10.0

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
        """The input: a key for each combination of the attributes."""
        return self.data_of(prod(self.cardinalities.values()))


KEYED_CASES = ("per-key", "vectorised", "per-key-rows", "vectorised-rows", "flat")
_MANY_KEYS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedOptions(SidesOptions):
    """What `anabranch bench keyed` can be told."""

    case: str = ",".join(KEYED_CASES)
    keys: str = "10000,1000000"
    skews: str = "0,1"
    rows: int = 4_000_000
    batch_rows: int = 500_000
    many_batch_rows: int = 100_000
    rows_per_minute: int = 100_000
    disorder_s: float = 1.0
    rounds: int = 2
    minutes: float = 30.0
    stored: str = "10000,100000,1000000,5000000"
    touched: int = 1_000
    steps: int = 80

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
        """The input with so many keys; of many keys as many batches, smaller ones: rivals take a second for some 5,000 keys."""
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
        raise TopologyError(
            f"{name} {text}; valid: numbers from {least} on, with commas between them"
        )
    return list(found)

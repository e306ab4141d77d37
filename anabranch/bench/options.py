"""What `anabranch bench windows` can be told, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anabranch.bench.cases import Case
from anabranch.bench.data import DataSpec
from anabranch.errors import TopologyError, unknown

NATIVE_FORMS = ("auto", "rows", "panes")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsOptions:
    """What `anabranch bench windows` can be told."""

    case: str = "A,B,C"
    windows: str | None = None
    rows: int = 5_000_000
    keys: int = 10_000
    skew: float = 1.0
    disorder_s: float = 10.0
    batch_rows: int = 500_000
    rows_per_minute: int = 36_500
    slots: int | None = None
    seed: int = 1
    native: bool = True
    native_form: str = "auto"
    verify: bool = True
    small_batch: bool = True
    rounds: int = 3
    minutes: float = 14.0
    keep: Path | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "keys", "batch_rows", "rows_per_minute", "rounds", "minutes"):
            if getattr(self, name) <= 0:
                raise TopologyError(f"--{name.replace('_', '-')} {getattr(self, name)} must be above 0")
        if self.native_form not in NATIVE_FORMS:
            raise TopologyError(unknown("--native-form", self.native_form, NATIVE_FORMS))
        if self.slots is not None and self.slots <= 0:
            raise TopologyError(f"--slots {self.slots} must be above 0")
        if self.skew < 0 or self.disorder_s < 0:
            raise TopologyError(f"--skew {self.skew} and --disorder {self.disorder_s} must not be below 0")
        if self.keep is not None and self.keep.exists() and any(self.keep.iterdir()):
            raise TopologyError(f"--keep {self.keep} is not empty")

    def data(self, case: Case | None = None) -> DataSpec:
        """The input; some cases are about other keys or another density than was asked for."""
        return DataSpec(
            rows=self.rows,
            batch_rows=min(self.batch_rows, self.rows),
            keys=(case and case.keys) or self.keys,
            skew=self.skew,
            disorder_s=self.disorder_s,
            rows_per_minute=(case and case.rows_per_minute) or self.rows_per_minute,
            seed=self.seed,
        )

"""The spec of an `apply`: the function, the form of its rows, their cost, and failed rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.errors import TopologyError, unknown

ARROW, PANDAS, ROWS = FORMS = ("arrow", "pandas", "rows")
AUTO, ROUND_ROBIN, HASH, OSG = GROUPINGS = ("auto", "round robin", "hash", "osg")
FAIL, DEAD_LETTER = ON_ERROR = ("fail", "dead letter")
ERROR_COLUMN = "error"
_UNHASHABLE = ("map<", "variant", "collate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Osg:
    """Settings of online shuffle grouping (DABS-Storm 5.2), `apply(..., osg=ab.Osg(...))`.

    - `epsilon`: the relative error of the sketches.
    - `delta`: the probability that the error is larger.
    - `window`: rows of a task between two checks of its sketches (N in the paper).
    - `mu`: sketches are stable if they change by less than this part between two checks.
    - `seed`: of the hash functions.

    The defaults of `epsilon` and `delta` are from Table 2 of the paper, which gives no N and mu.
    Values out of range are a TopologyError.
    """

    epsilon: float = 0.05
    delta: float = 0.05
    window: int = 32
    mu: float = 0.2
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            if not 0 < (value := getattr(self, name)) < 1:
                raise TopologyError(f"{name}={value!r}; valid: above 0 and below 1")
        if not isinstance(self.window, int) or self.window < 1:
            raise TopologyError(f"window={self.window!r}; valid: 1 row or more")
        if not self.mu >= 0:
            raise TopologyError(f"mu={self.mu!r}; valid: 0 or more")

    @property
    def shape(self) -> tuple[int, int]:
        """The size of a sketch: rows r = ceil(ln(1/delta)), columns c = ceil(2.7/epsilon)."""
        return max(1, math.ceil(math.log(1 / self.delta))), math.ceil(2.7 / self.epsilon)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySpec:
    """A stateless Python function and how it is called."""

    fn: Callable[[Any], Any] | None  # None: rows pass unchanged
    form: str = ARROW
    cost_by: tuple[str, ...] = ()  # the columns whose values decide how long a row takes
    grouping: str = AUTO
    osg: Osg = Osg()
    dead_letters: bool = False  # rows that fail go to a stream of their own; the step continues
    batch_rows: int = 1024  # rows per call, at most

    @property
    def measured(self) -> bool:
        """Whether the time per row is measured, by the values of `cost_by`."""
        return self.grouping in {AUTO, OSG}


def check_work(
    fn: object, form: str, grouping: str, on_error: str, batch_rows: int, osg: object
) -> tuple[Callable[[Any], Any], bool]:
    """Refuses invalid arguments. Returns the function, and whether there are dead letters."""
    if not callable(fn):
        raise TopologyError(f"apply({fn!r}) is not a function")
    for what, value, valid in (
        ("form", form, FORMS),
        ("grouping", grouping, GROUPINGS),
        ("on_error", on_error, ON_ERROR),
    ):
        if value not in valid:
            raise TopologyError(unknown(what, value, valid))
    if not isinstance(batch_rows, int) or isinstance(batch_rows, bool) or batch_rows < 1:
        raise TopologyError(f"batch_rows={batch_rows!r}; valid: 1 row or more")
    if not isinstance(osg, Osg):
        raise TopologyError(f"osg={osg!r}; valid: ab.Osg(epsilon=, delta=, window=, mu=, seed=)")
    return fn, on_error == DEAD_LETTER


def cost_columns(
    cost_by: object, kinds: Sequence[tuple[str, str]], event_time: str | None
) -> tuple[str, ...]:
    """The columns that decide how long a row takes.

    Those that are named; else all but the event time and columns that cannot be hashed.
    """
    known = dict(kinds)
    if cost_by is None:
        return tuple(
            name
            for name, kind in kinds
            if name != event_time and not any(each in kind for each in _UNHASHABLE)
        )
    names = (
        [cost_by]
        if isinstance(cost_by, str)
        else list(cost_by)
        if isinstance(cost_by, Iterable)
        else [cost_by]
    )
    for name in names:
        if name not in known:
            raise TopologyError(unknown("column in cost_by", name, known))
        if any(each in known[name] for each in _UNHASHABLE):
            raise TopologyError(
                f"column {name!r} of type {known[name]} cannot be hashed; cost_by takes no maps, "
                "variants or collated strings"
            )
    return tuple(names)

"""A user's class that is called key by key: what its mistakes look like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.errors import StepError
from tests.runtime.process.process_slot import (
    SCHEMA,
    Noted,
    Slot,
    at,
    plan_of,
    us,
)

if TYPE_CHECKING:
    import anabranch as ab


WRONG = {"text": "one", "half": 1.5, "large": 2**40}  # values for a column of type int


class Broken:
    """Fails in the way that a row names."""

    state: Noted
    output = "n int, at timestamp"

    def process(self, key: str, rows: ab.Rows, state: Noted, ctx: ab.Context) -> Any:
        for row in rows:
            if row.op == "raise":
                raise RuntimeError("no luck\nat all")
            if row.op in WRONG:
                yield WRONG[row.op], row.at
            elif row.op == "short":
                yield (1,)
            elif row.op == "names":
                yield {"n": 1, "when": row.at}
            elif row.op == "state":
                state.seen.append("x")  # type: ignore[arg-type]
            elif row.op == "strange":
                state.by = object()  # type: ignore[assignment]
            elif row.op == "past":
                ctx.timer(at(1))
            elif row.op == "soon":
                ctx.timer("soon")  # type: ignore[arg-type]
            elif row.op == "column":
                assert rows.price
            else:
                state.seen.append(row.x)
                yield len(state.seen), row.at

    def on_timer(self, key: str, state: Noted, ctx: ab.Context) -> Any:
        raise AssertionError((key, state, ctx))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("raise", "process() raised RuntimeError: no luck at all"),
        ("text", "it returned ('one', "),
        (
            "half",
            "and 1.5 does not fit column 'n' of type int (declared: n int, at timestamp): 1.5",
        ),
        ("large", "and 1099511627776 does not fit column 'n' of type int (declared: n int"),
        ("short", "it returned (1,), which is not a row of (n int, at timestamp): 1 values"),
        ("names", "its columns are [n, when]"),
        (
            "state",
            "its state does not fit the declared type Noted: Expected `int`, got `str` - at `$.seen[1]`",
        ),
        (
            "strange",
            "its state does not fit the declared type Noted: a value of type object cannot be stored",
        ),
        (
            "past",
            "process() raised ValueError: a timer in the past: 2026-01-01 00:00:01+00:00, and the watermark is 2026-01-01 00:00:03",
        ),
        ("soon", "process() raised TypeError: 'soon' is not a time"),
        ("column", "rows have no column 'price'; they have k, at, op, x"),
    ],
)
def test_a_mistake_in_a_class_names_operator_key_and_cause_and_changes_nothing(
    tmp_path: Path, op: str, message: str
) -> None:
    slot = Slot(plan_of(Broken, SCHEMA, ["k"]), tmp_path)
    slot.run([("good", at(0), "add", 1), ("bad", at(0), "add", 1)], us(3))
    with pytest.raises(StepError) as error:
        slot.run([("good", at(3), "add", 2), ("bad", at(4), op, 2)], us(3))
    assert str(error.value).startswith("operator 'p', key 'bad': ")
    assert message in str(error.value)
    slot.step -= 1
    found = slot.run([("good", at(3), "add", 2), ("bad", at(4), "add", 2)], us(3))
    assert sorted((row["k"], row["n"]) for row in found) == [("bad", 2), ("good", 2)]


class Halved:
    """Sets a timer, and returns half of what it has seen when it is due."""

    state: int
    output = "n bigint"

    def init(self) -> int:
        return 0

    def process(self, key: str, rows: ab.Rows, state: int, ctx: ab.Context) -> None:
        ctx.replace(state + len(rows))
        ctx.timer(at(5))

    def on_timer(self, key: str, state: int, ctx: ab.Context) -> Any:
        return [(state / 2,)]


def test_what_a_timer_returns_is_not_cut_off_either(tmp_path: Path) -> None:
    slot = Slot(plan_of(Halved, SCHEMA, ["k"]), tmp_path)
    slot.run([("even", at(0), "", 1), ("even", at(0), "", 1), ("odd", at(1), "", 1)], us(3))
    with pytest.raises(StepError) as error:
        slot.run([], us(6))
    assert str(error.value).startswith(
        "operator 'p', key 'odd': it returned (0.5,), and 0.5 does not fit column 'n' of type "
        "bigint (declared: n bigint): 0.5 is not a whole number"
    )

"""What a join is planned from, and what is refused by name."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from anabranch.errors import TopologyError
from anabranch.plan.notes import OperatorNote, note_of
from anabranch.plan.operators import noted_windows
from anabranch.plan.operators.joins import JoinContents, JoinInput, JoinNode, JoinPlan, join_plan
from anabranch.topology import Field, cumulative, sliding, tumbling
from anabranch.topology.graph import Clock
from tests.plan.every_kind import nodes

LEFT = (Field("k", "bigint"), Field("at", "timestamp"), Field("v", "map<string,int>"))
RIGHT = (Field("x", "double"), Field("k", "bigint"), Field("ts", "timestamp"))


def side(stream: str, fields: tuple[Field, ...], time: str, kind: str = "timestamp") -> JoinInput:
    return JoinInput(stream=stream, fields=fields, clock=Clock(time, kind))


def plan(
    left: tuple[Field, ...] = LEFT, right: tuple[Field, ...] = RIGHT, **given: Any
) -> JoinPlan:
    kinds = given.pop("kinds", ("timestamp", "timestamp"))
    times = given.pop("times", ("at", "ts"))
    inputs = side("clicks", left, times[0], kinds[0]), side("views", right, times[1], kinds[1])
    options = {"by": ["k"], "windows": [tumbling("5 minutes")], "how": "inner", **given}
    return join_plan("j", *inputs, **options)


def test_results_have_the_keys_the_window_and_the_other_columns_of_both_sides() -> None:
    made = plan(how="left", windows=[sliding("5m", every="2m"), tumbling("4m")])
    assert [(each.name, each.type) for each in made.result_fields] == [
        ("k", "bigint"),
        ("window", "struct<start:timestamp,end:timestamp>"),
        ("window_name", "string"),
        ("at", "timestamp"),
        ("v", "map<string,int>"),
        ("x", "double"),
        ("ts", "timestamp"),
    ]
    assert made.panes.width_us == 60_000_000
    assert (made.outer("left"), made.outer("right")) == (True, False)
    assert made.result_schema().names == [each.name for each in made.result_fields]
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - it was made here


def test_keys_may_be_one_name_or_any_iterable_of_names() -> None:
    assert (
        plan(by="k").keys
        == plan(by=iter(["k"])).keys
        == plan(by=("k",)).keys
        == (Field("k", "bigint"),)
    )


def test_a_cumulative_window_is_all_its_windows() -> None:
    assert len(plan(windows=[cumulative("10m", every="5m")]).panes.windows) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by": ["q"]}, r"stream 'clicks': unknown key column 'q'; valid: k, at, v"),
        (
            {"by": ["k", "x"], "left": (*LEFT, Field("x", "double")), "right": RIGHT[1:]},
            r"stream 'views': unknown key column 'x'",
        ),
        ({"by": []}, "at least one key column"),
        ({"by": 5}, "is not a list of column names"),
        ({"by": ["k", "k"]}, "duplicate column"),
        ({"by": ["v"]}, "cannot be a key"),
        (
            {"right": (Field("k", "int"), Field("ts", "timestamp"))},
            "'k' is bigint in 'clicks' and int in 'views'; cast",
        ),
        (
            {"right": (*RIGHT, Field("V", "int"))},
            (
                r"'clicks' and 'views' both have 'v'; rename in a map"
                r".*withColumnRenamed\(old, new\)\)$"
            ),
        ),
        (
            {"right": (*RIGHT, Field("at", "timestamp"))},
            r"both have 'at'; rename in a map.*rename 'at' before app.source\(\)",
        ),
        (
            {"right": (*RIGHT, Field("window", "int"))},
            r"stream 'views': 'window' would be in the results twice.*'window_name', 'k'",
        ),
        (
            {"left": (*LEFT, Field("Window_Name", "string"))},
            "stream 'clicks': 'Window_Name' would be in the results twice",
        ),
        (
            {"left": (*LEFT, Field("K", "string"))},
            "stream 'clicks': 'K' would be in the results twice",
        ),
        (
            {
                "by": ["window"],
                "left": (Field("window", "int"),),
                "right": (Field("window", "int"),),
            },
            "key column 'window' has the name",
        ),
        (
            {"left": (*LEFT, Field("i", "interval day to second"))},
            "stream 'clicks': column 'i' has type interval day to second",
        ),
        ({"how": "outer"}, "unknown how 'outer'; valid: inner, left, right, full"),
        ({"how": ["left"]}, "unknown how"),
        ({"windows": []}, "at least one window"),
        ({"windows": ["5 minutes"]}, "'5 minutes' cannot be the window of a join"),
        ({"windows": [tumbling("5m"), tumbling("5m")]}, "two windows are named"),
        (
            {"kinds": ("timestamp", "timestamp_ntz")},
            "a timestamp in 'clicks' and a timestamp_ntz in 'views'",
        ),
    ],
)
def test_what_cannot_be_joined_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        plan(**given)


def noted(left: tuple[tuple[str, str], ...]) -> tuple[JoinNode, OperatorNote, OperatorNote]:
    """A join, what a checkpoint would note of it, and the same with other columns on the left."""
    node = nodes()["join"]
    assert isinstance(node, JoinNode)
    fresh = note_of(node)
    assert isinstance(fresh.contents, JoinContents)
    contents = msgspec.structs.replace(fresh.contents, left=left)
    text = ", ".join(f"{name}: {kind}" for name, kind in left)
    old = replace(fresh, contents=contents, fingerprint={**fresh.fingerprint, "columns": text})
    return node, old, fresh


def test_columns_may_come_and_go_and_nothing_else_may_change() -> None:
    node, old, fresh = noted((("at", "timestamp"), ("gone", "int")))
    found = node.evolved(old, fresh, None)
    assert (found.note, found.refused) == (fresh, ())
    assert found.changed == (
        "column 'v' is new: null in rows that already wait",
        "column 'gone' is gone",
    )
    assert not fresh.contents.has_layout_of(old.contents)
    assert fresh.contents.has_layout_of(fresh.contents)
    other = replace(old, fingerprint={**old.fingerprint, "join": "full, left"})
    assert node.evolved(other, fresh, None).refused == (
        "join: the checkpoint has [full, left], the topology has [inner, left]",
    )


def test_a_column_of_another_type_is_refused_with_what_to_do() -> None:
    node, old, fresh = noted((("at", "timestamp"), ("v", "bigint")))
    [refused] = node.evolved(old, fresh, None).refused
    assert refused == (
        "column 'v' was bigint and is double, and rows of the old type wait: cast it back in a "
        "map(), or give it another name"
    )


def test_other_names_of_the_same_windows_are_no_other_windows() -> None:
    node = nodes()["join"]
    assert isinstance(node, JoinNode)
    fresh = note_of(node)
    assert isinstance(fresh.contents, JoinContents)
    for window, refused in ((tumbling("60s", name="x"), False), (tumbling("59s"), True)):
        before = msgspec.structs.replace(fresh.contents, windows=noted_windows.noted([window]))
        text = {**fresh.fingerprint, "windows": window.described}
        old = replace(fresh, fingerprint=text, contents=before)
        found = node.evolved(old, fresh, None)
        assert bool(found.refused) == refused
        assert found.note == (old if refused else fresh)

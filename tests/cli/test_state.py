"""`anabranch state` on checkpoints that the real state code wrote, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import anabranch as ab
from anabranch.cli import app
from anabranch.plan import make_plan
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.model import Plan
from anabranch.plan.operators.joins import join_input, join_plan
from anabranch.plan.route import Route
from anabranch.state.checkpoint.commits import Checkpoint, Commit
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create, over_checkpoint
from anabranch.state.checkpoint.log import Stored
from anabranch.state.codec.blob import Entries, encode
from anabranch.state.codec.joins import JoinEntries, SideRows, encode_join
from anabranch.state.store.version import Version
from anabranch.topology import graph as g
from anabranch.types import column_type

MINUTE_US = 60_000_000
SHARDS = 4


def planned(by: Sequence[g.Field] = (g.Field("area", "string"),)) -> Plan:
    """Ten minutes and an hour over count, avg, min and last of a number."""
    aggregates = {
        "n": ab.count(),
        "mean": ab.avg("v", where="v > 0"),
        "least": ab.min("v"),
        "final": ab.last("v"),
    }
    named = tuple(
        g.Named(name=name, aggregate=each, input_type="bigint") for name, each in aggregates.items()
    )
    fields = (g.Field("at", "timestamp"), *by, g.Field("v", "bigint"))
    graph = g.Graph(name="lending")
    graph = graph.add(
        g.Source(name="loans", fields=fields, event_time="at", unit_us=None, delay_us=0)
    )
    graph = graph.add(g.Compute(name="by_area", input="loans", by=tuple(by), aggregates=named))
    windows = (ab.tumbling("10 minutes"), ab.tumbling("1 hour"))
    graph = graph.add(g.Consolidate(name="areas", input="by_area", windows=windows))
    return make_plan(graph)


class Written:
    """A checkpoint, and what is needed to add steps to it."""

    def __init__(self, path: Path, made_of: Plan) -> None:
        self.checkpoint: Checkpoint = open_or_create(Files(str(path)), made_of, SHARDS)[0]
        self.plan = over_checkpoint(made_of, self.checkpoint)
        self.checkpoint.take_over()

    def step(
        self,
        shard: int,
        rows: Sequence[tuple[object, int, list[float]]],
        *,
        watermark: int,
        snapshot: bool = False,
    ) -> None:
        """A step with rows of (key, pane in minutes, partial columns) in one shard."""
        columns = self.plan.nodes[0].plan.stored_columns
        values = zip(*(each for *_, each in rows), strict=True)
        entries = Entries(
            pa.table(
                {
                    "k0": pa.array(
                        [key for key, *_ in rows],
                        column_type(self.plan.nodes[0].plan.keys[0].type),
                    )
                }
            ),
            np.arange(len(rows), dtype=np.int32),
            np.array([pane * MINUTE_US for _, pane, _ in rows], dtype=np.int64),
            tuple(
                np.array(each, dtype=column.dtype)
                for each, column in zip(values, columns.values(), strict=True)
            ),
        )
        blob = encode(entries, columns)
        last = self.checkpoint.last
        number = last.step + 1 if last else 1
        version, name = Version(number, f"token{number}"), f"state/{number:08d}/0.bin"
        self.checkpoint.files.write(name, [blob, blob])
        place = (0, len(blob)), (len(blob), len(blob)) if snapshot else None
        commit = Commit(
            step=number,
            epoch=self.checkpoint.epoch,
            batch_id=number - 1,
            watermark_us=watermark * MINUTE_US,
            next_us=None,
            seen={"loans": (watermark + 5) * MINUTE_US},
            routes={ComponentId(("areas",)): Route((0, 1, 0, 1), 2, 3)},
            stored={
                PartId("areas"): {
                    shard: Stored(version=version, file=name, delta=place[0], snapshot=place[1])
                }
            },
            rows={"in": 1000 * number, "out": 7, "late": 2},
        )
        self.checkpoint.commit(commit)


# Partial columns: count(*); total and count of `v where v > 0`; least and count of v;
# then latest: time and value.
MANY = [3, 60.0, 2, 10, 3, 25 * MINUTE_US, 40]
FEW = [1, 0.0, 0, -5, 1, 29 * MINUTE_US, -5]
NONE = [1, 0.0, 0, np.iinfo(np.int64).max, 0, np.iinfo(np.int64).min, 0]


@pytest.fixture
def two_steps(tmp_path: Path) -> Path:
    """Shard 1 has two deltas that share a key and a pane; one of its panes is over.

    Shard 2 has a snapshot.
    """
    written = Written(tmp_path, planned())
    written.step(1, [("Ohio", 20, MANY), ("Utah", 20, NONE), ("Ohio", -60, MANY)], watermark=0)
    written.step(1, [("Ohio", 20, FEW)], watermark=3)
    written.step(2, [("Iowa", 70, MANY)], watermark=4, snapshot=True)
    return tmp_path


def state(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["state", *map(str, arguments)])


def facts(*arguments: object) -> Any:
    result = state(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_checkpoint_is_described(two_steps: Path) -> None:
    found = facts(two_steps)
    assert {name: found[name] for name in ("topology", "step", "batch_id", "routes", "rows")} == {
        "topology": "lending",
        "step": 3,
        "batch_id": 2,
        "routes": {"areas": {"slots": 2, "slot_of": [0, 1, 0, 1], "version": 3}},
        "rows": {"in": 3000, "out": 7, "late": 2},
    }
    assert (found["watermark_us"], found["max_event_us"]) == (4 * MINUTE_US, 9 * MINUTE_US)
    assert found["operators"][0]["operator"] == "areas"
    assert found["operators"][0]["keys"] == "area: string"


def test_every_shard_has_its_version_and_the_size_of_its_chain(two_steps: Path) -> None:
    shards = facts(two_steps)["shards"]
    assert [each["version"] for each in shards] == [None, "2/token2", "3/token3", None]
    assert [
        (each["slot"], each["deltas"], each["snapshot_bytes"] is not None) for each in shards
    ] == [
        (0, 0, False),
        (1, 2, False),
        (0, 0, True),
        (1, 0, False),
    ]
    files = [each.stat().st_size for each in sorted(two_steps.glob("state/*/*"))]
    assert shards[1]["bytes"] == files[0] // 2 + files[1] // 2
    assert shards[2]["bytes"] == shards[2]["snapshot_bytes"] == files[2] // 2


def test_rows_of_a_shard_are_merged_and_without_what_is_over(two_steps: Path) -> None:
    shard = facts(two_steps, "--shard", 1)["shard"]
    assert (shard["number"], shard["pane"], shard["total"]) == (1, "10 minutes", 2)
    ohio, utah = sorted(shard["rows"], key=lambda row: row["area"])
    assert ohio == {
        "area": "Ohio",
        "pane": "1970-01-01 00:20",
        "count(*)": 4,
        "total(v where v > 0)": 60.0,
        "count(v where v > 0)": 2,
        "least(v)": -5,
        "count(v)": 4,
        "latest(v).at": 29 * MINUTE_US,
        "latest(v).value": -5,
    }
    assert (utah["count(*)"], utah["least(v)"], utah["latest(v).at"], utah["latest(v).value"]) == (
        1,
        None,
        None,
        None,
    )


def test_as_many_rows_as_asked_for_are_shown(two_steps: Path) -> None:
    shard = facts(two_steps, "--shard", 1, "--rows", 1)["shard"]
    assert (shard["total"], len(shard["rows"])) == (2, 1)
    assert facts(two_steps, "--shard", 0)["shard"] == {
        "number": 0,
        "operator": "areas",
        "pane": "10 minutes",
        "total": 0,
        "rows": [],
    }


def test_a_global_aggregate_has_no_key_column(tmp_path: Path) -> None:
    written = Written(tmp_path, planned(by=()))
    written.step(0, [(0, 0, MANY)], watermark=0)
    (row,) = facts(tmp_path, "--shard", 0)["shard"]["rows"]
    assert next(iter(row)) == "pane"


def test_rows_that_wait_in_a_join_are_shown_with_their_side(tmp_path: Path) -> None:
    at, seen = g.Field("at", "timestamp"), g.Field("seen", "timestamp")
    graph = g.Graph(name="tolls")
    for name, fields in (
        ("l", (g.Field("k", "string"), at, g.Field("v", "bigint"))),
        ("r", (g.Field("k", "string"), seen)),
    ):
        time = fields[1].name
        graph = graph.add(
            g.Source(name=name, fields=fields, event_time=time, unit_us=None, delay_us=0)
        )
    sides = [join_input(name, graph.fields_of(name), graph.clock_of(name)) for name in ("l", "r")]
    join = join_plan("met", sides[0], sides[1], ["k"], [ab.tumbling("10 minutes")], "inner")
    graph = graph.add(
        g.Join(
            name="met",
            input="l",
            right="r",
            by=join.keys,
            windows=join.panes.windows,
            how="inner",
            fields=join.result_fields,
        )
    )
    checkpoint = open_or_create(Files(str(tmp_path)), make_plan(graph), SHARDS)[0]
    checkpoint.take_over()

    def waiting(panes: list[int], payload: dict[str, pa.Array]) -> SideRows:
        numbers = np.arange(len(panes), dtype=np.int32)
        return SideRows(
            numbers, np.array(panes) * MINUTE_US, np.full(len(panes), 2), pa.table(payload)
        )

    times = pa.array([1, 2], pa.timestamp("us", "UTC"))
    rows = {
        "left": waiting([-10, 20], {"p0": times, "p1": pa.array([7, 8])}),
        "right": waiting([20], {"p0": times[:1]}),
    }
    keys = pa.table({"k0": ["Ohio", "Utah"]})
    blob = encode_join(JoinEntries(keys, rows), join)
    checkpoint.files.write("state/00000001/0.bin", [blob])
    stored = Stored(version=Version(1, "t"), file="state/00000001/0.bin", delta=(0, len(blob)))
    checkpoint.commit(
        Commit(
            step=1,
            epoch=checkpoint.epoch,
            batch_id=0,
            watermark_us=0,
            next_us=None,
            seen={},
            routes={ComponentId(("met",)): Route((0, 1, 0, 1), 2, 3)},
            stored={PartId("met"): {1: stored}},
        )
    )
    shard = facts(tmp_path, "--shard", 1)["shard"]
    assert (shard["operator"], shard["total"]) == ("met", 2)
    left, right = shard["rows"]
    assert {name: left[name] for name in ("side", "k", "pane", "times", "v")} == {
        "side": "left",
        "k": "Utah",
        "pane": "1970-01-01 00:20",
        "times": 2,
        "v": 8,
    }, "rows whose windows are over are not shown"
    assert (right["side"], right["k"], right["v"], right["at"]) == ("right", "Ohio", None, None)
    assert "Utah" in state(tmp_path, "--shard", 1).stdout


def test_text_shows_the_state_to_people(two_steps: Path) -> None:
    text = state(two_steps).stdout
    assert "topology lending, checkpoint" in text
    assert "step 3, last batch 2\ncomponent areas: 2 slots by route version 3" in text
    assert "watermark 1970-01-01 00:04, newest row 1970-01-01 00:09 (UTC)" in text
    assert "3,000 rows in, 7 results, left out: 2 late" in text
    assert "2 of 4 shards hold state" in text
    text = state(two_steps, "--shard", 1).stdout
    assert "shard 1 of areas: 2 rows of state, panes of 10 minutes; 2 shown" in text
    assert "Ohio" in text


def test_a_checkpoint_without_a_step_says_so(tmp_path: Path) -> None:
    Written(tmp_path, planned())
    assert "no step is committed yet" in state(tmp_path).stdout
    assert facts(tmp_path)["step"] is None


def test_a_shard_that_is_not_there_is_refused(two_steps: Path) -> None:
    result = state(two_steps, "--shard", 4)
    assert (result.exit_code, result.stderr) == (2, "anabranch: --shard 4; valid: 0 to 3\n")


def test_damage_is_one_line(two_steps: Path) -> None:
    log = next(two_steps.glob("state/00000002/*"))
    log.write_bytes(log.read_bytes()[:-9][::-1] + b"x" * 9)
    result = state(two_steps, "--shard", 1)
    assert result.exit_code == 1
    assert result.stderr.startswith("anabranch: a state blob is damaged")
    assert state(two_steps).exit_code == 0


def test_a_file_that_is_gone_is_one_line(two_steps: Path) -> None:
    next(two_steps.glob("state/00000002/*")).unlink()
    result = state(two_steps, "--shard", 1)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_a_header_that_is_damaged_is_one_line(two_steps: Path) -> None:
    (two_steps / "anabranch.json").write_text("{")
    result = state(two_steps)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "anabranch.json is damaged" in result.stderr


def test_the_header_is_readable_without_this_package(two_steps: Path) -> None:
    header = msgspec.json.decode((two_steps / "anabranch.json").read_bytes())
    ((part, note),) = header["operators"]
    assert part == {"operator": "areas", "part": ""}
    assert [each["kind"] for each in note["contents"]["partials"]] == [
        "Count",
        "Total",
        "Count",
        "Least",
        "Count",
        "Latest",
    ]

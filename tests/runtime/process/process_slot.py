"""A slot with one `process` over real shards and a real log: steps commit, crash, lose shards."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from anabranch.plan.ids import ComponentId
from anabranch.plan.operators.process import ProcessPlan, process_plan
from anabranch.runtime import operator as operator_state
from anabranch.runtime.slot import ComponentTask, SlotTask, _Attempt
from anabranch.runtime.tasks import ArrivingRows, NodeTask, StateSettings, Watermarks
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.log import Stored, needed_before
from anabranch.topology.graph import Clock
from anabranch.topology.process import columns_of, logic_of

if TYPE_CHECKING:
    import anabranch as ab

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from anabranch.runtime.reports import NodeReport


def plan_of(
    cls: Any, schema: str, by: Sequence[str], event_time: str = "at", order: str = "event_time"
) -> ProcessPlan:
    fields = columns_of(schema, "schema")
    keys = tuple(each for each in fields if each.name in by)
    clock = Clock(event_time, next(each.type for each in fields if each.name == event_time))
    return process_plan("p", keys, logic_of(cls, order, keys, fields), fields, clock)


class Slot:
    """Runs steps of one operator in one slot of a few shards."""

    def __init__(self, plan: ProcessPlan, root: Path, shards: int = 3) -> None:
        self.plan, self.root, self.shards = plan, root, shards
        self.files = Files(str(root / "chk"))
        self.files.make()
        self.step, self.job, self.epoch = 0, 0, 1
        self.after_us: int | None = None
        self.chains: dict[int, list[Stored]] = {}
        self.read_bytes = 0

    def run(
        self,
        rows: Sequence[tuple[Any, ...]],
        until_us: int | None,
        *,
        crashes: int = 0,
        lose: Iterable[int] = (),
        finish: bool = False,
    ) -> list[dict[str, Any]]:
        """One step: attempts that crash after they stored, then one that is committed."""
        self.step += 1
        for shard in lose:
            self.lose(shard)
        for _ in range(crashes):
            self._attempt(rows, until_us, finish=finish)
        report, results = self._attempt(rows, until_us, finish=finish)
        if report.missing:
            report, results = self._attempt(rows, until_us, finish=finish, restore=report.missing)
            assert not report.missing
        for shard, each in report.shards.items():
            if each.stored:
                self.chains[shard] = [
                    *needed_before(self.chains.get(shard, []), each.stored),
                    each.stored,
                ]
        self.after_us = report.until_us if finish else until_us
        self.next_us, self.keys, self.left_out = (
            report.next_end_us,
            report.key_numbers,
            dict(report.left_out),
        )
        return results

    def lose(self, shard: int) -> None:
        """The node-local state of a shard is gone."""
        path = self.root / "state" / "c" / "p" / f"{shard:05d}"
        for known, each in list(operator_state._shards.items()):
            if known == path:
                each.close()
                del operator_state._shards[known]
        shutil.rmtree(path, ignore_errors=True)

    def log_bytes(self) -> int:
        """The bytes that a restore of all shards reads."""
        return sum(
            (each.snapshot or each.delta)[1] for chain in self.chains.values() for each in chain
        )

    def _attempt(
        self,
        rows: Sequence[tuple[Any, ...]],
        until_us: int | None,
        *,
        finish: bool,
        restore: Sequence[int] = (),
    ) -> tuple[NodeReport, list[dict[str, Any]]]:
        self.job += 1
        columns = {f"k{i}": f"k{i}" for i in range(len(self.plan.keys))}
        columns |= {f"r{i}": f"r{i}" for i in range(len(self.plan.payload))}
        node = NodeTask(
            number=0,
            operator="p",
            plan=self.plan,
            rows=ArrivingRows(columns=columns, combined=True),
        )
        committed = {shard: chain[-1].version for shard, chain in self.chains.items() if chain}
        node = replace(
            node,
            committed=committed,
            restore={shard: self.chains.get(shard, []) for shard in restore},
        )
        task = SlotTask(
            components=(
                ComponentTask(
                    name=ComponentId(("p",)), route=(0,) * self.shards, slots=1, nodes=(node,)
                ),
            ),
            checkpoint=self.files,
            checkpoint_id="c",
            state=StateSettings(root=str(self.root / "state"), wait_s=5, limit_bytes=None),
            step=self.step,
            epoch=self.epoch,
            job=self.job,
            marks=Watermarks(
                late_before_us=self.after_us,
                close_until_us=until_us,
                finish=finish,
            ),
        )
        attempt = _Attempt(task, task.components[0], 0, 0)
        report = attempt.run({0: self._table(rows)} if rows else {}).nodes[0]
        tables = [pa.parquet.read_table(self.files.path(each.path)) for each in report.results]
        return report, [row for each in tables for row in each.to_pylist()]

    def _table(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Rows as they come through the exchange: in any order, with the order of their arrival."""
        plan = self.plan
        from anabranch.types import column_type

        named = {
            each.name: pa.array([row[i] for row in rows], column_type(each.type))
            for i, each in enumerate(plan.fields)
        }
        table = {f"k{i}": named[each.name] for i, each in enumerate(plan.keys)}
        table |= {f"r{i}": named[each.name] for i, each in enumerate(plan.payload)}
        at = next(each for each in plan.fields if each.type.startswith("timestamp"))
        table |= {
            "pane": named[at.name].cast(pa.int64()).fill_null(-9_000_000_000_000_000_000),
            "arrival": np.arange(len(rows)),
        }
        keys = list(zip(*(named[each.name].to_pylist() for each in plan.keys), strict=True))
        table["shard"] = pa.array([_shard(key, self.shards) for key in keys], pa.int32())
        order = random.Random(len(rows)).sample(range(len(rows)), len(rows))
        return pa.table(table).take(order)


def _shard(key: tuple[Any, ...], shards: int) -> int:
    return sum(repr(key).encode()) % shards


EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


ZERO_US = int(EPOCH.timestamp()) * 1_000_000


SCHEMA = "k string, at timestamp, op string, x int"


def at(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


def us(second: int | None) -> int | None:
    return None if second is None else ZERO_US + second * 1_000_000


@dataclass
class Noted:
    seen: list[int] = field(default_factory=list)
    by: dict[str, int] = field(default_factory=dict)


class Program:
    """Does what its rows say; remembers and returns all that happens to it."""

    state: Noted
    output = "what string, at timestamp, seen array<int>"
    event_time = "at"

    def process(self, key: str, rows: ab.Rows, state: Noted, ctx: ab.Context) -> Any:
        for row in rows:
            state.seen.append(row.x)
            state.by[row.op] = state.by.get(row.op, 0) + 1
            if row.op == "timer" and (
                ctx.watermark is None or row.at + timedelta(seconds=row.x) > ctx.watermark
            ):
                ctx.timer(row.at + timedelta(seconds=row.x), name=str(row.x % 2))
            elif row.op == "cancel":
                ctx.cancel(str(row.x % 2))
            elif row.op == "forget":
                ctx.forget()
                return
            elif row.op == "replace":
                ctx.replace(Noted([row.x]))
                return
        yield "rows", ctx.time, list(state.seen)

    def on_timer(self, key: str, state: Noted, ctx: ab.Context) -> Any:
        yield f"timer {ctx.name}", ctx.time, list(state.seen)
        if len(state.seen) % 3 == 0:
            state.seen.append(-1)
            ctx.timer(ctx.time + timedelta(seconds=4), name=ctx.name)


class Total:
    state = {"n": "bigint", "top": ("double", -1.0)}
    output = "n bigint, top double"

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        state.n += np.bincount(rows.key, minlength=len(state))
        np.maximum.at(state.top, rows.key, rows["v"])
        ctx.forget(state.n > 5)
        return {"n": state.n, "top": state.top}


class Count:
    state: int
    output = "n bigint"

    def process(self, key: Any, rows: ab.Rows, state: int, ctx: ab.Context) -> Any:
        ctx.replace(state + len(rows))
        yield (state + len(rows),)

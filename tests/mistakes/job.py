"""A small streaming job over files, to be run with a mistake and then without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from tests.mistakes.mistake import Desk

SCHEMA = "at timestamp, then timestamp, page string, ms int"
BEGIN = datetime(2026, 1, 1, 10, tzinfo=UTC)
ROWS = [
    {"at": BEGIN + timedelta(minutes=3 * i), "page": f"page {i % 5}", "ms": i} for i in range(40)
]
EXPECTED = Counter(
    (row["page"], BEGIN + timedelta(minutes=10 * ((row["at"] - BEGIN) // timedelta(minutes=10))))
    for row in ROWS
)


class Job:
    """Two files of rows, one per batch, and a checkpoint."""

    def __init__(self, desk: Desk, name: str = "first") -> None:
        self.desk = desk
        self.input = desk.directory / f"{name}-input"
        self.checkpoint = desk.directory / f"{name}-checkpoint"
        self.results = ab.memory()
        if not self.input.exists():
            self.input.mkdir()
            self.add(ROWS[:20])
            self.add(ROWS[20:])

    def add(self, rows: list[dict]) -> Path:
        """Adds a file of rows: one more batch."""
        path = self.input / f"{len(list(self.input.iterdir())):02d}.parquet"
        listed = [{**row, "then": row["at"]} for row in rows]
        kind = pa.timestamp("us", tz="UTC")
        names = [("at", kind), ("then", kind), ("page", pa.string()), ("ms", pa.int32())]
        pq.write_table(pa.Table.from_pylist(listed, schema=pa.schema(names)), path)
        return path

    def clicks(self, event_time: str = "at") -> ab.Stream:
        """The rows as the source of a topology."""
        files = self.desk.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = files.parquet(str(self.input))
        source = ab.Topology("t").source
        return source(rows, event_time=event_time, delay="0 seconds", name="clicks")

    def topology(
        self,
        *,
        by: str = "page",
        event_time: str = "at",
        name: str = "pages",
        sink: object = None,
        before: Callable[[ab.Stream], object] | None = None,
    ) -> ab.Topology:
        """Rows per page and 10 minutes; `before` adds other operators to the same stream."""
        clicks = self.clicks(event_time)
        if before is not None:
            before(clicks)
        pages = clicks.aggregate(
            by=by, windows=[ab.tumbling("10 minutes")], n=ab.count(), name=name
        )
        pages.to(self.results if sink is None else sink, name="pages")
        return pages.app

    def start(
        self, app: ab.Topology | None = None, sink: object = None, **options: object
    ) -> ab.Run:
        """Starts the job; options may be replaced."""
        given = {
            "checkpoint": self.checkpoint,
            "state_root": self.desk.directory / "state",
            "availableNow": True,
            "retries": 0,
            **options,
        }
        given = {name: each for name, each in given.items() if each is not None}
        return (app or self.topology(sink=sink)).start(**given)

    def run_to_end(self, app: ab.Topology | None = None, **options: object) -> None:
        """Runs all batches; raises the error that ends the run."""
        run = self.start(app, **options)
        try:
            run.awaitTermination()
        finally:
            run.stop()

    def finish(self, app: ab.Topology | None = None) -> None:
        """Runs all batches and closes every window."""
        run = self.start(app)
        run.awaitTermination()
        run.finish()

    def counted(self) -> Counter:
        """What the sink holds: rows per page and start of a window."""
        found: Counter = Counter()
        for row in self.results.rows():
            found[row["page"], row["window"]["start"].astimezone(UTC)] += row["n"]
        return found

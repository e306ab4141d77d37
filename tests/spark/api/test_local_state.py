"""Node-local state of runs: removed by finish, kept within a bound, and never missed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.state.store.host import open_host
from anabranch.state.store.local import local_states, remove_state

START = datetime(2026, 1, 1, tzinfo=UTC)
BATCHES = 5


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Callable[..., ab.Run]:
    """Starts a count of pages over five files, one per batch."""
    (tmp_path / "in").mkdir()
    for batch in range(BATCHES):
        rows = [
            {"at": START + timedelta(minutes=5 * batch + n % 5), "page": f"p{n % 17}", "ms": n}
            for n in range(200)
        ]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / f"{batch}.parquet")

    def started(name: str = "r", **options: Any) -> ab.Run:
        reader = spark.readStream.schema("at timestamp, page string, ms bigint")
        rows = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        app = ab.Topology("pages")
        windows = app.source(rows, event_time="at", delay="5 minutes").aggregate(
            by="page", windows=ab.tumbling("10 minutes"), n=ab.count(), total=ab.sum("ms"), name="w"
        )
        windows.to(ab.parquet(tmp_path / name / "out"))
        given = {"state_root": tmp_path / "state", "shards": 8, "availableNow": True, **options}
        return app.start(checkpoint=tmp_path / name / "checkpoint", **given)

    return started


def check_results(place: Path, root: Path) -> None:
    query = f"select page, \"window\".start, n, total from '{place}/out/**/*.parquet'"
    expected = (
        'select page, time_bucket(interval 10 minutes, "at"), count(*), sum(ms)::bigint '
        f"from '{root}/in/*.parquet' group by all"
    )
    assert sorted(duckdb.sql(query).fetchall()) == sorted(duckdb.sql(expected).fetchall())


def test_state_stays_after_stop_and_finish_removes_it(
    start: Callable[..., ab.Run], tmp_path: Path
) -> None:
    run = start()
    host = open_host(str(tmp_path / "state"))
    assert [each.active for each in local_states(host)] == [True]
    assert run.awaitTermination(900)
    states = local_states(host)
    assert [(each.active, each.location) for each in states] == [
        (False, str(tmp_path / "r" / "checkpoint"))
    ]
    assert states[0].bytes > 0
    run.finish()
    assert local_states(host) == []
    assert sorted(path.name for path in host.root.iterdir()) == ["host"]
    check_results(tmp_path / "r", tmp_path)


def test_state_of_earlier_runs_gives_way_and_they_still_go_on(
    start: Callable[..., ab.Run], tmp_path: Path
) -> None:
    first = start("first")
    assert first.awaitTermination(900)
    second = start("second", inactive_state=0)
    gave_way = [event.text for event in second.events if event.kind == "state"]
    assert len(gave_way) == 1
    assert str(tmp_path / "first" / "checkpoint") in gave_way[0]
    assert second.awaitTermination(900)
    host = open_host(str(tmp_path / "state"))
    assert local_states(host) == [], "of this run, too, nothing may stay"
    for run, name in ((first, "first"), (second, "second")):
        run.finish()
        assert run.recentProgress[-1].restored > 0, "the state was restored from the checkpoint"
        check_results(tmp_path / name, tmp_path)


def test_state_that_is_removed_all_the_time_changes_no_result(
    start: Callable[..., ab.Run], tmp_path: Path
) -> None:
    """Others remove the state of this run between its steps, as on a host without its driver.

    On such a host, only the slot tasks hold it.
    """
    run = start()
    run._state._hold.release()
    host, removed, ended = open_host(str(tmp_path / "state")), [0], threading.Event()

    def remove() -> None:
        while not ended.is_set():
            for each in local_states(host):
                removed[0] += each.bytes > 0 and remove_state(host, each.id)

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        assert run.awaitTermination(900)
        run.finish()
    finally:
        ended.set()
        thread.join()
    check_results(tmp_path / "r", tmp_path)
    assert removed[0] >= 2, "nothing was removed: the test shows nothing"
    assert sum(each.restored for each in run.recentProgress) > 0
    assert all(each.attempts == 1 for each in run.recentProgress), "no step was disturbed"


def test_a_wrong_bound_and_an_open_root_are_refused_before_anything_is_written(
    start: Callable[..., ab.Run], tmp_path: Path
) -> None:
    with pytest.raises(ab.TopologyError, match="inactive_state=-1; valid: a share"):
        start(inactive_state=-1)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(ab.StateError, match=r"open to other users \(mode 0755\); close it: chmod"):
        start(state_root=tmp_path / "open")
    assert not (tmp_path / "r" / "checkpoint").exists()

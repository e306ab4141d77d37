"""Sessions: ours have all settings; a run on another one reports once what it lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark.session import missing_settings
from anabranch.spark.settings import Scope, settings_in

FOREIGN = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import anabranch as ab

root = Path(sys.argv[1])
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.shuffle.compress", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
assert ab.spark_session("another") is spark, "a session that runs is returned"
rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
for number in range(2):
    app = ab.Topology("t")
    app.source(rows, event_time="timestamp", delay="1 second").aggregate(
        by=[], windows=ab.tumbling("1 second"), n=ab.count(), name="n"
    ).to(ab.memory())
    run = app.start(checkpoint=root / f"c{number}", state_root=root / "s", idle=None)
    run.stop()
    found = [event for event in run.events if event.kind == "session"]
    print("event:", *(event.text for event in found))
"""


def test_our_session_has_all_settings(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    wanted = settings_in(Scope.SESSION, Scope.LOCAL)
    del wanted["spark.log.level"]  # tests want to see errors
    assert {name: conf.get(name) for name in wanted} == wanted
    assert spark.sparkContext.master == "local[2]"
    assert spark.sparkContext.pythonExec == sys.executable
    assert missing_settings(spark) == []


def test_a_session_that_runs_is_returned_and_keeps_its_settings(spark: SparkSession) -> None:
    again = ab.spark_session("again", settings={"spark.sql.shuffle.partitions": "2"})
    assert again is spark
    assert spark.sparkContext.appName == "anabranch-tests"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"master": ""}, r"master=''; valid: \"local\[4\]\", \"spark://host:7077\""),
        ({"cores": 0}, "cores=0; valid: 1 or more"),
        ({"cores": "two"}, "cores='two'; valid: 1 or more"),
        ({"settings": ["spark.a"]}, r"settings=\['spark.a'\]; valid: a dict such as"),
        ({"settings": {"ui": "false"}}, "settings has 'ui'; valid: names that begin with spark."),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ab.TopologyError, match=why):
        ab.spark_session("wrong", **arguments)


def test_a_run_on_another_session_prints_one_line_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "ab.spark_session()" in line]
    assert len(said) == 1, done.stderr
    for part in (
        "spark.python.daemon.module=anabranch.spark.daemon (each new Python worker takes a second",
        "spark.shuffle.sort.bypassMergeThreshold=1 (exchanges write rows one by one)",
        "files without checksums",
    ):
        assert part in said[0]
    assert "spark.shuffle.compress" not in said[0], "the session has it"
    assert "maxConsecutiveAttempts" not in said[0], "it is for clusters"
    assert done.stdout.splitlines() == [f"event: {said[0]}"] * 2

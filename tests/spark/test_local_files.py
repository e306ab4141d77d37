"""Spark writes the files of its checkpoint without starting a process for each of them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from anabranch.spark.settings import FILES_CLASS, Scope, settings_in

ROOT = Path(__file__).parents[2]
COMMANDS = ("chmod", "readlink")
PROGRAM = """
import sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
import anabranch as ab

root = Path(sys.argv[1])
spark = ab.spark_session(directory=root / "spark", cores=2)
(root / "in").mkdir()
for i in range(6):
    times = pa.array([1_000_000 * (60 * i + s) for s in range(60)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": ["a", "b"] * 30, "at": times}), root / "in" / f"{i}.parquet")
counts = []

def count(_rows, _step):
    counts.append(len((root / "calls").read_text().splitlines()))

rows = spark.readStream.schema("k string, at timestamp").option("maxFilesPerTrigger", 1)
app = ab.Topology("files")
source = app.source(rows.parquet(str(root / "in")), event_time="at", delay="1 second")
source.aggregate(by="k", windows=ab.tumbling("1 minute"), n=ab.count()).to(count)
run = app.start(checkpoint=root / "chk", availableNow=True, state_root=root / "state", slots=2)
run.awaitTermination(120)
print(spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", "none"))
print(*counts)
"""


def test_no_process_is_started_per_batch(tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    (tmp_path / "calls").write_text("")
    for name in COMMANDS:  # each call is noted, then carried out
        found = next(p for each in os.defpath.split(":") if (p := Path(each) / name).exists())
        script = f'#!/bin/sh\necho {name} >> "{tmp_path}/calls"\nexec {found} "$@"\n'
        (commands / name).write_text(script)
        (commands / name).chmod(stat.S_IRWXU)
    path = f"{commands}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    left, counts = done.stdout.splitlines()[-2:]
    assert left == "none"  # the user's session is as it was
    numbers = [int(each) for each in counts.split()]
    assert len(numbers) >= 4
    assert numbers[-1] == numbers[0] > 0, numbers


def test_the_class_of_spark_stays_if_ours_cannot_be_compiled(tmp_path: Path) -> None:
    program = f"""
import anabranch as ab
from anabranch.spark.local_files import local_files_class
spark = ab.spark_session(directory={str(tmp_path)!r}, cores=1)
print(local_files_class(spark, "no.such.Class"))
print(local_files_class(spark, {settings_in(Scope.LOCAL_RUN)[FILES_CLASS]!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-2:] == ["no.such.Class", "anabranch.LocalFiles"]

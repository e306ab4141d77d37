"""A mistake in a user's code, in a script that is run as `python job.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, traceback
from pathlib import Path
import anabranch as ab

root = Path(sys.argv[1])
spark = ab.spark_session("job", master="local[1]", settings={"spark.driver.memory": "512m"})
(root / "in").mkdir()
spark.sql("select timestamp'2026-01-01 00:00:00' at, 'ann' who, 3 ms").write.json(str(root / "in" / "a"))


class Counted:
    state: int
    output = "n bigint"

    def process(self, key, rows, state, ctx):
        return [(self.divided(len(rows)),)]

    def divided(self, count):
        return count // 0


class Worst:
    state_type, result_type = int, "bigint"

    def init(self):
        return 0

    def add(self, state, ms):
        return state + ms // 0

    def merge(self, state, other):
        return state + other

    def finish(self, state):
        return state


def shown(row):
    return {"at": row["at"], "who": row["whom"]}


def run(name, build):
    app = ab.Topology(name)
    rows = spark.readStream.schema("at timestamp, who string, ms int").json(str(root / "in" / "a"))
    build(app.source(rows, event_time="at", delay="0 seconds"))
    app.start(checkpoint=root / name, availableNow=True, retries=0).awaitTermination()


for name, build in {
    "worst": lambda s: s.aggregate(
        by="who", windows=ab.tumbling("1 minute"), n=ab.udaf(Worst)("ms")).to(ab.memory()),
    "shown": lambda s: s.apply(
        shown, schema="at timestamp, who string", form="rows", name="read").to(ab.memory()),
}.items():
    try:
        run(name, build)
    except ab.AnabranchError:
        traceback.print_exc()
    print("----", file=sys.stderr, flush=True)
run("counted", lambda s: s.process("who", Counted).to(ab.memory()))
"""


@pytest.mark.spark
def test_a_mistake_in_a_users_code_ends_a_script_with_a_few_lines(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(SCRIPT)
    line = {text.strip(): number for number, text in enumerate(SCRIPT.splitlines(), 1)}
    done = subprocess.run(
        [sys.executable, str(job), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 1, done.stderr
    printed = [part.strip().splitlines() for part in done.stderr.split("----")]
    # Spark prints a few lines of its own when it starts.
    first = next(i for i, each in enumerate(printed[0]) if "Traceback" in each)
    printed[0] = printed[0][first:]
    for lines in printed:
        assert lines[0] == "Traceback (most recent call last):"
        assert len(lines) <= 9, "\n".join(lines)
        assert sum("Traceback" in each for each in lines) == 1
    worst, shown, counted = (lines[-1] for lines in printed)
    assert worst.endswith(
        "udaf(Worst): init() or add() raised ZeroDivisionError: integer division or modulo by zero "
        f"(at {job}:{line['return state + ms // 0']} in add)"
    )
    assert "apply 'read' failed on row {'at': datetime" in shown
    assert "KeyError: 'whom'" in shown
    assert counted == (
        "anabranch.errors.StepError: step 1 of 'counted' failed after 1 attempt: operator "
        "'counted', key 'ann': process() raised ZeroDivisionError: integer division or modulo by "
        f"zero (at {job}:{line['return count // 0']} in divided)"
    )

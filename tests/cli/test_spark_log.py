"""Spark's noise goes to a file, this process keeps its terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli.spark_log import prepare_environment, spark_log

ROOT = Path(__file__).parents[2]
SCRIPT = """
import logging, subprocess, sys
from pathlib import Path
from anabranch.cli.spark_log import spark_log
with spark_log(Path(sys.argv[1])):
    subprocess.run(["sh", "-c", "echo WARN noise >&2"], check=True)
    logging.getLogger("py4j.clientserver").error("a callback failed")
    print("from the program", file=sys.stderr)
subprocess.run(["sh", "-c", "echo after >&2"], check=True)
"""


def test_children_write_to_the_log_and_the_program_to_its_terminal(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(log)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "from the program\nafter\n"
    assert log.read_text().splitlines() == ["WARN noise", "a callback failed"]


def test_a_temporary_log_can_be_dropped_and_a_named_one_stays(tmp_path: Path) -> None:
    with spark_log(None) as log:
        os.write(2, b"one\ntwo\n")
        assert log.reason() == "two"
        os.write(2, b"JAVA_HOME is not set\nthree\n")
    assert log.reason() == "JAVA_HOME is not set"
    log.drop()
    assert not log.path.exists()
    assert log.reason() == ""
    with spark_log(tmp_path / "named") as log:
        log.drop()
    assert log.path.exists()


def test_workers_run_this_python_and_find_the_neighbours_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[1] pyspark-shell")
    for _ in range(2):
        prepare_environment(tmp_path)
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert os.environ["PYTHONPATH"] == f"/mine{os.pathsep}{tmp_path}"
        assert (
            os.environ["PYSPARK_SUBMIT_ARGS"]
            == "--conf spark.ui.showConsoleProgress=false --conf spark.log.level=WARN "
            "--master local[1] pyspark-shell"
        )


def test_a_python_that_was_chosen_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/chosen/python")
    prepare_environment(tmp_path)
    assert os.environ["PYSPARK_PYTHON"] == "/chosen/python"

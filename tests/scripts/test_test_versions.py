"""`scripts/test-versions` in a tree whose environments all have this Python.

Its tests know in which environment they run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "test-versions"
SETUP = """
echo "== setup: $2"
[ "$2" != "$FAIL_SETUP" ] || { echo "setup: no network" >&2; exit 1; }
mkdir -p .venvs/$2/bin
printf '#!/usr/bin/env bash\\nexec "REAL" "$@"\\n' >.venvs/$2/bin/python
chmod +x .venvs/$2/bin/python
"""
TESTS = """
import os, pytest
def test_passes(): pass
def test_passes_too(): pass
def test_fails_on_4_1(): assert ".venvs/4.1/" not in os.environ["PYSPARK_PYTHON"]
@pytest.mark.skipif(".venvs/4.1/" in os.environ["PYSPARK_PYTHON"], reason="not on 4.1")
def test_is_skipped_on_4_1(): pass
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "anabranch/__init__.py": "",
        "anabranch/spark/__init__.py": "",
        "anabranch/spark/versions.py": "SUPPORTED = ((4, 1), (4, 2))",
        "scripts/setup": SETUP.replace("REAL", sys.executable),
        "tests/spark/test_both.py": TESTS,
        "tests/spark/test_good.py": "def test_good(): pass",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    return tmp_path


def run(
    tree: Path, *arguments: str, tests: str = "tests/spark", fail_setup: str = ""
) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, "scripts/test-versions", *arguments]
    return subprocess.run(
        [*script, "--jobs", "1", "--tests", tests],
        cwd=tree,
        env={"PATH": "/usr/bin:/bin", "FAIL_SETUP": fail_setup},
        capture_output=True,
        text=True,
        check=False,
    )


def table(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """The table that comes last, without the times."""
    lines = done.stdout.split("Spark    passed failed skipped     time\n")[1].splitlines()
    rows = [line.split() for line in lines]
    return [[*row[1:4], row[-1]] for row in rows]


def test_the_table_has_what_passed_and_failed_on_each_version(tree: Path) -> None:
    done = run(tree)
    assert done.returncode == 1
    assert table(done) == [["3", "1", "1", "FAILED"], ["5", "0", "0", "ok"]]
    assert "test_fails_on_4_1" in done.stdout


def test_versions_and_tests_can_be_chosen(tree: Path) -> None:
    done = run(tree, "4.2")
    assert (done.returncode, table(done)) == (0, [["5", "0", "0", "ok"]])
    done = run(tree, "4.1", tests="tests/spark/test_good.py")
    assert (done.returncode, table(done)) == (0, [["1", "0", "0", "ok"]])


def test_a_version_without_environment_or_tests_has_failed(tree: Path) -> None:
    done = run(tree, tests="tests/spark/test_good.py", fail_setup="4.2")
    assert done.returncode == 1
    assert table(done) == [["1", "0", "0", "ok"], ["0", "0", "0", "FAILED"]]
    done = run(tree, "4.2", tests="tests/none")
    assert (done.returncode, table(done)) == (1, [["0", "0", "0", "FAILED"]])


def test_a_version_that_is_not_supported_is_refused(tree: Path) -> None:
    done = run(tree, "4.0")
    assert done.returncode == 2
    assert "version '4.0' is not supported; supported: 4.1, 4.2" in done.stderr
    assert "setup" not in done.stdout

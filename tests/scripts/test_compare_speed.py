"""`scripts/compare-speed` on trees whose `anabranch bench` prints figures that are made up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "compare-speed"
FAKE = """
import json, sys
from pathlib import Path
runs = Path(__file__).with_name("runs")
number = len(runs.read_text().splitlines()) if runs.exists() else 0
runs.open("a").write(" ".join(sys.argv[1:]) + chr(10))
rate = {rates}[number]
cases = [dict(case="A", anabranch_rows_per_s=rate, ratio=rate / 100)]
print(json.dumps(dict(bench="windows", cases=cases, small_batch=dict(anabranch_s=10 / rate))))
"""


def tree(place: Path, rates: list[int]) -> Path:
    package = place / "anabranch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(FAKE.format(rates=rates))
    return place


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_case_fails_when_its_upper_quartile_is_below_the_lower_quartile_before(
    tmp_path: Path,
) -> None:
    before, after = tree(tmp_path / "b", [100, 110, 120]), tree(tmp_path / "a", [80, 90, 99])
    done = run(before, after, "--turns", 3, "--bench", "windows", "--windows", "--rows 5", "--json")
    assert done.returncode == 1
    figures = json.loads(done.stdout.splitlines()[-1])
    case = figures["cases"]["windows A"]
    assert (case["before"], case["after"]) == ([105, 110, 115], [85, 90, 94.5])
    assert all(
        case["failed"] for case in figures["cases"].values()
    )  # the time of a small batch too
    assert set(figures["cases"]) == {"windows A", "windows A, to native", "windows small batch"}
    assert done.stdout.count("FAILED") == 3
    asked = (after / "anabranch" / "runs").read_text().splitlines()
    assert len(asked) == 3
    assert asked[0].startswith("bench windows --case A,B,C")
    assert asked[0].endswith("--rows 5 --json")


def test_quartiles_that_overlap_are_ok_and_the_trees_take_turns(tmp_path: Path) -> None:
    before, after = tree(tmp_path / "b", [100, 110, 120]), tree(tmp_path / "a", [90, 106, 112])
    done = run(before, after, "--turns", 3, "--bench", "windows")
    assert done.returncode == 0, done.stderr
    order = [line.split(", ")[2].split(":")[0] for line in done.stderr.splitlines()]
    assert order == ["before", "after", "after", "before", "before", "after"]


def test_what_the_log_has_is_not_measured_again(tmp_path: Path) -> None:
    before, after = tree(tmp_path / "b", [100, 110]), tree(tmp_path / "a", [90, 106])
    log = tmp_path / "log"
    for turns in (1, 2):
        done = run(before, after, "--turns", turns, "--bench", "windows", "--log", log)
        assert len(log.read_text().splitlines()) == 2 * turns
        assert len(done.stderr.splitlines()) == 2


def test_mistakes_are_refused(tmp_path: Path) -> None:
    assert "does not hold the package" in run(tmp_path, tmp_path).stderr
    assert "valid: windows, keyed, fusion" in run(tmp_path, tmp_path, "--bench", "osg").stderr

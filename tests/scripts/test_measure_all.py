"""`scripts/measure-all` in a tree whose `anabranch bench` prints figures that are made up."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "measure-all"
FIGURES = {
    "windows": {
        "cases": [
            {
                "case": "C",
                "anabranch_rows_per_s": 700_000,
                "native_rows_per_s": 20_000,
                "ratio": 35,
                "native_panes_rows_per_s": 35_000,
                "ratio_panes": 20,
                "limit_rows_per_s": 500_000,
                "limit_engine": "DuckDB",
                "verified": True,
            }
        ],
        "small_batch": {"anabranch_s": 0.2, "native_s": 0.4},
    },
    "fusion": {
        "cases": [
            {
                "case": "4 fused",
                "anabranch_rows_per_s": 56_000,
                "ratio_to_unfused": 2.29,
                "native_rows_per_s": 18_000,
                "ratio": 3.1,
                "verified": True,
            }
        ]
    },
    "keyed": {
        "cases": [
            {
                "case": "per-key",
                "keys": 10_000,
                "skew": 0.0,
                "anabranch_batch_s": 0.2,
                "fastest": "x",
                "rivals": {"x": {"batch_s": 4.4}},
                "ratio": 22.0,
            },
            {
                "case": "flat",
                "touched": 10,
                "median_ratio": 1.2,
                "verified": True,
                "levels": [
                    {"stored": 100, "median_s": 0.015},
                    {"stored": 900, "median_s": 0.018},
                ],
            },
        ]
    },
    "elastic": {
        "cases": [
            {
                "case": "omega",
                "policies": {
                    name: {"rows_late": 3, "slot_seconds": 90.0}
                    for name in ("static-small", "static-large", "default")
                },
                "late_small_over_default": 40.0,
                "slot_seconds_of_large": 0.24,
                "verified": True,
            }
        ]
    },
    "rebalance": {
        "rebalance": {"theta": 1.2, "steps_to_balance": [2, 2]},
        "reroute": {"adds": 0.02, "usual_step_s": 0.3},
        "resize": {"interruption_s": 0.19, "native_interruption_s": 11.9, "ratio": 64.0},
        "verified": True,
    },
}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    copied = Path(shutil.copy(SCRIPT, tmp_path / "scripts"))
    package = tmp_path / "anabranch"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "figures.json").write_text(json.dumps(FIGURES))
    (package / "__main__.py").write_text(
        "import json, sys\nfrom pathlib import Path\n"
        "figures = json.loads(Path(__file__).with_name('figures.json').read_text())\n"
        "print(json.dumps(dict(figures[sys.argv[2]], bench=sys.argv[2])))\n"
    )
    return copied


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_benchmark_has_its_rows_in_one_table(script: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("the table names the version of Java")
    done = run(script, "--log", str(tmp_path / "log"))
    assert done.returncode == 0, done.stderr
    machine, _, *table = done.stdout.splitlines()
    assert " cores of " in machine
    assert "Spark " in machine
    names = [line.split("|")[1].strip() for line in table[2:]]
    assert names == [
        *("C", "C", "a batch of 1,000 rows"),
        *("C", "C", "a batch of 1,000 rows"),  # the case long
        "fusion, 4 fused",
        *3 * ["keyed, per-key, 10,000 keys, zipf 0", "flat: 10 keys of 900"],
        "elastic, omega",
        *("rebalance after a shuffle", "reroute", "resize"),
    ]
    assert all(line.count("|") == 7 for line in table)
    commands = [json.loads(line)["command"] for line in (tmp_path / "log").read_text().splitlines()]
    assert commands[0] == "bench windows --case A,B,C,many --minutes 16"
    assert len(commands) == 8


def test_some_cases_can_be_chosen(script: Path) -> None:
    done = run(script, "A", "small", "rebalance")
    asked = [line.split(":")[0] for line in done.stderr.splitlines() if line.startswith("anab")]
    assert asked == ["anabranch bench windows --case A --minutes 4", "anabranch bench rebalance"]
    assert "valid: A, B, C, many, small, long" in run(script, "Z").stderr

"""Python workers without the package, or with another version of it, are refused at once.

The Pythons are real: environments of their own that have what Spark needs, and no more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import anabranch
from anabranch.spark.workers import _cause, _text

SCRIPT = """
import os, sys
from pyspark.sql import SparkSession
sys.path.insert(0, sys.argv[2])  # not in PYTHONPATH: workers would have it, too
import anabranch as ab

for case in sys.argv[3:]:
    python, path, daemon = case.split("|")
    os.environ["PYSPARK_PYTHON"] = python
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.executorEnv.PYTHONPATH", path)
        .config("spark.python.daemon.module", daemon)
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    rows = spark.readStream.format("rate").load()
    app = ab.Topology("t")
    app.source(rows, event_time="timestamp", delay="1 second").aggregate(
        by=[], windows=ab.tumbling("1 second"), n=ab.count(), name="n"
    ).to(ab.memory())
    try:
        app.start(checkpoint=sys.argv[1] + "/c", state_root=sys.argv[1] + "/s").stop()
        print("started")
    except ab.AnabranchError as error:
        print(str(error))
    print(os.path.exists(sys.argv[1] + "/c"), flush=True)
    spark.stop()
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with nothing but itself."""
    place = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    return place / "bin" / "python"


def linked(place: Path, *names: str) -> Path:
    """A directory with some of the packages of this Python."""
    place.mkdir()
    packages = Path(sysconfig.get_path("purelib"))
    for name in names:
        (place / name).symlink_to(packages / name)
    return place


def test_workers_that_cannot_work_are_refused_with_the_line_that_fixes_it(
    bare: Path, tmp_path: Path
) -> None:
    others = [
        path.name
        for path in Path(sysconfig.get_path("purelib")).iterdir()
        if "anabranch" not in path.name and path.suffix not in {".pth", ".py"}
    ]
    with_arrow = linked(tmp_path / "arrow", *others)
    other = linked(tmp_path / "other", *others)
    own = Path(anabranch.__file__).parent
    shutil.copytree(own, other / "anabranch", ignore=shutil.ignore_patterns("__pycache__"))
    text = (other / "anabranch" / "__init__.py").read_text()
    changed = text.replace(f'__version__ = "{anabranch.__version__}"', '__version__ = "9.9.9"')
    (other / "anabranch" / "__init__.py").write_text(changed)
    left = {"PYSPARK_SUBMIT_ARGS", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in left}
    cases = [
        f"{bare}|{tmp_path}|pyspark.daemon",
        f"{bare}|{tmp_path}|anabranch.spark.daemon",
        f"{bare}|{with_arrow}|pyspark.daemon",
        f"{bare}|{other}|pyspark.daemon",
    ]
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(own.parent), *cases],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    said, checkpoints = lines[::2], lines[1::2]
    assert checkpoints == ["False"] * 4, "nothing is begun"
    fix = f"To fix it, start the program with PYSPARK_PYTHON={sys.executable}, or use ab.spark_s"
    assert all(fix in line for line in said), said
    start = "Spark's Python workers"
    assert said[0].startswith(f"{start} cannot start: "), said[0]
    assert "No module named 'pyarrow'" in said[0]
    assert said[1].startswith(f"{start} cannot start: "), said[1]
    assert "No module named 'anabranch'" in said[1]
    assert said[2].startswith(
        f"{start} ({bare}) cannot import anabranch: No module named 'anabranch'"
    )
    assert said[3].startswith(
        f"{start} ({bare}) have anabranch 9.9.9: the driver has {anabranch.__version__}"
    )


def test_on_a_cluster_the_fix_is_an_installation_or_an_archive() -> None:
    text = _text("cannot import anabranch", "No module named 'x'", "spark://h:7077", "/usr/bin/p")
    assert f"pip install anabranch=={anabranch.__version__} on every host" in text
    assert "spark.archives=environment.tar.gz#environment" in text


def test_the_cause_is_the_line_that_names_it() -> None:
    spark = "Job aborted\n  at x\nModuleNotFoundError: No module named 'pyarrow'\n\nDriver trace:\n"
    assert _cause(spark) == "ModuleNotFoundError: No module named 'pyarrow'"
    assert _cause("only this") == "only this"
    assert _cause("") == "unknown cause"

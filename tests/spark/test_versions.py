"""Supported versions are accepted, all others are refused at once, with one line."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from anabranch.errors import AnabranchError, TopologyError
from anabranch.spark import versions

ROOT = Path(__file__).parents[2]
LOCKED = (4, 3)


@pytest.mark.parametrize(
    ("version", "number"),
    [("4.1.0", (4, 1)), ("4.2.1", (4, 2)), ("4.3.0.dev1", (4, 3)), ("4.1.4-amzn-0", (4, 1))],
)
def test_every_patch_of_a_supported_version_is_supported(
    version: str, number: tuple[int, int]
) -> None:
    assert versions.supported(version) == number


@pytest.mark.parametrize(
    "version", ["4.0.5", "3.5.9", "4.4.0", "5.0.0", "4.10.0", "41.0", "newest"]
)
def test_other_versions_are_refused_with_the_supported_ones(version: str) -> None:
    with pytest.raises(AnabranchError) as error:
        versions.supported(version)
    assert str(error.value) == f"pyspark {version} is not supported; supported: 4.1, 4.2, 4.3"


def test_pyproject_allows_the_supported_versions_and_no_others() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked_for = next(
        need for need in map(Requirement, project["dependencies"]) if need.name == "pyspark"
    )
    allowed = [(4, minor) for minor in range(9) if f"4.{minor}.7" in asked_for.specifier]
    assert tuple(allowed) == versions.SUPPORTED
    assert "3.5.9" not in asked_for.specifier
    assert "5.0.0" not in asked_for.specifier
    assert f"\npyspark=={LOCKED[0]}.{LOCKED[1]}." in (ROOT / "requirements.lock").read_text()


REFUSAL = "pyspark 4.0.5 is not supported; supported: 4.1, 4.2, 4.3"


@pytest.fixture
def old_spark(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that has an old pyspark."""
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '4.0.5'")
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_a_spark_that_is_not_supported_is_refused_at_import(old_spark: dict[str, str]) -> None:
    code = "import anabranch as ab; print(ab.tumbling('1 hour').name)\nab.Topology"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=old_spark, capture_output=True, text=True, check=False)
    assert done.stdout == "1 hour\n", "what needs no Spark works without"
    assert done.stderr.splitlines()[-1] == f"anabranch.errors.AnabranchError: {REFUSAL}"


def test_the_command_refuses_it_with_one_line(old_spark: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import anabranch as ab\napp = ab.Topology('job')\n")
    command = [sys.executable, "-m", "anabranch", "run", str(tmp_path / "job.py")]
    done = subprocess.run(command, env=old_spark, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"anabranch: {REFUSAL}\n"


def test_a_jvm_of_another_version_than_pyspark_is_refused() -> None:
    own = ".".join(map(str, versions.SPARK))
    versions.check_jvm(f"{own}.9")
    other = next(f"{a}.{b}.0" for a, b in versions.SUPPORTED if (a, b) != versions.SPARK)
    with pytest.raises(TopologyError, match=rf"Spark {other} runs under pyspark {own}\.\d"):
        versions.check_jvm(other)
    with pytest.raises(AnabranchError, match=r"Spark 4\.0\.1 is not supported; supported: 4\.1"):
        versions.check_jvm("4.0.1")


def test_import_caches_are_kept_until_the_paths_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: it changes Spark's worker."""
    code = """if True:
        import importlib, sys
        calls = []
        importlib.invalidate_caches = lambda: calls.append(1)
        from anabranch.spark import versions
        versions.keep_import_caches()
        from pyspark import worker_util
        if versions.SPARK >= (4, 2):
            assert worker_util.importlib is importlib, "these know by themselves"
        else:
            for _ in range(3):
                worker_util.importlib.invalidate_caches()
            assert calls == []
            sys.path.append("/somewhere")
            for _ in range(3):
                worker_util.importlib.invalidate_caches()
            assert calls == [1]
        print("as it should be")
    """
    monkeypatch.chdir(ROOT)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "as it should be", done.stderr


def test_only_one_module_asks_for_a_version() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "anabranch").rglob("*.py")
        if path.name != "versions.py"
        and any(
            word in path.read_text(encoding="utf-8")
            for word in ("pyspark.__version__", "versions import SPARK", "versions.SPARK ")
        )
    ]
    assert found == []
    assert importlib.import_module("pyspark").__version__.startswith(
        ".".join(map(str, versions.SPARK))
    )

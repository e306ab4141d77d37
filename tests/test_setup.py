"""scripts/setup on machines that lack something, or lose it half-way.

Python, pip, uv and Java are stand-ins, so that it needs no network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = "awk bash cat chmod cksum cp df dirname env grep head id mkdir mv rm sed sleep sort tail".split()

# Does what set-up asks of Python, pip and uv, and fails or dies at the step that the variables name.
PYTHON = r"""#!/usr/bin/env bash
step() {
  echo "$1" >>"$STEPS"
  [ "${KILLED_AT:-}" != "$1" ] || kill -9 0
  case " ${FAIL_AT:-} " in *" $1 "*) echo "$FAILURE"; exit 1 ;; esac
}
case "$0 $*" in
  *uv" pip sync --offline "*) exit 1 ;;
  *uv" pip sync "*) step uv; mkdir -p "$UV_CACHE_DIR"; cp "$4" "$STEPS.pins" ;;
  *uv" pip install pyspark=="*) step "uv-$3" ;;
  *uv" pip install "*) step project; cp "$0" "${0%/*}/anabranch" ;;
  *uv" pip compile "*) step compile ;;
  *"import ensurepip"*) [ -z "${WITHOUT_VENV:-}" ] ;;
  *" -m venv "*) step venv; rm -rf "${!#}"; mkdir -p "${!#}/bin"; cp "$0" "${!#}/bin/python" ;;
  *" -m pip config "*) ;;
  *" -m pip install "*" -e ."*) step project; cp "$0" "${0%/*}/anabranch" ;;
  *" -m pip install "*" pyspark=="*) step "pip-${!#}" ;;
  *" -m pip install "*requirements.lock*) step pip ;;
  *" -m pip install "*) step tools; cp "$0" "${0%/*}/uv" ;;
  *base_prefix*) echo NAME ;;
  *) exec REAL "$@" ;;
esac
"""


@dataclass(frozen=True)
class Machine:
    """A folder with the project's set-up, and a PATH with common tools, a Python and a Java."""

    home: Path

    @property
    def project(self) -> Path:
        return self.home / "project"

    def has(self, name: str, script: str) -> None:
        path = self.home / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(script)
        path.chmod(0o755)

    def has_python(self, name: str) -> None:
        self.has(name, PYTHON.replace("NAME", name).replace("REAL", sys.executable))

    def lacks(self, name: str) -> None:
        (self.home / "bin" / name).unlink()

    def setup(
        self, *arguments: str, folder: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        (self.home / "steps").write_text("")
        return subprocess.run(
            ["bash", "scripts/setup", *arguments],
            cwd=folder or self.project,
            env={
                "PATH": str(self.home / "bin"),
                "HOME": str(self.home),
                "STEPS": str(self.home / "steps"),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )

    def fails(self, **variables: str) -> str:
        """The one line that a set-up ends with."""
        done = self.setup(**variables)
        assert done.returncode == 1
        assert done.stderr.startswith("setup: ")
        assert done.stderr.count("\n") == 1
        return done.stderr

    @property
    def steps(self) -> list[str]:
        """What the last set-up did."""
        return (self.home / "steps").read_text().split()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool}"))
    machine.has_python("python3")
    machine.has("java", "#!/usr/bin/env bash\necho 'openjdk version \"21.0.1\"' >&2\n")
    (machine.project / "scripts").mkdir(parents=True)
    for name in ("scripts/setup", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, machine.project / name)
    return machine


def test_set_up_installs_uv_then_the_lock_then_the_project(machine: Machine) -> None:
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert machine.steps == ["venv", "tools", "uv", "project"]


def test_a_second_set_up_does_nothing(machine: Machine) -> None:
    machine.setup()
    done = machine.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.steps == []


def test_a_changed_lock_is_installed_into_the_same_environment(machine: Machine) -> None:
    machine.setup()
    with (machine.project / "requirements.lock").open("a") as lock:
        lock.write("added==1 \\\n    --hash=sha256:0\n")
    machine.setup()
    assert machine.steps == ["tools", "uv", "project"]


def test_an_environment_outlives_the_python_that_is_found_first(machine: Machine) -> None:
    machine.has_python("python3.12")
    machine.setup(PYTHON="python3.12")
    machine.setup()
    assert machine.steps == []


def test_another_python_makes_another_environment(machine: Machine) -> None:
    machine.has_python("python3.12")
    machine.setup()
    machine.setup(PYTHON="python3.12")
    assert machine.steps == ["venv", "tools", "uv", "project"]


def test_a_project_that_was_moved_gets_another_environment(machine: Machine) -> None:
    machine.setup()
    moved = machine.project.rename(machine.home / "moved")
    machine.setup(folder=moved)
    assert machine.steps == ["venv", "tools", "uv", "project"]


def test_an_environment_whose_python_is_gone_is_made_again(machine: Machine) -> None:
    machine.setup()
    (machine.project / ".venv/bin/python").unlink()
    machine.setup()
    assert machine.steps == ["venv", "tools", "uv", "project"]


@pytest.mark.parametrize("step", ["venv", "tools", "uv", "project"])
def test_a_set_up_that_was_killed_starts_over(machine: Machine, step: str) -> None:
    assert machine.setup(KILLED_AT=step).returncode < 0
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert machine.steps == ["venv", "tools", "uv", "project"]


def test_an_update_that_was_killed_starts_over(machine: Machine) -> None:
    machine.setup()
    (machine.project / "pyproject.toml").write_text("")
    assert machine.setup(KILLED_AT="uv").returncode < 0
    machine.setup()
    assert machine.steps == ["venv", "tools", "uv", "project"]


def test_pip_installs_the_lock_where_uv_fails(machine: Machine) -> None:
    done = machine.setup(FAIL_AT="uv", FAILURE="error: a new kind of wheel")
    assert done.returncode == 0, done.stderr
    assert machine.steps == ["venv", "tools", "uv", "pip", "project"]


def test_a_home_that_cannot_be_written_leaves_the_cache_in_the_project(machine: Machine) -> None:
    done = machine.setup(HOME=os.devnull)
    assert done.returncode == 0, done.stderr
    assert (machine.project / ".cache/uv").is_dir()


def test_upgrade_sets_up_writes_the_lock_and_installs_it(machine: Machine) -> None:
    machine.setup()
    done = machine.setup("upgrade")
    assert done.returncode == 0, done.stderr
    assert machine.steps == ["compile"]


def test_another_spark_gets_an_environment_of_its_own(machine: Machine) -> None:
    machine.setup()
    done = machine.setup("spark", "4.1")
    assert done.returncode == 0, done.stderr
    assert machine.steps == ["venv", "tools", "uv", "uv-pyspark==4.1.*", "project"]
    assert (machine.project / ".venvs/4.1/bin/anabranch").exists()
    pinned = (machine.home / "steps.pins").read_text()
    lock = (machine.project / "requirements.lock").read_text()
    missing = [line for line in lock.splitlines() if line not in pinned.splitlines()]
    assert {line.split("==")[0] for line in missing if "==" in line} == {"pyspark", "py4j"}
    assert "pandas==" in pinned
    machine.setup("spark", "4.1")
    assert machine.steps == []


def test_pip_installs_another_spark_where_uv_fails(machine: Machine) -> None:
    done = machine.setup("spark", "4.2", FAIL_AT="uv", FAILURE="error: a new kind of wheel")
    assert done.returncode == 0, done.stderr
    assert machine.steps == ["venv", "tools", "uv", "pip", "pip-pyspark==4.2.*", "project"]


@pytest.mark.parametrize("version", ["", "4", "newest", "../4.1"])
def test_a_spark_that_is_no_version_is_refused(machine: Machine, version: str) -> None:
    done = machine.setup("spark", version)
    assert done.returncode == 1
    assert done.stderr == (
        f"setup: scripts/setup spark takes a version such as 4.1, got '{version}'\n"
    )
    assert machine.steps == []


def test_no_python_is_explained(machine: Machine) -> None:
    machine.lacks("python3")
    assert (
        "Python 3.11, 3.12 or 3.13 is needed, python3 is not found; install one" in machine.fails()
    )


def test_an_old_python_is_explained(machine: Machine) -> None:
    machine.has("python3", "#!/usr/bin/env bash\n[ $1 = -V ] && echo Python 3.9.2\n")
    assert (
        "Python 3.11, 3.12 or 3.13 is needed, python3 is Python 3.9.2; install one"
        in machine.fails()
    )


def test_a_newer_python_beside_an_old_one_is_found(machine: Machine) -> None:
    machine.has("python3", "#!/usr/bin/env bash\n[ $1 = -V ] && echo Python 3.9.2\n")
    machine.has_python("python3.12")
    assert machine.setup().returncode == 0


def test_a_python_without_venv_is_explained(machine: Machine) -> None:
    assert f"apt-get install python3.{sys.version_info.minor}-venv" in machine.fails(
        WITHOUT_VENV="1"
    )


def test_no_java_is_explained(machine: Machine) -> None:
    machine.lacks("java")
    assert "Java 17 or newer is needed: install it" in machine.fails()


def test_a_java_home_without_java_is_explained(machine: Machine) -> None:
    assert "JAVA_HOME=/nowhere has none: correct or unset it" in machine.fails(JAVA_HOME="/nowhere")


@pytest.mark.parametrize("steps", ["venv", "tools", "uv pip"])
@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("PermissionError: [Errno 13] Permission denied: '.venv'", "no permission to write"),
        (
            "Failed to establish a new connection: Temporary failure in name resolution",
            "no network; connect",
        ),
    ],
)
def test_a_step_that_fails_is_explained(
    machine: Machine, steps: str, failure: str, advice: str
) -> None:
    trace = f"Traceback (most recent call last):\n  File 'x', line 1\n{failure}"
    assert advice in machine.fails(FAIL_AT=steps, FAILURE=trace)


def test_errors_that_are_not_known_are_shown_without_the_rest(machine: Machine) -> None:
    done = machine.setup(
        FAIL_AT="uv pip", FAILURE="Collecting x\n  File 'x', line 1\nERROR: x has no wheel"
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "ERROR: x has no wheel"
    assert done.stderr.splitlines()[1].startswith("setup: Python packages: failed, see above")

"""A mistake at the command line is one line on stderr and exit code 2, before Spark starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch import __version__
from anabranch.cli import main

WriteFile = Callable[[str], Path]


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def one_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code, out, err = run_command(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("anabranch: ")
    assert err.count("\n") == 1
    return err.removeprefix("anabranch: ").strip()


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "--version") == (0, f"anabranch {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_command(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, out, _ = run_command(capsys, *arguments)
    assert code == 0
    assert [
        name for name in ("run", "explain", "state", "bench", "chaos") if f"\n  {name} " in out
    ] == [
        "run",
        "explain",
        "state",
        "bench",
        "chaos",
    ]


@pytest.mark.parametrize("command", ["run", "explain", "plan", "state"])
def test_every_help_shows_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run_command(capsys, command, "--help")
    assert code == 0
    assert f"Example: anabranch {command} " in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["start"],
            (
                "No such command 'start'. Did you mean 'state'? Valid: run, explain, plan, state, "
                "history, replay, bench, chaos, lab."
            ),
        ),
        (["run"], "Missing argument 'FILE'."),
        (
            ["plan", "job.py", "--stats", "x", "--planner", "best"],
            "unknown --planner 'best'; valid: auto, unfused, fusion by",
        ),
        (
            ["plan", "job.py", "--stats", "nowhere"],
            "--stats nowhere is not a checkpoint: it has no anabranch.json",
        ),
        (
            ["run", "job.py", "--slot", "2"],
            "No such option: --slot (Possible options: --log, --max-slots, --slots)",
        ),
        (["run", "nowhere/job.py"], "nowhere/job.py cannot be read: No such file or directory"),
        (["run", "job.py", "--for", "soon"], "--for 'soon' is not a time"),
        (
            ["run", "job.py", "--idle", "3 parsecs"],
            "--idle '3 parsecs': unknown unit 'parsecs'; valid: microseconds",
        ),
        (["run", "job.py", "--trigger", "x"], "--trigger 'x' is not a time"),
        (
            ["run", "job.py", "--trigger", "1s", "--available-now"],
            "--available-now and --trigger exclude each other",
        ),
        (["run", "job.py", "--log", "nowhere/log"], "--log nowhere/log: No such file or directory"),
        (
            ["explain", "job.py", "--format", "dot"],
            "unknown --format 'dot'; valid: text, json, mermaid",
        ),
        (["plan", "job.py", "--stats", "x", "--bound=-1"], "bound=-1.0; valid: 0 or more"),
        (["state", "nowhere"], "nowhere is not a checkpoint: it has no anabranch.json"),
        (["history", "nowhere"], "nowhere is not a checkpoint: it has no anabranch.json"),
        (
            ["replay", "nowhere"],
            (
                "nowhere has no history; valid: a checkpoint, its directory 'history', or a "
                "parquet file in it"
            ),
        ),
        (
            ["replay", "nowhere", "--policy", "magic"],
            "unknown --policy 'magic'; valid: auto, autoscale, latency, network",
        ),
        (["replay", "nowhere", "--latency", "soon"], "latency 'soon' is not a time"),
        (
            ["run", "job.py", "--elastic", "maybe"],
            "unknown --elastic 'maybe'; valid: on, advise, off",
        ),
        (["run", "job.py", "--max-slots", "0"], "max_slots 0 is below min_slots 1"),
    ],
)
def test_bad_arguments_are_named(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    assert line in one_line(capsys, *arguments)


def test_a_directory_is_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert one_line(capsys, "run", str(tmp_path)) == f"{tmp_path} is a directory, not a Python file"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (
            "x = 1",
            "{file} defines no topology; it needs a variable such as: app = ab.Topology('job')",
        ),
        (
            "import anabranch as ab\na, b = ab.Topology('a'), ab.Topology('b')",
            "{file} defines 2 topologies (a, b); name the one to run `app`",
        ),
        ("x = 1\ny = (", "{file}:2: SyntaxError: '(' was never closed"),
        ("x = 1\n\nx / 0", "{file}:3: ZeroDivisionError: division by zero"),
        ("def f():\n    raise ValueError('two\\nlines')\n\nf()", "{file}:2: ValueError: two"),
        ("import sys\nsys.exit('no')", "{file}:2: SystemExit: no"),
        (
            "import anabranch as ab\n\nab.tumbling('0 s')",
            "{file}:3: window length '0 s' is zero; it must be longer",
        ),
        (
            "import anabranch as ab\napp = ab.Topology('t')",
            "topology 't' has nothing to do: add .aggregate",
        ),
    ],
)
def test_mistakes_in_a_file_name_the_file_and_the_line(
    capsys: pytest.CaptureFixture[str], file: WriteFile, source: str, line: str
) -> None:
    path = file(source)
    assert one_line(capsys, "explain", str(path)).startswith(line.format(file=path))


def test_the_variable_app_is_the_one_to_run(
    capsys: pytest.CaptureFixture[str], file: WriteFile
) -> None:
    path = file("import anabranch as ab\nother, app = ab.Topology('other'), ab.Topology('mine')")
    assert one_line(capsys, "run", str(path)).startswith("topology 'mine' has nothing to do")


def test_a_topology_in_two_variables_counts_once(
    capsys: pytest.CaptureFixture[str], file: WriteFile
) -> None:
    path = file("import anabranch as ab\na = b = ab.Topology('mine')")
    assert one_line(capsys, "run", str(path)).startswith("topology 'mine' has nothing to do")

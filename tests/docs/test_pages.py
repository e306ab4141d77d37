"""What the pages for users show is what happens: every block of Python, and every command."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from docs.site.sources import commands
from tests.docs.pages import bad_command, blocks, command_lines, fits, run_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    path
    for path in [
        ROOT / "README.md",
        ROOT / "docs" / "tutorial.md",
        *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    ]
    if path.exists()
]


@contextlib.contextmanager
def working_directory(spark: SparkSession, path: Path) -> Iterator[None]:
    """Spark's relative paths are below a directory, as if its process had been started there."""
    hadoop = spark._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(spark.sparkContext._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(hadoop.Path(str(path)))
    try:
        yield
    finally:
        files.setWorkingDirectory(before)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    from anabranch.cli import app

    return dict(commands("anabranch", app))


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if any(block.language == "python" for block in blocks(p.read_text()))],
    ids=named,
)
def test_the_code_of_a_page_prints_what_the_page_shows(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)  # classes find their names there
    try:
        with working_directory(spark, tmp_path):
            found = run_page(page.read_text(), named(page), vars(program))
    finally:
        for query in spark.streams.active:
            query.stop()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=named)
def test_the_commands_of_a_page_exist(page: Path, helps: dict[str, str]) -> None:
    found = [
        f"{named(page)}:{line}: {bad}"
        for line, words in command_lines(page.read_text())
        if (bad := bad_command(words, helps, ROOT))
    ]
    assert not found, "\n".join(found)


def test_blocks_of_a_page_run_in_one_program() -> None:
    page = "```python\nx = 2\n```\ntext\n```python\nprint(x + 1)\n```\n\n```text\n3\n```\n"
    assert run_page(page, "page.md", {}) == []


def test_a_difference_is_found_with_its_line() -> None:
    (found,) = run_page("```python\nprint(1)\n```\n\n```text\n2\n```\n", "page.md", {})
    assert found.startswith("page.md:6: the page shows\n2\nbut it prints\n1\n")


def test_an_error_has_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("# Title\n\n```python\nx = 1\nx / 0\n```\n", "page.md", {})
    assert caught.traceback[-1].lineno + 1 == 5


def test_blocks_that_are_only_shown_do_not_run() -> None:
    page = "```py\n1 / 0\n```\n```text\nnothing\n```\n```sh\nfalse\n```\n"
    assert run_page(page, "page.md", {}) == []


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a  \nb\n\n", True),
        ("a ... c\n", "a 12 c\n", True),
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\n...\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
        ("a ... c\n", "a 12\nc\n", False),
    ],
)
def test_three_dots_stand_for_what_varies(shown: str, printed: str, same: bool) -> None:
    assert fits(shown, printed) is same


@pytest.mark.parametrize(
    ("command", "bad"),
    [
        ("make test", None),
        ("make nothing-of-this-name", "nothing-of-this-name"),
        ("anabranch", None),
        ("anabranch run examples/lending.py --finish", None),
        (".venv/bin/anabranch bench windows --help", None),
        ("anabranch run examples/lending.py --fin", "no option --fin"),
        ("anabranch rum examples/lending.py", "no command 'rum'"),
        ("anabranch run examples/landing.py", "examples/landing.py does not exist"),
        ("pip install anabranch", None),
    ],
)
def test_commands_that_do_not_exist_are_found(
    command: str, bad: str | None, helps: dict[str, str]
) -> None:
    found = bad_command(command.split(), helps, ROOT)
    assert found is None if bad is None else bad in str(found)

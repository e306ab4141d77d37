"""The contract of `CheckpointFiles`: what every place for the files of a checkpoint does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.state.checkpoint.files import CheckpointFiles, Files
from anabranch.testing import MemoryFiles


def object_store(_: Path) -> Files:
    """A file system that pyarrow opens by a URI and that is no directory; this one is in memory."""
    return Files("mock:///bucket/checkpoint")


PLACES: dict[str, Callable[[Path], CheckpointFiles]] = {
    "directory": lambda path: Files(str(path / "checkpoint")),
    "file URI": lambda path: Files(f"file://{path}/checkpoint"),
    "object store": object_store,
    "memory": lambda _: MemoryFiles(),
}


@pytest.fixture(params=PLACES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointFiles:
    made = PLACES[request.param](tmp_path)
    for name in () if request.param != "object store" else ("", "state/00000001", "commits"):
        made.make(name)  # an object store has no directories to make; pyarrow's in memory has
    return made


def test_what_is_written_is_read_whole_and_in_parts(files: CheckpointFiles) -> None:
    files.write("state/00000001/a.bin", [b"delta", b"", b"snapshot"])
    assert files.read("state/00000001/a.bin") == b"deltasnapshot"
    assert files.read("state/00000001/a.bin", 5, 4) == b"snap"
    assert files.read("state/00000001/a.bin", 5) == b"snapshot"
    assert files.read("state/00000001/a.bin", 5, 0) == b""


def test_a_file_that_is_written_again_has_the_later_content(files: CheckpointFiles) -> None:
    files.write("commits/a", [b"a longer one"])
    files.write("commits/a", [b"short"])
    assert files.read("commits/a") == b"short"


def test_a_file_that_does_not_exist_cannot_be_read(files: CheckpointFiles) -> None:
    files.make()
    assert not files.exists("commits/a")
    with pytest.raises(FileNotFoundError):
        files.read("commits/a")


def test_creating_a_file_that_exists_changes_nothing_and_says_so(files: CheckpointFiles) -> None:
    assert files.create("commits/1", b"first")
    assert not files.create("commits/1", b"second")
    assert files.create("commits/2", b"")
    assert not files.create("commits/2", b"")
    assert files.read("commits/1") == b"first"
    assert files.list("commits") == ["1", "2"], "and no draft is left"


def test_replacing_a_file_leaves_nothing_but_the_new_content(files: CheckpointFiles) -> None:
    files.make()
    for content in (b"one", b"another"):
        files.replace("anabranch.json", content)
        assert files.read("anabranch.json") == content
    assert [name for name in files.list() if "anabranch" in name] == ["anabranch.json"]


def test_listing_names_what_is_directly_below_in_order(files: CheckpointFiles) -> None:
    for name in ("b", "a", "deep/c"):
        files.make("state/00000001/deep")
        files.write(f"state/00000001/{name}", [b"12"])
    assert files.list("state/00000001") == ["a", "b", "deep"]
    assert files.sizes("state/00000001") == {"a": 2, "b": 2}
    assert "state" in files.list()
    assert files.list("results") == []
    assert files.sizes("results") == {}


def test_removing_takes_a_file_or_a_whole_directory_and_nothing_else(
    files: CheckpointFiles,
) -> None:
    for step, name in itertools.product(("00000001", "00000010"), "ab"):
        files.make(f"state/{step}")
        files.write(f"state/{step}/{name}", [b""])
    files.remove("state/00000001/a")
    assert files.list("state/00000001") == ["b"]
    files.remove("state/00000001")
    assert files.list("state") == ["00000010"]
    assert files.list("state/00000010") == ["a", "b"]
    files.remove("state/00000001")
    assert not files.exists("state/00000001")


def test_a_directory_that_was_made_exists(files: CheckpointFiles) -> None:
    files.make("results/00000001")
    assert files.exists("results/00000001")
    assert files.list("results") == ["00000001"]
    assert files.list("results/00000001") == []

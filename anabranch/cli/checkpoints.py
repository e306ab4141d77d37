"""The checkpoint of a run, and whether its sinks hold results of another run."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from anabranch.cli.load import MistakeError
from anabranch.spark.api.topology import Topology
from anabranch.spark.sinks import FileTarget
from anabranch.state.checkpoint.files import Files

_RESULT = re.compile(r"step-\d{8}-.*|_draft-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
    """The location of a checkpoint. A temporary one is removed when the run ends."""

    location: str
    temporary: bool


@contextmanager
def checkpoint_for(app: Topology, wanted: str | None, *, fresh: bool) -> Iterator[RunCheckpoint]:
    """The checkpoint of a run.

    A new run must not mix its results with those of another one.
    """
    if wanted is None:
        place = RunCheckpoint(
            tempfile.mkdtemp(prefix=f"anabranch-{_plain(app.name)}-"), temporary=True
        )
    else:
        place = RunCheckpoint(wanted, temporary=False)
    try:
        files = Files(place.location)
        if fresh:
            _clear(files)
        if not files.exists("anabranch.json"):
            for sink in app.graph.sinks:
                if isinstance(sink.target, FileTarget):
                    _claim(Files(sink.target.path), fresh=fresh)
        yield place
    finally:
        if place.temporary:
            shutil.rmtree(place.location, ignore_errors=True)


def _clear(files: Files) -> None:
    """Removes a checkpoint, and refuses to remove anything else."""
    if files.exists("anabranch.json"):
        files.remove("")
    elif files.list():
        raise MistakeError(
            f"--fresh: {files.location} is not a checkpoint (it has no anabranch.json), so it was "
            "not removed"
        )


def _claim(results: Files, *, fresh: bool) -> None:
    old = [name for name in results.list() if _RESULT.fullmatch(name)]
    if old and not fresh:
        raise MistakeError(
            f"{results.location} holds results of another run; --fresh removes them, --checkpoint "
            "DIR continues that run"
        )
    for name in old:
        results.remove(name)


def _plain(name: str) -> str:
    return re.sub(r"\W+", "-", name)

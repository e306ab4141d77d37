"""A host: the node-local root under which shards live, with its own id.

By default it is shared memory, so that every Python worker on the machine reaches every shard
(Elasticutor's state sharing inside a process, across processes); a directory on disk where shared
memory is too small.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from anabranch.errors import StateFullError
from anabranch.plan.ids import PartId

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
ENOUGH_BYTES = 256 << 20
LEAST_BYTES = 16 << 20
_LONGEST_NAME = 200  # letters; most file systems take 255


@dataclass(frozen=True, slots=True)
class Host:
    """A state root and its id. Not a hostname: two containers of a machine share nothing."""

    root: Path
    id: str

    def directory(self, checkpoint_id: str, part: PartId) -> Path:
        """Where the shards of an operator, or of a part of one, are."""
        names = (part.operator, part.part) if part.part else (part.operator,)
        return self.root / checkpoint_id / file_name("+".join(quote(n, safe=" ") for n in names))

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free

    def need(self, size: int) -> None:
        """Refuses to begin a write that the root has no space for."""
        free = self.free_bytes()
        if free < size + LEAST_BYTES:
            raise StateFullError(
                f"state root {self.root} has {free >> 20} MiB free and needs "
                f"{(size + LEAST_BYTES) >> 20} MiB; nothing is lost: free space there, or restart "
                "with state_root= on a larger disk"
            )


def file_name(quoted: str) -> str:
    """A quoted name as the name of a file: never "." or "..", and not longer than names may be.

    What is too long keeps its beginning, for people, and a hash, so that no two become the same.
    """
    name = f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 33]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def default_root() -> Path:
    """Shared memory where it has enough space, else the directory for temporary files."""
    if (
        SHARED_MEMORY.is_dir()
        and os.access(SHARED_MEMORY, os.W_OK)
        and shutil.disk_usage(SHARED_MEMORY).free >= ENOUGH_BYTES
    ):
        return SHARED_MEMORY / f"anabranch-{os.getuid()}"
    return Path(tempfile.gettempdir()) / f"anabranch-{os.getuid()}"


def open_host(root: str | None) -> Host:
    """The host of this process; its root and id are made on first use."""
    path = Path(root) if root else default_root()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = path / "host"
    if not name.exists():
        draft = path / f".host-{uuid.uuid4().hex}"
        draft.write_text(uuid.uuid4().hex)
        try:
            os.link(draft, name)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return Host(path, name.read_text())


def claim(host: Host, checkpoint_id: str, location: str, operators: Collection[PartId]) -> None:
    """Notes which checkpoint a directory of state belongs to; removes state that nobody needs.

    That is state of operators that are gone, and of local checkpoints that are gone.
    """
    mine = host.root / checkpoint_id
    mine.mkdir(exist_ok=True)
    kept = {host.directory(checkpoint_id, each).name for each in operators}
    for each in mine.iterdir():
        if each.is_dir() and each.name not in kept:
            shutil.rmtree(each, ignore_errors=True)
    (mine / "checkpoint.json").write_text(json.dumps({"location": location}))
    for note in host.root.glob("*/checkpoint.json"):
        try:
            location = json.loads(note.read_text())["location"]
        except (OSError, ValueError, KeyError):
            continue
        if location.startswith("/") and not Path(location, "anabranch.json").exists():
            shutil.rmtree(note.parent, ignore_errors=True)

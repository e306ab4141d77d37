"""A host: the node-local directory (state root) that holds shards, with an id of its own.

By default it is in shared memory, so that every Python worker on the machine reaches every shard.
This is Elasticutor's state sharing inside a process, across processes. If shared memory is too
small, it is a directory on disk.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from anabranch.errors import StateError, StateFullError
from anabranch.plan.ids import PartId

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
ENOUGH_BYTES = 256 << 20
LEAST_BYTES = 16 << 20
_OTHERS = 0o077
_LONGEST_NAME = 200  # characters; most file systems take 255


@dataclass(frozen=True, slots=True)
class Host:
    """A state root and its id. The id is not a hostname: two containers may have the same one."""

    root: Path
    id: str

    def directory(self, checkpoint_id: str, part: PartId) -> Path:
        """The directory with the shards of an operator, or of a part of one."""
        names = (part.operator, part.part) if part.part else (part.operator,)
        return self.root / checkpoint_id / file_name("+".join(quote(n, safe=" ") for n in names))

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free

    def has_space(self, size: int) -> bool:
        return self.free_bytes() >= size + LEAST_BYTES

    def need(self, size: int) -> None:
        """Raises StateFullError if the root has no space for a write of this size."""
        if not self.has_space(size):
            raise StateFullError(
                f"state root {self.root} has {self.free_bytes() >> 20} MiB free and needs "
                f"{(size + LEAST_BYTES) >> 20} MiB; nothing is lost: free space there, or restart "
                "with state_root= on a larger disk"
            )


def file_name(quoted: str) -> str:
    """A quoted name as a file name: never "." or "..", and never longer than file systems allow.

    A name that is too long keeps its beginning, for people, and gets a hash, so that no two become
    the same.
    """
    name = f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 33]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def default_root() -> Path:
    """Shared memory if it has enough space, else the directory for temporary files."""
    if (
        SHARED_MEMORY.is_dir()
        and os.access(SHARED_MEMORY, os.W_OK)
        and shutil.disk_usage(SHARED_MEMORY).free >= ENOUGH_BYTES
    ):
        return SHARED_MEMORY / f"anabranch-{os.getuid()}"
    return Path(tempfile.gettempdir()) / f"anabranch-{os.getuid()}"


def open_host(root: str | None) -> Host:
    """The host of this process. Its root and id are created on first use.

    Refuses a root that others could read or write.
    """
    path = Path(root) if root else default_root()
    if not _made(path):
        _check_root(path)
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


def _made(path: Path) -> bool:
    """Makes a directory that only we can use; False if something has that name already."""
    try:
        path.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        return False
    return True


def owner_name(uid: int) -> str:
    """The name and id of a user, or the id alone if there is no name."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)


def _check_root(path: Path) -> None:
    """Refuses a root that is not ours or is open to others, who could read or forge state."""
    found = path.lstat()
    elsewhere = "or choose a directory of your own: state_root="
    if stat.S_ISLNK(found.st_mode):
        raise StateError(
            f"state root {path} is a symbolic link to {path.readlink()}; remove it, {elsewhere}"
        )
    if not stat.S_ISDIR(found.st_mode):
        raise StateError(f"state root {path} is not a directory; remove it, {elsewhere}")
    if found.st_uid != os.getuid():
        raise StateError(
            f"state root {path} belongs to user {owner_name(found.st_uid)}, who could read or "
            f"forge state; have it removed, {elsewhere}"
        )
    if (mode := stat.S_IMODE(found.st_mode)) & _OTHERS:
        raise StateError(
            f"state root {path} is open to other users (mode {mode:04o}); close it: chmod 700 "
            f"{path}, {elsewhere}"
        )

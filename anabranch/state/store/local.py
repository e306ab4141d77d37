"""Node-local state of all runs on a host: what is in use, how large it is, and what is removed.

A checkpoint has everything that is stored here, so removing it loses nothing. The next step
restores what is missing. But removing it during a step would cost an attempt. So a process that
uses the state of a run holds a lock, which the system releases when the process dies.

State is removed under that lock, and in one move. A process that opens it next finds all of it or
nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from anabranch.errors import StateError, TopologyError
from anabranch.plan.ids import PartId
from anabranch.state.store.host import ENOUGH_BYTES, Host, owner_name

INACTIVE = 0.05  # share of the file system that the state of inactive runs may take
_NOTE = "checkpoint.json"
_REMOVED = ".removed-"
_WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalState:
    """The state of one run on this host."""

    id: str
    location: str | None  # of its checkpoint; None if this host has no note of it
    bytes: int
    used_at: float
    active: bool


class Hold:
    """Keeps the state of a run from being removed. Several processes may hold it at once.

    The system releases it when this process dies.
    """

    def __init__(self, host: Host, checkpoint_id: str, wait_s: float = _WAIT_S) -> None:
        self._path, self._wait_s = _lock_path(host, checkpoint_id), wait_s
        self._lock: int | None = None

    def acquire(self) -> None:
        deadline = time.monotonic() + self._wait_s
        while self._lock is None:
            self._lock = _locked(self._path, fcntl.LOCK_SH)
            if self._lock is None:  # another process is removing the state
                if time.monotonic() > deadline:
                    raise StateError(
                        f"another process has held {self._path} for more than {self._wait_s:g} s; "
                        "end it, or choose another state_root="
                    )
                time.sleep(0.005)
        os.utime(self._lock)

    def release(self) -> None:
        if self._lock is not None:
            os.utime(self._lock)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class ClaimedState:
    """The state of a run on the host of its driver, from the first step to the last."""

    def __init__(self, host: Host, checkpoint_id: str, inactive: float) -> None:
        self._host, self._id, self._inactive = host, checkpoint_id, inactive
        self._hold = Hold(host, checkpoint_id)
        self.gave_way: list[LocalState] = []

    def claim(self, location: str, operators: Collection[PartId]) -> Self:
        """Notes which checkpoint the state belongs to, and removes state that is not needed.

        That is state of removed operators, of deleted local checkpoints, and of inactive runs
        beyond their limit.
        """
        self._hold.acquire()
        try:
            self._claim(location, operators)
        except BaseException:
            self._hold.release()
            raise
        return self

    def _claim(self, location: str, operators: Collection[PartId]) -> None:
        mine = self._host.root / self._id
        mine.mkdir(exist_ok=True)
        _check_below(mine)
        kept = {self._host.directory(self._id, each).name for each in operators}
        for each in mine.iterdir():
            if each.is_dir() and each.name not in kept:
                shutil.rmtree(each, ignore_errors=True)
        (mine / _NOTE).write_text(json.dumps({"location": location}))
        _remove_orphans(self._host)
        self.gave_way = self._make_room(ENOUGH_BYTES)

    def hold(self) -> None:
        """Uses the state again after `release()`."""
        self._hold.acquire()

    def release(self) -> None:
        """Call this when the run stops. Its state stays for a quick restart, within the limit."""
        self._hold.release()
        with suppress(OSError):  # this helps other runs only, and the next start does it again
            self._make_room(0)

    def remove(self) -> None:
        """Removes the state, unless another run of the same checkpoint still holds it."""
        self._hold.release()
        with suppress(OSError):  # what is left is removed later
            remove_state(self._host, self._id)

    def _make_room(self, least_free: int) -> list[LocalState]:
        most = most_inactive(self._host, self._inactive)
        return make_room(self._host, most_bytes=most, least_free=least_free)


def check_inactive(value: float) -> float:
    """Checks a limit for inactive state: a share of the file system up to 1, or bytes."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise TopologyError(
            f"inactive_state={value!r}; valid: a share of the file system such as {INACTIVE}, or a "
            "number of bytes such as 1_000_000_000"
        )
    return value


def most_inactive(host: Host, inactive: float) -> int:
    """The limit in bytes."""
    return int(inactive if inactive > 1 else inactive * shutil.disk_usage(host.root).total)


def local_states(host: Host) -> list[LocalState]:
    """The state of all runs on this host, the least recently used first."""
    found = [_state_of(host, each) for each in host.root.iterdir() if _is_state(each)]
    return sorted((each for each in found if each is not None), key=lambda each: each.used_at)


def remove_state(host: Host, checkpoint_id: str) -> bool:
    """Removes the state of a run; False if a process uses it."""
    path = _lock_path(host, checkpoint_id)
    lock = _locked(path, fcntl.LOCK_EX)
    if lock is None:
        return False
    removed = host.root / f"{_REMOVED}{uuid.uuid4().hex}"
    try:
        (host.root / checkpoint_id).rename(removed)
    except FileNotFoundError:
        pass
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)
    shutil.rmtree(removed, ignore_errors=True)
    return True


def make_room(host: Host, *, most_bytes: int | None, least_free: int) -> list[LocalState]:
    """Removes inactive state, oldest first, and returns what it removed.

    It stops when at most `most_bytes` are left and at least `least_free` bytes are free.
    """
    for left in host.root.glob(f"{_REMOVED}*"):  # of a process that died while it removed state
        shutil.rmtree(left, ignore_errors=True)
    idle = [each for each in local_states(host) if not each.active]
    total, removed = sum(each.bytes for each in idle), []
    for each in idle:
        enough = host.free_bytes() >= least_free
        if enough and (most_bytes is None or total <= most_bytes):
            break
        if remove_state(host, each.id):
            total -= each.bytes
            removed.append(each)
    return removed


def _remove_orphans(host: Host) -> None:
    """Removes state of local checkpoints that no longer exist."""
    for note in host.root.glob(f"*/{_NOTE}"):
        location = _location(note)
        if location is None or not location.startswith("/"):
            continue
        if not Path(location, "anabranch.json").exists():
            remove_state(host, note.parent.name)


def _state_of(host: Host, path: Path) -> LocalState | None:
    """What is known about the state of one run."""
    lock = _lock_path(host, path.name)
    sizes, times = [0], [_modified(lock)]
    for each in _files_below(path):
        try:
            found = each.lstat()
        except FileNotFoundError:
            continue
        sizes.append(found.st_blocks * 512)
        times.append(found.st_mtime)
    return LocalState(
        id=path.name,
        location=_location(path / _NOTE),
        bytes=sum(sizes),
        used_at=max(times),
        active=_is_held(lock),
    )


def _is_state(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not path.name.startswith(".")


def _files_below(path: Path) -> Iterator[Path]:
    for place, _, names in os.walk(path):
        yield from (Path(place, name) for name in names)


def _location(note: Path) -> str | None:
    try:
        found = json.loads(note.read_text())["location"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _check_below(mine: Path) -> None:
    """Refuses links and files of other users below the state of a run: state would go elsewhere."""
    for place, directories, names in os.walk(mine):
        for name in (*directories, *names):
            path = Path(place, name)
            try:
                found = path.lstat()
            except FileNotFoundError:  # a run that is just ending has removed it
                continue
            if stat.S_ISLNK(found.st_mode):
                raise StateError(f"{path} is a symbolic link; remove it: rm {path}")
            if found.st_uid != os.getuid():
                raise StateError(
                    f"{path} belongs to user {owner_name(found.st_uid)}, who could read or forge "
                    f"state; remove it: rm -r {path}"
                )


def _lock_path(host: Host, checkpoint_id: str) -> Path:
    return host.root / f".{checkpoint_id}.active"


def _is_held(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def _locked(path: Path, how: int) -> int | None:
    """The lock; None if another process holds it, or has removed its file."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino == path.stat().st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None

"""Files below a location that pyarrow opens: a directory, or an object store by its URI.

A local write is on disk when the method returns.
"""

from __future__ import annotations

import builtins
import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pyarrow import fs

from anabranch.errors import CheckpointError, StateFullError


class CheckpointFiles(Protocol):
    """What a checkpoint needs of the place that stores its files.

    Names are relative, with forward slashes. `tests/contracts/test_files.py` tests the rest.
    """

    @property
    def location(self) -> str:
        """The location as the user gave it."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or of a part of it."""

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        """Writes a file. Nobody may read it before something else names it."""

    def replace(self, name: str, data: bytes) -> None:
        """Replaces the contents of a file atomically."""

    def create(self, name: str, data: bytes) -> bool:
        """Creates a file with its contents atomically; False if it exists already."""

    def exists(self, name: str) -> bool:
        """Whether a file or a directory of this name exists."""

    def list(self, name: str = "") -> builtins.list[str]:
        """The sorted names directly below a directory; empty if it does not exist."""

    def sizes(self, name: str = "") -> dict[str, int]:
        """The files directly below a directory, with their sizes in bytes."""

    def remove(self, name: str) -> None:
        """Removes a file, or a directory with its contents. Does nothing if there is none."""

    def make(self, name: str = "") -> None:
        """Makes a directory and its parents."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files below a location. Can be sent to a task."""

    location: str
    _opened: builtins.list[tuple[fs.FileSystem, str]] = field(
        default_factory=list, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[type[Files], tuple[str]]:
        return Files, (self.location,)

    @property
    def local(self) -> bool:
        return isinstance(self._open()[0], fs.LocalFileSystem)

    def path(self, name: str) -> str:
        """The full path for pyarrow's file system. A local path works everywhere."""
        return f"{self._open()[1]}/{name}" if name else self._open()[1]

    @property
    def filesystem(self) -> fs.FileSystem:
        return self._open()[0]

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        with self.filesystem.open_input_file(self.path(name)) as file:
            file.seek(offset)
            return bytes(file.read(length))

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        """Writes a durable file. Nobody may read it before something else names it."""
        if self.local:
            target = Path(self.path(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            return
        with self.filesystem.open_output_stream(self.path(name)) as stream:
            for part in parts:
                stream.write(part)

    def replace(self, name: str, data: bytes) -> None:
        """Replaces the contents of a file atomically."""
        draft = f"{name}.{uuid.uuid4().hex}.draft"
        self.write(draft, [data])
        if self.local:
            Path(self.path(draft)).replace(self.path(name))
            sync_directory(Path(self.path(name)).parent)
        else:
            self.filesystem.move(self.path(draft), self.path(name))

    def create(self, name: str, data: bytes) -> bool:
        """Creates a file with its contents atomically; False if it exists already."""
        if self.local:
            target = Path(self.path(name))
            draft = f"{name}.{uuid.uuid4().hex}.draft"
            self.write(draft, [data])
            try:
                os.link(self.path(draft), target)
            except FileExistsError:
                return False
            finally:
                Path(self.path(draft)).unlink()
            sync_directory(target.parent)
            return True
        if self.exists(name):
            return False
        self.write(name, [data])
        return True

    def exists(self, name: str) -> bool:
        return bool(self.filesystem.get_file_info(self.path(name)).type != fs.FileType.NotFound)

    def list(self, name: str = "") -> builtins.list[str]:
        """The sorted names directly below a directory; empty if it does not exist."""
        selector = fs.FileSelector(self.path(name), allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def sizes(self, name: str = "") -> dict[str, int]:
        """The files directly below a directory, with their sizes in bytes."""
        selector = fs.FileSelector(self.path(name), allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return {info.base_name: info.size for info in found if info.type == fs.FileType.File}

    def remove(self, name: str) -> None:
        """Removes a file, or a directory with its contents. Does nothing if there is none."""
        kind = self.filesystem.get_file_info(self.path(name)).type
        if kind == fs.FileType.Directory:
            self.filesystem.delete_dir(self.path(name))
        elif kind != fs.FileType.NotFound:
            self.filesystem.delete_file(self.path(name))

    def make(self, name: str = "") -> None:
        try:
            self.filesystem.create_dir(self.path(name), recursive=True)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise CheckpointError(
                f"directory {self.path(name)} cannot be created: {reason}; "
                "valid: a directory that this process may write to"
            ) from None

    def _open(self) -> tuple[fs.FileSystem, str]:
        if not self._opened:
            try:
                filesystem, path = _filesystem(self.location)
            except Exception as error:  # noqa: BLE001 - file systems raise anything
                raise CheckpointError(
                    f"location {self.location!r} cannot be opened: {error}"
                ) from None
            self._opened.append((filesystem, path.rstrip("/")))
        return self._opened[0]


def _filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a location, and the path in it."""
    if location.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(urlsplit(location).path).absolute())
    if "://" not in location:
        return fs.LocalFileSystem(), str(Path(location).absolute())
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(
        location.replace("s3a://", "s3://", 1)
    )
    return found


@contextmanager
def disk_full_as_state_error(location: str) -> Iterator[None]:
    """Turns the error of a full disk into a StateFullError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StateFullError(
                f"checkpoint {location} has no space left; the step was not committed and nothing "
                "is lost: free space and start again"
            ) from error
        raise


def sync_directory(path: Path) -> None:
    """Makes the names in a local directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

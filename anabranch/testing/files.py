"""The files of a checkpoint in memory: the twin of a directory, for tests in one process."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from pyarrow import fs

from anabranch.state.checkpoint.files import Files


@dataclass(frozen=True, slots=True)
class MemoryFiles(Files):
    """Files in a dict. It passes the contract of `CheckpointFiles`, and has no paths."""

    location: str = "memory"
    _data: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    _made: set[str] = field(default_factory=set, repr=False, compare=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("files in memory cannot be shipped to another process")

    @property
    def local(self) -> bool:
        return False

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        if name not in self._data:
            raise FileNotFoundError(name)
        return self._data[name][offset : None if length is None else offset + length]

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        self._data[name] = b"".join(parts)

    def replace(self, name: str, data: bytes) -> None:
        self._data[name] = data

    def create(self, name: str, data: bytes) -> bool:
        if name in self._data:
            return False
        self._data[name] = data
        return True

    def exists(self, name: str) -> bool:
        return name in self._data or name in self._made or bool(self.list(name))

    def list(self, name: str = "") -> builtins.list[str]:
        prefix = f"{name}/" if name else ""
        below = (each.removeprefix(prefix) for each in self._names() if each.startswith(prefix))
        return sorted({each.partition("/")[0] for each in below})

    def sizes(self, name: str = "") -> dict[str, int]:
        prefix = f"{name}/" if name else ""
        found = {each: f"{prefix}{each}" for each in self.list(name)}
        return {each: len(self._data[path]) for each, path in found.items() if path in self._data}

    def remove(self, name: str) -> None:
        for each in self._names():
            if each == name or each.startswith(f"{name}/"):
                self._data.pop(each, None)
                self._made.discard(each)

    def make(self, name: str = "") -> None:
        if name:
            self._made.add(name)

    def _names(self) -> builtins.list[str]:
        return [*self._data, *self._made]

    def _open(self) -> tuple[fs.FileSystem, str]:
        raise TypeError("files in memory have no path")

"""What a Python worker of Spark does before and while it takes the rows of a task."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from gc import freeze
from typing import Protocol, TypeVar

import pyarrow as pa

_FIRST_FILES = range(3, 16)
_AT_ONCE = getattr(socket, "TCP_QUICKACK", None)  # Linux alone has it

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskId:
    """Which task of a stage this is, and which attempt at it."""

    partition: int
    attempt: int = 0


class WorkerTask(Protocol):
    """What runs in a Python worker: rows of a partition in, rows out."""

    def run(
        self, batches: Iterable[pa.RecordBatch], task: TaskId, /
    ) -> Iterator[pa.RecordBatch]: ...


def settle() -> None:
    """Takes all that is loaded out of the garbage collector's sight, once in each process.

    Workers collect garbage after every task, and went through all modules each time: some 50 ms
    of a core per task. A forked worker loads Spark's own modules when its first task comes, after
    its parent has settled: 30 ms.
    """
    _settle(os.getpid())


@cache
def _settle(_process: int) -> None:
    freeze()


def received(batches: Iterable[T]) -> Iterator[T]:
    """What Spark sends to a task, each packet acknowledged at once.

    Spark writes in pieces to a socket that holds a small one back until those before it are
    acknowledged (Nagle's algorithm), and Linux acknowledges what it need not answer after 40 ms:
    every task waited for that once or twice.
    """
    settle()
    with ExitStack() as stack:
        sockets = [stack.enter_context(each) for each in _connections()]
        coming = iter(batches)
        while True:
            for each in sockets:  # it lasts until the worker sends something
                each.setsockopt(socket.IPPROTO_TCP, _AT_ONCE or 0, 1)
            try:
                batch = next(coming)
            except StopIteration:
                return
            yield batch


def _connections() -> Iterator[socket.socket]:
    """The TCP connections that Spark made first; each once, as a copy that may be closed."""
    seen = set()
    for number in _FIRST_FILES if _AT_ONCE is not None else ():
        try:
            found = os.fstat(number)
            if not stat.S_ISSOCK(found.st_mode) or found.st_ino in seen:
                continue
            copy = socket.socket(fileno=os.dup(number))
        except OSError:  # not open
            continue
        seen.add(found.st_ino)
        if copy.family in {socket.AF_INET, socket.AF_INET6} and copy.type == socket.SOCK_STREAM:
            yield copy
        else:
            copy.close()

"""What a Python worker of Spark does before and while it receives the rows of a task."""

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
_AT_ONCE = getattr(socket, "TCP_QUICKACK", None)  # only Linux has it

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskId:
    """Which task of a stage this is, and which attempt at it."""

    partition: int
    attempt: int = 0


class WorkerTask(Protocol):
    """What runs in a Python worker: it gets the rows of a partition and returns rows."""

    def run(
        self, batches: Iterable[pa.RecordBatch], task: TaskId, /
    ) -> Iterator[pa.RecordBatch]: ...


def settle() -> None:
    """Hides all loaded objects from the garbage collector, once per process.

    Workers collect garbage after every task. Without this they scan all modules each time, some
    50 ms of a core per task. A forked worker calls it again: it loads Spark's own modules with its
    first task, which cost another 30 ms.
    """
    _settle(os.getpid())


@cache
def _settle(_process: int) -> None:
    freeze()


def received(batches: Iterable[T]) -> Iterator[T]:
    """The batches that Spark sends to a task. Each packet is acknowledged at once.

    Spark writes in pieces. Its socket holds a small piece back until those before it are
    acknowledged (Nagle's algorithm). Linux delays an acknowledgement by 40 ms, and every task
    would wait for that once or twice.
    """
    settle()
    with ExitStack() as stack:
        sockets = [stack.enter_context(each) for each in _connections()]
        coming = iter(batches)
        while True:
            for each in sockets:  # the option lasts until the worker sends something
                each.setsockopt(socket.IPPROTO_TCP, _AT_ONCE or 0, 1)
            try:
                batch = next(coming)
            except StopIteration:
                return
            yield batch


def _connections() -> Iterator[socket.socket]:
    """The first TCP connections of the worker, which are Spark's, as copies that may be closed."""
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

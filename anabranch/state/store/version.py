"""Versions of a shard and fences of attempts.

A version is (step, token): two attempts at one step are different states. A fence orders attempts: of a driver's life (epoch),
of a job in it, of a stage and a task in that. Once a newer attempt has written a shard, an older one that wakes up may not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """How late an attempt is: a later one wins."""

    epoch: int
    job: int
    task: int = 0


@dataclass(frozen=True, slots=True)
class Version:
    """The state of a shard after a step, as one attempt made it."""

    step: int
    token: str

    def __str__(self) -> str:
        return f"{self.step}/{self.token}"

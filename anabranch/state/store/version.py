"""Versions of a shard and fences of attempts.

A version is (step, token): two attempts at one step are different states. A fence orders attempts:
by the life of the driver (epoch), then by job, then by attempt at the task. Once a newer attempt
has written a shard, an older one that wakes up may not.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """The place of an attempt in the order of all attempts: a later one wins."""

    epoch: int
    job: int
    task: int = 0

    def new_token(self) -> str:
        """A token that nothing else has; it names what this attempt writes."""
        return f"{self.epoch}.{self.job}.{self.task}.{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class Version:
    """The state of a shard after a step, as one attempt made it."""

    step: int
    token: str

    def __str__(self) -> str:
        return f"{self.step}/{self.token}"

"""Versions of a shard and fences of attempts.

A version is (step, token): two attempts at one step are different states. A fence orders attempts:
by epoch (each start of a driver has a new one), then by job, then by attempt at the task. After a
newer attempt has written a shard, an older one may not write it any more.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """The place of an attempt in the order of all attempts. Later attempts win."""

    epoch: int
    job: int
    task: int = 0

    def new_token(self) -> str:
        """A unique token, which names everything that this attempt writes."""
        return f"{self.epoch}.{self.job}.{self.task}.{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class Version:
    """The state of a shard after a step, as one attempt left it."""

    step: int
    token: str

    def __str__(self) -> str:
        return f"{self.step}/{self.token}"

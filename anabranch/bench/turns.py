"""Runs all sides in turns, so that other load on the machine affects all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from anabranch.bench.data import InputFiles
from anabranch.bench.measure import SideRun
from anabranch.errors import AnabranchError

Side: TypeAlias = Callable[[float], SideRun]
"""Runs once over the input, from an empty state; its argument is the seconds that are left."""


def take_turns(
    sides: Mapping[str, Side],
    source: InputFiles,
    rounds: int,
    ends_at: float,
    say: Callable[[str], None],
) -> dict[str, list[SideRun]]:
    """The runs of each side, in as many rounds as there is time for.

    A side that has become too slow skips the later rounds.
    """
    runs: dict[str, list[SideRun]] = {name: [] for name in sides}
    lasted = dict.fromkeys(sides, 0.0)
    for number in range(rounds):
        for name in list(sides) if number % 2 == 0 else list(sides)[::-1]:
            began = time.monotonic()
            if number and began + lasted[name] > ends_at:
                continue
            run = sides[name](ends_at - began)
            if not (run.batch_s or run.lasted_s) or len(run.batch_s) > len(source.files):
                raise AnabranchError(
                    f"{name} reported {len(run.batch_s)} batches for {len(source.files)} files"
                )
            lasted[name] = time.monotonic() - began
            runs[name].append(run)
            batches = " ".join(f"{batch:.2f}" for batch in run.batch_s)
            say(
                f"{name}, round {number + 1}: "
                f"{f'{batches} s' if batches else f'no batch within {run.lasted_s:.0f} s'}"
            )
    return runs

"""Page views and visits of users: a visit ends when its user does nothing for a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.workloads.draws import shares

GAP_US = 30 * 1_000_000
SEED = 23
PAGES = ("home", "search", "article", "basket", "checkout", "help")


def views(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Page views from the rows of a workload: a key is a user."""
    place = shares(SEED, 0, rows["value"].to_numpy()) ** 2 * len(PAGES)
    columns = {
        "at": rows["at"],
        "number": rows["value"],
        "user": rows["key"],
        "page": pa.array(PAGES).take(pa.array(np.floor(place).astype(np.int64))),
    }
    return pa.record_batch(columns)


@dataclass(frozen=True, slots=True)
class Visit:
    """A user's visit: from the first view to one gap after the last, with first and last page."""

    user: int
    start_us: int
    end_us: int
    views: int
    pages: int
    entry: str
    exit: str


def visits_of(given: Iterable[Mapping[str, Any]], gap_us: int = GAP_US) -> list[Visit]:
    """All visits, computed from all rows; `at` is in microseconds.

    A view exactly one gap after the last one begins another visit.
    """
    found = []
    rows = sorted(given, key=lambda each: (each["user"], each["at"], each["number"]))
    for user, views_of_user in groupby(rows, key=lambda each: each["user"]):
        visits: list[list[Mapping[str, Any]]] = []
        for row in views_of_user:
            if visits and row["at"] - visits[-1][-1]["at"] < gap_us:
                visits[-1].append(row)
            else:
                visits.append([row])
        found += [
            Visit(
                user=user,
                start_us=visit[0]["at"],
                end_us=visit[-1]["at"] + gap_us,
                views=len(visit),
                pages=len({each["page"] for each in visit}),
                entry=visit[0]["page"],
                exit=visit[-1]["page"],
            )
            for visit in visits
        ]
    return found

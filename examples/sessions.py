"""Visits to a site: the pages that a user views until nothing happens for half a minute.

Visits are also counted by minute and last page. `ab.session` gives such windows too. This class
also keeps what no aggregate has, the path of a visit, and has a timer that each view sets again.

anabranch run examples/sessions.py --fresh --available-now --finish
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from made_up import rows_of

import anabranch as ab
from anabranch.testing.visits import views

GAP = timedelta(seconds=30)

LOAD = ab.workloads.Workload(
    rate=ab.workloads.progressive(20, 100, "10 minutes"),
    keys=ab.workloads.hot_spot(2_000, 0.1, width=20, every="2 minutes", skew=0.7),
    lasting="10 minutes",
    seed=4,
)


@dataclass
class Open:
    """An open visit: when it began, its last view, and its pages in order."""

    start: datetime | None = None
    last: datetime | None = None
    pages: list[str] = field(default_factory=list)


class Visits:
    """Reports a visit when it is over.

    That is at the timer, or at a view after the gap that comes before the timer is due.
    """

    state: Open
    output = "at timestamp, start timestamp, views bigint, pages bigint, entry string, exit string"
    event_time = "at"

    def process(self, user, rows, visit, ctx):
        for row in rows:
            if visit.last is not None and row.at - visit.last >= GAP:
                yield self.result(visit)
                visit.start, visit.pages = None, []
            visit.start, visit.last = visit.start or row.at, row.at
            visit.pages.append(row.page)
        ctx.timer(visit.last + GAP)

    def on_timer(self, user, visit, ctx):
        ctx.forget()
        return [self.result(visit)]

    def result(self, visit):
        pages = visit.pages
        return visit.last + GAP, visit.start, len(pages), len(set(pages)), pages[0], pages[-1]


app = ab.Topology("sessions")
source = app.source(
    rows_of("sessions", LOAD, speed=20, columns=views), event_time="at", delay="0 seconds"
)
visits = source.process("user", Visits, name="visits")
ends = visits.aggregate(
    by="exit",
    windows=ab.tumbling("1 minute"),
    visits=ab.count(),
    views=ab.sum("views"),
    longest=ab.max("views"),
    name="ends",
)

visits.to(ab.parquet("out/sessions/visits"))
ends.to(ab.parquet("out/sessions/ends"))

"""Alerts about cards: small payments that test a card before a large one, and large payments that
nobody confirms in time.

The second rule is about something that does not happen, so it needs a timer. Alerts are counted by
rule.

anabranch run examples/fraud.py --fresh --available-now --finish
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from made_up import rows_of

import anabranch as ab
from anabranch.testing.payments import payments

SMALL, LARGE = 100, 50_000  # cents: less than the first is small, the second or more is large
PROBES, WITHIN = 3, timedelta(minutes=10)
CONFIRM = timedelta(minutes=1)

LOAD = ab.workloads.Workload(
    rate=ab.workloads.sine(30, 20, "5 minutes"),
    keys=ab.workloads.zipf(400, 0.5),
    lasting="20 minutes",
    seed=3,
)


@dataclass
class Card:
    """The times of small payments, and the large payments that wait for a confirmation.

    `waiting` has the amount and the deadline, by number.
    """

    small: list[datetime] = field(default_factory=list)
    waiting: dict[int, tuple[int, datetime]] = field(default_factory=dict)


class Watch:
    """Both rules, for one card at a time."""

    state: Card
    output = "at timestamp, rule string, number bigint, cents bigint"
    event_time = "at"
    ttl = "1 hour"

    def process(self, card, rows, state, ctx):
        for row in rows:
            if row.kind == "confirmation":
                for number in [
                    each for each, (_, until) in state.waiting.items() if row.at < until
                ]:
                    del state.waiting[number]
                    ctx.cancel(str(number))
            elif row.cents < SMALL:
                state.small = [each for each in state.small if row.at - each < WITHIN] + [row.at]
            elif row.cents >= LARGE:
                if sum(row.at - each < WITHIN for each in state.small) >= PROBES:
                    state.small = []
                    yield row.at, "probing", row.number, row.cents
                state.waiting[row.number] = (row.cents, row.at + CONFIRM)
                ctx.timer(row.at + CONFIRM, str(row.number))

    def on_timer(self, card, state, ctx):
        number = int(ctx.name)
        cents, until = state.waiting.pop(number)
        return [(until, "unconfirmed", number, cents)]


app = ab.Topology("fraud")
cards = app.source(
    rows_of("fraud", LOAD, speed=40, columns=payments), event_time="at", delay="0 seconds"
)
alerts = cards.process("card", Watch, name="alerts")
rules = alerts.aggregate(
    by="rule",
    windows=ab.tumbling("1 minute"),
    alerts=ab.count(),
    cents=ab.sum("cents"),
    name="rules",
)

alerts.to(ab.parquet("out/fraud/alerts"))
rules.to(ab.parquet("out/fraud/rules"))

"""A stock exchange: orders are matched per stock, with six statistics and five kinds of events.

The application of Elasticutor 5.4 (Fig. 14), with our own orders, in which the hot stocks change.
Operators that work per stock run in the slot of its order book, without another exchange.

anabranch run examples/stock_exchange.py --fresh --available-now --finish
"""

import heapq
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby

from made_up import rows_of
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.testing.exchange import orders

STOCKS = 100
ALIVE = timedelta(minutes=1)  # an order that is not executed by then expires
THRESHOLD, MANY, SWING, SURGE = 12_000, 800, 0.01, 2.0

LOAD = ab.workloads.Workload(
    rate=ab.workloads.erratic(30, 150, "10 minutes"),
    keys=ab.workloads.hot_spot(STOCKS, 0.3, width=2, every="1 minute", skew=0.5),
    lasting="10 minutes",
    seed=5,
)


@dataclass
class Book:
    """Waiting orders, best first: price (negative for buyers), time, number, user, shares."""

    buy: list[tuple[int, datetime, int, int, int]] = field(default_factory=list)
    sell: list[tuple[int, datetime, int, int, int]] = field(default_factory=list)


class Transactor:
    """Executes each order against the waiting orders of the other side.

    The best price comes first, then the oldest order.
    """

    state: Book
    output = (
        "at timestamp, price bigint, quantity bigint, cents bigint, buyer bigint, seller bigint, "
        "buy_order bigint, sell_order bigint"
    )
    event_time = "at"

    def process(self, stock, rows, book, ctx):
        for new in rows:
            buys, left = new.side == "buy", new.quantity
            ours, others = (book.buy, book.sell) if buys else (book.sell, book.buy)
            limit = new.price if buys else -new.price
            while left and others and others[0][0] <= limit:
                rank, at, order, user, quantity = others[0]
                if at + ALIVE <= new.at:
                    heapq.heappop(others)
                    continue
                traded = min(left, quantity)
                left -= traded
                if traded == quantity:
                    heapq.heappop(others)
                else:
                    heapq.heapreplace(others, (rank, at, order, user, quantity - traded))
                buyer, seller = ((new.user, new.order), (user, order))[:: 1 if buys else -1]
                yield (
                    new.at,
                    abs(rank),
                    traded,
                    abs(rank) * traded,
                    buyer[0],
                    seller[0],
                    buyer[1],
                    seller[1],
                )
            if left:
                heapq.heappush(ours, (-limit, new.at, new.order, new.user, left))
        for side in ("buy", "sell"):
            alive = [each for each in getattr(book, side) if each[1] + ALIVE > ctx.time]
            heapq.heapify(alive)
            setattr(book, side, alive)


class PriceAlarm:
    """Reports a price above the threshold, once until the price has been below again."""

    state: dict[str, bool]
    output = "at timestamp, price bigint"
    event_time = "at"

    def process(self, stock, rows, state, ctx):
        for at, at_once in groupby(rows, key=lambda row: row.at):  # the trades of one order
            price = max(row.price for row in at_once)
            if price > THRESHOLD and not state.get("above"):
                yield at, price
            state["above"] = price > THRESHOLD


MINUTE, MOVING = ab.tumbling("1 minute"), ab.sliding("5 minutes", every="1 minute")

app = ab.Topology("stock_exchange")
source = app.source(
    rows_of("stock_exchange", LOAD, speed=20, columns=orders), event_time="at", delay="0 seconds"
)
trades = source.process("stock", Transactor, name="trades")

averages = trades.aggregate(
    by="stock",
    windows=MOVING,
    average=ab.avg("price"),
    shares_of_5=ab.sum("quantity"),
    name="averages",
)
volumes = trades.aggregate(
    by="stock",
    windows=MINUTE,
    trades=ab.count(),
    shares=ab.sum("quantity"),
    cents=ab.sum("cents"),
    name="volumes",
)
candles = trades.aggregate(
    by="stock", windows=MINUTE, highest=ab.max("price"), lowest=ab.min("price"), name="candles"
)
index = volumes.aggregate(
    by=[], windows=MINUTE, cents=ab.sum("cents"), shares=ab.sum("shares"), name="index"
).map(lambda df: df.withColumn("index", F.col("cents") / F.col("shares")))
ranking = volumes.aggregate(
    by=[], windows=MINUTE, most=ab.max_by("stock", "shares"), stocks=ab.count(), name="ranking"
)
buyers = trades.aggregate(
    by="buyer", windows=ab.tumbling("5 minutes"), spent=ab.sum("cents"), name="buyers"
)

alarms = trades.process("stock", PriceAlarm, name="alarms")
large = trades.map(lambda df: df.filter(F.col("quantity") >= MANY))
washed = trades.map(lambda df: df.filter("buyer = seller"))
swings = candles.map(
    lambda df: df.filter(F.col("highest") - F.col("lowest") >= SWING * F.col("lowest"))
)
surges = ab.join(volumes, averages, by="stock", window=MINUTE, name="surges").map(
    lambda df: df.filter(F.col("shares") >= SURGE * F.col("shares_of_5") / 5)
)

for name, stream in {
    "trades": trades,
    "averages": averages,
    "volumes": volumes,
    "candles": candles,
    "index": index,
    "ranking": ranking,
    "buyers": buyers,
    "alarms": alarms,
    "large": large,
    "washed": washed,
    "swings": swings,
    "surges": surges,
}.items():
    stream.to(ab.parquet(f"out/stock_exchange/{name}"))

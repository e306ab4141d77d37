"""A stock exchange (Elasticutor 5.4): made-up limit orders with changing hot stocks, and a matcher.

The matcher takes the orders one by one and looks at every order of a book. It is slow, and serves
as the reference for faster ones. An order expires after `ALIVE_US`, so that books stay small.
Prices are whole cents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.workloads.draws import shares

ALIVE_US = 60_000_000
USERS, LOT = 1_000, 100
SEED = 54
_WAVE_US = 20 * 60 * 1_000_000


def orders(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Limit orders from the rows of a workload: the key is the stock, the value the order's number.

    A stock's middle price rises and falls by a twentieth. Most orders are a little worse than the
    middle price and stay in the book; some cross it.
    """
    number, stock = rows["value"].to_numpy(), rows["key"].to_numpy()
    at_us = rows["at"].cast(pa.int64()).to_numpy()
    user, side, distance, lots = (shares(SEED, salt, number) for salt in range(4))
    base, phase = (shares(SEED, salt, stock) for salt in (4, 5))
    middle = (500 + 19_500 * base) * (1 + 0.05 * np.sin(2 * np.pi * (at_us / _WAVE_US + phase)))
    buys = side < 0.5
    worse = (distance - 0.25) * 0.02 * middle
    price = np.maximum(1, np.rint(np.where(buys, middle - worse, middle + worse))).astype(np.int64)
    columns = {
        "at": rows["at"],
        "order": rows["value"],
        "stock": rows["key"],
        "user": pa.array((user * USERS).astype(np.int64)),
        "side": pa.array(["buy", "sell"]).take(pa.array(np.where(buys, 0, 1))),
        "price": pa.array(price),
        "quantity": pa.array(LOT * (1 + np.floor(9 * lots * lots)).astype(np.int64)),
    }
    return pa.record_batch(columns)


@dataclass(frozen=True, slots=True)
class Resting:
    """An order in a book, with its remaining quantity."""

    order: int
    at_us: int
    user: int
    price: int
    quantity: int


@dataclass(frozen=True, slots=True)
class Trade:
    """A trade, at the price of the order that was in the book."""

    at_us: int
    stock: int
    price: int
    quantity: int
    cents: int
    buyer: int
    seller: int
    buy_order: int
    sell_order: int


def trades_of(given: Iterable[Mapping[str, Any]], alive_us: int = ALIVE_US) -> list[Trade]:
    """All trades: the best price first, then the oldest order.

    Each order takes the best prices of the other side, as far as its limit allows. Orders are
    processed by (`at`, `order`); `at` is in microseconds.
    """
    books: dict[tuple[int, str], list[Resting]] = {}
    trades = []
    for new in sorted(given, key=lambda each: (each["at"], each["order"])):
        stock, buys, left = new["stock"], new["side"] == "buy", new["quantity"]
        other = (stock, "sell" if buys else "buy")
        books[other] = [each for each in books.get(other, []) if each.at_us + alive_us > new["at"]]
        while left:
            met = [
                each
                for each in books[other]
                if (each.price <= new["price"] if buys else each.price >= new["price"])
            ]
            if not met:
                books.setdefault((stock, new["side"]), []).append(
                    Resting(new["order"], new["at"], new["user"], new["price"], left)
                )
                break
            best = min(
                met, key=lambda each: (each.price if buys else -each.price, each.at_us, each.order)
            )
            quantity = min(left, best.quantity)
            cash = best.price * quantity
            buyer, seller = ((new["user"], new["order"]), (best.user, best.order))[
                :: 1 if buys else -1
            ]
            trades.append(
                Trade(
                    new["at"],
                    stock,
                    best.price,
                    quantity,
                    cash,
                    buyer[0],
                    seller[0],
                    buyer[1],
                    seller[1],
                )
            )
            left -= quantity
            place = books[other].index(best)
            books[other][place : place + 1] = (
                [replace(best, quantity=best.quantity - quantity)]
                if best.quantity > quantity
                else []
            )
    return trades

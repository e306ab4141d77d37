"""The references of the examples with state: cases by hand, and what must hold for any rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from anabranch.testing.compare import records
from anabranch.testing.exchange import ALIVE_US, Trade, orders, trades_of
from anabranch.testing.payments import Alert, alerts_of, payments
from anabranch.testing.visits import Visit, views, visits_of
from anabranch.workloads import Workload, constant, hot_spot, zipf

SECOND, MINUTE = 1_000_000, 60_000_000


def order(
    number: int, side: str, price: int, quantity: int, *, stock: int = 1, at: int | None = None
) -> dict[str, Any]:
    return {
        "at": number if at is None else at,
        "order": number,
        "stock": stock,
        "user": 100 + number,
        "side": side,
        "price": price,
        "quantity": quantity,
    }


def brief(trades: list[Trade]) -> list[tuple[int, int, int, int]]:
    return [(each.buy_order, each.sell_order, each.price, each.quantity) for each in trades]


def test_the_best_price_trades_first_and_then_the_oldest_order() -> None:
    book = [
        order(1, "sell", 12, 5),
        order(2, "sell", 10, 5),
        order(3, "sell", 10, 5),
        order(4, "sell", 11, 5),
    ]
    assert brief(trades_of([*book, order(5, "buy", 11, 12)])) == [
        (5, 2, 10, 5),
        (5, 3, 10, 5),
        (5, 4, 11, 2),
    ]
    book = [order(1, "buy", 9, 5), order(2, "buy", 11, 5), order(3, "buy", 11, 5)]
    assert brief(trades_of([*book, order(4, "sell", 10, 7)])) == [(2, 4, 11, 5), (3, 4, 11, 2)]


def test_what_is_left_of_an_order_rests_and_keeps_its_place() -> None:
    given = [
        order(1, "buy", 10, 8),
        order(2, "buy", 10, 8),
        order(3, "sell", 10, 3),
        order(4, "sell", 9, 20),
        order(5, "buy", 9, 1),
    ]
    assert brief(trades_of(given)) == [(1, 3, 10, 3), (1, 4, 10, 5), (2, 4, 10, 8), (5, 4, 9, 1)]


def test_orders_trade_within_their_stock_and_limit_and_while_they_live() -> None:
    assert (
        trades_of([order(1, "sell", 10, 5), order(2, "buy", 9, 5), order(3, "buy", 10, 5, stock=2)])
        == []
    )
    old = order(1, "sell", 10, 5, at=0)
    assert trades_of([old, order(2, "buy", 10, 5, at=ALIVE_US)]) == []
    [trade] = trades_of([order(2, "buy", 10, 4, at=ALIVE_US - 1), old])
    assert trade == Trade(ALIVE_US - 1, 1, 10, 4, 40, 102, 101, 2, 1)


def test_made_up_orders_trade_and_nothing_is_traded_twice() -> None:
    load = Workload(
        rate=constant(100), keys=hot_spot(30, 0.4, every="30 seconds"), lasting="2 minutes", seed=1
    )
    given = records(pa.Table.from_batches([orders(load.batch(0, load.total))]))
    trades = trades_of(given)
    by_number = {each["order"]: each for each in given}
    assert 0.1 * len(given) < len(trades) < len(given)
    traded: Counter[int] = Counter()
    for each in trades:
        buy, sell = by_number[each.buy_order], by_number[each.sell_order]
        assert (buy["side"], sell["side"], buy["stock"], sell["stock"]) == (
            "buy",
            "sell",
            each.stock,
            each.stock,
        )
        assert (buy["user"], sell["user"]) == (each.buyer, each.seller)
        assert sell["price"] <= each.price <= buy["price"]
        assert each.at_us == max(buy["at"], sell["at"]) < min(buy["at"], sell["at"]) + ALIVE_US
        traded.update({each.buy_order: each.quantity, each.sell_order: each.quantity})
    assert all(quantity <= by_number[number]["quantity"] for number, quantity in traded.items())


def pay(at_s: float, cents: int, *, card: int = 1, kind: str = "payment") -> dict[str, Any]:
    return {
        "at": round(at_s * SECOND),
        "number": round(at_s),
        "card": card,
        "kind": kind,
        "cents": cents,
    }


def confirm(at_s: float, *, card: int = 1) -> dict[str, Any]:
    return pay(at_s, 0, card=card, kind="confirmation")


def rules(*rows: dict[str, Any]) -> list[tuple[float, str]]:
    return [(each.at_us / SECOND, each.rule) for each in alerts_of(rows)]


def test_small_payments_and_then_a_large_one_are_an_alert() -> None:
    small = [pay(at, 50) for at in (1, 2, 3)]
    assert rules(*small, pay(9, 50_000), confirm(20)) == [(9, "probing")]
    assert rules(*small[1:], pay(9, 50_000), confirm(20)) == [], "two are not enough"
    assert rules(*small, pay(9, 49_999)) == []
    assert rules(*small, pay(601, 60_000), confirm(602)) == [], "the first one was ten minutes ago"
    assert rules(*small, pay(600, 60_000), confirm(602)) == [(600, "probing")]
    assert rules(*small, pay(9, 50_000), pay(10, 50_000), confirm(20)) == [(9, "probing")], (
        "small ones count once"
    )
    assert rules(*small, pay(9, 50_000, card=2), confirm(20, card=2)) == []


def test_a_large_payment_that_nobody_confirms_is_an_alert_when_time_is_over() -> None:
    assert rules(pay(5, 70_000)) == [(65, "unconfirmed")]
    assert rules(pay(5, 70_000), confirm(64)) == []
    assert rules(pay(5, 70_000), confirm(65)) == [(65, "unconfirmed")]
    assert rules(confirm(4), pay(5, 70_000), confirm(6, card=2)) == [(65, "unconfirmed")]
    assert rules(pay(5, 70_000), pay(30, 80_000), confirm(70)) == [(65, "unconfirmed")], (
        "it confirms what still waits"
    )
    assert alerts_of([pay(5, 70_000)]) == [Alert(65 * SECOND, 1, "unconfirmed", 5, 70_000)]


def test_made_up_payments_lead_to_alerts_of_both_rules() -> None:
    load = Workload(rate=constant(20), keys=zipf(60, 0.5), lasting="20 minutes", seed=1)
    given = records(pa.Table.from_batches([payments(load.batch(0, load.total))]))
    found = Counter(each.rule for each in alerts_of(given))
    assert min(found["probing"], found["unconfirmed"]) > 20
    large = sum(each["cents"] >= 50_000 for each in given)
    assert found["probing"] + found["unconfirmed"] < 2 * large
    assert found["unconfirmed"] < large, "some are confirmed"


@pytest.mark.parametrize(("apart", "visits"), [(30 * SECOND - 1, 1), (30 * SECOND, 2)])
def test_a_visit_ends_when_a_user_has_done_nothing_for_the_gap(apart: int, visits: int) -> None:
    rows = [{"at": at, "number": at, "user": 1, "page": "home"} for at in (0, apart)]
    assert len(visits_of(rows, 30 * SECOND)) == visits


def test_a_visit_has_its_pages_in_the_order_of_time() -> None:
    pages = [(5, "help"), (0, "home"), (9, "basket"), (7, "help")]
    rows = [{"at": at, "number": at, "user": 3, "page": page} for at, page in pages]
    other = {"at": 6, "number": 6, "user": 4, "page": "search"}
    assert visits_of([*rows, other], 10) == [
        Visit(3, 0, 19, 4, 3, "home", "basket"),
        Visit(4, 6, 16, 1, 1, "search", "search"),
    ]


def test_made_up_views_make_visits_of_all_lengths() -> None:
    load = Workload(rate=constant(20), keys=zipf(300, 0.7), lasting="10 minutes", seed=1)
    given = records(pa.Table.from_batches([views(load.batch(0, load.total))]))
    lengths = [each.views for each in visits_of(given)]
    assert sum(lengths) == len(given)
    assert min(lengths) == 1
    assert max(lengths) > 5
    assert len(lengths) > 1_000

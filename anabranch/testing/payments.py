"""Payments by card, and two rules that detect fraud, computed per card over all rows at once.

- "probing": at least `PROBES` small payments, then a large one, within `WITHIN_US`. A small payment
counts for one alert only.
- "unconfirmed": a large payment that nobody confirms within `CONFIRM_US`. The alert happens then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.workloads.draws import shares

SMALL, LARGE = 100, 50_000  # cents: below the first is small, from the second on large
PROBES, WITHIN_US = 3, 10 * 60 * 1_000_000
CONFIRM_US = 60 * 1_000_000
SEED = 17
KINDS = ("payment", "confirmation")


def payments(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Payments and confirmations from the rows of a workload: the key is the card.

    One card in eight makes mostly small payments.
    """
    number, card = rows["value"].to_numpy(), rows["key"].to_numpy()
    kind, size, amount = (shares(SEED, salt, number) for salt in range(3))
    probes = shares(SEED, 3, card) < 1 / 8
    small, large = size < np.where(probes, 0.6, 0.05), size > 0.9
    cents = np.where(
        small, 1 + 99 * amount, np.where(large, LARGE + 100_000 * amount, SMALL + 20_000 * amount)
    )
    confirms = kind < 0.25
    columns = {
        "at": rows["at"],
        "number": rows["value"],
        "card": rows["key"],
        "kind": pa.array(KINDS).take(pa.array(np.where(confirms, 1, 0))),
        "cents": pa.array(np.where(confirms, 0, np.floor(cents)).astype(np.int64)),
    }
    return pa.record_batch(columns)


@dataclass(frozen=True, slots=True)
class Alert:
    """What is wrong with a card, when, and the payment that it is about."""

    at_us: int
    card: int
    rule: str
    number: int
    cents: int


def alerts_of(given: Iterable[Mapping[str, Any]]) -> list[Alert]:
    """The alerts of all cards, computed from all rows; `at` is in microseconds.

    A confirmation confirms all payments that wait for one.
    """
    rows = sorted(given, key=lambda each: (each["at"], each["number"]))
    alerts = []
    for card in sorted({each["card"] for each in rows}):
        of_card = [each for each in rows if each["card"] == card]
        counted_us = -1  # small payments up to here have led to an alert
        for row in of_card:
            if row["kind"] != "payment" or row["cents"] < LARGE:
                continue
            at_us = row["at"]
            small = [
                each
                for each in of_card
                if each["kind"] == "payment"
                and each["cents"] < SMALL
                and max(counted_us, at_us - WITHIN_US) < each["at"] < at_us
            ]
            if len(small) >= PROBES:
                counted_us = at_us
                alerts.append(Alert(at_us, card, "probing", row["number"], row["cents"]))
            if not any(
                each["kind"] == "confirmation" and 0 < each["at"] - at_us < CONFIRM_US
                for each in of_card
            ):
                alerts.append(
                    Alert(at_us + CONFIRM_US, card, "unconfirmed", row["number"], row["cents"])
                )
    return alerts

"""Workloads as values: how many rows per second, with which keys.

Each row is a function of the seed and its number alone.

The streaming source (`spark/workload.py`), the lab's simulator and references read the same rows
from here: no clock, no Spark. What turns them into DataFrames is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from anabranch.workloads.keys import Keys, hot_spot, uniform, zipf
from anabranch.workloads.rates import Rate, constant, erratic, progressive, sine, stepped
from anabranch.workloads.rows import Workload

if TYPE_CHECKING:
    from anabranch.spark.workload import backlog, static, stream

__all__ = [
    "Keys",
    "Rate",
    "Workload",
    "backlog",
    "constant",
    "erratic",
    "hot_spot",
    "progressive",
    "sine",
    "static",
    "stepped",
    "stream",
    "uniform",
    "zipf",
]

_OF_SPARK = ("backlog", "static", "stream")


def __getattr__(name: str) -> object:
    if name not in _OF_SPARK:
        raise AttributeError(f"module 'anabranch.workloads' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module("anabranch.spark.workload"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

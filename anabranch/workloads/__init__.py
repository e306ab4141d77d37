"""Made-up input for tests and measurements: how many rows per second, with which keys.

A workload is a value. Each row depends only on the seed and its number, so the same seed gives the
same rows. The streaming source, the lab's simulator and reference results all use these rows. Only
`stream`, `static` and `backlog` need Spark, which is imported when they are first used.
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

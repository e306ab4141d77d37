"""Workloads as values: how many rows per second, with which keys.

Each row is a function of the seed and its number alone.

The streaming source (`spark/workload.py`), the lab's simulator and references read the same rows
from here: no clock, no Spark.
"""

from anabranch.workloads.keys import Keys, hot_spot, uniform, zipf
from anabranch.workloads.rates import Rate, constant, erratic, progressive, sine, stepped
from anabranch.workloads.rows import Workload

__all__ = [
    "Keys",
    "Rate",
    "Workload",
    "constant",
    "erratic",
    "hot_spot",
    "progressive",
    "sine",
    "stepped",
    "uniform",
    "zipf",
]

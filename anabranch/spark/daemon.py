"""Spark's Python daemon with Anabranch loaded: forked workers need not load it, a second each.

`ab.spark_session()` sets it: spark.python.daemon.module=anabranch.spark.daemon
"""

from pyspark.daemon import manager

import anabranch.runtime.slot  # noqa: F401 - for those that are forked
from anabranch.runtime.worker import settle
from anabranch.spark.versions import keep_import_caches

if __name__ == "__main__":
    keep_import_caches()
    settle()
    manager()

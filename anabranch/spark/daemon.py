"""Spark's Python daemon with Anabranch loaded. It saves each forked worker a second of loading.

`ab.spark_session()` sets it: spark.python.daemon.module=anabranch.spark.daemon
"""

from pyspark.daemon import manager

import anabranch.runtime.slot  # noqa: F401 - for the workers that are forked
from anabranch.runtime.worker import settle
from anabranch.spark.versions import keep_import_caches

if __name__ == "__main__":
    keep_import_caches()
    settle()
    manager()

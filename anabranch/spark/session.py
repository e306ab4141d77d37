"""A Spark session on this machine alone: no network, no web page, files below one directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

Session: TypeAlias = SparkSession
"""For those who may not import pyspark."""

# Options for a JVM that lives for minutes: compile little, collect garbage simply.
SHORT_LIVED = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
}


def local_session(
    name: str, directory: str | Path, *, cores: int = 2, options: Mapping[str, str] | None = None
) -> SparkSession:
    """A session of its own process, with Python workers that run this Python."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    root = Path(directory).absolute()
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(root / "local"),
        "spark.log.level": "OFF",
        "spark.python.daemon.module": "anabranch.spark.daemon",
        # Nothing leaves the machine: rows go to exchanges uncompressed, in blocks, not one by one.
        "spark.shuffle.compress": "false",
        "spark.shuffle.sort.bypassMergeThreshold": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in {**settings, **(options or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _without_checksums(session)
    return session


def _without_checksums(session: SparkSession) -> None:
    """Turns off Hadoop's files with checksums: three per batch in Spark's checkpoint, 4 ms each."""
    jvm: Any = session._jvm
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(
        session.sparkContext._jsc.hadoopConfiguration()
    )
    local.setWriteChecksum(False)

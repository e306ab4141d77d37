"""A Spark session with the settings that make a run fast and safe, on this machine or a cluster."""

from __future__ import annotations

import itertools
import logging
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from anabranch.errors import TopologyError
from anabranch.spark.jvm import without_checksums
from anabranch.spark.settings import CHECKSUMS, OURS, SETTINGS, Scope, Setting, settings_in

Session: TypeAlias = SparkSession
"""For modules that must not import pyspark."""

# Settings for a JVM that runs for minutes only: little compilation, simple garbage collection.
SHORT_LIVED = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
}
_LEAST_GB, _MOST_GB = 1, 4
_log = logging.getLogger("anabranch")
_said: set[str] = set()  # the applications for which a line was printed


def spark_session(
    name: str = "anabranch",
    *,
    master: str | None = None,
    cores: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session with the settings that make a run fast and safe.

    If a session runs already, it is returned as it is, with those of `settings` that can still
    change. With a local master, Python workers run the Python of this program.

    - name: the name of the application.
    - master: as in Spark; by default what spark-submit was given, else this machine, "local[*]".
    - cores: how many cores to use; by default all.
    - directory: for Spark's own files; by default Spark chooses.
    - settings: of Spark, in addition to ours; they override ours. On this machine the driver's
      memory is a quarter of all memory, 1 to 4 GB, unless "spark.driver.memory" is set.

    Raises a `TopologyError` if an argument is not valid.
    """
    given = _checked(master, cores, settings)
    builder = SparkSession.builder.appName(name)
    if SparkContext._active_spark_context is None:
        chosen = master or _submitted().get("spark.master") or f"local[{cores or '*'}]"
        own = _local(chosen, directory) if is_local(chosen) else _on_cluster(chosen, cores)
        given = {**own, **_submitted(), **given}
    for key, value in given.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if _is_ours(session) and is_local(session.sparkContext.master):
        without_checksums(session)
    return session


def missing_settings(session: SparkSession) -> list[Setting]:
    """The missing settings that cost something; none in a session of `spark_session()`."""
    if _is_ours(session):
        return []
    context = session.sparkContext
    scopes = {Scope.SESSION, Scope.LOCAL if is_local(context.master) else Scope.CLUSTER}
    conf = context.getConf()
    return [
        each
        for each in SETTINGS
        if each.cost and each.scope in scopes and conf.get(each.name) != each.value
    ]


def missing_text(missing: list[Setting]) -> str:
    """The settings that a session lacks, in one line."""
    listed = "; ".join(
        f"{each.name if each.name == CHECKSUMS else f'{each.name}={each.value}'} ({each.cost})"
        for each in missing
    )
    return (
        f"this Spark session lacks {len(missing)} settings of ab.spark_session(), which would make "
        f"the run faster or safer: {listed}"
    )


def say_once(session: SparkSession, text: str) -> None:
    """Logs a line, once per session."""
    application = session.sparkContext.applicationId
    if application not in _said:
        _said.add(application)
        _log.warning(text)


def _checked(master: object, cores: object, settings: Mapping[str, str] | None) -> dict[str, str]:
    if master is not None and (not isinstance(master, str) or not master.strip()):
        raise TopologyError(
            f'master={master!r}; valid: "local[4]", "spark://host:7077", "yarn", "k8s://..."'
        )
    if cores is not None and (not isinstance(cores, int) or isinstance(cores, bool) or cores < 1):
        raise TopologyError(f"cores={cores!r}; valid: 1 or more")
    if settings is not None and not isinstance(settings, Mapping):
        raise TopologyError(
            f'settings={settings!r}; valid: a dict such as {{"spark.driver.memory": "4g"}}'
        )
    given = {str(key): str(value) for key, value in (settings or {}).items()}
    if wrong := [key for key in given if not key.startswith("spark.")]:
        raise TopologyError(f"settings has {wrong[0]!r}; valid: names that begin with spark.")
    return given


def _local(master: str, directory: str | os.PathLike[str] | None) -> dict[str, str]:
    """The settings on this machine. Python workers run this Python."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    found = {"spark.master": master, "spark.driver.memory": f"{_heap_gb()}g"}
    if directory is not None:
        root = Path(directory).absolute()
        found["spark.local.dir"] = str(root / "local")
        found["spark.sql.warehouse.dir"] = str(root / "warehouse")
    return {**found, **settings_in(Scope.SESSION, Scope.LOCAL)}


def _on_cluster(master: str, cores: int | None) -> dict[str, str]:
    found = {"spark.master": master, **settings_in(Scope.SESSION, Scope.CLUSTER)}
    return found if cores is None else {**found, "spark.cores.max": str(cores)}


def _submitted() -> dict[str, str]:
    """The settings from spark-submit or PYSPARK_SUBMIT_ARGS. They override ours."""
    found = {}
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started this process
        found = dict(SparkConf().getAll())
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for word, value in itertools.pairwise(words):
        if word in {"--conf", "-c"} and "=" in value:
            key, _, found[key] = value.partition("=")
        elif word in _SHORT_OPTIONS:
            found[_SHORT_OPTIONS[word]] = value
    return found


_SHORT_OPTIONS = {
    "--master": "spark.master",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}


def is_local(master: str | None) -> bool:
    """Whether Spark runs in one process of this machine."""
    return master is not None and (master == "local" or master.startswith("local["))


def _is_ours(session: SparkSession) -> bool:
    return session.sparkContext.getConf().get(OURS) == "true"


def _heap_gb() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_LEAST_GB, min(_MOST_GB, (total >> 30) // 4))

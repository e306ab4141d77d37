"""The one Spark session that all tests share, and the order of tests: pure ones first, so that they fail in seconds."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# Every run tries the same examples, and none fails because the machine is slow.
settings.register_profile(
    "anabranch",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("anabranch")


# Spark 4.1 leaves the sockets of collected rows to the garbage collector.
_SOCKETS = r"ignore:unclosed <socket\.socket .*laddr=\('127\.0\.0\.1':ResourceWarning"


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings that only Spark 4.1 gives; every other warning is an error."""
    if version("pyspark").startswith("4.1."):
        config.addinivalue_line("filterwarnings", _SOCKETS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the `spark` fixture, before `-m` chooses, and put it last."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two cores that needs no network and writes below a temporary directory only."""
    from anabranch.spark.session import SHORT_LIVED, spark_session

    settings = {**SHORT_LIVED, "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}
    directory = tmp_path_factory.mktemp("spark")
    session = spark_session("anabranch-tests", cores=2, directory=directory, settings=settings)
    yield session
    session.stop()

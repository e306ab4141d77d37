"""Native Spark's queries in these tests start no `chmod` process per checkpoint file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def quick_checkpoints(request: pytest.FixtureRequest) -> Iterator[None]:
    """The file manager of Anabranch's own queries, in tests that use Spark."""
    if "spark" not in request.fixturenames:
        yield
        return
    from anabranch.spark.tuning import LOCAL_QUERY

    conf = request.getfixturevalue("spark").conf
    for name, value in LOCAL_QUERY.items():
        conf.set(name, value)
    yield
    for name in LOCAL_QUERY:
        conf.unset(name)

"""Names of columns in any case mean one column, or are refused."""

from __future__ import annotations

import pytest

from anabranch.errors import TopologyError
from anabranch.topology.columns import own_name, own_names


def test_a_name_in_any_case_is_that_of_the_column() -> None:
    assert own_names(["PAGE", "user"], ["page", "User"]) == ["page", "User"]
    assert own_names("Page", ["page"]) == "page"
    assert own_name("page", ["page"]) == "page"


def test_a_name_that_is_no_column_stays_as_it_is() -> None:
    assert own_names(["city", 5], ["page"]) == ["city", 5]
    assert own_names(5, ["page"]) == 5
    assert own_names(None, ["page"]) is None


def test_case_counts_where_spark_says_so() -> None:
    assert own_name("Page", ["page"], any_case=False) == "Page"
    assert own_name("Page", ["page", "Page"], any_case=False) == "Page"


def test_a_name_that_means_two_columns_is_refused() -> None:
    with pytest.raises(TopologyError, match="column 'page' is ambiguous: the rows have page, Page"):
        own_name("page", ["page", "Page"])

"""One hierarchy of errors, and the sentence for a value that is not valid."""

from __future__ import annotations

import pytest

from anabranch import errors
from anabranch.errors import AnabranchError, StateError, unknown


def test_all_errors_are_of_one_hierarchy() -> None:
    found = [
        each
        for each in vars(errors).values()
        if getattr(each, "__module__", "") == errors.__name__ and isinstance(each, type)
    ]
    assert len(found) > 5
    assert all(issubclass(each, AnabranchError) for each in found)


@pytest.mark.parametrize("name", ["StateFullError", "ShardHeldError", "FencedError"])
def test_what_can_go_wrong_with_a_shard_is_an_error_of_state(name: str) -> None:
    assert issubclass(getattr(errors, name), StateError)


def test_a_value_that_is_not_valid_is_named_with_those_that_are() -> None:
    assert unknown("how", "cross", ("inner", "left")) == "unknown how 'cross'; valid: inner, left"
    assert unknown("column", "x", []) == "unknown column 'x'; valid: none"

"""One hierarchy of errors, and the sentence for a value that is not valid."""

from __future__ import annotations

import pytest

from anabranch import errors
from anabranch.errors import AnabranchError, StateError, place_in, place_of, unknown


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


def test_the_place_of_an_error_is_the_innermost_line_of_the_users_code() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("x")
    place = place_of(caught.value)
    assert place.startswith(f" (at {__file__}:")
    assert place.endswith("innermost_line_of_the_users_code)")
    inside = [
        (errors.__file__, 3, "unknown"),
        ("/opt/other/anabranch/runtime/slot.py", 5, "run"),
        ("/opt/lib/python3.11/site-packages/numpy/core.py", 7, "divide"),
        ("<frozen importlib>", 1, "load"),
    ]
    assert place_in(inside) == ""
    assert place_in([("/home/ann/anabranch/job.py", 9, "f"), *inside]) == (
        " (at /home/ann/anabranch/job.py:9 in f)"
    )

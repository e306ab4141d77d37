"""The aggregates as users call them: named as in pyspark, checked when they are written."""

from __future__ import annotations

import inspect

import pytest

from anabranch.aggregates import functions as f
from anabranch.aggregates.specs import Aggregate
from anabranch.errors import TopologyError

ALL = {
    name: fn
    for name, fn in vars(f).items()
    if inspect.isfunction(fn) and fn.__module__ == f.__name__ and not name.startswith("_")
}


def called(name: str, **more: object) -> Aggregate:
    """An aggregate over columns x and y, as many as it takes."""
    parameters = inspect.signature(ALL[name]).parameters
    given = {"expression": "x", "by": "y", "k": 3, "q": 0.5, "time": "y"}
    needed = [
        given.get(each.name, "y")
        for each in parameters.values()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    made = ALL[name](*needed, **more)
    assert isinstance(made, Aggregate)
    return made


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_function_makes_an_aggregate_that_keeps_its_filter(name: str) -> None:
    assert called(name).where is None
    assert called(name, where="x > 0").where == "x > 0"


def test_a_count_of_all_rows_is_written_in_two_ways() -> None:
    assert f.count("*") == f.count() != f.count("x")


def test_synonyms_are_the_same_aggregate() -> None:
    assert f.every("x") == f.bool_and("x")
    assert f.some("x") == f.bool_or("x")


def test_a_parameter_out_of_range_is_refused_when_it_is_written() -> None:
    for wrong in (lambda: f.quantile("x", 1.5), lambda: f.top_k("x", 0)):
        with pytest.raises(TopologyError, match="valid"):
            wrong()

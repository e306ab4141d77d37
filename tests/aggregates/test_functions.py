"""The functions that users call: one list names them, and each makes an aggregate of its kind."""

from __future__ import annotations

import inspect

import pytest

import anabranch
from anabranch import topology
from anabranch.aggregates import functions
from anabranch.aggregates.specs import Aggregate
from anabranch.errors import TopologyError

ARGUMENTS = {"max_by": ("v", "w"), "min_by": ("v", "w"), "quantile": ("v", 0.5)}


def test_the_list_names_every_function_of_the_module() -> None:
    made_here = {
        name
        for name, each in vars(functions).items()
        if inspect.isfunction(each) and each.__module__ == functions.__name__
    }
    assert set(functions.__all__) == made_here


def test_the_package_and_the_topology_export_what_the_list_names() -> None:
    for module in (anabranch, topology):
        assert {*functions.__all__} <= {*module.__all__}
        assert len({*module.__all__}) == len(module.__all__)
        for name in functions.__all__:
            assert getattr(module, name) is getattr(functions, name)


@pytest.mark.parametrize("name", functions.__all__)
def test_a_function_makes_an_aggregate_of_its_kind_with_its_condition(name: str) -> None:
    made = getattr(functions, name)(*ARGUMENTS.get(name, ("v",)), where="v > 0")
    assert isinstance(made, Aggregate)
    assert (made.kind, made.where) == (name, "v > 0")


def test_count_of_a_star_counts_rows() -> None:
    assert functions.count("*") == functions.count() == functions.count(None)


def test_parameters_distinguish_aggregates_of_one_kind() -> None:
    assert functions.top_k("v", 3).parameters == {"k": 3, "keep": 1000}
    assert functions.quantile("v", [0.5, 0.9]).parameters == {"q": (0.5, 0.9), "k": 200}
    assert functions.sum("v").parameters == {}


def test_a_parameter_out_of_range_is_refused_when_it_is_written() -> None:
    for wrong in (lambda: functions.quantile("x", 1.5), lambda: functions.top_k("x", 0)):
        with pytest.raises(TopologyError, match="valid"):
            wrong()

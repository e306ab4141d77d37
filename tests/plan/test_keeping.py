"""Inputs and partials that several aggregates need are kept once."""

from __future__ import annotations

from anabranch.aggregates.functions import avg, count, max, max_by, sum
from anabranch.plan.keeping import each_of, keep
from anabranch.topology import Aggregate
from anabranch.topology.graph import Named


def named(**aggregates: Aggregate) -> list[Named]:
    return [Named(name=n, aggregate=a, input_type="double") for n, a in aggregates.items()]


def test_what_two_aggregates_need_is_kept_once_and_rows_are_always_counted() -> None:
    inputs, kept, results = keep(named(total=sum("v"), mean=avg("v"), some=sum("v", where="v > 0")))
    assert list(map(str, inputs)) == ["*", "v", "v where v > 0"]
    kinds = [(type(each.partial).__name__, each.input) for each in kept]
    assert kinds == [("Count", 0), ("Total", 1), ("Count", 1), ("Total", 2), ("Count", 2)]
    assert [each.kept for each in results] == [(1, 2), (1, 2), (3, 4)]
    assert [each.columns.start for each in kept] == [0, *(each.columns.stop for each in kept[:-1])]


def test_only_the_very_same_object_is_one_input_where_it_is_no_text() -> None:
    class Column:
        """Compares like a Spark Column: == makes an expression, which is never False."""

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    one = Column()
    inputs, _, _ = keep(named(a=sum(one), b=max(one), c=max(Column())))
    assert len(inputs) == 3


def test_a_struct_of_expressions_is_another_input_than_one_of_them() -> None:
    pair = Named(name="b", aggregate=max_by("v", "w"), input_type="struct<a0:double,a1:double>")
    inputs, _, _ = keep([*named(a=max("v")), pair])
    assert [each_of(each.expression) for each in inputs[1:]] == [("v",), ("v", "w")]


def test_expressions_stay_with_the_driver() -> None:
    _, _, [result, _] = keep(named(total=sum("v", where="v > 0"), n=count()))
    assert (result.named.aggregate.expression, result.named.aggregate.where) == (None, None)

"""What is stored for a set of aggregates: inputs, partials, and which of them each result needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.aggregates.partials import Count
from anabranch.plan.operators.base import KeptPartial, PartialInput, ResultColumn
from anabranch.topology.graph import Named
from anabranch.types import column_type


def keep(
    aggregates: Sequence[Named],
) -> tuple[tuple[PartialInput, ...], tuple[KeptPartial, ...], tuple[ResultColumn, ...]]:
    """Each distinct input and each distinct partial once.

    The first partial counts all rows, and so says whether a key has rows.
    """
    inputs = [PartialInput(expression=None, where=None)]
    kept = [KeptPartial(partial=Count("bigint"), input=0, columns=slice(0, 1))]
    results = []
    for named in aggregates:
        wanted = PartialInput(
            expression=named.aggregate.expression,
            where=named.aggregate.where,
            type=named.input_type,
        )
        index = next((i for i, each in enumerate(inputs) if _same(each, wanted)), len(inputs))
        inputs += [wanted] if index == len(inputs) else []
        numbers = []
        for partial in named.aggregate.partials(named.input_type):
            number = next(
                (i for i, k in enumerate(kept) if k.partial == partial and k.input == index),
                len(kept),
            )
            if number == len(kept):
                start = kept[-1].columns.stop
                kept.append(
                    KeptPartial(
                        partial=partial,
                        input=index,
                        columns=slice(start, start + len(partial.columns)),
                    )
                )
            numbers.append(number)
        column_type(named.aggregate.result_type(named.input_type))
        # The expression is left out: a Spark Column cannot be sent to a task.
        bare = replace(named, aggregate=replace(named.aggregate, expression=None, where=None))
        results.append(ResultColumn(named=bare, kept=tuple(numbers)))
    return tuple(inputs), tuple(kept), tuple(results)


def _same(left: PartialInput, right: PartialInput) -> bool:
    """Whether two inputs are the same: equal text, or the very same Spark Column object.

    `==` of two Columns is no comparison. A struct of one expression is not that expression.
    """
    mine, other = ((*each_of(given.expression), given.where) for given in (left, right))
    alike = isinstance(left.expression, tuple) == isinstance(right.expression, tuple) and len(
        mine
    ) == len(other)
    return alike and all(
        a is b or (isinstance(a, str) and isinstance(b, str) and a == b)
        for a, b in zip(mine, other, strict=True)
    )


def each_of(expression: object) -> tuple[object, ...]:
    """The expressions of an input."""
    return expression if isinstance(expression, tuple) else (expression,)

"""Which partials continue when aggregates change, and under which ids."""

from __future__ import annotations

import itertools

import msgspec

from anabranch.plan.operators.noted import NotedPartial, begun_partials, continued_partials

COUNT = NotedPartial(kind="Count", type="bigint", input="*")
TOTAL = NotedPartial(kind="Total", type="double", input="v")
FILTERED = NotedPartial(kind="Total", type="double", input="v where v > 0")
SKETCH = NotedPartial(kind="Hll", type="double", input="v", parameters={"lg_k": 12})
COLUMN = NotedPartial(kind="Total", type="double", input="Column<'f(v)'>", only_of=("a = sum",))


def ids(partials: tuple[NotedPartial, ...]) -> list[str]:
    return [each.id for each in partials]


def test_each_partial_has_an_id_of_its_own_that_depends_on_what_it_is_of() -> None:
    wanted = [COUNT, TOTAL, FILTERED, SKETCH, COLUMN, TOTAL]
    found = ids(begun_partials(wanted, 0))
    assert len(set(found)) == len(wanted)
    assert ids(begun_partials([TOTAL, COUNT], 0)) == [found[1], found[0]]
    other = [
        msgspec.structs.replace(SKETCH, parameters={"lg_k": 13}),
        msgspec.structs.replace(COLUMN, only_of=("b = sum",)),
    ]
    assert not set(ids(begun_partials(other, 0))) & set(found)


def test_kept_partials_continue_and_new_ones_begin_after_the_step() -> None:
    old = begun_partials([COUNT, TOTAL, SKETCH], 0)
    found = continued_partials(old, [COUNT, FILTERED, SKETCH], 7, lambda number: 100 + number)
    assert [found.partials[0], found.partials[2]] == [old[0], old[2]]
    assert (found.partials[1].complete_from, found.partials[1].id[-2:]) == (101, "@7")
    assert found.begun == {1}


def test_a_partial_that_was_dropped_and_comes_back_starts_empty_even_without_a_step_between() -> (
    None
):
    first = begun_partials([COUNT, TOTAL], 0)
    digest, _, _ = first[1].id.partition("@")
    found = []
    for step in (5, 5, 9):
        without = continued_partials(first, [COUNT], step, lambda _: None).partials
        again = continued_partials(without, [COUNT, TOTAL], step, lambda _: 1)
        assert again.begun == {1}
        found.append(again.partials[1].id)
    assert found == [f"{digest}@5", f"{digest}@5", f"{digest}@9"]


def test_a_partial_that_must_start_empty_gets_another_id() -> None:
    old = begun_partials([COUNT, TOTAL], 3)
    found = continued_partials(old, [COUNT, TOTAL], 3, lambda _: 4, renewed=[1])
    assert found.begun == {1}
    assert found.partials[1].id not in ids(old)


def test_parameters_type_and_filter_tell_partials_apart() -> None:
    every = [
        TOTAL,
        FILTERED,
        SKETCH,
        msgspec.structs.replace(TOTAL, type="bigint"),
        msgspec.structs.replace(TOTAL, kind="Least"),
        msgspec.structs.replace(SKETCH, parameters={"lg_k": 13}),
        COLUMN,
    ]
    for one, other in itertools.product(every, every):
        assert one.continues(other) == (one is other)


def test_a_partial_of_a_spark_column_continues_only_for_the_same_aggregate() -> None:
    both = msgspec.structs.replace(COLUMN, only_of=("a = sum", "b = avg"))
    renamed = msgspec.structs.replace(COLUMN, only_of=("c = sum",))
    old = begun_partials([COUNT, both], 0)
    assert continued_partials(old, [COUNT, COLUMN], 1, lambda _: 2).begun == frozenset()
    assert continued_partials(old, [COUNT, renamed], 1, lambda _: 2).begun == {1}
    # Two Columns with one text may be two functions: one of them continues, with its own state.
    other = msgspec.structs.replace(COLUMN, only_of=("b = sum",))
    two = begun_partials([COUNT, COLUMN, other], 0)
    assert ids(continued_partials(two, [COUNT, other], 1, lambda _: 2).partials) == [
        two[0].id,
        two[2].id,
    ]

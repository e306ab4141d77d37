"""Rows for several operators share the columns of one exchange."""

from __future__ import annotations

from anabranch.plan.exchange import LATE_ROW, arriving, is_key, later_rows, pack, raw, whole_rows
from anabranch.plan.ids import PartId
from anabranch.topology import Field
from tests.plan.every_kind import nodes, plan

A, B = PartId("a"), PartId("b")


def test_columns_of_a_type_are_shared_but_never_a_key_with_a_value() -> None:
    packed = pack(
        {
            A: [Field("k0", "string"), Field("x1", "string"), Field("x2", "double")],
            B: [Field("k0", "string"), Field("k1", "string"), Field("x1", "double")],
        }
    )
    assert packed.types() == "p0 string, p1 string, p2 double, p3 string"
    assert packed.places[A] == {"k0": "p0", "x1": "p1", "x2": "p2"}
    assert packed.places[B] == {"k0": "p0", "k1": "p3", "x1": "p2"}


def test_a_kind_of_rows_without_columns_has_a_place_too() -> None:
    assert pack({A: []}).places == {A: {}}


def test_the_input_of_an_operator_has_another_place_than_its_partials() -> None:
    assert raw(A) != A
    assert raw(A) == raw(PartId("a"))
    assert len(pack({A: [Field("k0", "int")], raw(A): [Field("c0", "int")]}).places) == 2


def test_keys_and_kept_rows_are_grouped_by_and_inputs_are_not() -> None:
    assert [is_key(name) for name in ("k0", "r12", "x1", "t", "k", "key0")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_a_node_gets_its_keys_its_inputs_and_what_it_keeps_of_rows() -> None:
    found = nodes()
    assert arriving(found["windows"]) == [Field("k0", "bigint"), Field("x1", "double")]
    assert [each.name for each in arriving(found["join"])] == ["k0", "r0", "r1"]
    late = arriving(found["windows"], late=True)[-1]
    assert late == Field(LATE_ROW, "struct<`k`:bigint,`at`:timestamp,`v`:double>")


def test_operators_on_the_first_level_get_no_rows_of_a_later_one() -> None:
    assert later_rows(plan()).columns == ()
    assert whole_rows(plan()) == {}, "there are no applies"

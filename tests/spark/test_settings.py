"""Settings of Spark are declared once; the docs are made from there."""

from __future__ import annotations

from anabranch.spark.settings import SETTINGS, Scope, as_table, settings_in


def test_no_setting_is_declared_twice_and_each_says_what_it_is_for() -> None:
    names = [each.name for each in SETTINGS]
    assert len(names) == len(set(names))
    assert all(each.text and each.value for each in SETTINGS)


def test_settings_that_cost_something_are_those_of_sessions() -> None:
    costly = {each.scope for each in SETTINGS if each.cost}
    assert costly == {Scope.SESSION, Scope.LOCAL, Scope.CLUSTER}, "runs set theirs themselves"


def test_only_settings_of_spark_are_given_to_spark() -> None:
    assert all(name.startswith("spark.") for name in settings_in(*Scope))


def test_the_table_has_a_line_of_five_cells_per_setting() -> None:
    lines = as_table().splitlines()
    assert len(lines) == 2 + len(SETTINGS)
    assert {line.count("|") for line in lines} == {6}

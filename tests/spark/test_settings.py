"""Settings of Spark are declared once; the docs are made from there."""

from __future__ import annotations

from pathlib import Path

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


def test_the_table_in_the_docs_is_made_from_the_declarations() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text(encoding="utf-8").endswith(f"\n\n{as_table()}"), (
        "docs/settings.md is old: put the output of python -m anabranch.spark.settings into it"
    )

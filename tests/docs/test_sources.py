"""The reference is made from the code: names, commands and settings."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import pytest
import typer

import anabranch as ab
from docs.site.sources import api_page, commands, settings, settings_page

TWO = 2.0


@dataclass
class Some:
    """Settings of all forms."""

    first: int = 1  # beside it
    # Above it,
    # in two lines.
    second: str | None = None
    third: float = TWO
    fourth: list[int] = field(default_factory=list)  # beside
    fifth: int = 3


def test_settings_have_the_comment_beside_or_above_them() -> None:
    assert list(settings(Some)) == [
        ("first", "1", "beside it"),
        ("second", "None", "Above it, in two lines."),
        ("third", "2.0", ""),
        ("fourth", "", "beside"),
        ("fifth", "3", ""),
    ]


@pytest.mark.parametrize("cls", [ab.Elastic, ab.Guards])
def test_every_public_setting_says_what_it_means(cls: type) -> None:
    found = list(settings(cls))
    assert [name for name, *_ in found] == [each.name for each in fields(cls)]
    assert [name for name, _, text in found if not text] == []


def test_the_table_of_settings_is_markdown() -> None:
    assert "| `cool_down_s` | `5.0` | between two changes |" in settings_page("anabranch.Guards")


def test_commands_of_groups_follow_their_group() -> None:
    app, inner = (typer.Typer(rich_markup_mode=None) for _ in range(2))
    app.add_typer(inner, name="inner")

    @app.command()
    def outer() -> None:
        """Does it."""

    @inner.command("one")
    def one() -> None:
        """Does one."""

    @inner.command("two")
    def two() -> None:
        """Does two."""

    found = dict(commands("tool", app))
    assert list(found) == ["tool", "tool outer", "tool inner", "tool inner one", "tool inner two"]
    assert "Usage: tool inner two" in found["tool inner two"]
    assert "Does two." in found["tool inner two"]


def test_names_are_under_the_heading_of_their_kind() -> None:
    page = api_page("anabranch")
    windows = page[page.index("## Windows") : page.index("## Aggregates")]
    assert ".. autofunction:: anabranch.tumbling" in windows
    assert ".. autoexception:: anabranch.StepError" in page[page.index("## Errors") :]
    assert ".. autoclass:: anabranch.Topology" in page

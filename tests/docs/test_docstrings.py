"""Docstrings keep their meaning when autodoc reads them."""

from __future__ import annotations

import pytest
from docutils.core import publish_doctree
from docutils.utils import Reporter

from docs.site.docstrings import as_rst


def tree_of(text: str) -> str:
    """The docutils tree of a docstring; a warning is an error."""
    lines = "\n".join(as_rst(text.splitlines()))
    settings = {"halt_level": Reporter.WARNING_LEVEL, "report_level": Reporter.SEVERE_LEVEL}
    return publish_doctree(lines, settings_overrides=settings).pformat()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Some `code` here.", "<literal>"),
        ("Many `Mover`s decide.", "<literal>"),
        ("Text.\n\n    app.start()\n    run.stop()", "<literal_block"),
        ("Two things:\n- one that goes\n  on\n- two", "<bullet_list"),
    ],
)
def test_markdown_becomes_what_it_means(text: str, wanted: str) -> None:
    assert wanted in tree_of(text)


@pytest.mark.parametrize(
    "text",
    ["a * b * c", "*args are taken", "name_ and other_", "a | b", "an odd ` tick", r"a \ b", "**"],
)
def test_marks_of_restructured_text_are_plain_text(text: str) -> None:
    found = tree_of(f"It says {text} there.")
    assert "<paragraph>" in found
    assert "<emphasis>" not in found
    assert "<reference" not in found
    assert f"It says {text} there." in found


def test_a_line_that_is_indented_by_little_stays_in_its_paragraph() -> None:
    found = tree_of("slots: parallel tasks\n  and what they are")
    assert "<definition" not in found
    assert "block_quote" not in found

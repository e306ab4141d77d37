"""Docstrings of this project are Markdown; autodoc reads reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

_CODE = re.compile(r"(`[^`]+`)")
_ITEM = re.compile(r"(?:-|\d+\.) ")


def as_rst(lines: Sequence[str]) -> list[str]:
    """A docstring in reStructuredText: paragraphs, lists and indented code mean the same."""
    found: list[str] = []
    for blank, block in groupby(lines, key=lambda line: not line.strip()):
        if not blank:
            found += [*_block(list(block)), ""]
    return found


def _block(lines: Sequence[str]) -> Iterator[str]:
    if all(line.startswith("    ") for line in lines):
        yield from ("::", "", *lines)
        return
    in_list = False
    for line in map(str.strip, lines):
        item = _ITEM.match(line) is not None
        if item and not in_list:
            yield ""
        in_list = in_list or item
        yield f"  {_inline(line)}" if in_list and not item else _inline(line)


def _inline(line: str) -> str:
    """Text with `code`; all other marks of reStructuredText lose their meaning."""
    parts = _CODE.split(line)
    for i, part in enumerate(parts):
        if i % 2:
            glued = parts[i + 1][:1].isalnum()
            parts[i] = f"`{part}`" + ("\\ " if glued else "")
        else:
            parts[i] = re.sub(r"([\\*|`]|_\b)", r"\\\1", part)
    return "".join(parts)

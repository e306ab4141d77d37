"""Column names as people write them: in any case, where Spark would accept that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anabranch.errors import TopologyError


def own_names(given: Any, columns: Sequence[str], *, any_case: bool = True) -> Any:
    """One name or several, each as the column itself is called.

    any_case: "Page" names the column "page", as in Spark unless spark.sql.caseSensitive is true.
    What names no column comes back unchanged: whoever uses it says which ones are valid.
    """
    if isinstance(given, str):
        return own_name(given, columns, any_case=any_case)
    if isinstance(given, Iterable):
        return [own_names(each, columns, any_case=any_case) for each in given]
    return given


def own_name(given: str, columns: Sequence[str], *, any_case: bool = True) -> str:
    """The column that a name means, as it is called itself; refuses a name that means several."""
    found = [each for each in columns if each.lower() == given.lower()] if any_case else []
    if len(found) > 1:
        raise TopologyError(
            f"column {given!r} is ambiguous: the rows have {', '.join(found)}; rename all but one "
            "of them, or set spark.sql.caseSensitive to true"
        )
    return found[0] if found else given

"""Column names as users write them: in any case, if Spark accepts that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anabranch.errors import TopologyError


def own_names(given: Any, columns: Sequence[str], *, any_case: bool = True) -> Any:
    """One name or several, in the spelling of the columns.

    any_case: "Page" names the column "page", as in Spark unless spark.sql.caseSensitive is true. A
    name of no column is returned unchanged; the caller then reports which names are valid.
    """
    if isinstance(given, str):
        return own_name(given, columns, any_case=any_case)
    if isinstance(given, Iterable):
        return [own_names(each, columns, any_case=any_case) for each in given]
    return given


def own_name(given: str, columns: Sequence[str], *, any_case: bool = True) -> str:
    """The column that a name means, in its own spelling. Refuses a name that fits several."""
    found = [each for each in columns if each.lower() == given.lower()] if any_case else []
    if len(found) > 1:
        raise TopologyError(
            f"column {given!r} is ambiguous: the rows have {', '.join(found)}; rename all but one "
            "of them, or set spark.sql.caseSensitive to true"
        )
    return found[0] if found else given

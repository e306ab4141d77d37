"""DuckDB for references and comparisons: one database in memory, one connection per computation.

Opening a database takes longer than most of what tests compute. Everything in it must be temporary,
and so belongs to its connection and ends with it. DuckDB comes with the extra `bench`; only what
uses it needs it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def connect() -> duckdb.DuckDBPyConnection:
    """A connection of its own to the process's database, to be used in a `with` statement."""
    return _database().cursor()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect(config={"preserve_insertion_order": "false"})


def quote(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'

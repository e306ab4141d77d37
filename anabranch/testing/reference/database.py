"""DuckDB for references and comparisons: one database in memory, one connection per computation.

Opening a database takes longer than most computations of tests. Everything in it must be temporary:
then it belongs to its connection and is dropped with it. DuckDB comes with the extra `bench`, and
only code that uses it needs that extra.
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

"""A sink for watching results: it holds the newest result of each window for a few keys."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from anabranch.spark.sinks import StepResults, Target
from anabranch.topology.graph import RESULT_COLUMNS

Row: TypeAlias = Mapping[str, Any]
Watched: TypeAlias = "Mapping[str, LatestResults]"  # by the name of the operator

_MOST_ROWS = 65_536  # rows read per file; a step may write millions
_WIDE = 100
_MOST_KEYS = 256  # keys read per window
_AROUND = 3  # lines of a table besides its rows: an empty one, the title, the header
_NAME = "window_name"


class LatestResults(Target):
    """Keeps the newest result of each window, for the first few keys that it sees.

    It costs little, however much a step writes.

    Results of a `process` have no windows. For them it keeps the last row of each key;
    `key_columns` is the number of key columns.
    """

    def __init__(self, keys: int, key_columns: int | None = None) -> None:
        self._keys, self._key_columns = keys, key_columns
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], Row] = {}  # by key and window name

    def write(self, results: StepResults) -> None:
        if results.maps and results.names:
            self._take(_newest(results.frame().limit(_MOST_ROWS).toArrow()))
            return
        for name in results.names:
            with pq.ParquetFile(
                results.files.path(name), filesystem=results.files.filesystem
            ) as file:
                batch = next(file.iter_batches(batch_size=_MOST_ROWS), None)
            if batch is not None:
                self._take(_newest(pa.Table.from_batches([batch])))

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, most: int) -> list[Row]:
        """Up to `most` rows: all windows of the first key before any of the second.

        They are sorted by key, then by length of the window.
        """
        with self._lock:
            chosen = sorted(self._rows.items(), key=lambda item: self._order(item[0][0]))[:most]
        return [row for _, row in sorted(chosen, key=lambda item: (item[0][0], _length(item[1])))]

    def _take(self, rows: Iterable[Row]) -> None:
        with self._lock:
            for row in rows:
                key = (
                    _key(row)
                    if self._key_columns is None
                    else repr([*row.values()][: self._key_columns])
                )
                if key in (known := self._known()) or len(known) < self._keys:
                    self._rows[key, row.get(_NAME, "")] = row

    def _known(self) -> list[str]:
        return list(dict.fromkeys(key for key, _ in self._rows))

    def _order(self, key: str) -> int:
        return self._known().index(key)

    def __str__(self) -> str:
        return "the terminal"


def results_tables(watched: Watched, title: str, width: int, room: int) -> list[Table]:
    """A table of results for each operator, which together take at most `room` lines.

    If there is too little space, the last tables are left out.
    """
    some = {name: latest for name, latest in watched.items() if len(latest)}
    rows = shared_rows([len(latest) for latest in some.values()], room)
    return [
        results_table(
            latest.rows(most),
            f"{title}{f' of {name}' if len(watched) > 1 else ''} (times in UTC)",
            width,
        )
        for (name, latest), most in zip(some.items(), rows, strict=False)
    ]


def shared_rows(wanted: Sequence[int], room: int) -> list[int]:
    """The rows of each table: equal shares, and what one does not need goes to the others."""
    tables = wanted[: max(0, room) // (_AROUND + 1)]
    left = room - _AROUND * len(tables)
    found = [0] * len(tables)
    for done, i in enumerate(sorted(range(len(tables)), key=tables.__getitem__)):
        found[i] = min(tables[i], left // (len(tables) - done))
        left -= found[i]
    return found


def results_table(rows: Sequence[Row], title: str, width: int) -> Table:
    """A table of results for a terminal of some width: keys, window, its name, aggregates.

    In a narrow terminal, only the start of a window is shown.
    """
    narrow = width < _WIDE
    above = Text(
        title, style="bold", no_wrap=True, overflow="ignore"
    )  # else the title wraps if the table is narrow
    table = Table(title=above, title_justify="left", box=None, pad_edge=False, header_style="dim")
    table.padding = (0, 1 if narrow else 2, 0, 0)
    for name in rows[0] if rows else ():
        number = any(isinstance(row[name], int | float | Decimal) for row in rows)
        header = "from" if narrow and name == "window" else name
        most = 20 if narrow and not number else None
        table.add_column(
            header, justify="right" if number else "left", no_wrap=True, max_width=most
        )
    for row in rows:
        table.add_row(
            *(
                _brief(value) if narrow and name == "window" else shown(value)
                for name, value in row.items()
            )
        )
    return table


def shown(value: object) -> str:
    """A value as text."""
    if isinstance(value, dict | list):
        return _shown_parts(value)
    if value is None:
        return "null"
    if isinstance(value, float):
        size = abs(value)
        return (
            f"{value:,.0f}" if size >= 1000 else f"{value:,.2f}" if size >= 1 else f"{value:,.4f}"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return moment(value) if isinstance(value, datetime) else str(value)


def _shown_parts(value: dict[str, Any] | list[Any]) -> str:
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if set(value) == {"start", "end"}:
        return f"{moment(value['start'])} - {moment(value['end'], after=value['start'])}"
    return " ".join(map(shown, value.values()))


def moment(at: datetime, *, after: datetime | None = None) -> str:
    """A time as text, without seconds that are zero, and without the date if `after` has it."""
    at, after = _utc(at), None if after is None else _utc(after)
    time = f"{at:%H:%M}" + (f":{at:%S}" if at.second or at.microsecond else "")
    return time if after is not None and at.date() == after.date() else f"{at:%Y-%m-%d} {time}"


def _utc(at: datetime) -> datetime:
    """A time in UTC. Spark returns times in the session's time zone."""
    return at if at.tzinfo is None else at.astimezone(UTC)


def _brief(window: Mapping[str, datetime]) -> str:
    return moment(window["start"]).partition("-")[2]


def _newest(table: pa.Table) -> list[Row]:
    """The rows of the last window of each name. A map may have dropped the names."""
    if "window" not in table.column_names:
        last: list[Row] = table.slice(max(0, table.num_rows - _MOST_KEYS)).to_pylist()
        return last
    found: list[Row] = []
    ends = pc.struct_field(table.column("window"), "end")
    names = (
        table.column(_NAME)
        if _NAME in table.column_names
        else pa.chunked_array([pa.repeat("", table.num_rows)])
    )
    for name in pc.unique(names).to_pylist():
        named = pc.equal(names, name)
        end = pc.max(pc.filter(ends, named))
        found += table.filter(pc.and_(named, pc.equal(ends, end))).slice(0, _MOST_KEYS).to_pylist()
    return found


def _key(row: Row) -> str:
    """The key of a row: the columns before the window."""
    keys = []
    for name, value in row.items():
        if name in RESULT_COLUMNS:
            break
        keys.append(value)
    return repr(keys)


def _length(row: Row) -> Any:
    window = row.get("window")
    return (
        window["end"] - window["start"] if isinstance(window, dict) else timedelta(),
        row.get(_NAME, ""),
    )

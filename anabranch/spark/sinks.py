"""Sinks: where results go. Each step passes them the files that slot tasks wrote.

A file sink replaces all files of its step, so a step that runs again leaves each file once. A
function or a Spark writer may see a step twice, if a crash comes between it and the commit.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.errors import CheckpointError, TopologyError
from anabranch.state.checkpoint.files import Files, sync_directory
from anabranch.topology.graph import EARLY_COLUMN

_STEP = re.compile(r"step-(\d{8})-")


@dataclass(frozen=True, slots=True)
class StepResults:
    """The results of one step: the files that hold them, and ways to read them."""

    step: int
    files: Files
    names: tuple[str, ...]
    schema: StructType
    arrow: pa.Schema
    session: SparkSession
    again: int | None = None  # an attempt that died may have written this step or later ones
    maps: tuple[Callable[[DataFrame], DataFrame], ...] = ()  # applied before the sink

    def frame(self) -> DataFrame:
        """A DataFrame over the files. It may be used any number of times."""
        paths = [
            f"file://{self.files.path(n)}" if self.files.local else f"{self.files.location}/{n}"
            for n in self.names
        ]
        rows = (
            self.session.read.schema(self.schema).parquet(*paths)
            if paths
            else self.session.createDataFrame([], self.schema)
        )
        return apply_maps(rows, self.maps)

    def table(self) -> pa.Table:
        """All rows in memory."""
        if self.maps:
            return self.frame().toArrow()
        tables = [
            pq.read_table(self.files.path(n), filesystem=self.files.filesystem) for n in self.names
        ]
        return (
            pa.concat_tables([each.cast(self.arrow) for each in tables])
            if tables
            else self.arrow.empty_table()
        )


def apply_maps(results: DataFrame, maps: Sequence[Callable[[DataFrame], DataFrame]]) -> DataFrame:
    """The results after some maps. Maps only get complete windows."""
    if maps and EARLY_COLUMN in results.columns:
        results = results.filter(~F.col(EARLY_COLUMN)).drop(EARLY_COLUMN)
    for each in maps:
        results = each(results)
    return results


class Target(ABC):
    """Something that takes the results of each step."""

    @abstractmethod
    def write(self, results: StepResults) -> None:
        """Takes the results of a step. May be called again for the same step after a crash."""

    def check(self, next_step: int) -> None:  # noqa: B027 - most have nothing to check
        """Called before a run starts. Refuses a location with results of another run."""


@dataclass(frozen=True, slots=True)
class FileTarget(Target):
    """Files of one format in one directory, named by step.

    Spark's writers make them, except Parquet files without options and maps.
    """

    format: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def location(self) -> str:
        """Where the files are. Two sinks must not have the same location."""
        return self.path if "://" in self.path else str(Path(self.path).absolute())

    def write(self, results: StepResults) -> None:
        if not results.names and results.again is None:
            return
        out = Files(self.path)
        out.make()
        prefix = f"step-{results.step:08d}-"
        steps = range(
            results.step + 1 if results.again is None else results.again, results.step + 1
        )
        stale = [
            name for name in out.list() if (found := _STEP.match(name)) and int(found[1]) in steps
        ]
        new = (
            self._parquet(out, prefix, results)
            if self._as_written(results)
            else self._by_spark(out, prefix, results)
        )
        for name in stale:
            if name not in new:
                out.remove(name)
        if out.local:
            sync_directory(Path(out.path("")))

    def check(self, next_step: int) -> None:
        """Refuses a directory with results of later steps: they belong to another checkpoint."""
        steps = [int(found[1]) for name in Files(self.path).list() if (found := _STEP.match(name))]
        if max(steps, default=0) > next_step:
            raise TopologyError(
                f"{self.path} holds results up to step {max(steps)}, but this checkpoint is at "
                f"step {next_step}: they belong to another checkpoint. Delete them, or choose "
                "another directory"
            )

    def _as_written(self, results: StepResults) -> bool:
        return self.format == "parquet" and not self.options and not results.maps

    def _parquet(self, out: Files, prefix: str, results: StepResults) -> set[str]:
        """Links the files of the slots where both are on one disk, else copies them."""
        new = set()
        for name in results.names:
            target = f"{prefix}{Path(name).name}"
            new.add(target)
            _bring(results.files, name, out, target)
        return new

    def _by_spark(self, out: Files, prefix: str, results: StepResults) -> set[str]:
        if not results.names:
            return set()
        draft = f"_draft-{uuid.uuid4().hex}"
        frame = results.frame()
        if self.format == "csv" and "window" in frame.columns:
            flat = [c for name in frame.columns for c in _flattened(name)]
            frame = frame.select(*flat)
        url = f"file://{out.path(draft)}" if out.local else f"{self.path.rstrip('/')}/{draft}"
        frame.write.format(self.format).options(**self.options).save(url)
        new = set()
        for i, part in enumerate(name for name in out.list(draft) if name.startswith("part-")):
            target = f"{prefix}{i:05d}{''.join(Path(part).suffixes)}"
            out.filesystem.move(out.path(f"{draft}/{part}"), out.path(target))
            new.add(target)
        out.remove(draft)
        return new

    def __str__(self) -> str:
        return f"{self.format} files in {self.path}"


@dataclass(frozen=True, slots=True)
class MappedTarget(Target):
    """Applies maps to results before it passes them to a target."""

    target: Target
    maps: tuple[Callable[[DataFrame], DataFrame], ...]

    def write(self, results: StepResults) -> None:
        self.target.write(replace(results, maps=self.maps))

    def check(self, next_step: int) -> None:
        self.target.check(next_step)

    def __str__(self) -> str:
        return str(self.target)


class MemoryTarget(Target):
    """Keeps results in the driver's memory, for tests and notebooks. They end with the process."""

    def __init__(self) -> None:
        self.steps: dict[int, pa.Table] = {}

    def write(self, results: StepResults) -> None:
        if results.again is not None:
            first = results.again
            self.steps = {step: each for step, each in self.steps.items() if step < first}
        self.steps[results.step] = results.table()

    def table(self) -> pa.Table:
        """All results so far, as an Arrow table. Raises a `TopologyError` if there is no step."""
        if not self.steps:
            raise TopologyError("the memory sink has no results yet")
        return pa.concat_tables([self.steps[step] for step in sorted(self.steps)])

    def rows(self) -> list[dict[str, Any]]:
        """All results so far, as a list of dicts."""
        return [row for step in sorted(self.steps) for row in self.steps[step].to_pylist()]

    def __str__(self) -> str:
        return "memory"


@dataclass(frozen=True, slots=True)
class ConsoleTarget(Target):
    """Prints the first rows of each step's results."""

    rows: int

    def write(self, results: StepResults) -> None:
        table = results.table()
        if table.num_rows:
            print(f"step {results.step}: {table.num_rows} rows")  # noqa: T201
            for row in table.slice(0, self.rows).to_pylist():
                shown = ", ".join(f"{name}={_shown(value)}" for name, value in row.items())
                print(f"  {shown}")  # noqa: T201

    def __str__(self) -> str:
        return "console"


@dataclass(frozen=True, slots=True)
class FunctionTarget(Target):
    """Calls a function of (DataFrame, step), at least once per step with results."""

    function: Callable[[DataFrame, int], object]

    def write(self, results: StepResults) -> None:
        if results.names:
            self.function(results.frame(), results.step)

    def __str__(self) -> str:
        return f"function {getattr(self.function, '__name__', 'given')}, at least once"


@dataclass(frozen=True, slots=True)
class WriterTarget(Target):
    """Any Spark batch writer in append mode. It writes each result at least once."""

    format: str
    options: Mapping[str, Any]

    def write(self, results: StepResults) -> None:
        if results.names:
            results.frame().write.format(self.format).options(**self.options).mode("append").save()

    def __str__(self) -> str:
        return f"Spark writer {self.format}, at least once"


def parquet(path: str | os.PathLike[str], **options: Any) -> Target:
    """Writes Parquet files to a directory, exactly once.

    Without options, the files that slots wrote are linked or copied. With options, Spark writes.

    - path: a directory or URI of its own.
    - options: of Spark's Parquet writer.
    """
    return FileTarget("parquet", _directory(path), options)


def csv(path: str | os.PathLike[str], *, header: bool = True, **options: Any) -> Target:
    """Writes CSV files to a directory, exactly once.

    The column `window` becomes `window_start` and `window_end`.

    - path: a directory or URI of its own.
    - header: whether the first line has the names of columns.
    - options: of Spark's CSV writer.
    """
    return FileTarget("csv", _directory(path), {"header": header, **options})


def json(path: str | os.PathLike[str], **options: Any) -> Target:
    """Writes files with one JSON object per line to a directory, exactly once.

    - path: a directory or URI of its own.
    - options: of Spark's JSON writer.
    """
    return FileTarget("json", _directory(path), options)


def memory() -> MemoryTarget:
    """Keeps results in the driver's memory. `.rows()` and `.table()` return them."""
    return MemoryTarget()


def console(rows: int = 20) -> Target:
    """Prints the first rows of each step.

    - rows: how many, 1 or more; else a `TopologyError`.
    """
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise TopologyError(f"console(rows={rows!r}); valid: 1 or more")
    return ConsoleTarget(rows)


def writer(format: str, **options: Any) -> Target:
    """Writes with any batch writer of Spark, such as `ab.writer("jdbc", url=..., dbtable=...)`.

    It appends each result at least once: a step that runs again after a crash is appended again.

    - format: a format that Spark writes.
    - options: of that writer.
    """
    if not isinstance(format, str) or not format.strip():
        raise TopologyError(
            f"writer({format!r}); valid: a format that Spark writes, such as 'jdbc'"
        )
    return WriterTarget(format, options)


def _directory(path: object) -> str:
    """The directory or URI of a file sink."""
    if isinstance(path, str | os.PathLike) and os.fspath(path):
        return str(os.fspath(path))
    raise TopologyError(f"a file sink needs a directory or URI, got {path!r}")


def as_target(target: object) -> Target:
    """The target for what a user gave: a sink, or a function of (DataFrame, step)."""
    if isinstance(target, Target):
        return target
    if callable(target):
        return FunctionTarget(target)
    raise TopologyError(
        f"{target!r} is not a sink; valid: ab.parquet, ab.csv, ab.json, ab.memory, ab.console, "
        "ab.writer, or a function of (DataFrame, step)"
    )


def _bring(source: Files, name: str, out: Files, target: str) -> None:
    if source.local and out.local:
        try:
            os.link(source.path(name), out.path(target))
        except FileExistsError:
            return  # it is the same file: its name has the token of the attempt that wrote it
        except OSError:
            draft = out.path(f"_draft-{uuid.uuid4().hex}")
            shutil.copyfile(source.path(name), draft)
            Path(draft).replace(out.path(target))
        return
    try:
        out.write(target, [source.read(name)])
    except OSError as error:
        raise CheckpointError(f"sink {out.location}: {error}") from error


def _flattened(name: str) -> list[Any]:
    if name != "window":
        return [F.col(f"`{name}`")]
    return [F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "[" + ", ".join(f"{each:%Y-%m-%d %H:%M:%S}" for each in value.values()) + ")"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

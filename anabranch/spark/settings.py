"""Spark's settings, each declared once: its value, its purpose, and what it costs to miss it.

`ab.spark_session()` sets those of a session, and each run sets its own. The table of Spark's
settings in the docs is made from here: `python -m anabranch.spark.settings` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """Where a setting is set."""

    SESSION = "every session"
    LOCAL = "local session"
    CLUSTER = "session on a cluster"
    RUN = "each run"
    LOCAL_RUN = "each run with a local checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of Spark. `cost` is empty if missing it costs nothing."""

    name: str
    value: str
    scope: Scope
    text: str
    cost: str = ""


OURS = "spark.anabranch.session"  # sessions that `ab.spark_session()` has made
DAEMON = "spark.python.daemon.module"
FILES_CLASS = "spark.sql.streaming.checkpointFileManagerClass"
EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"  # ours are added to this list
CHECKSUMS = "files without checksums"  # not a setting, but a call to Spark's local file system
_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing"

# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting(name=OURS, value="true", scope=Scope.SESSION,
            text="marks a session of `ab.spark_session()`"),
    Setting(name=DAEMON, value="anabranch.spark.daemon", scope=Scope.SESSION,
            text="Python workers are forked from a process that has loaded Anabranch",
            cost="each new Python worker takes a second longer"),
    Setting(name="spark.sql.session.timeZone", value="UTC", scope=Scope.SESSION,
            text="times are shown and parsed in UTC"),
    Setting(name="spark.stage.maxConsecutiveAttempts", value="1", scope=Scope.CLUSTER,
            text="after a lost executor the step runs again as a new job",
            cost="after a lost executor two attempts at a slot may run side by side"),
    Setting(name="spark.shuffle.compress", value="false", scope=Scope.LOCAL,
            text="rows are not compressed on their way to slots",
            cost="exchanges compress rows that stay on this machine"),
    Setting(name="spark.shuffle.sort.bypassMergeThreshold", value="1", scope=Scope.LOCAL,
            text="rows go to slots in blocks",
            cost="exchanges write rows one by one"),
    Setting(name=CHECKSUMS, value="true", scope=Scope.LOCAL,
            text="local files have no second file with checksums",
            cost="three more files per batch, some 12 ms"),
    Setting(name="spark.driver.host", value="127.0.0.1", scope=Scope.LOCAL,
            text="nothing listens on the network"),
    Setting(name="spark.driver.bindAddress", value="127.0.0.1", scope=Scope.LOCAL,
            text="nothing listens on the network"),
    Setting(name="spark.ui.enabled", value="false", scope=Scope.LOCAL,
            text="no web server, which would keep figures of all jobs"),
    Setting(name="spark.ui.showConsoleProgress", value="false", scope=Scope.LOCAL,
            text="no progress bars in the terminal"),
    Setting(name="spark.log.level", value="OFF", scope=Scope.LOCAL,
            text="Spark prints nothing: what fails is an exception"),
    Setting(name="spark.sql.adaptive.enabled", value="false", scope=Scope.RUN,
            text="one job per step"),
    Setting(name="spark.sql.execution.arrow.maxBytesPerBatch", value="2147483647", scope=Scope.RUN,
            # With a limit in bytes the JVM adds up the sizes of all columns for each row. That is
            # more than half of the cost of the way to Python. `batches.py` sets a limit where rows
            # are large.
            text="the JVM does not add up the size of each row"),
    Setting(name="spark.sql.execution.arrow.maxRecordsPerBatch", value="8192", scope=Scope.RUN,
            text="rows of one batch on the way to Python"),
    Setting(name="spark.sql.execution.combineAdjacentAggregation", value="false", scope=Scope.RUN,
            # Spark has its fast hash map only in the first of two passes.
            text="two passes for rows in one partition: the first has a fast hash map"),
    Setting(name=EXCLUDED_RULES, scope=Scope.RUN,
            value="org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation",
            # Spark would remove a query over rows that it knows to be empty.
            text="slot tasks run, and report, even if Spark knows that there are no rows"),
    # If a user has set one of these, it is left as it is.
    Setting(name=FILES_CLASS, scope=Scope.LOCAL_RUN,
            value=f"{_FILE_MANAGER}.FileSystemBasedCheckpointFileManager",
            text="no `readlink` and `chmod` processes for files of Spark's checkpoint: 0.1 s per "
            "batch; where it compiles, a class of ours that extends this one"),
)
# fmt: on


def settings_in(*scopes: Scope) -> dict[str, str]:
    """The settings of some scopes, for Spark."""
    return {
        each.name: each.value
        for each in SETTINGS
        if each.scope in scopes and each.name != CHECKSUMS
    }


def as_table() -> str:
    """All settings as a table in Markdown."""
    lines = [
        "| setting | value | set in | what it is for | without it |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in SETTINGS:
        name = each.name if each.name == CHECKSUMS else f"`{each.name}`"
        value = each.value.removeprefix(f"{_FILE_MANAGER}.")
        lines.append(f"| {name} | `{value}` | {each.scope} | {each.text} | {each.cost} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_table(), end="")  # noqa: T201

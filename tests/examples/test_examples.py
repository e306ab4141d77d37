"""Every row of the results of all examples, against SQL that was written for each example."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli import app as anabranch
from anabranch.spark.api.streams import Windowed
from anabranch.spark.versions import SOURCES_KNOW_THEIR_START
from anabranch.testing import bag_differences, differences, read_results, records
from anabranch.testing.events import HOUR_US, MINUTE_US
from anabranch.testing.exchange import orders, trades_of
from anabranch.testing.payments import alerts_of, payments
from anabranch.testing.reference.chains import ChainOperator, expected_of
from anabranch.testing.reference.database import connect
from anabranch.testing.visits import views, visits_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
EACH_BATCH = 20_000
STRIDE = 7  # between the numbers of a source that ticks: hours in a few batches
WINDOW = ["window_start", "window_end", "window_name"]
MINUTE, FIVE_MINUTES = (
    ("1 minute", MINUTE_US, MINUTE_US),
    ("5 minutes every 1 minute", 5 * MINUTE_US, MINUTE_US),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The variables of an example's file, and the rows that its source gives."""

    spark: SparkSession
    file: Mapping[str, Any]

    def rows(self, made_by: str, batches: int, stride: int = 1) -> list[pa.Table]:
        """The rows of this many batches, from the numbers of each."""
        edges = range(0, (batches + 1) * EACH_BATCH * stride, EACH_BATCH * stride)
        numbers = [
            self.spark.range(start, end, stride).toDF("value") for start, end in pairwise(edges)
        ]
        return [self.file[made_by](each).toArrow() for each in numbers]

    def run(self, *, steps: int = 3, **more: str) -> int:
        """Runs it for some steps, closes everything, and returns how many batches there were.

        `more` goes to sinks as well.
        """
        enough = threading.Event()
        for stream, path in more.items():
            self.file[stream].to(ab.parquet(path))
        any_stream = next(each for each in self.file.values() if isinstance(each, Windowed))
        any_stream.to(lambda _, step: enough.set() if step >= steps else None)
        run = self.file["app"].start(checkpoint="checkpoint", idle=None, slots=2, shards=8)
        while not enough.wait(0.2):
            assert run.isActive, run.exception()
        run.finish()
        return sum(each.batch_id is not None for each in run.recentProgress)

    def run_to_the_end(self) -> None:
        """Runs it over a source that ends, in more than one step, and closes everything."""
        run = self.file["app"].start(checkpoint="checkpoint", availableNow=True, slots=2, shards=8)
        assert run.awaitTermination(300)
        run.finish()
        assert sum(each.batch_id is not None for each in run.recentProgress) >= 3


@pytest.fixture
def example(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Example]:
    """Loads an example that writes below a directory of its own, in small batches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    for name in (
        "PYSPARK_SUBMIT_ARGS",
        "PYTHONPATH",
    ):  # what a command prepares for a process of its own ends with the test
        monkeypatch.setenv(name, os.environ.get(name, ""))
    made_up = importlib.import_module("made_up")
    numbers = made_up.numbers
    monkeypatch.setattr(made_up, "numbers", lambda name, _: numbers(name, EACH_BATCH))
    strided = f"value * {STRIDE} as value"
    monkeypatch.setattr(
        made_up, "ticking", lambda name, _: numbers(name, EACH_BATCH).selectExpr(strided)
    )

    def as_fast_as_it_goes(
        name: str, load: ab.workloads.Workload, speed: float, columns: Any = None
    ) -> DataFrame:
        if SOURCES_KNOW_THEIR_START:
            return ab.workloads.stream(spark, load, each_batch=load.total // 3, columns=columns)
        return in_files(spark, ab.workloads.static(spark, load, columns=columns), tmp_path / name)

    monkeypatch.setattr(made_up, "rows_of", as_fast_as_it_goes)
    return lambda name: Example(spark=spark, file=runpy.run_path(str(EXAMPLES / f"{name}.py")))


def in_files(spark: SparkSession, rows: DataFrame, folder: Path) -> DataFrame:
    """Rows as a stream of three batches, where Spark cannot limit the batches of a workload (4.1)."""
    table = rows.toArrow()
    folder.mkdir()
    each = -(-table.num_rows // 3)
    for i in range(3):
        pq.write_table(table.slice(i * each, each), folder / f"{i}.parquet")
        os.utime(folder / f"{i}.parquet", (i + 1, i + 1))  # Spark reads the oldest first
    reader = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def in_windows(rows: str, *windows: tuple[str, int, int]) -> str:
    """SQL: each row, whose time is `us`, once for every window that it is in.

    Windows are (name, length, slide).
    """
    return (
        "("
        + " UNION ALL ".join(
            f"""SELECT * EXCLUDE (start), start AS window_start, start + {length} AS window_end, '{name}' AS window_name
            FROM (SELECT *, unnest(range(us - us % {every} - {length - every}, us + 1, {every})) AS start FROM {rows})"""
            for name, length, every in windows
        )
        + ")"
    )


def as_rows(results: str, window_name: str = "1 minute") -> str:
    """SQL: the results of one kind of window as rows of the next operator.

    They happened just before the window's end.
    """
    chosen = f"FROM {results} WHERE window_name = '{window_name}'"
    return (
        f"(SELECT * EXCLUDE (window_start, window_end, window_name), window_end - 1 AS us {chosen})"
    )


def tables_by_sql(rows: Sequence[pa.Table], /, **tables: str) -> dict[str, pa.Table]:
    """The tables that SQL makes of the table `given`, each from those before it."""
    with connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("given", pa.concat_tables(rows))
        for name, sql in tables.items():
            db.execute(f"CREATE TEMP TABLE {name} AS {sql}")
        return {name: db.sql(f"FROM {name}").to_arrow_table() for name in tables}


def assert_same(path: str, expected: pa.Table, *keys: str) -> None:
    found = read_results(path)
    assert found.num_rows > 0
    assert differences(found, expected, [*keys, *WINDOW]) == []


def test_lending_equals_the_reference_late_rows_included(example: Callable[[str], Example]) -> None:
    lending = example("lending")
    steps = lending.rows("applications", lending.run(), STRIDE)
    assert (
        sum(step.num_rows for step in steps) < len(steps) * EACH_BATCH
    )  # some are outside the surge
    rated = [
        tables_by_sql(
            [each], rated="""SELECT *, ("return" / amount - 1) / "lendingTime" AS rate FROM given"""
        )["rated"]
        for each in steps
    ]
    lengths = [("10 minutes", 10), ("30 minutes", 30), ("6 hours", 6 * 60), ("24 hours", 24 * 60)]
    windows = [(name, minutes * MINUTE_US, minutes * MINUTE_US, 0) for name, minutes in lengths]
    windows.append(("1 hour every 10 minutes", HOUR_US, 10 * MINUTE_US, 0))
    shortest = "window_name = '10 minutes'"
    stages = [
        ChainOperator(
            name="interest",
            keys=["area"],
            windows=windows,
            aggregates=[
                ("loans", "count", "*", "approval"),
                ("rate", "avg", "rate", "approval"),
                ("income", "avg", "income", "approval"),
            ],
        ),
        ChainOperator(
            name="approval",
            keys=["area"],
            windows=windows,
            aggregates=[
                ("applications", "count", "*"),
                ("approved", "avg", "CAST(approval AS INT)"),
            ],
        ),
        ChainOperator(
            name="overall_interest",
            reads="interest",
            where=shortest,
            keys=[],
            windows=windows,
            aggregates=[("loans", "sum", "loans"), ("rates", "sum", "rate * loans")],
        ),
        ChainOperator(
            name="overall_approval",
            reads="approval",
            where=shortest,
            keys=[],
            windows=windows,
            aggregates=[
                ("applications", "sum", "applications"),
                ("loans", "sum", "approved * applications"),
            ],
        ),
    ]
    expected = expected_of(rated, stages, "date", 10 * MINUTE_US, "finish")
    for name in ("interest", "approval"):
        assert_same(f"out/lending/{name}", expected[name], "area")
    for name in ("overall_interest", "overall_approval"):
        assert_same(f"out/lending/{name}", expected[name])
    hasty = hasty_of(steps)
    assert len(hasty) > 50
    found = read_results("out/lending/hasty").select(hasty.column_names)
    assert bag_differences(found, hasty) == []


def hasty_of(steps: Sequence[pa.Table]) -> pa.Table:
    """Users with the fourth application within an hour, or a later one.

    Only rows after the watermark count.
    """
    lately: dict[int, list[datetime]] = {}
    found, newest = [], None
    for step in steps:
        rows = sorted(zip(step["date"].to_pylist(), step["user"].to_pylist(), strict=True))
        for at, user in rows:
            if newest is not None and at < newest - timedelta(minutes=10):
                continue
            lately[user] = [
                each for each in lately.get(user, []) if at - each < timedelta(hours=1)
            ] + [at]
            if len(lately[user]) >= 4:
                found.append({"user": user, "applications": len(lately[user]), "happened": at})
        newest = max(filter(None, [newest, rows[-1][0]]))
    return pa.Table.from_pylist(
        found,
        schema=pa.schema(
            [
                ("user", pa.int32()),
                ("applications", pa.int64()),
                ("happened", pa.timestamp("us", tz="UTC")),
            ]
        ),
    )


def test_linear_road_equals_the_reference(example: Callable[[str], Example]) -> None:
    road = example("linear_road")
    rows = road.rows("reports", road.run(cars="out/linear_road/cars"))
    segment = ["expressway", "direction", "segment"]
    keys = ", ".join([*segment, *WINDOW])
    expected = tables_by_sql(
        rows,
        reports="SELECT *, epoch_us(given.at) AS us FROM given",
        cars=f"SELECT {keys}, vehicle, avg(speed) AS speed FROM {in_windows('reports', MINUTE)} GROUP BY ALL",
        speeds=f"SELECT {keys}, avg(speed) AS speed FROM {in_windows(as_rows('cars'), FIVE_MINUTES)} GROUP BY ALL",
        volumes=f"SELECT {keys}, count(DISTINCT vehicle) AS volume FROM {in_windows('reports', MINUTE)} GROUP BY ALL",
        tolls=f"""
            SELECT volumes.*, speed, CASE WHEN speed < 40 AND volume > 50 THEN 2 * (volume - 50) * (volume - 50) ELSE 0 END AS toll
            FROM volumes JOIN speeds USING ({", ".join(segment)}, window_end)
        """,
    )
    assert_same("out/linear_road/cars", expected["cars"], *segment, "vehicle")
    assert_same("out/linear_road/speeds", expected["speeds"], *segment)
    assert_same("out/linear_road/volumes", expected["volumes"], *segment)
    assert_same("out/linear_road/tolls", expected["tolls"], *segment)
    tolls = read_results("out/linear_road/tolls")["toll"].to_pylist()
    assert 0 < sum(toll > 0 for toll in tolls) < len(tolls), (
        "some segments cost something, others do not"
    )


def test_sentiment_equals_the_reference(example: Callable[[str], Example]) -> None:
    mood = example("sentiment")
    rows = mood.rows("tweets", mood.run())
    scores = ", ".join(f"('{word}', {score})" for word, score in mood.file["SCORES"].items())
    expected = tables_by_sql(
        rows,
        valence=f"SELECT * FROM (VALUES {scores}) AS listed(word, score)",
        english="SELECT *, epoch_us(given.at) AS us, regexp_extract(text, '#[a-z]+') AS hashtag FROM given WHERE text LIKE 'The %'",
        words="SELECT region, hashtag, us, text, unnest(string_split(lower(text), ' ')) AS word FROM english",
        scored="""
            SELECT region, hashtag, us, CAST(coalesce(sum(score), 0) AS INT) AS score
            FROM words LEFT JOIN valence USING (word) GROUP BY region, hashtag, us, text
        """,
        **{
            name: f"""
                SELECT {key}, window_start, window_end, window_name, count(*) AS tweets, avg(score) AS mood
                FROM {in_windows("scored", MINUTE, FIVE_MINUTES)} GROUP BY ALL
            """
            for name, key in (("regions", "region"), ("hashtags", "hashtag"))
        },
        overall=f"""
            SELECT window_start, window_end, window_name, CAST(sum(tweets) AS BIGINT) AS tweets, sum(mood * tweets) / sum(tweets) AS mood
            FROM {in_windows(as_rows("regions"), MINUTE, FIVE_MINUTES)} GROUP BY ALL
        """,
        trends=f"""
            SELECT window_start, window_end, window_name, arg_max(hashtag, row(tweets, hashtag)) AS most,
                   arg_max(hashtag, row(mood, hashtag)) AS happiest, arg_min(hashtag, row(mood, hashtag)) AS saddest
            FROM {in_windows(as_rows("hashtags"), MINUTE)} GROUP BY ALL
        """,
    )
    assert 0 < expected["english"].num_rows < sum(each.num_rows for each in rows), (
        "some are in other languages"
    )
    assert_same("out/sentiment/regions", expected["regions"], "region")
    assert_same("out/sentiment/hashtags", expected["hashtags"], "hashtag")
    assert_same("out/sentiment/overall", expected["overall"])
    assert_same("out/sentiment/trends", expected["trends"])


def test_word_count_runs_from_the_command_line_and_goes_on_where_it_ended(
    example: Callable[[str], Example],
) -> None:
    command = [
        "run",
        str(EXAMPLES / "word_count.py"),
        "--available-now",
        "--checkpoint",
        "checkpoint",
        "--shards",
        "8",
    ]
    for more in ([], ["--finish"]):  # one batch each: this source has no more at a time
        result = CliRunner().invoke(anabranch, [*command, *more])
        assert result.exit_code == 0, result.output
        assert "results: parquet files in out/word_count/counts" in result.stdout.splitlines()
    assert "the last results of top (times in UTC)" in result.stdout
    rows = example("word_count").rows("lines", 2)
    expected = tables_by_sql(
        rows,
        words="SELECT epoch_us(given.at) AS us, unnest(string_split(lower(line), ' ')) AS word FROM given",
        counts=f"SELECT word, window_start, window_end, window_name, count(*) AS n FROM {in_windows('words', MINUTE)} GROUP BY ALL",
        top=f"""
            SELECT window_start, window_end, window_name, CAST(sum(n) AS BIGINT) AS words,
                   list({{'word': word, 'n': n}} ORDER BY n DESC, word)[:10] AS top
            FROM {in_windows(as_rows("counts"), MINUTE)} GROUP BY ALL
        """,
    )
    assert_same("out/word_count/counts", expected["counts"], "word")
    assert_same("out/word_count/top", expected["top"])


def test_dabs_equals_the_reference(example: Callable[[str], Example], spark: SparkSession) -> None:
    dabs = example("dabs")
    dabs.run_to_the_end()
    rows = dabs.file["opinions"](ab.workloads.static(spark, dabs.file["LOAD"])).toArrow()
    cities = ", ".join(f"'{each}'" for each in dabs.file["CITIES"])
    minute = in_windows("relevant", MINUTE)

    def subgroups(name: str, group: str) -> str:
        return f"""
            SELECT topic, "{group}", {", ".join(WINDOW)}, opinions, opinion, opinions_of_all, opinion_of_all,
                   sqrt(opinions) * abs(opinion - opinion_of_all) AS quality
            FROM (SELECT topic, "{group}", {", ".join(WINDOW)}, count(*) AS opinions, avg(opinion) AS opinion FROM {minute} GROUP BY ALL)
            JOIN (SELECT topic, window_end, count(*) AS opinions_of_all, avg(opinion) AS opinion_of_all FROM {minute} GROUP BY ALL)
            USING (topic, window_end) WHERE quality >= 4
        """

    expected = tables_by_sql(
        [rows],
        relevant=f"""
            SELECT epoch_us(given.at) AS us, topic, opinion, list_extract([{cities}], 1 + code % 12) AS city,
                   CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'grown up' ELSE 'old' END AS "group"
            FROM given WHERE topic NOT IN ('weather', 'celebrities')
        """,
        by_city=subgroups("by_city", "city"),
        by_age=subgroups("by_age", "group"),
    )
    assert 0 < expected["relevant"].num_rows < rows.num_rows == dabs.file["LOAD"].total
    assert_same("out/dabs/by_city", expected["by_city"], "topic", "city")
    assert_same("out/dabs/by_age", expected["by_age"], "topic", "group")


def made(example: Example, columns: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.Table:
    """All rows of an example's workload, made without Spark."""
    load = example.file["LOAD"]
    return pa.Table.from_batches([columns(load.batch(0, load.total))])


def as_table(results: Sequence[Any]) -> pa.Table:
    """The results of a reference in plain Python, as a table."""
    return pa.Table.from_pylist([asdict(each) for each in results])


def test_the_stock_exchange_equals_a_matcher_that_goes_through_all_rows(
    example: Callable[[str], Example],
) -> None:
    exchange = example("stock_exchange")
    exchange.run_to_the_end()
    trades = as_table(trades_of(records(made(exchange, orders))))
    keys = ", ".join(["stock", *WINDOW])
    minutes, moving = in_windows("trades", MINUTE), in_windows("trades", FIVE_MINUTES)
    five = in_windows("trades", ("5 minutes", 5 * MINUTE_US, 5 * MINUTE_US))
    figures = "count(*) AS trades, sum(quantity)::BIGINT AS shares, sum(price * quantity)::BIGINT AS cents"
    expected = tables_by_sql(
        [trades],
        trades="SELECT *, at_us AS us FROM given",
        averages=f"SELECT {keys}, avg(price) AS average, sum(quantity)::BIGINT AS shares_of_5 FROM {moving} GROUP BY ALL",
        volumes=f"SELECT {keys}, {figures} FROM {minutes} GROUP BY ALL",
        candles=f"SELECT {keys}, max(price) AS highest, min(price) AS lowest FROM {minutes} GROUP BY ALL",
        index=f"""
            SELECT *, cents / shares AS "index" FROM (
                SELECT {", ".join(WINDOW)}, sum(cents)::BIGINT AS cents, sum(shares)::BIGINT AS shares FROM volumes GROUP BY ALL
            )
        """,
        ranking=f"""
            SELECT {", ".join(WINDOW)}, arg_max(stock, row(shares, stock)) AS most, count(*) AS stocks
            FROM volumes GROUP BY ALL
        """,
        buyers=f"SELECT buyer, {', '.join(WINDOW)}, sum(price * quantity)::BIGINT AS spent FROM {five} GROUP BY ALL",
        alarms="""
            SELECT stock, us AS "at", price FROM (
                SELECT *, coalesce(lag(price) OVER (PARTITION BY stock ORDER BY us), 0) AS before
                FROM (SELECT stock, us, max(price) AS price FROM trades GROUP BY ALL)
            ) WHERE price > 12000 AND before <= 12000
        """,
        large="FROM trades WHERE quantity >= 800",
        washed="FROM trades WHERE buyer = seller",
        swings="FROM candles WHERE highest - lowest >= 0.01 * lowest",
        surges="""
            SELECT volumes.*, average, shares_of_5 FROM volumes JOIN averages USING (stock, window_end)
            WHERE shares >= 2 * shares_of_5 / 5
        """,
    )
    for name in ("trades", "large", "washed"):
        expected[name] = expected[name].drop_columns(["us"]).rename_columns({"at_us": "at"})
    for name, table in expected.items():
        found = read_results(f"out/stock_exchange/{name}")
        assert 0 < found.num_rows == table.num_rows, name
        assert bag_differences(found, table) == [], name


def test_fraud_alerts_equal_those_of_all_rows_at_once(example: Callable[[str], Example]) -> None:
    fraud = example("fraud")
    fraud.run_to_the_end()
    alerts = as_table(alerts_of(records(made(fraud, payments))))
    assert set(alerts["rule"].to_pylist()) == {"probing", "unconfirmed"}
    expected = tables_by_sql(
        [alerts],
        alerts="SELECT * EXCLUDE (at_us), at_us AS at, at_us AS us FROM given",
        rules=f"""
            SELECT rule, {", ".join(WINDOW)}, count(*) AS alerts, sum(cents)::BIGINT AS cents
            FROM {in_windows("alerts", MINUTE)} GROUP BY ALL
        """,
    )
    assert (
        differences(
            read_results("out/fraud/alerts"),
            expected["alerts"].drop_columns(["us"]),
            ["rule", "number"],
        )
        == []
    )
    assert_same("out/fraud/rules", expected["rules"], "rule")


def test_visits_equal_those_of_all_rows_at_once(example: Callable[[str], Example]) -> None:
    sessions = example("sessions")
    sessions.run_to_the_end()
    visits = as_table(visits_of(records(made(sessions, views))))
    expected = tables_by_sql(
        [visits],
        visits="SELECT * EXCLUDE (start_us, end_us), start_us AS start, end_us AS at, end_us AS us FROM given",
        ends=f"""
            SELECT exit, {", ".join(WINDOW)}, count(*) AS visits, sum(views)::BIGINT AS views, max(views) AS longest
            FROM {in_windows("(SELECT us, exit, views FROM visits)", MINUTE)} GROUP BY ALL
        """,
    )
    assert (
        differences(
            read_results("out/sessions/visits"),
            expected["visits"].drop_columns(["us"]),
            ["user", "at"],
        )
        == []
    )
    assert_same("out/sessions/ends", expected["ends"], "exit")

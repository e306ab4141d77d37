"""Loans of a peer-to-peer lender: interest and approvals, per area and overall, over 10 minutes to 24 hours.

The job of Enorm's Fig. 1 to 4. The two operators per area share an exchange; the two over all areas read their 10-minute results.
From the eighth to the twentieth hour there are five times as many applications, and every three hours another area has a run of them.

anabranch run examples/lending.py --fresh --for "45 seconds" --finish --slots 1 --latency "2 seconds"
"""

from made_up import chance, rows_of
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab

# Most loans first: the load of the areas is skewed.
AREAS = (
    "California,Texas,Florida,New York,Pennsylvania,Illinois,Ohio,Georgia,North Carolina,Michigan,New Jersey,Virginia,"
    "Washington,Arizona,Tennessee,Massachusetts,Indiana,Missouri,Maryland,Wisconsin,Colorado,Minnesota,South Carolina,"
    "Alabama,Louisiana,Kentucky,Oregon,Oklahoma,Connecticut,Utah,Iowa,Nevada,Arkansas,Mississippi,Kansas,New Mexico,"
    "Nebraska,Idaho,West Virginia,Hawaii,New Hampshire,Maine,Montana,Rhode Island,Delaware,South Dakota,North Dakota,"
    "Alaska,Vermont,Wyoming"
).split(",")


LOAD = ab.Workload(
    rate=ab.stepped(8, ("8 hours", 40), ("20 hours", 8)),
    keys=ab.hot_spot(len(AREAS), 0.4, every="3 hours", skew=0.8),
    lasting="48 hours",
    seed=1,
)
SPEED = 2_400  # seconds of the applicants in one of ours


def applications(rows: DataFrame) -> DataFrame:
    """Made-up loan applications; 1 in 1000 comes up to six hours late."""
    late = F.when(chance(0) < 0.001, chance(1) * 21_600).otherwise(0)
    place = F.col("key") / len(AREAS)
    years = F.floor(1 + 5 * chance(3))
    amount = F.round(1_000 + 39_000 * chance(4))
    income = F.round(20_000 / F.pow(1 - 0.99 * chance(5), 0.5))
    return rows.select(
        F.floor(chance(6) * 500_000).cast("int").alias("user"),
        F.get(F.array(*map(F.lit, AREAS)), F.col("key").cast("int")).alias("area"),
        F.timestamp_micros(F.unix_micros("at") - F.floor(late * 1_000_000)).alias("date"),
        (chance(7) < 0.9 - 0.5 * place).alias("approval"),
        amount.alias("amount"),
        F.round(amount * (1 + years * (0.03 + 0.05 * place + 1_000 / income))).alias("return"),
        years.alias("lendingTime"),
        income.alias("income"),
    )


def rated(loans: DataFrame) -> DataFrame:
    """The interest rate of each loan, a year."""
    return loans.withColumn("rate", (F.col("return") / F.col("amount") - 1) / F.col("lendingTime"))


def of_10_minutes(results: DataFrame) -> DataFrame:
    """Of all windows the shortest, from which the others are made again."""
    return results.filter("window_name = '10 minutes'")


WINDOWS = [
    ab.tumbling("10 minutes"),
    ab.tumbling("30 minutes"),
    ab.sliding("1 hour", every="10 minutes"),
    ab.tumbling("6 hours"),
    ab.tumbling("24 hours"),
]

app = ab.Topology("lending")
loans = app.source(applications(rows_of("lending", LOAD, SPEED)), event_time="date", delay="10 minutes").map(rated)

interest = loans.aggregate(
    by="area",
    windows=WINDOWS,
    loans=ab.count(where="approval"),
    rate=ab.avg("rate", where="approval"),
    income=ab.avg("income", where="approval"),
    name="interest",
)
approval = loans.aggregate(
    by="area",
    windows=WINDOWS,
    applications=ab.count(),
    approved=ab.avg("cast(approval as int)"),
    name="approval",
)
overall_interest = (
    interest.map(of_10_minutes)
    .aggregate(by=[], windows=WINDOWS, loans=ab.sum("loans"), rates=ab.sum("rate * loans"), name="overall_interest")
    .map(lambda df: df.select("*", F.try_divide("rates", "loans").alias("rate")).drop("rates"))
)
overall_approval = (
    approval.map(of_10_minutes)
    .aggregate(
        by=[],
        windows=WINDOWS,
        applications=ab.sum("applications"),
        loans=ab.sum("approved * applications"),
        name="overall_approval",
    )
    .map(lambda df: df.select("*", F.try_divide("loans", "applications").alias("approved")).drop("loans"))
)

interest.to(ab.parquet("out/lending/interest"))
approval.to(ab.parquet("out/lending/approval"))
overall_interest.to(ab.parquet("out/lending/overall_interest"))
overall_approval.to(ab.parquet("out/lending/overall_approval"))

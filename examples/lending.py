r"""Loans of a peer-to-peer lender: interest and approvals, per area and overall, and hasty users.

The job of Enorm's Fig. 1 to 4, with windows from 10 minutes to 24 hours. The two operators per area
share an exchange. The two over all areas read their 10-minute results. A class with state per user
reports users who apply for the fourth time within an hour, and takes most of the time. From the
fourth to the 16th hour there are five times as many applications, and every three hours another
area has a run of them.

anabranch run examples/lending.py --fresh --for "45 seconds" --finish --slots 1 \
    --latency "1500 milliseconds" --max-slots 4
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from made_up import chance, one_of, second, ticking
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab

# The area with the most loans is first: the load is skewed.
AREAS = (
    "California,Texas,Florida,New York,Pennsylvania,Illinois,Ohio,Georgia,North Carolina,Michigan,"
    "New Jersey,Virginia,Washington,Arizona,Tennessee,Massachusetts,Indiana,Missouri,Maryland,"
    "Wisconsin,Colorado,Minnesota,South Carolina,Alabama,Louisiana,Kentucky,Oregon,Oklahoma,"
    "Connecticut,Utah,Iowa,Nevada,Arkansas,Mississippi,Kansas,New Mexico,Nebraska,Idaho,"
    "West Virginia,Hawaii,New Hampshire,Maine,Montana,Rhode Island,Delaware,South Dakota,"
    "North Dakota,Alaska,Vermont,Wyoming"
).split(",")


EACH_SECOND = 15  # the most applications per second of event time
SPEED = 2_000  # seconds of event time per second


def applications(numbers: DataFrame) -> DataFrame:
    """Made-up loan applications: all of them in a surge, otherwise every fifth.

    1 in 1000 comes up to six hours late.
    """
    second_of = F.col("value") / EACH_SECOND
    hour = F.floor(second_of / 3_600)
    late = F.when(chance(0) < 0.001, chance(1) * 21_600).otherwise(0)
    usual = F.pow(chance(2), 1.6)  # most loans are in the first areas
    hot = F.pmod(F.xxhash64(F.floor(hour / 3)), F.lit(len(AREAS))) / len(AREAS)
    place = F.when(chance(8) < 0.4, hot).otherwise(usual)
    years = F.floor(1 + 5 * chance(3))
    amount = F.round(1_000 + 39_000 * chance(4))
    income = F.round(20_000 / F.pow(1 - 0.99 * chance(5), 0.5))
    return numbers.filter(hour.between(4, 15) | (F.col("value") % 5 == 0)).select(
        F.floor(F.pow(chance(6), 2) * 500_000).cast("int").alias("user"),
        one_of(AREAS, place).alias("area"),
        second(second_of - late).alias("date"),
        (chance(7) < 0.9 - 0.5 * place).alias("approval"),
        amount.alias("amount"),
        F.round(amount * (1 + years * (0.03 + 0.05 * place + 1_000 / income))).alias("return"),
        years.alias("lendingTime"),
        income.alias("income"),
    )


def rated(loans: DataFrame) -> DataFrame:
    """Adds the yearly interest rate of each loan."""
    return loans.withColumn("rate", (F.col("return") / F.col("amount") - 1) / F.col("lendingTime"))


@dataclass
class Lately:
    """The times at which a user has applied within the last hour."""

    times: list[datetime] = field(default_factory=list)


class Hasty:
    """Reports users who apply for the fourth time within an hour."""

    state: Lately
    output = "applications bigint, happened timestamp"
    event_time = "happened"
    columns = ("date",)

    def process(self, user, rows, state, ctx):
        for at in rows.date:
            state.times = [each for each in state.times if at - each < timedelta(hours=1)] + [at]
            if len(state.times) >= 4:
                yield len(state.times), at


WINDOWS = [
    ab.tumbling("10 minutes"),
    ab.tumbling("30 minutes"),
    ab.sliding("1 hour", every="10 minutes"),
    ab.tumbling("6 hours"),
    ab.tumbling("24 hours"),
]

app = ab.Topology("lending")
numbers = ticking("lending", EACH_SECOND * SPEED)
# Made-up dates go so fast that they would pass the clock within hours. So no row counts as ahead.
loans = app.source(applications(numbers), event_time="date", delay="10 minutes", ahead=None).map(
    rated
)

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
hasty = loans.process("user", Hasty, name="hasty")
overall_interest = interest["10 minutes"].aggregate(
    by=[],
    windows=WINDOWS,
    loans=ab.sum("loans"),
    rates=ab.sum("rate * loans"),
    name="overall_interest",
)
overall_approval = approval["10 minutes"].aggregate(
    by=[],
    windows=WINDOWS,
    applications=ab.sum("applications"),
    loans=ab.sum("approved * applications"),
    name="overall_approval",
)

hasty.to(ab.parquet("out/lending/hasty"))
interest.to(ab.parquet("out/lending/interest"))
approval.to(ab.parquet("out/lending/approval"))
overall_interest.to(ab.parquet("out/lending/overall_interest"))
overall_approval.to(ab.parquet("out/lending/overall_approval"))

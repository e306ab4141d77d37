"""Loans of a peer-to-peer lender, watched per area over 10 minutes to 24 hours (Enorm's motivating example).

anabranch run examples/lending.py --for "45 seconds" --finish
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import anabranch as ab

START = 1_769_889_600  # 2026-01-31 20:00 UTC
# Most loans first: the load of the areas is skewed.
AREAS = (
    "California,Texas,Florida,New York,Pennsylvania,Illinois,Ohio,Georgia,North Carolina,Michigan,New Jersey,Virginia,"
    "Washington,Arizona,Tennessee,Massachusetts,Indiana,Missouri,Maryland,Wisconsin,Colorado,Minnesota,South Carolina,"
    "Alabama,Louisiana,Kentucky,Oregon,Oklahoma,Connecticut,Utah,Iowa,Nevada,Arkansas,Mississippi,Kansas,New Mexico,"
    "Nebraska,Idaho,West Virginia,Hawaii,New Hampshire,Maine,Montana,Rhode Island,Delaware,South Dakota,North Dakota,"
    "Alaska,Vermont,Wyoming"
).split(",")


def applications(spark: SparkSession) -> DataFrame:
    """Made-up loan applications, 25 a second from 20:00 on; the same ones in every run, however fast it goes."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100_000).load()

    def chance(salt: int) -> Column:
        return F.pmod(F.xxhash64("value", F.lit(salt)), F.lit(1_000_000)) / 1_000_000

    late = F.when(chance(0) < 0.001, chance(1) * 21_600).otherwise(0)  # 1 in 1000 comes up to six hours late
    place = F.pow(chance(2), 2)
    years = F.floor(1 + 5 * chance(3))
    amount = F.round(1_000 + 39_000 * chance(4))
    income = F.round(20_000 / F.pow(1 - 0.99 * chance(5), 0.5))
    return numbers.select(
        F.floor(chance(6) * 500_000).cast("int").alias("user"),
        F.get(F.array(*map(F.lit, AREAS)), F.floor(place * len(AREAS)).cast("int")).alias("area"),
        F.timestamp_seconds(F.lit(START) + F.col("value") / 25 - late).alias("date"),
        (chance(7) < 0.9 - 0.5 * place).alias("approval"),
        amount.alias("amount"),
        F.round(amount * (1 + years * (0.03 + 0.05 * place + 1_000 / income))).alias("return"),
        years.alias("lendingTime"),
        income.alias("income"),
    )


app = ab.Topology("lending")

loans = app.source(applications(SparkSession.builder.appName("lending").getOrCreate()), event_time="date", delay="10 minutes")
rated = loans.map(lambda df: df.withColumn("rate", (F.col("return") / F.col("amount") - 1) / F.col("lendingTime")))
areas = rated.aggregate(
    by=["area"],
    windows=[
        ab.tumbling("10 minutes"),
        ab.tumbling("30 minutes"),
        ab.sliding("1 hour", every="10 minutes"),
        ab.tumbling("6 hours"),
        ab.tumbling("24 hours"),
    ],
    loans=ab.count(),
    rate=ab.avg("rate", where="approval"),
    income=ab.avg("income", where="approval"),
    approved=ab.avg("cast(approval as int)"),
    name="areas",
)
areas.to(ab.parquet("out/lending"))

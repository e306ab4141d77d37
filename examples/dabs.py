"""Opinions about topics: which cities and age groups think differently from the rest?

The complex topology of DABS-Storm (Fig. 10) on its erratic stream with sudden peaks (Fig. 11b),
half an hour in a minute. The dispatcher drops topics of no interest, and columns that a branch does
not need. One branch looks up the city of a location code, the other the group of an age. Each finds
subgroups, which are stored. Everything can be partitioned by topic, so there is one exchange.

anabranch run examples/dabs.py --fresh --available-now --finish
"""

from made_up import chance, one_of, rows_of
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab

TOPICS = (
    "schools",
    "trains",
    "weather",
    "football",
    "housing",
    "parks",
    "taxes",
    "celebrities",
    "music",
    "energy",
)
IRRELEVANT = ("weather", "celebrities")
CITIES = (
    "Lyon",
    "Paris",
    "Nice",
    "Lille",
    "Nantes",
    "Rennes",
    "Brest",
    "Tours",
    "Dijon",
    "Metz",
    "Caen",
    "Pau",
)
CODES, AGES = 5_000, ("young", "grown up", "old")
QUALITY = 4.0  # from this on, a subgroup is worth reporting

LOAD = ab.workloads.Workload(
    rate=ab.workloads.erratic(50, 600, "30 minutes"),
    keys=ab.workloads.zipf(
        CODES, 1.5
    ),  # location codes, which decide the time of a lookup; 1.5 is the paper's skew
    lasting="30 minutes",
    seed=10,
)


def opinions(rows: DataFrame) -> DataFrame:
    """The source: who (age, location code), about what, and how much in favour, from 0 to 10.

    Cities and ages have a bias.
    """
    age, topic = F.floor(15 + 70 * chance(1)), F.floor(len(TOPICS) * F.pow(chance(2), 2))
    leaning = chance(3, "of_city") * 2 + F.when(age < 30, chance(4, "of_age") * 2).otherwise(0)
    return (
        rows.withColumn("of_city", F.col("key") % len(CITIES) * 100 + topic)
        .withColumn("of_age", topic)
        .select(
            "at",
            F.floor(chance(5) * 100_000).alias("user"),
            age.cast("int").alias("age"),
            F.col("key").cast("int").alias("code"),
            one_of(TOPICS, topic / len(TOPICS)).alias("topic"),
            F.round(6 * chance(6) + leaning).cast("int").alias("opinion"),
        )
    )


def relevant(df: DataFrame) -> DataFrame:
    """Opinions about topics of interest."""
    return df.filter(~F.col("topic").isin(*IRRELEVANT)).drop("user")


def located(df: DataFrame) -> DataFrame:
    """Adds the city of a code.

    In the paper, the time of this lookup depends on the code. That is a case for `apply`, with
    cost-aware grouping.
    """
    return df.withColumn(
        "city", F.get(F.array(*map(F.lit, CITIES)), F.col("code") % len(CITIES))
    ).drop("code", "age")


def aged(df: DataFrame) -> DataFrame:
    """Adds the group of an age."""
    group = F.when(F.col("age") < 30, AGES[0]).when(F.col("age") < 60, AGES[1]).otherwise(AGES[2])
    return df.withColumn("group", group).drop("code", "age")


def worth_telling(df: DataFrame) -> DataFrame:
    """Large subgroups whose opinion is far from that of all.

    The quality is the root of their size times the distance.
    """
    quality = F.sqrt("opinions") * F.abs(F.col("opinion") - F.col("opinion_of_all"))
    return df.withColumn("quality", quality).filter(quality >= QUALITY)


MINUTE = ab.tumbling("1 minute")
FIGURES = {"opinions": ab.count(), "opinion": ab.avg("opinion")}

app = ab.Topology("dabs")
dispatched = app.source(
    opinions(rows_of("dabs", LOAD, speed=30)), event_time="at", delay="0 seconds"
).map(relevant)

everyone = dispatched.aggregate(
    by="topic",
    windows=MINUTE,
    opinions_of_all=ab.count(),
    opinion_of_all=ab.avg("opinion"),
    name="everyone",
)
cities = dispatched.map(located).aggregate(
    by=["topic", "city"], windows=MINUTE, **FIGURES, name="cities"
)
ages = dispatched.map(aged).aggregate(by=["topic", "group"], windows=MINUTE, **FIGURES, name="ages")

by_city = ab.join(cities, everyone, by="topic", window=MINUTE, name="by_city").map(worth_telling)
by_age = ab.join(ages, everyone, by="topic", window=MINUTE, name="by_age").map(worth_telling)

by_city.to(ab.parquet("out/dabs/by_city"))
by_age.to(ab.parquet("out/dabs/by_age"))

"""Tolls of the Linear Road benchmark: the more vehicles are in a jam, the more a segment costs.

The query of CBP's Fig. 1. All operators can be partitioned by segment, so they run as one
component, after one exchange.

anabranch run examples/linear_road.py --fresh --for "30 seconds" --finish
"""

import math

from made_up import chance, numbers, second
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab

VEHICLES, EXPRESSWAYS, SEGMENTS = 5_000, 2, 25
ROUND = 2_000  # seconds to drive all segments of an expressway
BASE_TOLL, FREE, JAM_SPEED = 2, 50, 40


def reports(numbers: DataFrame) -> DataFrame:
    """Made-up position reports: each vehicle says every 30 seconds where it is and how fast.

    Half-way round, all vehicles slow down.
    """
    time = F.col("value") * 30 / VEHICLES
    part = F.pmod(chance(1, "vehicle") + time / ROUND, F.lit(1.0))  # of its round
    moved = part + 0.75 * F.sin(2 * math.pi * part) / (2 * math.pi)  # part of all miles
    speed = (
        SEGMENTS * 3600 / ROUND * (1 + 0.75 * F.cos(2 * math.pi * part))
    )  # the same in miles per hour
    return numbers.withColumn("vehicle", F.col("value") % VEHICLES).select(
        second(time).alias("at"),
        "vehicle",
        F.round(speed + 10 * chance(2)).cast("int").alias("speed"),
        F.floor(chance(3, "vehicle") * EXPRESSWAYS).cast("int").alias("expressway"),
        F.when(chance(4, "vehicle") < 0.6, "east").otherwise("west").alias("direction"),
        F.floor(moved * SEGMENTS).cast("int").alias("segment"),
    )


def toll(df: DataFrame) -> DataFrame:
    """Adds the toll of a segment, which is above 0 if it is slow and full."""
    jammed = (F.col("speed") < JAM_SPEED) & (F.col("volume") > FREE)
    charge = F.when(jammed, BASE_TOLL * F.pow(F.col("volume") - FREE, 2)).otherwise(0)
    return df.withColumn("toll", charge.cast("int"))


MINUTE = ab.tumbling("1 minute")
SEGMENT = ["expressway", "direction", "segment"]

app = ab.Topology("linear_road")
source = app.source(reports(numbers("linear_road", 20_000)), event_time="at", delay="0 seconds")

cars = source.aggregate(
    by=[*SEGMENT, "vehicle"], windows=MINUTE, speed=ab.avg("speed"), name="cars"
)
speeds = cars.aggregate(
    by=SEGMENT,
    windows=ab.sliding("5 minutes", every="1 minute"),
    speed=ab.avg("speed"),
    name="speeds",
)
volumes = cars.aggregate(by=SEGMENT, windows=MINUTE, volume=ab.count(), name="volumes")
tolls = ab.join(speeds, volumes, by=SEGMENT, window=MINUTE, name="tolls").map(
    toll
)  # of windows that end with this minute

speeds.to(ab.parquet("out/linear_road/speeds"))
volumes.to(ab.parquet("out/linear_road/volumes"))
tolls.to(ab.parquet("out/linear_road/tolls"))

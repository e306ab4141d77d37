"""The mood of tweets: those in English are scored word by word.

Results are averages per region and overall, and a ranking of hashtags. This is the Twitter
Sentiment Analysis topology of X. Liu's thesis (Fig. 3.10), with our own tweets and word list.

anabranch run examples/sentiment.py --fresh --for "30 seconds" --finish
"""

from made_up import chance, numbers, one_of, second
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab

SCORES = {
    "lovely": 4,
    "great": 3,
    "good": 2,
    "calm": 1,
    "slow": -1,
    "cold": -1,
    "late": -2,
    "bad": -3,
    "awful": -4,
}
SMALL_WORDS = {
    "English": ("the", "is", "and"),
    "German": ("das", "ist", "und"),
    "Spanish": ("el", "es", "y"),
}
THINGS = ("coffee", "train", "match", "garden", "concert", "river")
HASHTAGS = ("#friday", "#weather", "#football", "#music", "#commute", "#spring")
REGIONS = ("Africa", "Americas", "Asia", "Europe", "Oceania")


def tweets(numbers: DataFrame) -> DataFrame:
    """Made-up tweets, 200 per second, most of them in English.

    For example: The coffee is great and late #friday
    """
    region, hashtag = chance(1), F.pow(chance(2), 2)
    moods = [
        one_of(list(SCORES), chance(salt) * (0.7 + 0.15 * region + 0.15 * hashtag))
        for salt in (3, 4)
    ]
    texts = [
        F.format_string(
            f"{the.title()} %s {is_} %s {and_} %s %s",
            one_of(THINGS, chance(5)),
            *moods,
            one_of(HASHTAGS, hashtag),
        )
        for the, is_, and_ in SMALL_WORDS.values()
    ]
    return numbers.select(
        second(F.col("value") / 200).alias("at"),
        one_of(REGIONS, region).alias("region"),
        F.get(F.array(*texts), F.floor(3 * F.pow(chance(6), 3)).cast("int")).alias("text"),
    )


def split(df: DataFrame) -> DataFrame:
    """The words of a tweet, and its hashtag."""
    return df.select(
        "at",
        "region",
        F.split(F.lower("text"), " ").alias("words"),
        F.regexp_extract("text", r"#\w+", 0).alias("hashtag"),
    )


def english(df: DataFrame) -> DataFrame:
    """Tweets with more small words of English than of any other language."""
    found = {
        name: F.size(F.array_intersect("words", F.array(*map(F.lit, small))))
        for name, small in SMALL_WORDS.items()
    }
    return df.filter(found["English"] > F.greatest(found["German"], found["Spanish"]))


def scored(df: DataFrame) -> DataFrame:
    """Adds the sum of the words' scores."""
    scores = F.create_map(*(F.lit(part) for pair in SCORES.items() for part in pair))
    of_word = F.transform("words", lambda word: F.coalesce(scores[word], F.lit(0)))
    return df.withColumn(
        "score", F.aggregate(of_word, F.lit(0), lambda total, score: total + score)
    )


WINDOWS = [ab.tumbling("1 minute"), ab.sliding("5 minutes", every="1 minute")]

app = ab.Topology("sentiment")
scores = (
    app.source(tweets(numbers("sentiment", 20_000)), event_time="at", delay="0 seconds")
    .map(split)
    .map(english)
    .map(scored)
)

regions = scores.aggregate(
    by="region", windows=WINDOWS, tweets=ab.count(), mood=ab.avg("score"), name="regions"
)
hashtags = scores.aggregate(
    by="hashtag", windows=WINDOWS, tweets=ab.count(), mood=ab.avg("score"), name="hashtags"
)
overall = (
    regions["1 minute"]
    .aggregate(
        by=[],
        windows=WINDOWS,
        tweets=ab.sum("tweets"),
        score=ab.sum("mood * tweets"),
        name="overall",
    )
    .map(lambda df: df.select("*", (F.col("score") / F.col("tweets")).alias("mood")).drop("score"))
)
trends = hashtags["1 minute"].aggregate(
    by=[],
    windows=ab.tumbling("1 minute"),
    most=ab.max_by("hashtag", "tweets"),
    happiest=ab.max_by("hashtag", "mood"),
    saddest=ab.min_by("hashtag", "mood"),
    name="trends",
)

regions.to(ab.parquet("out/sentiment/regions"))
hashtags.to(ab.parquet("out/sentiment/hashtags"))
overall.to(ab.parquet("out/sentiment/overall"))
trends.to(ab.parquet("out/sentiment/trends"))

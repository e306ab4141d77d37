"""Words in lines of text: the count of each word per minute, and the ten most frequent words.

anabranch run examples/word_count.py --fresh --for "30 seconds" --finish
"""

from made_up import chance, numbers, one_of, second
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab

WORDS = (
    "the of and a to in is water that it was river on with as by at boat from bank or lake be "
    "this rain which stone fish not bridge are mill but mud had ferry his flood her reed they "
    "island were delta has sand one otter all heron ford weir"
).split()  # most frequent first


def lines(numbers: DataFrame) -> DataFrame:
    """Made-up lines of eight words, 100 per second."""
    words = [one_of(WORDS, F.pow(chance(i), 2)) for i in range(8)]
    return numbers.select(
        second(F.col("value") / 100).alias("at"), F.initcap(F.concat_ws(" ", *words)).alias("line")
    )


class Top:
    """The most frequent words by their counts: an aggregate of our own."""

    state_type = list[tuple[int, str]]
    result_type = "array<struct<word: string, n: bigint>>"

    def init(self):
        return []

    def add(self, state, word, n):
        return self.merge(state, [(n, word)])

    def merge(self, left, right):
        return sorted([*left, *right], key=lambda each: (-each[0], each[1]))[:10]

    def finish(self, state):
        return [{"word": word, "n": n} for n, word in state]


app = ab.Topology("word_count")
text = app.source(lines(numbers("word_count", 20_000)), event_time="at", delay="0 seconds")
words = text.map(lambda df: df.select("at", F.explode(F.split(F.lower("line"), " ")).alias("word")))
counts = words.aggregate(by="word", windows=ab.tumbling("1 minute"), n=ab.count(), name="counts")
top = counts.aggregate(
    by=[],
    windows=ab.tumbling("1 minute"),
    words=ab.sum("n"),
    top=ab.udaf(Top)("word", "n"),
    name="top",
)

counts.to(ab.parquet("out/word_count/counts"))
top.to(ab.parquet("out/word_count/top"))

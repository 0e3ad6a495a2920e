"""Counts durations in buckets, so that percentiles of many minutes can be computed from theirs.

Bucket 0 has all durations up to LEAST. The upper bound of each further bucket is GAMMA times that
of the one before: bucket i ends at LEAST * GAMMA ** i. So a duration is known to within 5 per cent,
or to within LEAST. Such histograms are merged by adding up their counts, which loses nothing. They
are texts of bucket and count, ``0:3 17:120 18:4``; monitoring/live/histogram.py reads them.

The buckets are those of DDSketch (Masson, Rim, Lee: VLDB 2019).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

ERROR = 0.05
GAMMA = (1 + ERROR) / (1 - ERROR)
LEAST = 0.001  # seconds


def bucket(seconds: float) -> int:
    """Return the number of the bucket of a duration."""
    return max(0, math.ceil(math.log(max(seconds, LEAST) / LEAST) / math.log(GAMMA)))


def buckets(seconds: Column) -> Column:
    """Return an aggregate: the numbers of the buckets of all durations of the group, repeated."""
    from pyspark.sql import functions as f

    beyond = f.ln(f.greatest(seconds, f.lit(LEAST)) / f.lit(LEAST)) / f.lit(math.log(GAMMA))
    # greatest() leaves out NULL, which is not a duration.
    return f.collect_list(f.when(seconds.isNotNull(), f.ceil(beyond).cast("int")))


def as_text(numbers: Column) -> Column:
    """Return the histogram of an array of numbers of buckets."""
    from pyspark.sql import functions as f

    def counted(number: Column) -> Column:
        count = f.size(numbers) - f.size(f.array_remove(numbers, number))
        return f.concat(number.cast("string"), f.lit(":"), count.cast("string"))

    return f.array_join(f.transform(f.array_sort(f.array_distinct(numbers)), counted), " ")


def merged(texts: Iterable[str]) -> str:
    """Return the histogram of all durations that are in these histograms."""
    counts: Counter[int] = Counter()
    for text in texts:
        for pair in text.split():
            number, _, count = pair.partition(":")
            counts[int(number)] += int(count)
    return " ".join(f"{number}:{counts[number]}" for number in sorted(counts))

"""Checks what became of single messages: done once, or dead, or waiting as a retry."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sparkjobs.audit.findings import LOST, PLACE, REPEAT, Fault, findings

# The most offsets of a claim: the claims of a retry's message begin at most this far before it.
NEAR = 1000


def outcome_findings(
    known: DataFrame, retries: DataFrame, dead: DataFrame, cursors: DataFrame
) -> DataFrame:
    """Return lost and repeated messages.

    ``known`` are the deliveries with the columns of their cursors.
    """
    return (
        _failures(known, retries)
        .unionByName(_redriven(known, retries, dead, cursors))
        .unionByName(_done_again(known, dead))
    )


def _failures(known: DataFrame, retries: DataFrame) -> DataFrame:
    """Find messages that a delivery did not do, and that are neither retries nor dead.

    A delivery says how many of its messages are dead, but not which.
    """
    unsettled = F.col("progress") <= F.col("last_offset")
    ended = F.col("state").isin("DONE", "RETRY", "RELEASED")
    # A reset revokes waiting retries, and the cursor gives their offsets out again.
    stands = F.col("reset_at").isNull() | (F.col("finished_at") > F.col("reset_at"))
    troubled = known.where(
        ended & ~F.col("is_ordered") & stands & (unsettled | (F.col("failed") > 0))
    ).select(
        *(*PLACE, "id", "failed", "progress", "floor", "end", "first_offset", "last_offset"),
        (F.col("dead") + F.col("missing")).alias("given_up"),
        F.explode(F.sequence("first_offset", "last_offset")).alias("offset"),
    )
    waiting = retries.select(*PLACE, "offset", F.lit(True).alias("is_waiting")).distinct()
    later = (
        known.where(F.col("kind") == "retry")
        .groupBy(*PLACE, F.col("first_offset").alias("offset"))
        .agg(F.max("id").alias("last_retry"))
    )
    outside = (F.col("offset") < F.col("floor")) | (F.col("offset") >= F.col("end"))
    seen_again = F.coalesce(F.col("last_retry") > F.col("id"), F.lit(False))
    goes_on = outside | F.coalesce(F.col("is_waiting"), F.lit(False)) | seen_again
    open_end = F.col("offset") >= F.col("progress")
    counted = (
        troubled.join(waiting, [*PLACE, "offset"], "left")
        .join(later, [*PLACE, "offset"], "left")
        .groupBy(*PLACE, "id", "failed", "given_up", "first_offset", "last_offset")
        .agg(
            F.count_if(open_end & ~goes_on).alias("nowhere"),
            F.count_if(~open_end & goes_on).alias("found"),
        )
    )
    expected = F.col("failed") - (F.col("given_up") - F.col("nowhere"))
    return findings(
        counted,
        Fault(
            LOST,
            "failed, and is neither a retry nor dead",
            (F.col("nowhere") > F.col("given_up")) | (F.col("found") < expected),
            F.col("first_offset"),
            F.col("last_offset"),
        ),
    )


def _redriven(
    known: DataFrame, retries: DataFrame, dead: DataFrame, cursors: DataFrame
) -> DataFrame:
    """Find redriven dead letters that are not retries and were not delivered since."""
    at_place = [*PLACE, "offset"]
    claimed = (
        known.where(F.col("kind") == "retry")
        .groupBy(*PLACE, F.col("first_offset").alias("offset"))
        .agg(F.max("claimed_at").alias("last_claim"))
    )
    redriven = dead.where(F.col("redriven_at").isNotNull()).join(F.broadcast(cursors), PLACE)
    stands = F.col("reset_at").isNull() | (F.col("redriven_at") > F.col("reset_at"))
    kept = F.col("offset") >= F.col("floor")
    looked = (
        redriven.where(stands & kept)
        .join(retries.select(*at_place), at_place, "leftanti")
        .join(claimed, at_place, "left")
    )
    never = F.col("last_claim").isNull() | (F.col("last_claim") < F.col("redriven_at"))
    offset = F.col("offset")
    return findings(looked, Fault(LOST, "redriven, and is not a retry", never, offset, offset))


def _done_again(known: DataFrame, dead: DataFrame) -> DataFrame:
    """Find messages that were done twice, by their claim and retries.

    After a reset, a replay or a redrive a message may be done again.
    """
    at_place = [*PLACE, "offset"]
    asked = (
        known.where((F.col("kind") == "replay") | F.col("reset_at").isNotNull())
        .select(*PLACE)
        .distinct()
    )
    redriven = dead.where(F.col("redriven_at").isNotNull()).select(*at_place).distinct()
    done = (
        known.where((F.col("kind") == "retry") & (F.col("state") == "DONE"))
        .groupBy(*PLACE, F.col("first_offset").alias("offset"))
        .agg(F.count(F.lit(1)).alias("times"), F.max("finished_at").alias("done_at"))
        .join(F.broadcast(asked), PLACE, "leftanti")
        .join(redriven, at_place, "leftanti")
    )
    near = F.explode(F.sequence(_near("first_offset"), _near("last_offset")))
    claims = known.where((F.col("kind") == "new") & (F.col("state") == "DONE")).select(
        *PLACE, "first_offset", "last_offset", near.alias("near")
    )
    by_claim = (
        done.withColumn("near", _near("offset"))
        .join(claims, [*PLACE, "near"])
        .where(F.col("offset").between(F.col("first_offset"), F.col("last_offset")))
        .select(*PLACE, "offset")
        .distinct()
        .withColumn("claimed", F.lit(1))
    )
    times = F.col("times") + F.coalesce(F.col("claimed"), F.lit(0))
    waiting = (
        dead.where(F.col("redriven_at").isNull())
        .groupBy(*at_place)
        .agg(F.min("died_at").alias("died_at"))
    )
    looked = done.join(by_claim, at_place, "left").join(waiting, at_place, "left")
    offset = F.col("offset")
    return findings(
        looked,
        Fault(REPEAT, "done more than once", times > 1, offset, offset),
        Fault(REPEAT, "dead, and done after", F.col("done_at") > F.col("died_at"), offset, offset),
    )


def _near(name: str) -> Column:
    return F.floor(F.col(name) / NEAR)

"""Checks the groups: each message that a group has passed is done once, dead, or to be retried.

These are pure functions of four frames. Deliveries are of cluster groups. ``cursors`` has the
columns CURSORS: the group has passed the offsets floor … end - 1, and their deliveries are kept.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sparkjobs.audit.findings import LOST, ORDER, PLACE, REPEAT, Fault, findings
from sparkjobs.audit.outcomes import outcome_findings

# Offsets, or ids, of what one task sorts at a time: never the whole history of a group.
BUCKET = 100_000

CURSORS = (
    "group_id long, partition_id long, floor long, end long, is_ordered boolean,"
    " is_by_key boolean, reset_at timestamp"
)


def group_findings(
    deliveries: DataFrame,
    retries: DataFrame,
    dead: DataFrame,
    cursors: DataFrame,
    bucket: int = BUCKET,
) -> DataFrame:
    """Return lost deliveries, repeats and order breaks."""
    known = deliveries.join(F.broadcast(cursors), PLACE)
    claims = known.where(F.col("kind") == "new").select(
        "*", _reach(F.lit(True)).alias("reach"), _reach(F.lit(False)).alias("done_reach")
    )
    return (
        _coverage(claims, cursors, bucket)
        .unionByName(_order(claims, bucket))
        .unionByName(outcome_findings(known, retries, dead, cursors))
    )


def _reach(is_passed: Column) -> Column:
    """Return the last offset that the cursor has passed by this claim, or has certainly done.

    A group that is not ordered never claims a range again: a failed message becomes a retry. The
    cursor of an ordered group goes back to a failed message, unless that is dead. That of a group
    by key goes back to few of them, and a delivery does not say which: it may have passed all.
    If nothing has failed, and yet it is to be repeated, its last message was postponed.
    """
    failed, given_up = F.col("failed"), F.col("dead") + F.col("missing")
    settled = F.col("progress") - 1
    is_settled = F.col("progress") > F.col("last_offset")
    postponed = (F.col("state") == "RETRY") & (failed == 0) & is_settled
    fails_again = failed > F.when(is_passed, given_up).otherwise(F.col("dead"))
    again = F.when(fails_again | postponed, 1).otherwise(0)
    died = F.when(
        is_passed & (F.col("progress") <= F.col("last_offset")) & (given_up > failed), 1
    ).otherwise(0)
    ended = F.col("state").isin("RETRY", "RELEASED")
    return (
        F.when(F.col("is_by_key") & is_passed, F.col("last_offset"))
        .when(F.col("is_ordered") & ended, settled - again + died)
        .when(F.col("is_ordered") & (F.col("state") == "START") & ~is_passed, settled)
        .otherwise(F.col("last_offset"))
    )


def _coverage(claims: DataFrame, cursors: DataFrame, bucket: int) -> DataFrame:
    """Find offsets that the cursor has passed and claims do not cover, or cover twice.

    They may be covered twice if the cursor was moved back. Claims are sorted in buckets of offsets;
    how far those of earlier buckets have reached is known from one row of each bucket.
    """
    columns = (*PLACE, "floor", "end", "reset_at", "first_offset", "reach", "done_reach", "id")
    # The end is added as a claim, so that a gap before it is found like any other.
    last = cursors.select(
        *PLACE,
        *("floor", "end", "reset_at"),
        *(F.col("end").alias(name) for name in ("first_offset", "reach", "done_reach")),
        F.lit(None).cast("long").alias("id"),
    )
    before = F.col("end") > F.col("first_offset")
    number = F.floor(F.col("first_offset") / bucket).alias("bucket")
    rows = claims.where(before).select(*columns).union(last).select("*", number)
    w = (
        Window.partitionBy(*PLACE, "bucket")
        .orderBy("first_offset", F.col("id").asc_nulls_last())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    floor = F.col("floor") - 1
    looked = rows.join(_earlier(rows), [*PLACE, "bucket"]).select(
        "*",
        # Those that are unknown (NULL) are left out.
        F.greatest(floor, "earlier_reach", F.max("reach").over(w)).alias("reached"),
        F.greatest("earlier_done", F.max("done_reach").over(w)).alias("done_before"),
    )
    first = F.col("first_offset")
    claimed = F.col("id").isNotNull() & F.col("reset_at").isNull()
    return findings(
        looked,
        Fault(
            LOST,
            "passed, but in no delivery",
            first > F.col("reached") + 1,
            F.col("reached") + 1,
            first - 1,
        ),
        Fault(
            REPEAT,
            "claimed again",
            claimed & (first <= F.col("done_before")),
            first,
            F.least(F.col("done_before"), F.col("reach")),
        ),
    )


def _earlier(rows: DataFrame) -> DataFrame:
    """Return how far the claims of all buckets before each bucket have reached."""
    w = Window.partitionBy(*PLACE).orderBy("bucket").rowsBetween(Window.unboundedPreceding, -1)
    reached = rows.groupBy(*PLACE, "bucket").agg(
        F.max("reach").alias("reach"), F.max("done_reach").alias("done_reach")
    )
    return reached.select(
        *(*PLACE, "bucket"),
        F.max("reach").over(w).alias("earlier_reach"),
        F.max("done_reach").over(w).alias("earlier_done"),
    )


def _order(claims: DataFrame, bucket: int) -> DataFrame:
    """Find order breaks: an ordered group has one claim at a time, each after the last one.

    Claims are sorted in buckets of ids; the last claim of the bucket before is known from one row
    of each bucket.
    """
    ordered = claims.where(
        F.col("is_ordered") & (F.col("state") != "SKIPPED") & F.col("reset_at").isNull()
    ).select(
        *(*PLACE, "id", "first_offset", "last_offset", "claimed_at"),
        F.struct("first_offset", "finished_at").alias("claim"),
        F.floor(F.col("id") / bucket).alias("bucket"),
    )
    w = Window.partitionBy(*PLACE, "bucket").orderBy("id")
    looked = (
        ordered.join(_claims_before(ordered), [*PLACE, "bucket"])
        .withColumn("before", F.coalesce(F.lag("claim").over(w), "claim_before"))
        .where(F.col("before").isNotNull())
    )
    ended = F.col("before.finished_at")
    open_before = ended.isNull() | (F.col("claimed_at") < ended)
    back = F.col("first_offset") < F.col("before.first_offset")
    return findings(
        looked,
        Fault(
            ORDER,
            "claimed before the one before it had ended",
            open_before | back,
            F.col("first_offset"),
            F.col("last_offset"),
        ),
    )


def _claims_before(ordered: DataFrame) -> DataFrame:
    """Return the last claim of all buckets before each bucket; NULL for the first."""
    w = Window.partitionBy(*PLACE).orderBy("bucket")
    last = ordered.groupBy(*PLACE, "bucket").agg(F.max_by("claim", "id").alias("last"))
    return last.select(*PLACE, "bucket", F.lag("last").over(w).alias("claim_before"))

"""What reconcile finds: broken promises, each with the place where it is broken."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

PLACE = ["group_id", "partition_id"]

HOLE, REPEAT, LOST, ORDER = "hole", "repeat", "lost delivery", "order break"

# group_id is NULL for what is wrong with the log itself.
FINDING = (
    "kind string, partition_id long, group_id long, first_offset long, last_offset long,"
    " detail string"
)


def finding(
    frame: DataFrame,
    kind: str,
    detail: str,
    first: Column,
    last: Column,
    group: Column | None = None,
) -> DataFrame:
    """One finding for each row of the frame."""
    nobody = F.lit(None).cast("long")
    return frame.select(
        F.lit(kind).alias("kind"),
        "partition_id",
        (nobody if group is None else group).alias("group_id"),
        first.alias("first_offset"),
        last.alias("last_offset"),
        F.lit(detail).alias("detail"),
    )

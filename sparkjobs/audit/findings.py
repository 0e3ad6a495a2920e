"""Defines what reconcile finds: broken promises, each with the place where it is broken."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

PLACE = ["group_id", "partition_id"]

HOLE, REPEAT, LOST, ORDER = "hole", "repeat", "lost delivery", "order break"


@dataclass(frozen=True)
class Fault:
    """Findings: of rows where ``when`` holds, at the offsets ``first`` … ``last``."""

    kind: str
    detail: str
    when: Column
    first: Column
    last: Column


def findings(frame: DataFrame, *faults: Fault, group: Column | None = None) -> DataFrame:
    """Return the findings of a frame, found in one pass; a row may have several.

    Columns: kind, partition_id, group_id (NULL for what is wrong with the log itself),
    first_offset, last_offset, detail.
    """
    found = [
        F.when(
            fault.when,
            F.struct(
                F.lit(fault.kind).alias("kind"),
                "partition_id",
                (F.col("group_id") if group is None else group).alias("group_id"),
                fault.first.cast("long").alias("first_offset"),
                fault.last.cast("long").alias("last_offset"),
                F.lit(fault.detail).alias("detail"),
            ),
        )
        for fault in faults
    ]
    each = F.explode(F.array_compact(F.array(*found))).alias("found")
    return frame.select(each).select("found.*")

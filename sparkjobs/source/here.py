"""Loads little in this process: to plan and to read it in others costs more than to read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkjobs.source.arrow import type_of
from sparkjobs.source.datasource import EmsReader
from sparkjobs.source.request import SourceRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Rows up to which that holds. They are in the memory of this process and of the JVM.
FEW = 20_000


def load(
    spark: SparkSession, schema: StructType, options: Mapping[str, str], rows: int
) -> DataFrame:
    """Return what the source gives; ``rows`` are the most that it can be.

    Few rows are one partition, which Spark need not shuffle, and what a task of the source raises
    is raised at once.
    """
    if rows > FEW:
        return spark.read.format("ems").schema(schema).options(**options).load()
    reader = EmsReader(SourceRequest.of(options), schema)
    found = [batch for split in reader.partitions() for batch in reader.read(split)]
    columns = pa.schema([(column.name, type_of(column)) for column in schema])
    return spark.createDataFrame(pa.Table.from_batches(found, columns), schema).coalesce(1)

"""Defines the Spark source "ems": topics, deliveries, retries and dead letters, batch and stream.

    spark.read.format("ems").option("topic", "flights").load()

MySQL, MariaDB and SQLite are read in the same way: Arrow batches from a server-side cursor. Filters
are not pushed down (in Spark 4.3.0 they leak between uses of one DataFrame): options say what to
read, see request.py. Spark plans a loaded DataFrame once, so load it again in every job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from sparkjobs.database import connected
from sparkjobs.errors import BadOption
from sparkjobs.sink.options import SinkOptions
from sparkjobs.sink.writer import EmsStreamWriter, EmsWriter
from sparkjobs.source import catalog
from sparkjobs.source.reading import batches
from sparkjobs.source.request import SourceRequest
from sparkjobs.source.splits import Split, ranges
from sparkjobs.source.tasks import tasks


class EmsSource(DataSource):
    """The data source. It is pickled by reference, so executors must be able to import it."""

    @classmethod
    def name(cls) -> str:
        return "ems"

    def schema(self) -> StructType:
        columns = SourceRequest.of(catalog.of_source(self.options)).schema
        return catalog.carrying(columns, self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        request = SourceRequest.of(catalog.of_source(self.options, schema))
        if request.reader or request.protect:
            raise BadOption("reader and protect are for a stream")
        return EmsReader(request, checked(schema, request.source.schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        try:
            from sparkjobs.source.known import KnownReader
            from sparkjobs.source.stream import EmsStreamReader
        except ImportError as error:  # what it needs came with Spark 4.2
            raise BadOption(f"to read a stream needs pyspark 4.2 or newer: {error}") from error
        request = SourceRequest.of(catalog.of_source(self.options, schema))
        columns = checked(schema, request.source.schema)
        if not request.selection.assigned:
            return KnownReader(request, columns)
        # What is known is how far a stream is in whole topics.
        if request.reader or request.protect:
            raise BadOption("reader and protect are for whole topics, not for assign")
        return EmsStreamReader(request, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return EmsWriter(self._of_sink(schema), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return EmsStreamWriter(self._of_sink(schema), schema, overwrite)

    def _of_sink(self, schema: StructType) -> SinkOptions:
        options = SinkOptions.of(catalog.of_sink(self.options, schema))
        return replace(options, of_table=bool(catalog.carried(schema)))


class EmsReader(DataSourceReader):
    """A reader: the driver plans, executors read; they get the path of the option file."""

    def __init__(self, request: SourceRequest, schema: StructType) -> None:
        self.request = request
        self.config = request.configuration()
        self.columns = schema

    def partitions(self) -> Sequence[InputPartition]:
        with connected(self.config) as connection:
            wanted = ranges(connection, self.request)
            planned = tasks(connection, self.request, self.columns, wanted)
        return planned or [Split(())]  # Spark needs at least one

    def read(self, partition: Split) -> Iterator[Any]:
        return batches(self.config, self.request, self.columns, partition)


def checked(asked: StructType, whole: StructType) -> StructType:
    """Return the columns ``asked``; raises BadOption if one is not a column of the table."""
    for column in asked:
        if column.name not in whole.names:
            raise BadOption(f"no column {column.name!r}: there are {', '.join(whole.names)}")
        if column.dataType != whole[column.name].dataType:
            raise BadOption(f"{column.name} is {whole[column.name].dataType.simpleString()}")
    return asked

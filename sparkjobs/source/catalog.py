"""Takes the options of a table of Spark's catalog: ``CREATE TABLE … USING ems OPTIONS (…)``.

Spark asks for the columns of a table when it is created, and gives all that the catalog keeps of
it: its properties, and its OPTIONS twice, the second time with a word before each name. To read and
to write it later, Spark 4.3 gives the columns, and no option. So the columns carry the options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from sparkjobs.sink.options import NAMES

PREFIX = "option."
# In the metadata of each column.
KEY = "ems.options"
# What Spark and its catalog may add to the options of a user, in lower case.
OF_CATALOG = {
    *("path", "location", "provider", "owner", "comment", "collation", "external"),
    *("is_managed_location", "serialization.format"),
}
OF_SINK = NAMES - {"config", "namespace", "topic"}


def of_table(options: Mapping[str, str]) -> dict[str, str]:
    """Return the OPTIONS of a table that is being created; without one, nothing."""
    given = {name.lower(): value for name, value in options.items()}
    return {n.removeprefix(PREFIX): value for n, value in given.items() if n.startswith(PREFIX)}


def carrying(columns: StructType, options: Mapping[str, str]) -> StructType:
    """Return the columns with the OPTIONS of the table, if it is being created."""
    found = of_table(options)
    if not found:
        return columns
    metadata = {KEY: json.dumps(found)}
    return StructType([StructField(one.name, one.dataType, metadata=metadata) for one in columns])


def carried(columns: StructType) -> dict[str, str]:
    """Return the options that columns carry."""
    for column in columns:
        if KEY in column.metadata:
            return dict(json.loads(column.metadata[KEY]))
    return {}


def of_source(options: Mapping[str, str], columns: StructType | None = None) -> dict[str, str]:
    """Return the options for a read. A table has those of writes, too, which are left out."""
    table = of_table(options) or carried(columns or StructType())
    return {**{n: v for n, v in table.items() if n not in OF_SINK}, **_own(options)}


def of_sink(options: Mapping[str, str], columns: StructType) -> dict[str, str]:
    """Return the options for a write. A table has those of reads, too, which are left out."""
    return {**{n: v for n, v in carried(columns).items() if n in NAMES}, **_own(options)}


def _own(options: Mapping[str, str]) -> dict[str, str]:
    if of_table(options):
        return {}  # which are the properties, and the OPTIONS once more
    given = {name.lower(): value for name, value in options.items()}
    return {name: value for name, value in given.items() if name not in OF_CATALOG}

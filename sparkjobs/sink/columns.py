"""Defines which columns the sink "ems" takes, and checks those of a DataFrame."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from sparkjobs.errors import BadOption
from sparkjobs.sink.options import SinkOptions

TEXT: tuple[type[DataType], ...] = (StringType,)
NUMBER: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)

COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "topic": TEXT,
    "key": TEXT + NUMBER,
    "body": (*TEXT, BinaryType),
    "value": (*TEXT, BinaryType),
    "body_type": TEXT,
    "tag": TEXT,
    "headers": (*TEXT, MapType),
    "deliver_at": (TimestampType,),
    "partition": NUMBER,
    "dedup_key": TEXT + NUMBER,
}

# The names that a body may have.
BODY = ("body", "value")

# What the source gives of a message, and nobody can set: a table of SQL has it, with NULL.
GIVEN = {
    *("partition_id", "offset", "message_id", "size", "producer", "delayed"),
    *("created_at", "sequenced_at", "timestamp", "body_error"),
}


def check(schema: StructType, options: SinkOptions) -> None:
    """Check that the columns are those of a message; raises BadOption."""
    for column in schema:
        if options.of_table and column.name in GIVEN:
            continue
        types = COLUMNS.get(column.name)
        if types is None:
            raise BadOption(
                f"the sink has no column {column.name!r}: select some of {', '.join(COLUMNS)}"
            )
        if not isinstance(column.dataType, types) or not _maps_strings(column.dataType):
            hint = ": use to_json(struct(…)), with bodyType json" if column.name in BODY else ""
            raise BadOption(
                f"{column.name} must be {names_of(types)},"
                f" not {column.dataType.simpleString()}{hint}"
            )
    bodies = [name for name in BODY if name in schema.names]
    if len(bodies) != 1:
        raise BadOption("value and body say the same" if bodies else "there is no column 'body'")
    if options.topic is None and "topic" not in schema.names:
        raise BadOption("name the topic: as an option, or as a column")
    if options.dedup_window and "dedup_key" not in schema.names:
        raise BadOption("dedupWindow is of no use without a column dedup_key")


def names_of(types: tuple[type[DataType], ...]) -> str:
    """Return the names of types as users know them."""
    names = [type_.typeName() for type_ in types if type_ not in NUMBER]
    names += ["integer"] if set(NUMBER) <= set(types) else []
    return " or ".join(names).replace("map", "map<string,string>")


def _maps_strings(found: DataType) -> bool:
    """Tell whether a map is one of strings to strings; other types are not maps."""
    if not isinstance(found, MapType):
        return True
    return isinstance(found.keyType, StringType) and isinstance(found.valueType, StringType)

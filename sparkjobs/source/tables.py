"""Defines what the source "ems" selects: for each table its columns as SQL, and its split key.

Instants are selected as microseconds since 1970 in UTC. Otherwise the driver would build an object
for each, in the time zone of its session.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import StructType, TimestampType

from sparkjobs.config import MYSQL
from sparkjobs.errors import BadOption
from sparkjobs.instants import MICROSECONDS
from sparkjobs.source.schemas import DEAD, DELIVERIES, LOADED, RETRIES

PLACE = {"topic": "t.`name`", "partition": "p.`number`", "group": "g.`name`"}
# Columns of messages that are stored under other names.
OF_MESSAGES = {"message_id": "id", "timestamp": "sequenced_at"}
NAMES = (
    " LEFT JOIN `ems_partition` p ON p.`id` = r.`partition_id`"
    " LEFT JOIN `ems_topic` t ON t.`id` = p.`topic_id`"
    " LEFT JOIN `ems_group` g ON g.`id` = r.`group_id`"
)

# SQLite names unique indexes itself. Its primary key is not an index: NOT INDEXED means to use it.
SQLITE_HINT = {"PRIMARY": " NOT INDEXED"}


@dataclass(frozen=True)
class SourceTable:
    """One table: its rows have the alias r, and are split by ``key`` with ``index``.

    ``finished`` is the column that the options since and until compare.
    """

    name: str
    schema: StructType
    key: str
    index: str
    finished: str

    def select(self, vendor: str, columns: StructType, index: str) -> str:
        """Return the SELECT of these columns FROM the table by this index, up to WHERE."""
        named = [name for name in columns.names if name in PLACE]
        expressions = ", ".join(self._expression(vendor, name) for name in columns.names)
        hint = f" FORCE INDEX ({index})" if vendor == MYSQL else SQLITE_HINT.get(index, "")
        joins = NAMES if named else ""
        return f"SELECT {expressions} FROM `{self.name}` r{hint}{joins}"  # noqa: S608 - our names

    def _expression(self, vendor: str, name: str) -> str:
        if name in PLACE:
            return PLACE[name]
        if name == "delayed":
            return "r.`due_at` > '1970-01-01 00:00:00'"
        if name == "headers" and vendor == MYSQL:
            return "CAST(r.`headers` AS CHAR)"  # as the server has it: drivers may write it anew
        stored = OF_MESSAGES.get(name, name) if self.schema is LOADED else name
        if isinstance(self.schema[name].dataType, TimestampType):
            return MICROSECONDS[vendor].format(f"r.`{stored}`")
        return f"r.`{stored}`"


TABLES = {
    "messages": SourceTable("ems_msg", LOADED, "offset", "ems_msg_log", "sequenced_at"),
    "deliveries": SourceTable("ems_topic_group_log", DELIVERIES, "id", "PRIMARY", "finished_at"),
    "retries": SourceTable("ems_retry_msg", RETRIES, "id", "PRIMARY", "due_at"),
    "dead": SourceTable("ems_dead_msg", DEAD, "id", "PRIMARY", "died_at"),
}


def table(name: str) -> SourceTable:
    """Return the table that the option ``table`` names; raises BadOption."""
    if name not in TABLES:
        raise BadOption(f"table must be one of {', '.join(TABLES)}, not {name!r}")
    return TABLES[name]

"""Writes a committed message into the inbox, as a send does."""

from __future__ import annotations

import json
from time import monotonic

from django.db import connections

from streams import conf, runtime_settings
from streams.api import SendResult
from streams.database.sql import send as sql
from streams.database.transactions import after_commit
from streams.errors import MessageTooLarge
from streams.models import PreparedRow
from streams.produce.access import make_sure, writable
from streams.produce.insert import kept_cursor
from streams.produce.outgoing import Row
from streams.produce.partitioning import choose
from streams.wakeup import announce


def place(row: PreparedRow, using: str) -> SendResult:
    """INSERT the message, in the open transaction; its producer is who has prepared it.

    A plain INSERT with values: INSERT … SELECT would take the lock on the ids of the whole table
    on MariaDB, and producers would wait. Raises a StreamsError, and has inserted nothing, if the
    topic takes no such message at present.
    """
    looked_up = monotonic()
    info = writable(row.topic, using)
    limit = runtime_settings.system("msgMaxSizeInBytes", using)
    if row.size > limit:
        raise MessageTooLarge(
            f"Body and headers have {row.size} bytes; msgMaxSizeInBytes is {limit}."
        )
    partition_id, number = choose(row.topic, info.partitions, row.key, row.headers, row.partition)
    headers = None if row.headers is None else json.dumps(row.headers)
    content = Row(row.key, row.tag, headers, bytes(row.body), row.body_type)
    connection = connections[using]
    values, parameters = content.values(connection.vendor, partition_id, None, sent_by=row.producer)
    is_small = len(content.body) <= sql.HEX_BYTES
    cursor = kept_cursor(connection) if is_small else connection.cursor()
    cursor.execute(sql.INSERT_MESSAGES + values, parameters)
    message_id = cursor.lastrowid
    if monotonic() - looked_up > conf.SURE_SECONDS:
        make_sure([info], [message_id], using)
    if conf.settings().REDIS is not None:
        after_commit(lambda: announce(using, [row.topic]), using)
    return SendResult(message_id, row.topic, number)

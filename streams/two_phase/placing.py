"""Writes a committed message into the inbox, as a send does."""

from __future__ import annotations

import json
from time import monotonic

from django.db import connections
from django.utils.translation import gettext as _

from streams import conf, runtime_settings
from streams.api import SendResult
from streams.database.transactions import after_commit
from streams.errors import MessageTooLarge
from streams.models import PreparedRow
from streams.produce.access import make_sure, writable
from streams.produce.insert import insert_chunk
from streams.produce.outgoing import Placed, Row
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
            _("Body and headers have %(size)d bytes; msgMaxSizeInBytes is %(limit)d.")
            % {"size": row.size, "limit": limit}
        )
    partition_id, number = choose(row.topic, info.partitions, row.key, row.headers, row.partition)
    headers = None if row.headers is None else json.dumps(row.headers)
    content = Row(row.key, row.tag, headers, bytes(row.body), row.body_type)
    values, parameters = content.values(
        connections[using].vendor, partition_id, None, sent_by=row.producer
    )
    placed = Placed(row.topic, number, None, None, row.size, values, parameters)
    (message_id,) = insert_chunk(using, [placed])
    if monotonic() - looked_up > conf.SURE_SECONDS:
        make_sure([info], [message_id], using)
    if conf.settings().REDIS is not None:
        after_commit(lambda: announce(using, [row.topic]), using)
    return SendResult(message_id, row.topic, number)

"""Completes the index of keys of a topic: entries for what was in the log before it was on."""

from __future__ import annotations

from collections.abc import Callable

from django.db import IntegrityError, connections
from django.db.models import F

from streams.database.batches import delete_rows
from streams.database.retrying import retrying
from streams.database.sql import retain
from streams.database.sql import sequence as sql
from streams.database.sql.dialect import execute, fetch
from streams.database.transactions import own_transaction
from streams.models import KeyEntry, Partition, Topic

# Messages of one transaction.
AT_ONCE = 5000


def complete(topic: Topic, using: str, say: Callable[[Partition], None] = lambda row: None) -> int:
    """Write entries for the messages of a topic that has ``index_keys``; return how many.

    It goes from the newest message to the oldest. Nothing waits for it, and it may be killed, or
    run twice at once: keys_from says in the transaction of the entries how far they reach. ``say``
    gets each partition after each step.
    """
    written = 0
    rows = Partition.objects.using(using).filter(topic=topic.pk)
    for pk in list(rows.order_by("number").values_list("pk", flat=True)):
        # From here on the sequencer writes the entries, as it reads index_keys in each pass.
        retrying(_begin, using, pk, using)
        while row := _left(pk, using):
            try:
                written += retrying(_step, using, row, using)
            except IntegrityError:  # another run has written them meanwhile
                continue
            say(row)
    return written


def _begin(pk: int, using: str) -> None:
    rows = Partition.objects.using(using).filter(pk=pk, keys_from=None, topic__index_keys=True)
    rows.update(keys_from=F("next_offset"))


def _left(pk: int, using: str) -> Partition | None:
    """Return the partition, if the index lacks messages of it, and is to have them."""
    rows = Partition.objects.using(using).filter(pk=pk, topic__index_keys=True)
    lacking = rows.filter(keys_from__gt=F("first_offset")).select_related("topic")
    return retrying(lacking.first, using)


def _step(row: Partition, using: str) -> int:
    vendor, end = connections[using].vendor, row.keys_from or 0
    start = max(row.first_offset, end - AT_ONCE)
    with own_transaction(using):
        # If first_offset has risen meanwhile, the next purge deletes the entries below it.
        # What is left of a time when the index was on: it had holes, so it was not used.
        stale = fetch(using, retain.PURGED["ems_key"][vendor], [row.pk, start, end, AT_ONCE])
        if stale:
            ids = [pk for pk, _offset in stale]
            delete_rows(KeyEntry, ids, using, "`partition_id` = %s", [row.pk])
        written = execute(using, sql.INDEX_OLDER_KEYS[vendor], [row.pk, start, end])
        # The last statement, since the sequencer passes by a partition that is locked. Whoever has
        # changed keys_from meanwhile, the entries are not what they were to be.
        unchanged = Partition.objects.using(using).filter(pk=row.pk, keys_from=end)
        if not unchanged.update(keys_from=start):
            raise IntegrityError
    return written

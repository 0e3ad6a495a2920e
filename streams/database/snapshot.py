"""Makes several reads of one moment, to compare tables while other processes write.

The reads see either all changes of a transaction or none, so an invariant that holds at every
commit holds in every snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from streams.database.transactions import in_transaction


@contextmanager
def snapshot(using: str) -> Iterator[None]:
    """Open a transaction that only reads, and sees the database as it is at its first read.

    Keep it short: while it is open the server keeps old versions of the rows that others change.
    Inside an open transaction it is a part of that one.
    """
    connection = connections[using]
    if connection.vendor == "mysql" and not in_transaction(using):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    with transaction.atomic(using=using):
        yield

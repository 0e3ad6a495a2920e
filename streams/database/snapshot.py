"""A snapshot: several reads of one moment.

For those who compare tables while everybody writes. What one transaction has changed together is
either all seen or not at all, so an invariant that holds at every commit holds in every snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from streams.database.transactions import in_transaction


@contextmanager
def snapshot(using: str) -> Iterator[None]:
    """A transaction that only reads, and sees the database as it is at its first read.

    Keep it short: while it is open the server keeps what others change. Inside an open
    transaction it is part of that one.
    """
    connection = connections[using]
    if connection.vendor == "mysql" and not in_transaction(using):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    with transaction.atomic(using=using):
        yield

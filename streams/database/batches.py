"""Deletes many rows in small batches, each by primary key; it may stop after any batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from django.db import connections
from django.db.models import QuerySet

from streams.database.retrying import retrying
from streams.database.sql.dialect import delete_by_id, execute
from streams.database.transactions import own_transaction

# Rows that one transaction deletes; it takes some milliseconds.
BATCH = 500


def delete_all(rows: QuerySet[Any], using: str, condition: str = "1 = 1") -> Iterator[int]:
    """Delete ``rows`` in batches; yield how many each has deleted.

    It waits for locked rows, and checks ``condition`` again in each row.
    """
    delete = partial(delete_rows, rows.model, using=using, condition=condition)
    return in_batches(rows, delete, using)


def in_batches(
    rows: QuerySet[Any], delete: Callable[[list[int]], int], using: str
) -> Iterator[int]:
    """Call ``delete`` with the ids of the first rows until there are none; yield what it returns.

    Each batch is read again, in the order of ``rows``, so it can be stopped after any batch and
    begun again. If ``delete`` leaves rows, the caller must stop the iteration.
    """
    while ids := retrying(list, using, rows.values_list("pk", flat=True)[:BATCH]):
        yield retrying(delete, using, ids)


def delete_rows(
    model: Any,
    ids: Sequence[int],
    using: str,
    condition: str = "1 = 1",
    parameters: Sequence[Any] = (),
) -> int:
    """Delete the rows with these ids that still meet ``condition``; returns how many."""
    if not ids:
        return 0
    statement = delete_by_id(connections[using].vendor, model._meta.db_table, ids, condition)
    with own_transaction(using):
        return execute(using, statement, parameters)

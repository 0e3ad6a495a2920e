"""The deletion of many rows: in small batches, each by primary key, and each may be the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from django.db import connections
from django.db.models import QuerySet

from streams.database.retrying import retrying
from streams.database.sql.dialect import delete_by_id, execute
from streams.database.transactions import own_transaction

# Rows of one transaction: some milliseconds.
BATCH = 500


def delete_all(rows: QuerySet[Any], using: str, condition: str = "1 = 1") -> Iterator[int]:
    """Delete ``rows`` in batches; yields how many each has deleted. It waits for rows that are
    locked, and ``condition`` is looked at again in each.
    """
    delete = partial(delete_rows, rows.model, using=using, condition=condition)
    return in_batches(rows, delete, using)


def in_batches(
    rows: QuerySet[Any], delete: Callable[[list[int]], int], using: str
) -> Iterator[int]:
    """Have ``delete`` called with the ids of the first rows until there are none; yields what it
    returns.

    Each batch is looked for anew, in the order of ``rows``: so it can be left and begun again
    anywhere. If ``delete`` leaves rows, whoever iterates ends it.
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

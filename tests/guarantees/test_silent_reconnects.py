"""A connection that was lost is never replaced behind Django's back: its session would differ."""

from __future__ import annotations

import pytest
from django.db import connection

from streams.database.transactions import own_transaction

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mysql]


def isolation() -> str:
    variable = "tx_isolation" if connection.mysql_is_mariadb else "transaction_isolation"  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT @@SESSION.{variable}, @@SESSION.sql_auto_is_null")
        return str(cursor.fetchone())


def test_a_lost_connection_is_unusable_and_the_next_one_is_as_the_first(second_connection) -> None:
    before = isolation()
    lost = connection.connection
    with second_connection().connection.cursor() as cursor:
        cursor.execute(f"KILL {lost.thread_id()}")
    assert not connection.is_usable()
    connection.errors_occurred = True
    connection.close_if_unusable_or_obsolete()
    with own_transaction("default"):
        assert isolation() == before
    assert connection.connection is not lost

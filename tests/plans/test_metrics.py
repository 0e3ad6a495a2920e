"""The plans of the metrics: a scrape comes every few seconds, however large the tables are."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from streams.database.sql import metrics as sql
from streams.metrics.reading import MetricReading
from tests.plans.seed import Seed
from tests.plans.statements import LARGE, Statement, Statements, Step, explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]

# Entries of these are read up to a limit, or one for each place; all are read from the index alone.
BOUNDED = {
    *("ems_log_open", "ems_retry_place", "ems_msg_inbox", "ems_dead_waiting", "ems_retry_due"),
    "ems_prepared_due",
}


@pytest.fixture
def statements(seeded: Seed, monkeypatch: pytest.MonkeyPatch) -> Statements:
    def plain(statement: str, **kwargs: Any) -> str:
        return statement

    # MariaDB explains no statement with a limit of its own.
    monkeypatch.setattr(sql, "limited", plain)
    with explained() as found:
        samples = {name for name, _labels, _value in MetricReading("default").samples()}
    assert {"ems_group_oldest_message_seconds", "ems_next_delayed_seconds"} <= samples
    return found


def rows_of(statement: Statement) -> list[Step]:
    return [step for step in statement.steps if step.table in LARGE]


def test_a_scrape_reads_no_large_table_whole(statements: Statements) -> None:
    bad = [
        f"{statement}\n    !!! {step}"
        for statement in statements
        for step in rows_of(statement)
        if step.access == "ALL" or step.key not in {*BOUNDED, "ems_msg_log"}
    ]
    assert not bad, "\n".join(bad)


def test_the_ages_are_read_by_partition_and_offset(statements: Statements) -> None:
    ages = statements.only("`sequenced_at`")
    assert {(step.access, step.key) for step in rows_of(ages)} == {("const", "ems_msg_log")}


def test_the_heads_of_the_inbox_are_one_entry_for_each_partition(statements: Statements) -> None:
    heads = statements.only("MIN(`due_at`)")
    assert all("Using index for group-by" in step.extra for step in rows_of(heads)), heads


def test_the_lowest_retries_are_one_entry_for_each_place(statements: Statements) -> None:
    lowest = [s for s in statements.only("MIN(`offset`)").steps if s.table == "ems_retry_msg"]
    assert [s.extra for s in lowest] == ["Using index for group-by"] * len(lowest), lowest
    assert lowest


def test_the_limits_bound_what_is_read(seeded: Seed, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> int:
        with connection.cursor() as cursor:
            cursor.execute("FLUSH STATUS")
            list(MetricReading("default").samples())
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            return sum(int(count) for _name, count in cursor.fetchall())

    without = read()
    monkeypatch.setattr(sql, "COUNT_AT_MOST", 5)
    monkeypatch.setattr(sql, "INBOX_AT_MOST", 5)
    # For each of the four inboxes, and for each of the twelve groups with letters and retries.
    spared = 4 * 130 + 12 * (35 + 160)
    assert read() < without - spared

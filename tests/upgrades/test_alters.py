"""The large tables are changed only in ways that the server does at once, whatever their size."""

from __future__ import annotations

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.upgrades.alters import COPY, INPLACE, INSTANT, OTHER, how, of_migrations, table_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mysql]

# docs/guides/operations.md names them: they grow with the traffic.
LARGE = {"ems_msg", "ems_topic_group_log"}
ADD = "ALTER TABLE `ems_msg` ADD COLUMN `more` "


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (f"{ADD}varchar(64) NULL;", INSTANT),
        (f"{ADD}bigint DEFAULT 7 NOT NULL", INSTANT),
        ("ALTER TABLE `ems_msg` MODIFY `tag` longtext NOT NULL", COPY),
        ("CREATE INDEX `more` ON `ems_msg` (`tag`)", INPLACE),
        ("ALTER TABLE `ems_msg` ADD INDEX `more` (`tag`)", INPLACE),
        ("CREATE TABLE `more` (`id` bigint)", OTHER),
    ],
)
@pytest.mark.exhaustive
def test_the_algorithm_of_a_statement_is_known(
    kept: BaseDatabaseWrapper, statement: str, expected: str
) -> None:
    assert how(statement, kept) == expected
    assert table_of(statement) in ("ems_msg", "more")


def test_a_positive_number_of_django_is_not_added_at_once_on_mysql(
    kept: BaseDatabaseWrapper, vendor: str
) -> None:
    statement = f"{ADD}integer UNSIGNED NULL CHECK (`more` >= 0)"
    assert (how(statement, kept) == INSTANT) == (vendor == "mariadb")


def test_migrations_change_the_large_tables_at_once(kept: BaseDatabaseWrapper) -> None:
    slow = [
        f"{algorithm}: {statement}"
        for table, algorithm, statement in of_migrations(kept)
        if table in LARGE and algorithm != INSTANT
    ]
    assert slow == []

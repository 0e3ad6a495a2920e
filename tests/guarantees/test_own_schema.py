"""EMS in a schema of its own cannot be part of a transaction; an account of its own can.

A send joins the transaction of the caller's connection, and a connection of Django has one schema.
docs/reference/settings.md#a-schema-of-its-own says what was tried. That another alias is refused:
tests/streams/test_errors.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection, transaction

from streams import send
from streams.log.sequencer import sequence
from streams.models import Message
from tests.hostapp.models import Order
from tests.processes import Spawn

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mysql,
    pytest.mark.usefixtures("clean_registry"),
]

CONSUME = """
from django.core.management import call_command
from django.db import OperationalError
from streams import consumer
from tests.hostapp.models import Order

@consumer("orders", group="mail")
def handle(message):
    print("handled", message.body)

try:
    print(Order.objects.count(), "orders")
except OperationalError as error:
    print("refused", error.args[0])
call_command("ems_consume", "--drain", "--start", "earliest")
"""


def execute(statement: str) -> list[str]:
    """Run a statement, and return the first column of its answer."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


def tables() -> list[str]:
    return execute(
        "SELECT `TABLE_NAME` FROM information_schema.TABLES WHERE `TABLE_SCHEMA` = DATABASE()"
        " AND `TABLE_NAME` LIKE 'ems\\_%'"
    )


@pytest.fixture
def views() -> Iterator[None]:
    """Lead the connection to a schema in which each table of EMS is a view of the real one."""
    name = connection.settings_dict["NAME"]
    execute(f"CREATE DATABASE `{name}_views`")
    try:
        for table in tables():
            execute(f"CREATE VIEW `{name}_views`.`{table}` AS SELECT * FROM `{name}`.`{table}`")
        execute(f"USE `{name}_views`")
        yield
    finally:
        execute(f"USE `{name}`")
        execute(f"DROP DATABASE `{name}_views`")


@pytest.mark.usefixtures("views")
def test_through_views_a_message_is_sent_and_never_gets_its_offset() -> None:
    with transaction.atomic():
        send("orders", 1)
    assert Message.objects.count() == 1
    with pytest.raises(OperationalError, match=r"1176.*ems_msg_inbox"):  # a view has no index
        sequence("default")


@pytest.fixture
def account() -> Iterator[str]:
    """Make an account with the grants that the page shows; yield its name."""
    schema, name = connection.settings_dict["NAME"], f"ems_{os.getpid()}"
    execute(f"CREATE USER '{name}'@'127.0.0.1' IDENTIFIED BY 'plain'")
    try:
        given = dict.fromkeys(tables(), "SELECT, INSERT, UPDATE, DELETE")
        for table, rights in {**given, "django_migrations": "SELECT"}.items():
            execute(f"GRANT {rights} ON `{schema}`.`{table}` TO '{name}'@'127.0.0.1'")
        yield name
    finally:
        execute(f"DROP USER '{name}'@'127.0.0.1'")


def test_consumers_need_no_rights_on_tables_of_the_business(account: str, spawn: Spawn) -> None:
    with transaction.atomic():
        Order.objects.create(number="1")
        send("orders", 1)
    given = connection.settings_dict
    url = f"mysql://{account}:plain@{given['HOST']}:{given['PORT']}/"
    as_account = {f"EMS_TEST_{os.environ['EMS_TEST_DB'].upper()}_URL": url}
    said = spawn(CONSUME, env=as_account).succeed()
    assert "refused 1142" in said
    assert "handled 1" in said
    spawn.command("ems_doctor", "--ready", env=as_account).succeed()

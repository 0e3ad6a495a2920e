"""EMS before its first ``migrate``: one line says what to do. Other tables are not its matter."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, connections

from streams import Outgoing, consumer, runtime_settings, send_many
from streams.database.retrying import tables_missing
from streams.errors import NotMigrated
from streams.testing import drain

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]

COMMANDS = [
    ("ems_consume", "--drain"),
    ("ems_topics", "list"),
    ("ems_groups", "list"),
    ("ems_messages", "list", "orders"),
    ("ems_dead", "list"),
    ("ems_send", "orders", "1"),
]


@pytest.fixture
def empty_database(tmp_path, monkeypatch) -> Iterator[None]:
    """The alias ``other`` is a database without tables."""
    name = str(connections["other"].settings_dict["NAME"])
    sqlite = connection.vendor == "sqlite"
    empty = str(tmp_path / "empty.sqlite3") if sqlite else f"{name}_without"
    if not sqlite:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{empty}`")
    connections["other"].close()
    runtime_settings.forget()
    with monkeypatch.context() as patch:
        patch.setitem(connections["other"].settings_dict, "NAME", empty)
        yield
        connections["other"].close()
    if not sqlite:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE `{empty}`")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_says_it_in_one_line(empty_database, command):
    consumer("orders", group="mail")(print)
    with pytest.raises(CommandError) as raised:
        call_command(*command, "--database", "other", stdout=StringIO(), stderr=StringIO())
    text = str(raised.value)
    assert "migrate --database other" in text
    assert "\n" not in text


@pytest.fixture
def table_of_the_host() -> str:
    return "SELECT * FROM hosts_missing_table"


def test_a_missing_table_of_the_host_is_not_taken_for_ours(table_of_the_host):
    """Its own code runs inside send_many(), while the messages are made."""

    def messages() -> Iterator[Outgoing]:
        with connection.cursor() as cursor:
            cursor.execute(table_of_the_host)
        yield Outgoing("orders", 1)

    with pytest.raises(DatabaseError) as raised:
        send_many(messages())
    assert not isinstance(raised.value, NotMigrated)
    assert "hosts_missing_table" in str(raised.value)
    assert not tables_missing(raised.value)


def test_a_missing_table_of_the_host_fails_its_message_only(table_of_the_host):
    @consumer("orders", group="mail")
    def handle(message):
        with connection.cursor() as cursor:
            cursor.execute(table_of_the_host)

    send_many([Outgoing("orders", 1)])
    result = drain("mail")
    assert result.failed == 1
    assert "hosts_missing_table" in str(result.errors[0])


def test_a_missing_table_of_ours_is(empty_database):
    with pytest.raises(NotMigrated, match="migrate --database other"):
        send_many([Outgoing("orders", 1)], using="other")

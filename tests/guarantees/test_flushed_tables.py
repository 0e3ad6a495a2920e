"""Tables that a test of a host project empties: nothing that a process has cached names a row."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.core.management.sql import emit_post_migrate_signal

from streams import consumer, runtime_settings, send
from streams.models import Message, Partition, SystemConfig, Topic
from streams.testing import drain
from tests.processes import Spawn

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture(autouse=True)
def permissions() -> Iterator[None]:
    """A flush deletes what migrate has written, too: the tests after these need it."""
    yield
    emit_post_migrate_signal(verbosity=0, interactive=False, db="default")


@pytest.fixture
def seen() -> list[int]:
    bodies: list[int] = []
    consumer("orders", group="mail")(lambda message: bodies.append(message.body))
    return bodies


def flush() -> None:
    """As TransactionTestCase does with serialized_rollback, or with available_apps."""
    options = {"reset_sequences": False, "allow_cascade": True, "inhibit_post_migrate": True}
    call_command("flush", verbosity=0, interactive=False, **options)


def test_a_topic_of_before_a_flush_is_not_sent_to(seen):
    send("orders", 1)
    flush()
    send("orders", 2)
    drain()
    assert seen == [2]


def test_a_setting_of_before_a_flush_is_not_in_force():
    SystemConfig.objects.create(name="consumerBatchSize", value=7)
    runtime_settings.forget()
    assert runtime_settings.system("consumerBatchSize", "default") == 7
    flush()
    assert runtime_settings.system("consumerBatchSize", "default") == 10


def test_a_table_that_a_test_empties_by_itself_is_noticed(seen):
    send("orders", 1)
    Message.objects.all().delete()
    Partition.objects.all().delete()
    Topic.objects.all().delete()
    send("orders", 2)
    drain()
    assert seen == [2]


HOST_TESTS = """
import os, unittest
from django.db import connection
from django.test import TransactionTestCase
from django.test.utils import setup_test_environment
from streams import consumer, send
from streams.testing import drain

setup_test_environment()
connection._test_serialized_contents = connection.creation.serialize_db_to_string()
seen = []
consumer("orders", group="mail")(lambda message: seen.append(message.body))

class Serialized(TransactionTestCase):
    serialized_rollback = True
    def check(self, body):
        send("orders", body)
        drain("mail")
        self.assertEqual(seen[-1:], [body])
    def test_a(self): self.check(1)
    def test_b(self): self.check(2)

class Limited(Serialized):
    serialized_rollback = False
    available_apps = [
        "django.contrib.contenttypes", "django.contrib.auth", "streams", "tests.hostapp"
    ]

class Plain(Serialized):
    serialized_rollback = False

unittest.main(argv=["host", "Serialized", "Limited", "Plain"], verbosity=0)
"""


def test_every_kind_of_a_hosts_tests_finds_what_it_sends(spawn: Spawn):
    assert "OK" in spawn(HOST_TESTS).succeed()


def test_no_statement_is_watched_outside_of_tests(spawn: Spawn):
    shown = spawn(
        "from django.db import connection\n"
        "connection.ensure_connection()\n"
        "print('watched:', connection.execute_wrappers)"
    )
    assert "watched: []" in shown.succeed()

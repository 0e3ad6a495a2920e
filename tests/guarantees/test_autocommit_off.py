"""A project with AUTOCOMMIT off: it commits by hand, and EMS commits what is its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection, connections, transaction

from streams import Outgoing, consumer, send, send_many
from streams.audit import audit
from streams.models import Delivery, Message, State, Topic
from streams.testing import drain
from tests.hostapp.models import Handled

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture
def autocommit_off() -> Iterator[None]:
    """As with ``DATABASES = {"default": {"AUTOCOMMIT": False, …}}``, in every thread."""
    settings = connections.settings["default"]
    connection.close()
    settings["AUTOCOMMIT"] = False
    yield
    connection.close()
    settings["AUTOCOMMIT"] = True


def bodies_delivered() -> list[object]:
    seen: list[object] = []
    connection.close()
    connections.settings["default"]["AUTOCOMMIT"] = True
    consumer("orders", group="mail")(lambda message: seen.append(message.body))
    drain("mail")
    return seen


def test_what_is_sent_to_a_new_topic_and_committed_is_delivered(autocommit_off: None) -> None:
    """More than once: a topic that was never committed would swallow all that is sent later."""
    send("orders", 1)
    transaction.commit()
    send("orders", 2)
    transaction.commit()
    send_many([Outgoing("orders", 3), Outgoing("orders", 4)])
    transaction.commit()
    assert bodies_delivered() == [1, 2, 3, 4]
    assert audit("default") == []


def test_what_is_sent_and_rolled_back_is_not_delivered(autocommit_off: None) -> None:
    send("orders", 1)
    transaction.rollback()
    send("orders", 2)
    transaction.commit()
    assert bodies_delivered() == [2]
    assert audit("default") == []


@pytest.mark.mysql
def test_a_new_topic_is_committed_at_once_and_in_nobodys_way(autocommit_off: None) -> None:
    send("orders", 1)
    transaction.rollback()
    connection.close()
    assert Topic.objects.filter(name="orders").exists()
    assert not Message.objects.exists()


CONSUMER = """
from django.db import connections
connections.settings["default"]["AUTOCOMMIT"] = False
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

@consumer("orders", group="mail", batch=2)
def handle(messages):
    for message in messages:
        Handled.objects.create(group="mail", topic="orders", partition=0,
                               offset=message.offset, value=message.body)

call_command("ems_consume", "--drain", "--threads", "2")
"""


@pytest.mark.slow
def test_its_consumers_consume_and_commit(spawn) -> None:
    send_many([Outgoing("orders", n) for n in range(5)])
    spawn(CONSUMER).succeed()
    assert sorted(Handled.objects.values_list("value", flat=True)) == list("01234")
    assert not Delivery.objects.exclude(state=State.DONE).exists()
    assert not Message.objects.inbox().exists()
    assert audit("default") == []


@pytest.mark.slow
def test_its_consumers_may_be_started_before_anything_is_sent(spawn) -> None:
    """Then they create the topic and the group, and commit both."""
    spawn(CONSUMER).succeed()
    send("orders", 1)
    spawn(CONSUMER).succeed()
    assert Delivery.objects.get().state == State.DONE
    assert audit("default") == []

"""A project with AUTOCOMMIT off: it commits by hand, and EMS commits what is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction

from streams import Outgoing, Reject, consumer, send, send_many
from streams.models import (
    Access,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    State,
    Step,
    Topic,
)
from streams.observe.audit.walk import audit
from streams.observe.trace import trace
from streams.operate import topic_deletion
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
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

call_command("ems_consume", "--start", "earliest", "--drain", "--threads", "2")
"""


@pytest.mark.slow
def test_its_consumers_consume_and_commit(spawn) -> None:
    send_many([Outgoing("orders", n) for n in range(5)])
    spawn(CONSUMER).succeed()
    assert sorted(Handled.objects.values_list("value", flat=True)) == list("01234")
    assert not Delivery.objects.exclude(state=State.DONE).exists()
    assert not Message.objects.inbox().exists()
    assert audit("default") == []


@pytest.mark.exhaustive
@pytest.mark.slow
def test_its_consumers_may_be_started_before_anything_is_sent(spawn) -> None:
    """Then they create the topic and the group, and commit both."""
    spawn(CONSUMER).succeed()
    send("orders", 1)
    spawn(CONSUMER).succeed()
    assert Delivery.objects.get().state == State.DONE
    assert audit("default") == []


# -- commands and tasks ----------------------------------------------------------------------------

# What writes, with arguments for the fixture ``shop``; and what somebody else can see afterwards.
WRITING: tuple[tuple[tuple[str, ...], Callable[[], object]], ...] = (
    (("ems_send", "orders", "2"), lambda: Message.objects.filter(body=b"2").exists()),
    (("ems_topics", "create", "new"), lambda: Topic.objects.filter(name="new").exists()),
    (
        ("ems_topics", "grow", "orders", "--partitions", "2", "--yes"),
        lambda: Partition.objects.count() == 2,
    ),
    (
        ("ems_topics", "retire", "orders", "--yes"),
        lambda: Topic.objects.get().access == Access.READ_ONLY,
    ),
    (("ems_topics", "delete", "orders", "--force"), lambda: not Topic.objects.exists()),
    (("ems_groups", "pause", "mail"), lambda: ConsumerGroup.objects.get().paused),
    (
        ("ems_groups", "reset", "mail", "--to", "earliest", "--yes"),
        lambda: Cursor.objects.get().next_offset == 0,
    ),
    (
        ("ems_groups", "replay", "mail", "--from", "0", "--to", "1", "--yes"),
        lambda: Cursor.objects.count() == 2,
    ),
    (("ems_groups", "delete", "mail", "--yes"), lambda: not ConsumerGroup.objects.exists()),
    (("ems_messages", "cancel", "LATER"), lambda: not Message.objects.inbox().exists()),
    (("ems_dead", "redrive", "--all"), RetryMessage.objects.exists),
    (("ems_dead", "discard", "--all", "--yes"), lambda: not DeadMessage.objects.exists()),
    (("ems_purge", "--force"), lambda: Partition.objects.get().first_offset == 1),
)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> int:
    """A topic whose only message is a dead letter of "mail", and need not be kept; and the id of a
    delayed one."""
    monkeypatch.setattr(topic_deletion, "SETTLED_SECONDS", 0.0)

    @consumer("orders", group="mail")
    def handle(message):
        raise Reject("no")

    send("orders", 1)
    drain()
    Topic.objects.update(retention_count=0)
    return send("orders", 9, delay=60).message_id


@pytest.mark.parametrize(("words", "seen"), WRITING, ids=[" ".join(w[:2]) for w, _seen in WRITING])
def test_what_a_command_says_is_done_is_committed(
    shop: int, autocommit_off: None, words: tuple[str, ...], seen: Callable[[], object]
) -> None:
    assert not seen()
    connection.close()
    call_command(
        *(str(shop) if word == "LATER" else word for word in words),
        stdout=StringIO(),
        stderr=StringIO(),
    )
    connection.close()  # and with it all that is not committed
    assert seen()


def test_the_schedule_that_a_command_adds_is_committed(autocommit_off: None) -> None:
    beat = pytest.importorskip("django_celery_beat.models", exc_type=ImportError)
    call_command("ems_sync_schedules", stdout=StringIO())
    connection.close()
    assert beat.PeriodicTask.objects.exists()


@pytest.mark.parametrize("name", ["sequence", "sweep", "retries", "purge"])
def test_what_a_task_does_is_committed(autocommit_off: None, name: str) -> None:
    tasks = pytest.importorskip("streams.tasks", exc_type=ImportError)
    send("orders", 1)
    transaction.commit()
    getattr(tasks, name)()
    connection.close()
    assert Step.objects.filter(name=name).exists()
    assert Message.objects.inbox().exists() == (name != "sequence")


def test_a_command_commits_nothing_that_is_its_callers(autocommit_off: None) -> None:
    """Who calls one in a transaction of their own still has that one."""
    Topic.objects.create(name="orders")
    transaction.commit()
    call_command("ems_groups", "list", stdout=StringIO())
    if connection.vendor != "sqlite":  # where a second one could not write
        Topic.objects.create(name="mine")
    call_command("ems_topics", "retire", "orders", "--yes", stdout=StringIO())
    assert not connection.get_autocommit()
    transaction.rollback()
    connection.close()
    assert Topic.objects.get().access == Access.READ_ONLY


@pytest.mark.mysql
def test_in_an_atomic_block_a_command_is_a_part_of_it(autocommit_off: None) -> None:
    with transaction.atomic():
        call_command("ems_topics", "create", "orders", stdout=StringIO())
    transaction.rollback()
    assert not Topic.objects.exists()


@pytest.mark.mysql
def test_a_snapshot_is_a_part_of_the_callers_transaction(shop: int, autocommit_off: None) -> None:
    """In the middle of it the server takes no other isolation level (1568)."""
    group, message = ConsumerGroup.objects.get(), Message.objects.get(offset=0)
    assert Reset(group, towards(Target.parse("earliest")), "default").preview()
    assert [row.group for row in trace(message)] == [group]
    assert audit("default") == []

"""The project's database routers: what EMS does on an alias stays there, and no router is asked."""

from __future__ import annotations

import pytest
from django.test import override_settings

from streams import Outgoing, Retry, consumer, send_many
from streams.errors import GroupActive
from streams.models import Consumer, ConsumerGroup, Cursor, Delivery, RetryMessage, Topic
from streams.operate.group_deletion import contents, delete_group
from streams.testing import drain
from tests.consuming import Process

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]


class Astray:
    """Sends everything of EMS to the wrong database."""

    def db_for_read(self, model, **hints):
        return "other" if model._meta.app_label == "ems" else None

    db_for_write = db_for_read


@pytest.fixture
def group() -> ConsumerGroup:
    @consumer("orders", group="mail")
    def handle(message):
        raise Retry(delay=3600)

    send_many([Outgoing("orders", n) for n in range(3)])
    drain("mail")
    return ConsumerGroup.objects.using("default").get()


def test_forget_deletes_the_group_where_it_is(group):
    topic = Topic.objects.using("other").create(name="orders")
    namesake = {"pk": group.pk, "topic_id": topic.pk, "name": "another"}
    ConsumerGroup.objects.using("other").create(**namesake)
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        delete_group(group)
    for model in (ConsumerGroup, Cursor, Delivery, RetryMessage):
        assert not model.objects.using("default").exists(), model
    assert ConsumerGroup.objects.using("other").get().name == "another"


def test_forget_sees_the_live_clients_where_they_are(group):
    Process("mail")
    assert Consumer.objects.using("default").exists()
    with override_settings(DATABASE_ROUTERS=[Astray()]), pytest.raises(GroupActive):
        delete_group(group)
    assert Delivery.objects.using("default").exists()


def test_contents_are_counted_where_they_are(group):
    expected = contents(group, 100)
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        assert contents(group, 100) == expected
    assert sum(expected.values()) == 1 + 1 + 3  # cursor, delivery, retries

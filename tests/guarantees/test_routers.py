"""The project's database routers: what EMS does on an alias stays there, and no router is asked."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.test import override_settings
from django.urls import reverse

from streams import Outgoing, Retry, consumer, send_many
from streams.errors import GroupActive
from streams.models import (
    ApiRight,
    Consumer,
    ConsumerGroup,
    Cursor,
    Delivery,
    Message,
    Move,
    Partition,
    RetryMessage,
    Topic,
)
from streams.operate.group_deletion import contents, delete_group
from streams.operate.topic_deletion import TopicDeletion
from streams.operate.topic_move import TopicMove
from streams.operate.topics import create
from streams.retain.purge import Purge
from streams.retain.purge_floor import ARCHIVE
from streams.testing import drain
from tests.consuming import Process
from tests.faults import Astray

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]


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


def test_a_purge_follows_the_rule_of_the_topic_where_it_is(group):
    Topic.objects.using("default").update(archive=True, retention_count=0)
    Topic.objects.using("other").create(pk=group.topic_id, name="another")
    RetryMessage.objects.using("default").all().delete()
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        (outcome,) = Purge("default").run()
    assert [hold.what for hold in outcome.floor.holds] == [ARCHIVE]
    assert Message.objects.using("default").count() == 3


def test_a_topic_is_deleted_where_it_is(group):
    Topic.objects.using("other").create(pk=group.topic_id, name="another")
    said = set()
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        removal = TopicDeletion(Topic.objects.using("default").get(), "default", force=True)
        removal.close()
        removal.finish(lambda name, rows: said.add(name))
    assert "orders/0" in said
    assert not Topic.objects.using("default").exists()
    assert Topic.objects.using("other").exists()


def test_a_body_that_was_deferred_is_read_where_its_row_is(group):
    row = Message.objects.using("default").defer("body").get(offset=1)
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        assert row.body == b"1"


def test_a_token_is_issued_and_listed_where_it_is():
    out = StringIO()
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        call_command("ems_tokens", "create", "shop", "--right", "send:orders", stdout=StringIO())
        call_command("ems_tokens", "list", stdout=out)
    assert "send:orders" in out.getvalue()
    assert ApiRight.objects.using("default").exists()


def test_a_search_shows_the_topic_where_it_is(group, admin_client):
    found = Message.objects.using("default").get(offset=1)
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        page = reverse("admin:ems_monitoring_overview_search") + f"?q={found.pk}"
        response = admin_client.get(page)
    assert [hit.id for hit in response.context["hits"]] == [found.pk]
    assert "orders/0" in response.content.decode()


def test_a_move_is_given_up_where_it_was_begun():
    create("clicks", 1, "default")
    moves = Move.objects.using("default")
    with override_settings(DATABASE_ROUTERS=[Astray()]):
        first = TopicMove("clicks", "default", "other")
        first.close()
        Topic.objects.using("default").update(access="read-write")  # by an operator
        second = TopicMove("clicks", "default", "other")
        second.close()
        assert moves.count() == 1
        second.give_up()
    assert not moves.exists()


def test_what_is_in_the_way_of_a_move_has_its_name_where_it_is():
    create("another", 1, "default")
    for alias in ("default", "other"):
        create("clicks", 1, alias)
    Partition.objects.using("other").update(next_offset=9)
    with override_settings(DATABASE_ROUTERS=["streams.routers.StreamsRouter"]):
        found = [*TopicMove("clicks", "default", "other").obstacles()]
    assert "clicks/0 has come further on other than here." in found

"""Topics are grown, retired and deleted on pages of their own; retention is checked, and told."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from streams import consumer, send
from streams.admin.alarm import alarm
from streams.admin.verbs import topic as verbs
from streams.consume import registry
from streams.log import topics
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    Delivery,
    Message,
    Move,
    Partition,
    Topic,
    UtcNow,
)
from streams.operate import topic_deletion
from streams.operate.topics import retire
from streams.testing import drain
from tests.admin.conftest import action
from tests.admin.world import run_steps, snapshot

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

LIST = "admin:ems_topic_changelist"


@pytest.fixture(autouse=True)
def fresh():
    topics.forget()


@pytest.fixture
def topic():
    """A topic whose group has finished its five messages."""
    consumer("mails", group="mail")(lambda message: None)
    for n in range(5):
        send("mails", n)
    drain()
    run_steps()
    return Topic.objects.get(name="mails")


@pytest.fixture
def client(as_role):
    return as_role("operator")


def do(client, name, *rows, **answers):
    return client.post(reverse(LIST), action(name, *(row.pk for row in rows), **answers))


def said(response):
    return " ".join(str(message) for message in response.wsgi_request._messages)


def page(client, topic):
    return client.get(reverse("admin:ems_topic_change", args=[topic.pk])).text


def test_partitions_are_added_with_a_cursor_of_each_group(client, topic):
    assert "errornote" not in do(client, "grow", topic).text  # it asks how many
    assert "only grow" in do(client, "grow", topic, partitions="0").text
    preview = do(client, "grow", topic, partitions="3")
    assert "2 new partitions, 3 in all" in preview.text
    assert do(client, "grow", topic, offer=preview.context["offer"]).status_code == 302
    assert topic.partitions.count() == 3
    assert Cursor.objects.count() == 3


def test_a_topic_is_deleted_after_its_name_was_typed_and_sends_have_settled(
    client, topic, monkeypatch
):
    retire(topic, "default")
    preview = do(client, "remove", topic)
    assert preview.context["contents"]["messages"] == 5
    plan = preview.context["offer"]
    before = snapshot()
    assert "not its name" in do(client, "remove", topic, typed="mail", offer=plan).text
    assert "Sends may be under way" in do(client, "remove", topic, typed="mails", offer=plan).text
    assert snapshot() == before
    monkeypatch.setattr(topic_deletion, "SETTLED_SECONDS", 0.0)
    forged = do(client, "remove", topic, typed="mails", offer="forged")
    assert forged.context["contents"] == preview.context["contents"]
    assert snapshot() == before
    assert do(client, "remove", topic, typed="mails", offer=plan).status_code == 302
    assert not Topic.objects.exists()
    assert not Message.objects.exists()
    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.action_flag) == ("mails", 3)
    assert "5 messages" in entry.change_message


def test_the_preview_of_one_topic_or_user_deletes_nothing_of_another(
    as_role, client, topic, monkeypatch
):
    monkeypatch.setattr(topic_deletion, "SETTLED_SECONDS", 0.0)
    retire(topic, "default")
    other = Topic.objects.create(name="other", access="read-only")
    plan = do(client, "remove", other).context["offer"]
    assert do(client, "remove", topic, typed="mails", offer=plan).status_code == 200
    somebody = as_role("staff", "ems.view_topic", "ems.delete_topic")
    plan = do(client, "remove", topic).context["offer"]
    assert do(somebody, "remove", topic, typed="mails", offer=plan).status_code == 200
    assert Topic.objects.count() == 2


def test_a_topic_in_use_or_a_large_one_is_not_deleted_here(client, topic, monkeypatch):
    def refused():
        response = do(client, "remove", topic)
        assert response.status_code == 302
        return said(response)

    assert "not retired" in refused()
    retire(topic, "default")
    lease = UtcNow(timedelta(minutes=1))
    live = Consumer.objects.create(
        client_id="1@2@3", group=ConsumerGroup.objects.get(), lease_until=lease
    )
    assert "live consumers" in refused()
    live.delete()
    Cursor.objects.update(next_offset=3)
    assert "has not finished 2 messages" in refused()
    Cursor.objects.update(next_offset=5)
    monkeypatch.setattr(verbs, "DELETE_AT_MOST", 3)
    with CaptureQueriesContext(connection) as queries:
        told = refused()
    assert "more than 3 rows" in told
    assert "ems_topics delete" in told
    assert sum("LIMIT 4" in query["sql"] for query in queries) == 11  # no count goes further
    assert Topic.objects.count() == 1


def test_what_comes_between_preview_and_confirmation_keeps_the_topic(client, topic, monkeypatch):
    monkeypatch.setattr(topic_deletion, "SETTLED_SECONDS", 0.0)
    retire(topic, "default")
    plan = do(client, "remove", topic).context["offer"]
    Message.objects.create(partition=Partition.objects.get(), body=b"1", body_type="json", size=1)
    response = do(client, "remove", topic, typed="mails", offer=plan)
    assert "inbox" in said(response)
    assert Topic.objects.count() == 1


def test_one_topic_at_a_time(client, topic):
    other = Topic.objects.create(name="other")
    for name in ("grow", "retire", "remove"):
        assert "choose one" in said(do(client, name, topic, other))
    assert not LogEntry.objects.exists()


def test_the_page_of_a_topic_offers_what_makes_sense(client, topic):
    assert "Retire …" in page(client, topic)
    assert "Delete …" not in page(client, topic)
    retire(topic, "default")
    assert "Retire …" not in page(client, topic)
    assert "Delete …" in page(client, topic)


@pytest.mark.parametrize(
    ("field", "value"),
    [("retention_seconds", -1), ("retention_count", 0), ("retention_seconds", 10**10)],
)
def test_a_retention_that_cannot_be_meant_is_refused(client, topic, field, value):
    url = reverse("admin:ems_topic_change", args=[topic.pk])
    response = client.post(url, {"access": "read-write", field: str(value)})
    assert field in response.context["adminform"].form.errors
    response = client.post(url, {"access": "read-write", field: "3600", "archive": "on"})
    assert response.status_code == 302
    topic.refresh_from_db()
    assert (getattr(topic, field), topic.archive) == (3600, True)


def test_the_page_says_what_a_purge_would_do_and_who_holds_it_back(client, topic):
    assert "Messages are kept for ever" in page(client, topic)
    Topic.objects.update(retention_count=1)
    assert "mails/0: 4 messages, those below offset 4" in page(client, topic)
    Cursor.objects.update(next_offset=2)
    assert "mails/0: 2 messages, those below offset 2; more is held back: mail has not" in page(
        client, topic
    )
    assert Message.objects.count() == 5


def test_an_abandoned_group_that_holds_the_purge_back_is_an_alarm(topic):
    group = ConsumerGroup.objects.get()
    other = ConsumerGroup.objects.create(topic=topic, name="live")
    lease = UtcNow(timedelta(minutes=1))
    Consumer.objects.create(client_id="1@2@3", group=other, lease_until=lease)
    Topic.objects.update(retention_count=1)
    Cursor.objects.update(next_offset=2)
    assert alarm("default").text == ""
    Delivery.objects.update(claimed_at=UtcNow(-timedelta(days=3)))
    assert alarm("default").text == (
        "mail on mails has had no consumer for 3 days, and keeps 2 messages of mails/0 from being"
        " purged."
    )
    Topic.objects.update(retention_count=None)
    assert alarm("default").text == ""
    Topic.objects.update(retention_count=1)
    Consumer.objects.create(client_id="1@2@3", group=group, lease_until=lease)
    assert alarm("default").text == ""
    assert registry.find("mails", "mail")


def test_a_topic_that_moves_is_not_opened_by_its_page(client, topic):
    Topic.objects.update(access="read-only")
    names = {"name": topic.name, "source": "default", "target": "elsewhere"}
    Move.objects.create(token="1", access="read-write", **names)
    url = reverse("admin:ems_topic_change", args=[topic.pk])
    assert "--give-up" in client.post(url, {"access": "read-write"}).text
    assert Topic.objects.get(pk=topic.pk).access == "read-only"
    assert client.post(url, {"access": "denied"}).status_code == 302
    Move.objects.all().delete()
    assert client.post(url, {"access": "read-write"}).status_code == 302
    assert Topic.objects.get(pk=topic.pk).access == "read-write"

"""Test messages from the admin: a form, who will get it, one message however often it is posted."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from streams.models import Message, Topic
from streams.operate.topics import retire
from streams.testing import drain
from tests.admin.conftest import action, messages, offered
from tests.admin.world import World

pytestmark = pytest.mark.django_db

TOPICS = reverse("admin:ems_topic_changelist")
SEND = ("ems.view_topic", "ems.produce_topic")


@pytest.fixture
def topic(world: World) -> Topic:
    return world.billing.topic


def post(client: Any, topic: Topic, **answers: str) -> Any:
    return client.post(TOPICS, action("produce", topic.pk, **answers))


def typed(**changes: str) -> dict[str, str]:
    return {"body": '{"n": 7}', "body_type": "json", "key": "k", "tag": "t", **changes}


def test_it_is_sent_after_a_preview_and_says_which_topic_and_id(topic, as_role):
    client = as_role("staff", *SEND, "ems.view_message")
    before = Message.objects.count()
    assert 'name="body"' in post(client, topic).text
    shown = post(client, topic, **typed(headers='{"from": "admin"}'))
    text = html.unescape(shown.text)
    assert "billing, mail, slow" in text
    assert Message.objects.count() == before
    assert not LogEntry.objects.exists()
    (line,) = messages(client, post(client, topic, offer=offered(shown)))
    message = Message.objects.latest("pk")
    assert Message.objects.count() == before + 1
    assert f"Test message {message.pk} sent to orders" in line
    assert reverse("admin:ems_message_change", args=[message.pk]) in line
    assert (message.key, message.tag, message.headers) == ("k", "t", {"from": "admin"})
    assert bytes(message.body) == b'{"n":7}'
    entry = LogEntry.objects.get()
    assert entry.object_id == str(topic.pk)
    assert f"{entry.change_message}." == re.sub("<.*?>", "", line)


def test_its_groups_handle_it(topic, as_role):
    client = as_role("staff", *SEND)
    post(client, topic, offer=offered(post(client, topic, **typed())))
    message = Message.objects.latest("pk")
    drain("mail")
    message.refresh_from_db()
    assert message.offset is not None


def test_a_form_that_is_posted_twice_sends_one_message(topic, as_role):
    client = as_role("staff", *SEND)
    offer = offered(post(client, topic, **typed()))
    post(client, topic, offer=offer)
    count = Message.objects.count()
    lines = messages(client, post(client, topic, offer=offer))
    assert "was sent before" in lines[-1]
    assert Message.objects.count() == count
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"body": "{"}, "body"),
        ({"headers": "[]"}, "headers"),
        ({"tag": "a b"}, "tag"),
        ({"key": "k" * 300}, "key"),
        ({"body": "=", "body_type": "bytes"}, "body"),
    ],
)
def test_an_error_stands_at_its_field_and_nothing_is_sent(wrong, field, topic, as_role):
    before = Message.objects.count()
    shown = post(as_role("staff", *SEND), topic, **typed(**wrong))
    assert f'id="ems-{field}-error"' in shown.text
    assert Message.objects.count() == before


def test_what_was_typed_can_be_edited_further(topic, as_role):
    client = as_role("staff", *SEND)
    offer = offered(post(client, topic, **typed(body="text <b>", body_type="text")))
    shown = post(client, topic, offer=offer, again="1")
    assert "text &lt;b&gt;</textarea>" in shown.text


def test_a_preview_of_another_user_or_topic_sends_nothing(topic, as_role):
    client = as_role("staff", *SEND)
    offer = offered(post(client, topic, **typed()))
    before = Message.objects.count()
    other = Topic.objects.create(name="other")
    assert "not valid any more" in post(client, other, offer=offer).text
    assert "not valid any more" in post(as_role("operator"), topic, offer=offer).text
    assert Message.objects.count() == before


def test_a_retired_topic_takes_none(topic, as_role):
    client = as_role("staff", *SEND)
    offer = offered(post(client, topic, **typed()))
    before = Message.objects.count()
    retire(topic, "default")
    assert "errornote" in post(client, topic, offer=offer).text
    assert Message.objects.count() == before


def test_the_page_of_the_topic_in_the_monitoring_has_the_button(topic, as_role):
    url = reverse("admin:ems_monitoring_overview_topic", args=[topic.pk])
    views = ("ems.view_topic", "ems_monitoring.view_overview")
    assert 'value="produce"' in as_role("staff", *views, "ems.produce_topic").get(url).text
    assert 'value="produce"' not in as_role("staff", *views).get(url).text

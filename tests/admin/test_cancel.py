"""Delayed messages are cancelled in the admin, one or many."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from streams.models import IMMEDIATE, Message

pytestmark = pytest.mark.django_db

LIST = "admin:ems_message_changelist"


def delayed() -> Message:
    return Message.objects.get(offset=None, due_at__gt=IMMEDIATE)


def post(client, *rows):
    data = {"action": "cancel", "_selected_action": [row.pk for row in rows], "index": "0"}
    return client.post(reverse(LIST), data, follow=True)


def test_a_delayed_message_is_cancelled_and_what_is_visible_is_left(world, as_role):
    late, visible = delayed(), world.message
    page = post(as_role("operator"), late, visible)
    texts = [str(message) for message in page.context["messages"]]
    assert texts == [
        "1 message was cancelled.",
        "1 message is not delayed, or is visible already: nothing was done.",
    ]
    assert not Message.objects.filter(pk=late.pk).exists()
    assert Message.objects.filter(pk=visible.pk).exists()
    assert LogEntry.objects.get().change_message == "Cancelled"


def test_its_page_offers_it_while_it_is_delayed(world, as_role):
    client = as_role("operator")
    pages = {
        row: reverse("admin:ems_message_change", args=[row.pk])
        for row in (delayed(), world.message)
    }
    offered = [client.get(url).context["verbs"] for url in pages.values()]
    assert [[name for name, _text in verbs] for verbs in offered] == [["cancel"], []]


def test_a_viewer_may_not(world, as_role):
    late = delayed()
    post(as_role("viewer"), late)
    assert Message.objects.filter(pk=late.pk).exists()

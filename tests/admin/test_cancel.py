"""Delayed messages are cancelled in the admin, one or many."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from streams import cancel, send
from streams.admin.pages import message as message_admin
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


def across(client, row):
    data = {"action": "cancel", "_selected_action": [row.pk], "index": "0", "select_across": "1"}
    with CaptureQueriesContext(connection) as queries:
        page = client.post(reverse(LIST), data)
    told = [str(message) for message in page.wsgi_request._messages]
    return told, [query["sql"] for query in queries]


def test_all_that_match_are_cancelled_and_the_log_is_not_read(world, as_role):
    told, statements = across(as_role("operator"), world.message)
    assert told == ["1 message was cancelled."]
    assert Message.objects.count() == 5
    chosen = [sql for sql in statements if "LIMIT 1001" in sql]
    assert chosen
    assert all("IS NULL" in sql for sql in chosen)
    told, _statements = across(as_role("operator"), world.message)
    assert told == ["None of these messages is delayed: nothing was done."]


def test_more_than_a_page_can_do_is_refused(world, as_role, monkeypatch):
    monkeypatch.setattr(message_admin, "CANCEL_AT_MOST", 1)
    send("orders", "later still", delay=timedelta(days=2))
    told, _statements = across(as_role("operator"), world.message)
    assert told == [
        "More than 1 messages are delayed, too many for a web page: choose fewer. Nothing was done."
    ]
    assert Message.objects.count() == 7
    assert not LogEntry.objects.exists()


def test_what_was_cancelled_before_an_error_is_in_the_log(world, as_role, monkeypatch):
    second = send("orders", "later still", delay=timedelta(days=2)).message_id

    def fail(pk, **options):
        if pk == second:
            raise RuntimeError("no")
        return cancel(pk, **options)

    monkeypatch.setattr(message_admin, "cancel", fail)
    with pytest.raises(RuntimeError):
        post(as_role("operator"), *Message.objects.filter(offset=None))
    assert LogEntry.objects.get().change_message == "Cancelled"

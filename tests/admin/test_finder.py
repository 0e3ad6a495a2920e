"""The search of the list of messages by key, tag and time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from streams import Outgoing, send, send_many
from streams.log import search as module
from streams.log.sequencer import sequence
from streams.models import Message, Partition, UtcNow
from tests.admin.conftest import As

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(as_role: As) -> Client:
    for topic in ("orders", "flights"):
        send_many([Outgoing(topic, n, key=f"k{n % 3}", tag=f"t{n % 2}") for n in range(9)])
    sequence("default")
    return as_role("viewer")


def page(client: Client, **asked: Any) -> Any:
    response = client.get(f"{reverse('admin:ems_message_changelist')}?{urlencode(asked)}")
    assert response.status_code == 200
    return response


def offsets(response: Any) -> list[tuple[str, int]]:
    rows = response.context["cl"].result_list
    return [(row.partition.topic.name, row.offset) for row in rows]


def test_messages_are_found_by_key_tag_and_topic(client: Client) -> None:
    orders = Partition.objects.get(topic__name="orders").pk
    assert offsets(page(client, key="k1", partition=orders)) == [
        ("orders", 7),
        ("orders", 4),
        ("orders", 1),
    ]
    assert sorted(offsets(page(client, key="k1", tag="t1"))) == [
        ("flights", 1),
        ("flights", 7),
        ("orders", 1),
        ("orders", 7),
    ]
    found = page(client, key="k9")
    assert offsets(found) == []
    assert "All messages have been searched." in found.text


def test_messages_are_found_by_time_in_the_projects_zone(client: Client, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Shanghai"
    for offset in range(9):
        at = UtcNow(timedelta(hours=offset - 9))
        Message.objects.filter(offset=offset).update(sequenced_at=at)
    orders = Partition.objects.get(topic__name="orders").pk
    row = Message.objects.get(partition=orders, offset=6)
    assert row.sequenced_at
    since = timezone.localtime(row.sequenced_at).strftime("%Y-%m-%dT%H:%M:%S")
    found = page(client, since=since, partition=orders)
    assert offsets(found) == [("orders", 8), ("orders", 7), ("orders", 6)]
    assert f'value="{since}"' in found.text


def test_a_long_search_goes_on_with_older_messages(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEARCHED", 4)
    monkeypatch.setattr(module, "ENTRIES", 4)
    orders = Partition.objects.get(topic__name="orders").pk
    found = page(client, key="k0", partition=orders)
    assert offsets(found) == [("orders", 6)]
    older = client.get(reverse("admin:ems_message_changelist") + found.context["cl"].older_url)
    assert offsets(older) == [("orders", 3)]


def test_the_inbox_is_searched_and_the_fields_keep_the_filters(client: Client) -> None:
    later = send("orders", 1, key="late", delay=60).message_id
    orders = Partition.objects.get(topic__name="orders").pk
    found = page(client, key="late", partition=orders, state="delayed")
    assert [row.pk for row in found.context["cl"].result_list] == [later]
    assert f'<input type="hidden" name="partition" value="{orders}">' in found.text
    assert '<input type="hidden" name="state" value="delayed">' in found.text


@pytest.mark.parametrize("asked", [{"since": "soon"}, {"key": "k" * 300}, {"key": "\x00"}], ids=str)
def test_a_field_that_is_wrong_is_said_and_nothing_is_found(
    client: Client, asked: dict[str, str]
) -> None:
    found = page(client, **asked)
    assert offsets(found) == []
    assert "errornote" in found.text


def test_a_position_that_is_wrong_is_refused(client: Client) -> None:
    path = reverse("admin:ems_message_changelist")
    response = client.get(f"{path}?key=k1&upto=soon")
    assert response.status_code == 302

"""Groups with their lag, as it is now: what is unknown is a dash, never 0."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from streams import send
from streams.log import lag as lag_module
from streams.log.lag import lags
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, Cursor, Message, RetryMessage, UtcNow

pytestmark = pytest.mark.django_db


COLUMNS = ("state", "behind", "open", "waiting", "dead", "age")


def cells(client, group, *names):
    """The row of a group in the list: {column: value}."""
    response = client.get(reverse("admin:ems_consumergroup_changelist"))
    (row,) = [row for row in response.context["cl"].result_list if row.pk == group.pk]
    shown = response.context["cl"].model_admin
    return {name: getattr(shown, name)(row) for name in names or COLUMNS}


def test_the_list_shows_each_part_of_the_lag(world, as_role):
    client = as_role("viewer")
    for _ in range(2):
        send("orders", "more")
    sequence("default")
    Message.objects.filter(offset=5).update(sequenced_at=UtcNow(-timedelta(hours=2)))
    mail, slow = cells(client, world.mail), cells(client, world.slow)
    assert mail.pop("age") != "–"
    assert mail == {"state": "1 consumer", "behind": 2, "open": 1, "waiting": 0, "dead": 0}
    assert slow.pop("age") == cells(client, world.slow)["age"]
    assert slow == {"state": "no consumer", "behind": 2, "open": 0, "waiting": 2, "dead": 0}
    assert cells(client, world.billing)["dead"] == 3
    assert cells(client, world.billing)["age"] == "2 h 0 min"
    world.letter.discard()
    assert cells(client, world.billing)["dead"] == 2
    ConsumerGroup.objects.pause()
    assert cells(client, world.mail)["state"] == "paused"


def test_how_far_a_broadcast_group_is_is_unknown(world, as_role):
    ConsumerGroup.objects.filter(pk=world.billing.pk).update(mode="broadcast")
    ConsumerGroup.objects.filter(pk=world.slow.pk).update(ordered=True)
    client = as_role("viewer")
    shown = cells(client, world.billing, "kind", "behind", "age")
    assert shown == {"kind": "broadcast", "behind": "–", "age": "–"}
    assert cells(client, world.slow, "kind") == {"kind": "ordered"}
    assert cells(client, world.mail, "kind") == {"kind": "cluster"}


def test_what_is_unknown_is_a_dash(world, as_role):
    client = as_role("viewer")
    assert cells(client, world.billing)["age"] == "–"  # nothing is unfinished
    Cursor.objects.filter(group=world.billing).delete()
    assert cells(client, world.billing)["behind"] == "–"
    Message.objects.all().delete()
    assert cells(client, world.slow)["age"] == "–"  # there are retries, of messages that are gone


def test_the_age_is_that_of_the_oldest_unfinished_message(world):
    def age(group):
        return lags([group], "default")[0].age

    for offset in range(5):
        ago = timedelta(minutes=10 * (5 - offset))
        Message.objects.filter(offset=offset).update(sequenced_at=UtcNow(-ago))
    minute = timedelta(minutes=1)
    assert timedelta(minutes=20) <= age(world.slow) < timedelta(minutes=20) + minute
    assert timedelta(minutes=10) <= age(world.mail) < timedelta(minutes=10) + minute  # open
    RetryMessage.objects.filter(offset=3).delete()
    assert timedelta(minutes=10) <= age(world.slow) < timedelta(minutes=10) + minute
    Cursor.objects.filter(group=world.billing).update(next_offset=1)
    assert timedelta(minutes=40) <= age(world.billing) < timedelta(minutes=40) + minute


def test_the_lag_of_many_groups_takes_no_more_statements(world, monkeypatch):
    def statements():
        with CaptureQueriesContext(connection) as queries:
            found = lags(ConsumerGroup.objects.select_related("topic"), "default")
        return len(queries), found

    before, few = statements()
    partition = world.message.partition
    for number in range(20):
        group = ConsumerGroup.objects.create(topic=world.mail.topic, name=f"more-{number}")
        Cursor.objects.create(group=group, partition=partition, next_offset=number % 5)
    after, many = statements()
    assert after == before
    assert len(many) == len(few) + 20
    ages = {lag.group.name: lag.age for lag in many}
    assert all(ages[f"more-{number}"] is not None for number in range(20))
    monkeypatch.setattr(lag_module, "CHUNK", 1)
    assert {lag.group.name: lag.behind for lag in lags(ConsumerGroup.objects.all(), "default")} == {
        lag.group.name: lag.behind for lag in many
    }


def test_the_page_of_a_group_leads_to_all_that_it_has(world, as_role):
    client = as_role("operator")
    text = client.get(reverse("admin:ems_consumergroup_change", args=[world.billing.pk])).text
    for model in ("cursor", "consumer", "delivery", "retrymessage", "deadmessage"):
        url = reverse(f"admin:ems_{model}_changelist") + f"?group={world.billing.pk}"
        assert f'href="{url}"' in text
        assert client.get(url).status_code == 200


def test_pause_cannot_be_set_by_the_form_that_needs_another_permission(world, as_role):
    client = as_role("staff", "ems.view_consumergroup", "ems.change_consumergroup")
    url = reverse("admin:ems_consumergroup_change", args=[world.mail.pk])
    client.post(url, {"paused": "on", "max_retries": "2", "name": "other", "start": "latest"})
    world.mail.refresh_from_db()
    assert (world.mail.max_retries, world.mail.paused) == (2, False)
    assert (world.mail.name, world.mail.start) == ("mail", "earliest")

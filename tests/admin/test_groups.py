"""Groups with their lag, as it is now: what is unknown is a dash, never 0."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.admin.utils import lookup_field
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape, strip_tags

from streams import send
from streams.admin.pages import group as page_of_groups
from streams.admin.pages.group import ConsumerGroupAdmin
from streams.log import lag as lag_module
from streams.log.lag import lags
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    UtcNow,
)

pytestmark = pytest.mark.django_db


COLUMNS = ("state", "consumers", "behind", "open", "waiting", "dead", "age")


def cells(client, group, *names):
    """The row of a group in the list: {column: text}."""
    response = client.get(reverse("admin:ems_consumergroup_changelist"))
    (row,) = [row for row in response.context["cl"].result_list if row.pk == group.pk]
    shown = response.context["cl"].model_admin
    columns = {getattr(column, "__name__", column): column for column in shown.list_display}
    found = {
        name: strip_tags(lookup_field(columns[name], row, shown)[2]) for name in names or COLUMNS
    }
    return {name: text.replace("\xa0", " ") for name, text in found.items()}


def test_the_list_shows_each_part_of_the_lag(world, as_role):
    client = as_role("viewer")
    for _ in range(2):
        send("orders", "more")
    sequence("default")
    Message.objects.filter(offset=5).update(sequenced_at=UtcNow(-timedelta(hours=2)))
    mail, slow = cells(client, world.mail), cells(client, world.slow)
    assert mail.pop("age") != "–"
    none = {"open": "0", "waiting": "0", "dead": "0", "consumers": "0"}
    live = {"state": "running", "consumers": "1"}
    assert mail == {**none, **live, "behind": "2", "open": "1"}
    assert slow.pop("age") != "–"
    state = slow.pop("state")
    assert re.fullmatch(r"no consumer for \d+ s", state)
    assert slow == {**none, "behind": "2", "waiting": "2"}
    assert cells(client, world.billing)["dead"] == "3"
    assert cells(client, world.billing)["age"] == "2 h 0 min"
    world.letter.discard()
    assert cells(client, world.billing)["dead"] == "2"
    ConsumerGroup.objects.pause()
    assert cells(client, world.mail)["state"] == "paused"


def test_how_far_a_broadcast_group_is_is_unknown(world, as_role):
    ConsumerGroup.objects.filter(pk=world.billing.pk).update(mode="broadcast")
    ConsumerGroup.objects.filter(pk=world.slow.pk).update(ordered=True)
    client = as_role("viewer")
    shown = cells(client, world.billing, "group", "behind", "age")
    assert shown == {"group": "billingon orders · broadcast", "behind": "–", "age": "–"}
    assert cells(client, world.slow, "group") == {"group": "slowon orders · ordered"}
    assert cells(client, world.mail, "group") == {"group": "mailon orders"}


def names(response):
    return [group.name for group in response.context["cl"].result_list]


def many_groups(world, count=4):
    """More groups, all behind: each begins one message later than the one before."""
    partition = world.message.partition
    for offset in range(5):
        ago = timedelta(minutes=10 * (5 - offset))
        Message.objects.filter(offset=offset).update(sequenced_at=UtcNow(-ago))
    for number in range(count):
        group = ConsumerGroup.objects.create(topic=world.mail.topic, name=f"more-{number}")
        Cursor.objects.create(group=group, partition=partition, next_offset=number % 5)


def test_the_groups_that_need_somebody_come_first(world, as_role, monkeypatch):
    """In the order of their trouble, then by age; also on the second page."""
    client, url = as_role("viewer"), reverse("admin:ems_consumergroup_changelist")
    many_groups(world)
    ConsumerGroup.objects.filter(pk=world.slow.pk).update(ordered=True)
    Cursor.objects.filter(group=world.slow).update(next_offset=0, attempt=3, blocked_at=UtcNow())
    # mail runs, with the youngest unfinished message (offset 4); billing has dead letters, too.
    wanted = ["slow", "more-0", "more-1", "more-2", "more-3", "billing", "mail"]
    found = client.get(url)
    assert names(found) == wanted
    assert cells(client, world.slow, "state")["state"].startswith("blocked for ")
    assert "Those in trouble first" in found.text
    monkeypatch.setattr(ConsumerGroupAdmin, "list_per_page", 3)
    assert names(client.get(url)) == wanted[:3]
    assert names(client.get(url, {"p": 2})) == wanted[3:6]
    assert names(client.get(url, {"all": ""})) == wanted
    monkeypatch.setattr(page_of_groups, "SORTED_AT_MOST", 3)
    by_name = client.get(url)
    assert names(by_name) == ["billing", "mail", "more-0"]
    assert "Up to 3 groups are sorted" in by_name.text
    ConsumerGroup.objects.filter(pk=world.slow.pk).update(paused=True)
    assert cells(client, world.mail, "state") == {"state": "running"}


def test_the_order_of_many_groups_takes_no_more_statements(world, as_role):
    client, url = as_role("viewer"), reverse("admin:ems_consumergroup_changelist")

    def statements():
        with CaptureQueriesContext(connection) as queries:
            assert client.get(url).status_code == 200
        return len(queries)

    before = statements()
    many_groups(world, 120)
    assert statements() == before


def test_each_count_leads_to_what_it_counts(world, as_role):
    client = as_role("viewer")
    sequence("default")
    shown = client.get(reverse("admin:ems_consumergroup_changelist")).text
    counted = {
        ("mail", "consumer", "lease=live"): 1,
        ("mail", "delivery", "state=START"): 1,
        ("slow", "retrymessage", "state=waiting"): 2,
        ("billing", "deadmessage", "state=waiting"): 3,
    }
    for (name, model, state), count in counted.items():
        group = getattr(world, name)
        url = reverse(f"admin:ems_{model}_changelist") + f"?group={group.pk}&{state}"
        assert f'<a href="{escape(url)}">{count}</a>' in shown, (name, model)
        assert client.get(url).context["cl"].result_count == count
    assert 'class="ems-number ems-quiet">0<' in shown  # nothing to look at


def test_numbers_have_separators_and_names_keep_their_letters(world, as_role):
    client = as_role("viewer")
    long = "forecasts-of-the-warehouse_" * 3
    ConsumerGroup.objects.filter(pk=world.mail.pk).update(name=long)
    Partition.objects.update(next_offset=2_012_350)
    assert cells(client, world.mail, "behind") == {"behind": "2,012,345"}
    page = client.get(reverse("admin:ems_consumergroup_changelist")).text
    assert f'title="{long}">forecasts-of-the-warehouse_foreca…' in page
    assert "Times are in America/Chicago." in page
    world.slow.refresh_from_db()
    for url in ("consumergroup_changelist", "topic_changelist", "message_changelist"):
        text = client.get(reverse(f"admin:ems_{url}")).text
        assert not re.search(r"\b(Mail|Billing|Slow|Orders)\b", text), url


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


def test_the_page_of_a_client_shows_what_it_has_in_hand_and_whether_that_takes_long(world, as_role):
    client = as_role("viewer")
    row = Consumer.objects.get(group=world.mail)
    url = reverse("admin:ems_consumer_change", args=[row.pk])
    Delivery.objects.filter(client_id=row.client_id).update(
        claimed_at=UtcNow(-timedelta(hours=1)), started_at=None, thread="mail-3"
    )
    text = strip_tags(client.get(url).text).replace("\xa0", " ")
    for part in ("orders/0@4", "1 h 0 min", "slow", "mail-3", "Deadline"):
        assert part in text
    assert reverse("admin:ems_message_changelist") + "?q=orders%2F0%404" in client.get(url).text
    Delivery.objects.filter(client_id=row.client_id).update(claimed_at=UtcNow())
    assert "slow" not in strip_tags(client.get(url).text)
    Delivery.objects.filter(client_id=row.client_id).delete()
    assert "mail-3" not in client.get(url).text

"""Redrive at a rate from the admin: begun on the preview, seen, stopped, gone on with."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from streams.consume.outcome.dead_letter import redrive
from streams.models import ConsumerGroup, DeadMessage, Redrive, RedriveState, RetryMessage
from streams.steps.redrives import step_redrives
from tests.admin.conftest import messages
from tests.admin.test_actions import LETTERS, confirm, letters, preview
from tests.admin.world import snapshot

pytestmark = pytest.mark.django_db

REDRIVES = reverse("admin:ems_redrive_changelist")


@pytest.fixture
def nothing_yet(world):
    Redrive.objects.all().delete()
    return world


def test_a_rate_makes_a_redrive_that_needs_no_page(nothing_yet, as_role):
    client = as_role("operator")
    shown = preview(client, "redrive", letters()[0], select_across="1")
    response = confirm(client, shown, rate="0,5")
    assert response.url == REDRIVES
    assert "Redriven at 0.5 a second, 3 of them" in messages(client, response)[0]
    assert DeadMessage.objects.waiting().count() == 3  # the step has not run yet
    row = Redrive.objects.get()
    assert (row.rate, row.total, row.who, row.ids) == (0.5, 3, "operator", None)
    assert LogEntry.objects.get().object_id == str(row.pk)
    assert f"Redrive {row.pk} at 0.5 a second, Running" in client.get(LETTERS).text
    Redrive.objects.update(stepped_at=row.created_at.replace(year=2020))
    step_redrives([row.pk], "default")
    assert RetryMessage.objects.exclude(dead_letter=None).count() == 3
    assert "3 of 3" in client.get(REDRIVES).text


def test_only_what_was_selected_or_found_is_redriven(nothing_yet, as_role):
    client = as_role("operator")
    confirm(client, preview(client, "redrive", *letters()[:2]), rate="10")
    assert Redrive.objects.get().ids == letters()[:2]
    Redrive.objects.all().delete()
    url = f"{LETTERS}?q=key-1"
    confirm(client, preview(client, "redrive", 0, url=url, select_across="1"), rate="10")
    assert Redrive.objects.get().ids == [letters()[1]]
    Redrive.objects.all().delete()
    url = f"{LETTERS}?group={nothing_yet.billing.pk}"
    confirm(client, preview(client, "redrive", 0, url=url, select_across="1"), rate="10")
    assert Redrive.objects.get().groups == [nothing_yet.billing.pk]


def test_a_letter_outside_the_list_is_not_redriven_although_its_id_was_posted(nothing_yet, as_role):
    client = as_role("operator")
    own, foreign = letters()[:2]
    partition = DeadMessage.objects.get(pk=foreign).partition_id
    other = ConsumerGroup.objects.create(topic=nothing_yet.billing.topic, name="other")
    DeadMessage.objects.filter(pk=foreign).update(group=other, partition=partition)
    url = f"{LETTERS}?group={nothing_yet.billing.pk}"
    confirm(client, preview(client, "redrive", own, foreign, url=url), rate="10")
    row = Redrive.objects.get()
    assert (row.ids, row.total) == ([own], 1)
    Redrive.objects.all().delete()
    shown = preview(client, "redrive", own, foreign, url=url)
    redrive(DeadMessage.objects.get(pk=own))
    response = confirm(client, shown, rate="10")
    assert "Nothing to do" in messages(client, response)[0]
    assert not Redrive.objects.exists()


@pytest.mark.parametrize("chosen", ["some", "all"])
def test_a_preview_that_is_confirmed_twice_begins_one_redrive(nothing_yet, as_role, chosen):
    client = as_role("operator")
    options = {"select_across": "1"} if chosen == "all" else {}
    shown = preview(client, "redrive", *letters()[:2], **options)
    confirm(client, shown, rate="10")
    row = Redrive.objects.get()
    assert f"Redrive {row.pk} is redriving these already." in confirm(client, shown, rate="5").text
    assert Redrive.objects.count() == 1
    row.stop()  # one may stop it, and begin at another rate
    confirm(client, shown, rate="5")
    assert list(Redrive.objects.values_list("rate", flat=True).order_by("pk")) == [10, 5]


def test_a_number_takes_the_oldest_of_them_at_a_rate_and_on_the_page(nothing_yet, as_role):
    client = as_role("operator")
    first, second, third = letters()
    confirm(client, preview(client, "redrive", first, select_across="1"), rate="10", first="2")
    row = Redrive.objects.get()
    assert (row.upto, row.total, row.ids) == (second, 2, None)
    Redrive.objects.all().delete()
    confirm(client, preview(client, "redrive", second, third), rate="10", first="1")
    assert Redrive.objects.get().ids == [second]
    Redrive.objects.all().delete()
    confirm(client, preview(client, "redrive", first, select_across="1"), first="9,000", rate="10")
    assert Redrive.objects.get().total == 3
    Redrive.objects.all().delete()
    response = confirm(client, preview(client, "redrive", first, select_across="1"), first="2")
    assert messages(client, response) == ["Redriven: 2."]
    assert list(DeadMessage.objects.waiting().values_list("pk", flat=True)) == [third]
    again = confirm(client, preview(client, "redrive", third), first="0")
    assert 'id="ems-first-error"' in again.text
    assert DeadMessage.objects.waiting().count() == 1


@pytest.mark.parametrize(
    ("rate", "told"), [("fast", "is not a number"), ("0", "A rate is from 0.01")]
)
def test_a_wrong_rate_is_said_at_its_field(nothing_yet, as_role, rate, told):
    client = as_role("operator")
    shown = preview(client, "redrive", *letters())
    before = snapshot()
    again = confirm(client, shown, rate=rate)
    assert told in again.text
    assert 'id="ems-rate-error"' in again.text
    assert snapshot() == before


def test_the_page_of_a_redrive_offers_what_is_possible(nothing_yet, as_role):
    client = as_role("operator")
    confirm(client, preview(client, "redrive", *letters()), rate="1")
    row = Redrive.objects.get()
    page = reverse("admin:ems_redrive_change", args=[row.pk])
    assert [name for name, _ in client.get(page).context["verbs"]] == ["stop"]
    row.stop()
    assert [name for name, _ in client.get(page).context["verbs"]] == ["resume"]
    Redrive.objects.update(state=RedriveState.DONE)
    assert client.get(page).context["verbs"] == []

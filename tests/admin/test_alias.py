"""EMS on another alias than default: the pages read and write there, the log of the admin here."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse
from django.utils import timezone

from streams.models import ConsumerGroup, DeadMessage, RetryMessage, SystemConfig, Topic
from tests.admin.conftest import action
from tests.admin.test_actions import confirm, preview

pytestmark = pytest.mark.django_db(databases=["default", "other"])


@pytest.fixture
def elsewhere(ems_settings, db):
    ems_settings(DATABASE="other")
    topic = Topic.objects.using("other").create(name="orders")
    group = ConsumerGroup.objects.using("other").create(topic=topic, name="mail")
    partition = topic.partitions.using("other").get()
    return DeadMessage.objects.using("other").create(
        topic=topic,
        group=group,
        partition=partition,
        offset=0,
        message_id=1,
        body=b"elsewhere",
        body_type="text",
        size=9,
        producer="p",
        sent_at=timezone.now(),
        attempts=1,
        error_class="ValueError",
        error="no",
    )


def test_pages_show_the_rows_of_that_alias_without_a_router(elsewhere, as_role):
    client = as_role("operator")
    for model in ("topic", "consumergroup", "deadmessage", "partition", "message", "delivery"):
        url = reverse(f"admin:ems_{model}_changelist")
        count = 0 if model in ("message", "delivery") else 1
        assert len(client.get(url).context["cl"].result_list) == count
    page = reverse("admin:ems_deadmessage_change", args=[elsewhere.pk])
    assert "elsewhere" in client.get(page).text
    assert client.get(reverse("admin:ems_deadmessage_body", args=[elsewhere.pk])).content == (
        b"elsewhere"
    )


def test_actions_act_there_and_are_logged_here(elsewhere, as_role):
    client = as_role("operator")
    groups = reverse("admin:ems_consumergroup_changelist")
    client.post(groups, action("pause", elsewhere.group_id))
    assert ConsumerGroup.objects.using("other").get().paused
    confirm(client, preview(client, "redrive", elsewhere.pk))
    assert RetryMessage.objects.using("other").get().dead_letter_id == elsewhere.pk
    assert LogEntry.objects.using("default").count() == 2


def test_forms_validate_and_save_there(elsewhere, as_role):
    client = as_role("operator")
    SystemConfig.objects.using("default").create(name="consumerThreads", value=7)
    add = reverse("admin:ems_systemconfig_add")
    form = {"name": "consumerThreads", "value": "3"}
    assert client.post(add, form).status_code == 302  # not there yet, though it is on default
    assert client.post(add, form).status_code == 200  # now it is
    assert SystemConfig.objects.using("other").overrides() == {"consumerThreads": 3}
    assert SystemConfig.objects.using("default").overrides() == {"consumerThreads": 7}
    topic = reverse("admin:ems_topic_add")
    form = {"name": "new", "access": "read-write", "retention_seconds": ""}
    assert client.post(topic, form).status_code == 302
    assert Topic.objects.using("other").get(name="new").partitions.using("other").count() == 1
    assert not Topic.objects.using("default").exists()

"""Every table that the monitoring writes for itself has a page, without bodies."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from monitoring.models import (
    AlarmNotification,
    AuditFinding,
    AuditPlace,
    GroupSample,
    Mark,
    OpenDelivery,
    PartitionSample,
    ReplayedMessage,
    StagedMessage,
)
from streams.admin.pages.records import RecordAdmin
from streams.models import ConsumerGroup, Partition, Topic
from tests.monitoring.alarming import alarm, channel

pytestmark = pytest.mark.django_db

SECRET = "the-body-of-the-message"
RECORDS = [
    model
    for model, page in admin.site._registry.items()
    if isinstance(page, RecordAdmin) and model._meta.app_label == "ems_monitoring"
]


@pytest.fixture
def filled() -> None:
    topic = Topic.objects.create(name="orders")
    place = Partition.objects.get_or_create(topic=topic, number=0)[0]
    group = ConsumerGroup.objects.create(topic=topic, name="mail")
    now = timezone.now()
    body: dict[str, Any] = {
        "key": "k",
        "tag": "",
        "headers": None,
        "body": SECRET.encode(),
        "body_type": "text",
        "size": len(SECRET),
    }
    sampled: dict[str, Any] = {"minute": now, "taken_at": now}
    by = channel("https://example.com/x")
    AlarmNotification.objects.create(alarm=alarm(), channel=by, event="fired")
    AuditPlace.objects.create(stage="log", row=1)
    AuditFinding.objects.create(digest=b"0" * 32, kind="lost", place="orders/0@1", detail="<b>")
    PartitionSample.objects.create(
        **sampled, partition=place, first_offset=0, next_offset=1, inbox=0
    )
    GroupSample.objects.create(
        **sampled, group=group, open=0, waiting=0, dead=0, done=0, consumers=0
    )
    OpenDelivery.objects.create(delivery_id=7)
    Mark.objects.create(kind="pause", text="<b>", groups=[group.pk])
    StagedMessage.objects.create(**body, mark="m", topic=topic, partition=place)
    ReplayedMessage.objects.create(**body, replay="r", source=0, offset=3, target=0)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("model", RECORDS, ids=lambda model: model.__name__)
def test_a_list_and_a_row_are_shown_to_who_may_view_them(model: Any, client: Client) -> None:
    name = f"admin:ems_monitoring_{model._meta.model_name}"
    pages = [
        reverse(f"{name}_changelist"),
        reverse(f"{name}_change", args=[model._default_manager.get().pk]),
    ]
    some = User.objects.create(username="some", is_staff=True)
    client.force_login(some)
    assert [client.get(page).status_code for page in pages] == [403, 403]
    some.user_permissions.add(Permission.objects.get(codename=f"view_{model._meta.model_name}"))
    for page in pages:
        answer = client.get(page)
        assert answer.status_code == 200
        assert SECRET not in answer.text
        assert "<b>" not in answer.text


def test_each_table_of_the_monitoring_has_a_page() -> None:
    without = {
        model.__name__
        for model in apps.get_app_config("ems_monitoring").get_models()
        if model not in admin.site._registry
    }
    assert without == set()

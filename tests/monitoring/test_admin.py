"""The lists of the roll-ups: for who may view them, read-only, and quick on any number of rows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from monitoring.admin.base import RollUpAdmin
from monitoring.models import (
    Alarm,
    AlarmChannel,
    AlarmNotification,
    AlarmRule,
    AuditFinding,
    AuditPlace,
    BacklogLevel,
    Consumption,
    ConsumptionLevel,
    ErrorClass,
    ErrorLevel,
    Grain,
    GroupSample,
    HotKey,
    LakeFile,
    LakePosition,
    Latency,
    LatencyLevel,
    Mark,
    OpenDelivery,
    Overview,
    PartitionSample,
    Position,
    Run,
    Traffic,
    TrafficLevel,
)
from monitoring.models.archive import ArchivedDay, LedgerEntry, ReplayedMessage, StagedMessage
from streams.admin.base import ReadOnly
from streams.models import ConsumerGroup, Partition, Topic

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ADMINS: dict[Any, Any] = {
    model: model_admin
    for model, model_admin in admin.site._registry.items()
    if isinstance(model_admin, RollUpAdmin)
}
# A replayed message is on its way into a topic: gone a moment later, and its bodies are nobody's to
# see. The pages show the samples and the alarms.
OF_ALARMS = {Alarm, AlarmRule, AlarmChannel, AlarmNotification, AuditFinding, AuditPlace}
WITHOUT: set[Any] = {
    ReplayedMessage,
    StagedMessage,
    OpenDelivery,
    PartitionSample,
    GroupSample,
    Mark,
    Overview,
    *OF_ALARMS,
}
ROLES = {"anonymous": 302, "staff": 403, "viewer": 200}


@pytest.fixture
def browser() -> Any:
    def log_in(role: str) -> Client:
        client = Client()
        if role == "anonymous":
            return client
        user = User.objects.create(username=role, is_staff=True)
        if role == "viewer":
            mine = Permission.objects.filter(content_type__app_label="ems_monitoring")
            user.user_permissions.set(mine)
        client.force_login(user)
        return client

    return log_in


def fill(count: int) -> None:
    for number in range(Topic.objects.count(), count):
        topic = Topic.objects.create(name=f"topic-{number}")
        group = ConsumerGroup.objects.create(topic=topic, name=f"group-{number}")
        partition = topic.partitions.get()
        minute = NOON + number * timedelta(minutes=1)
        of_group = {"group": group, "minute": minute}
        Run.objects.create(job="traffic", error="x" * number)
        Position.objects.create(partition=partition, open_offset=0, next_offset=10)
        Traffic.objects.create(
            partition=partition,
            minute=minute,
            first_offset=0,
            end_offset=10,
            messages=10,
            bytes=1,
            keys=1,
            delayed=0,
        )
        numbers = ("deliveries", "consumed", "failed", "retried", "dead", "lost", "missing")
        Consumption.objects.create(
            **of_group,
            client_id="c",
            thread="t",
            busy_seconds=61,
            longest_seconds=61,
            passed=0,
            **dict.fromkeys(numbers, 1),
        )
        figures = ("messages", "mean", "p50", "p95", "p99", "worst")
        Latency.objects.create(**of_group, leg="total", **dict.fromkeys(figures, 1))
        ErrorClass.objects.create(**of_group, error_class="E", failed=1, dead=0)
        HotKey.objects.create(
            topic=topic, hour=NOON, place=1, key="k<b>", messages=1, bytes=1, share=0.5
        )
        ArchivedDay.objects.create(
            partition=partition,
            day=date(2026, 1, 1),
            topic="t",
            number=0,
            first_offset=0,
            end_offset=1,
            messages=1,
            bytes=1,
            hash="",
            path="p",
        )
        LedgerEntry.objects.create(name=f"n{number}", batch=1)
        LakePosition.objects.create(partition=partition, first_offset=0, next_offset=10)
        sizes = ("messages", "bytes", "size", "version")
        LakeFile.objects.create(
            topic="t", day=date(2026, 1, 1), path="p", **dict.fromkeys(sizes, 1)
        )
        when: dict[str, Any] = {"grain": Grain.HOUR, "start": NOON}
        sums = dict.fromkeys(("messages", "bytes", "delayed"), 1)
        TrafficLevel.objects.create(**when, partition=partition, **sums)
        when["group"] = group
        ConsumptionLevel.objects.create(
            **when,
            client_id="c",
            thread="t",
            **dict.fromkeys(numbers, 1),
            passed=0,
            busy_seconds=61,
            longest_seconds=61,
        )
        LatencyLevel.objects.create(**when, leg="total", messages=1, mean=1, worst=1)
        ErrorLevel.objects.create(**when, error_class="E", failed=1, dead=0)
        BacklogLevel.objects.create(**when, samples=60, waiting=0, dead=0)


def list_of(model: Any, query: str = "") -> str:
    return reverse(f"admin:ems_monitoring_{model._meta.model_name}_changelist") + query


def page_of(model: Any, page: str) -> str:
    pk = model.objects.order_by("pk")[0].pk
    return reverse(f"admin:ems_monitoring_{model._meta.model_name}_{page}", args=[pk])


def test_every_roll_up_has_a_list() -> None:
    assert set(ADMINS) | WITHOUT == set(apps.get_app_config("ems_monitoring").get_models())
    for model, model_admin in ADMINS.items():
        assert isinstance(model_admin, ReadOnly), model
        assert model._meta.default_permissions == ("view",)


@pytest.mark.parametrize("role", ROLES)
def test_only_who_may_view_them_sees_them_and_nobody_changes_them(browser, role) -> None:
    fill(1)
    client = browser(role)
    for model in ADMINS:
        for url in (list_of(model), page_of(model, "change"), page_of(model, "history")):
            assert client.get(url).status_code == ROLES[role], url
        refused = 302 if role == "anonymous" else 403
        assert client.get(page_of(model, "delete")).status_code == refused
        assert client.post(page_of(model, "change"), {}).status_code == refused
        add = reverse(f"admin:ems_monitoring_{model._meta.model_name}_add")
        assert client.post(add, {}).status_code == refused
        before = model.objects.count()
        chosen = {"action": "delete_selected", "_selected_action": "1", "post": "yes"}
        client.post(list_of(model), chosen)
        assert model.objects.count() == before


@pytest.mark.parametrize("model", ADMINS, ids=lambda model: model.__name__)
def test_statements_do_not_grow_with_the_rows_and_sort_nothing_large(browser, model) -> None:
    client = browser("viewer")
    fill(1)
    rows = {"group": ConsumerGroup, "partition": Partition, "topic": Topic}
    queries = [""]
    for filter_ in ADMINS[model].list_filter:
        kind: Any = rows.get(filter_.parameter_name)
        value = kind.objects.get().pk if kind else filter_.options[0][0]
        queries.append(f"?{filter_.parameter_name}={value}")

    def statements(query: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            response = client.get(list_of(model, query))
        assert response.status_code == 200
        assert not any(
            "JOIN" in one["sql"] and model._meta.db_table in one["sql"] for one in captured
        )
        return len(captured)

    before = [statements(query) for query in queries]
    fill(4)
    assert [statements(query) for query in queries] == before


def test_a_group_that_is_gone_leaves_its_history_readable(browser) -> None:
    fill(2)
    ConsumerGroup.objects.all().delete()
    client = browser("viewer")
    models: list[Any] = [Consumption, Latency, BacklogLevel, ErrorClass]
    for model in models:
        assert client.get(list_of(model)).status_code == 200
        assert client.get(page_of(model, "change")).status_code == 200


@pytest.mark.parametrize("model", [Traffic, Position, ArchivedDay])
def test_a_partition_that_is_gone_leaves_its_history_readable(browser, model: Any) -> None:
    fill(1)
    client = browser("viewer")
    Partition.objects.all().delete()
    assert model.objects.exists()
    assert client.get(list_of(model)).status_code == 200
    assert client.get(page_of(model, "change")).status_code == 200


def test_what_is_unknown_is_a_dash_and_keys_are_escaped(browser) -> None:
    fill(1)
    client = browser("viewer")
    assert "–" in client.get(list_of(BacklogLevel)).text
    assert "k&lt;b&gt;" in client.get(list_of(HotKey)).text


@pytest.mark.parametrize("chosen", ["", "?topic={}"])
def test_the_hottest_key_of_the_newest_hour_comes_first(browser, chosen: str) -> None:
    topic = Topic.objects.create(name="orders")
    for hour in (NOON, NOON + timedelta(hours=1)):
        for place in (1, 2, 3):
            HotKey.objects.create(
                topic=topic, hour=hour, place=place, key="k", messages=9, bytes=9, share=0.1
            )
    page = browser("viewer").get(list_of(HotKey) + chosen.format(topic.pk))
    found = [(row.hour.hour, row.place) for row in page.context["cl"].result_list]
    assert found == [(13, 1), (13, 2), (13, 3), (12, 1), (12, 2), (12, 3)]

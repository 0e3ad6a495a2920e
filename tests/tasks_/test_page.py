"""One page shows work of all doors: what waits, what runs, and what failed."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from streams import send
from streams.contrib.tasks.apps import TasksConfig
from streams.deliver.poller import Poller
from streams.models import ConsumerGroup, Topic
from streams.observe.work import Door, doors
from streams.testing import drain
from tests.browser.worst.work import work as worst_work

pytestmark = pytest.mark.django_db

URL = "admin:ems_monitoring_overview_work"


def figures(client: Client) -> dict[str, Any]:
    (door,) = client.get(reverse(URL), {"format": "json"}).json()["doors"]
    return door  # type: ignore[no-any-return]


def test_the_page_shows_what_waits_runs_and_failed(admin_client: Client) -> None:
    worst_work()
    door = figures(admin_client)
    assert (door["waiting"], door["dead"]) == (2_000_012, 5_803)
    assert sum(one["number"] for one in door["failed"]) == 5_803
    assert [one["alive"] for one in door["running"]] == [True, False, True]
    assert door["running"][0]["usual"] == 4.0
    mails = [one for one in door["next_tasks"] if one["queue"] == "mails"]
    assert sum(one["number"] for one in mails) == mails[0]["of"] == 500
    page = admin_client.get(reverse(URL)).text
    for text in ("much longer than usual", "its process has died", "5,803", "2,000,012"):
        assert text in page


def test_the_page_counts_what_tasks_have_left(work: Any, admin_client: Client) -> None:
    assert figures(admin_client)["queues"] == []
    work.add.enqueue(1, 1)
    work.fail.enqueue("no")
    drain()
    work.add.enqueue(1, 1)
    door = figures(admin_client)
    assert (door["dead"], len(door["queues"])) == (1, 2)
    (failed,) = door["failed"]
    assert (failed["task"], failed["error_class"]) == ("tests.tasks_.work.fail", "ValueError")


def test_a_door_without_rows_is_read_from_deliveries(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of Celery: then the claims tell what runs."""
    monkeypatch.setattr(TasksConfig, "ems_work", lambda self: [Door("Other", "tasks.", "tasks")])
    worst_work()
    door = figures(admin_client)
    assert (door["dead"], len(door["running"])) == (5_803, 2)
    assert admin_client.get(reverse(URL)).status_code == 200


def test_celery_has_a_door_where_ems_is_its_broker(
    admin_client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(TasksConfig, "ems_work")
    settings.CELERY_BROKER_URL = "ems://"
    topic = Topic.objects.create(name="celery.mails")
    group = ConsumerGroup.objects.create(topic=topic, name="celery")
    group.cursors.create(partition=topic.partitions.get())
    send("celery.mails", [[1], {}], tag="shop.tasks.announce")
    Poller("default").look([])
    door = figures(admin_client)
    assert (door["title"], door["waiting"]) == ("Celery", 1)
    (next_,) = door["next_tasks"]
    assert (next_["queue"], next_["task"]) == ("mails", "shop.tasks.announce")


def test_without_a_door_there_is_no_page(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(TasksConfig, "ems_work")
    assert doors() == []
    assert admin_client.get(reverse(URL)).status_code == 403
    overview = admin_client.get(reverse("admin:ems_monitoring_overview_changelist"))
    assert reverse(URL) not in overview.text

"""The page of the streams of Spark, their rows on the page of a topic, and their alarm."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse

from monitoring.alarms.measured import Subject
from monitoring.alarms.metrics import measure
from streams.models import Message, Reader, Topic, UtcNow
from tests.streams.test_readers import DAY, log, stream

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

STREAMS = reverse("admin:ems_monitoring_overview_streams")


def value() -> Any:
    values = measure("unread", "default")
    assert values is not None
    found = values.get(Subject("orders", name="lake (c) on orders"))
    return found and found.number


def test_without_a_stream_the_page_says_how_to_get_one(admin_client: Any) -> None:
    assert "No stream of Spark reads a topic." in admin_client.get(STREAMS).text


def test_the_page_lists_the_streams_that_need_somebody_first(admin_client: Any) -> None:
    topic = log()
    stream(topic, 10, checkpoint="a")
    stream(topic, protect=True, seen=20 * DAY)
    shown = admin_client.get(STREAMS, {"format": "json"}).json()
    assert [one["checkpoint"] for one in shown["streams"]] == ["c", "a"]
    first = shown["streams"][0]
    assert (first["behind"], first["protect"], first["protects"]) == (4, True, False)
    assert first["state"] == "unprotected"
    text = admin_client.get(STREAMS).text
    assert "no longer protected" in text


def test_the_page_of_a_topic_says_who_reads_it(admin_client: Any) -> None:
    topic = log()
    stream(topic)
    page = reverse("admin:ems_monitoring_overview_topic", args=[topic.pk])
    (one,) = admin_client.get(page, {"format": "json"}).json()["streams"]
    assert (one["name"], one["behind"]) == ("lake", 4)
    assert "Streams of Spark" in admin_client.get(page).text


def test_the_alarm_measures_how_near_retention_is_to_what_is_unread() -> None:
    assert value() is None
    topic = log(days=3.5)
    stream(topic)
    assert value() == pytest.approx(0.5, abs=0.01)
    Message.objects.filter(offset__gte=6).update(sequenced_at=UtcNow(-timedelta(days=6)))
    assert value() == pytest.approx(6 / 7, abs=0.01)
    topic.partitions.update(first_offset=8)
    assert value() == 1
    Topic.objects.update(retention_seconds=0)
    assert value() == 1  # what is lost is lost
    Reader.objects.update(positions={str(topic.partitions.get().pk): 10})
    assert value() is None

"""``ems_spark report`` ranks topics, orders groups by slowness, and names errors; without Spark."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.utils import timezone

from monitoring.models import BacklogLevel, ErrorClass, Grain, Latency, Run, Traffic
from sparkjobs.rollup.histogram import bucket
from streams.models import ConsumerGroup, Topic

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def ago(minutes: int) -> datetime:
    return timezone.now().replace(second=0, microsecond=0) - minutes * MINUTE


def traffic(topic: str, minutes_ago: int, messages: int, size: int) -> None:
    found, _ = Topic.objects.get_or_create(name=topic)
    partition = found.partitions.get()
    first = Traffic.objects.filter(partition=partition).count() * 1000
    Traffic.objects.create(
        partition=partition,
        minute=ago(minutes_ago),
        first_offset=first,
        end_offset=first + messages,
        messages=messages,
        bytes=size,
        keys=1,
        delayed=1,
    )


def group(name: str) -> ConsumerGroup:
    topic, _ = Topic.objects.get_or_create(name="orders")
    return ConsumerGroup.objects.get_or_create(topic=topic, name=name)[0]


def latency(name: str, minutes_ago: int, messages: int, mean: float, leg: str = "total") -> None:
    times = {"p50": mean, "p95": 2 * mean, "p99": 3 * mean, "worst": 4 * mean}
    Latency.objects.create(
        group=group(name),
        minute=ago(minutes_ago),
        leg=leg,
        messages=messages,
        mean=mean,
        histogram=f"{bucket(mean)}:{messages}",
        **times,
    )


def report() -> dict[str, Any]:
    out = StringIO()
    call_command("ems_spark", "report", "--json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def text() -> str:
    out = StringIO()
    call_command("ems_spark", "report", stdout=out)
    return out.getvalue()


def test_topics_of_another_namespace_are_not_in_the_report(ems_settings: Any) -> None:
    for namespace in ("green", "blue"):
        ems_settings(NAMESPACE=namespace)
        traffic(f"of-{namespace}", 5, messages=1, size=1)
    assert {row["topic"] for row in report()["topics"]} == {"of-blue"}


def test_topics_are_ranked_in_each_period_by_messages_and_by_bytes() -> None:
    traffic("small-and-many", 5, messages=100, size=10)
    traffic("small-and-many", 50, messages=1, size=1)
    traffic("large-and-few", 5, messages=3, size=5000)
    traffic("large-and-few", 7 * 60, messages=300, size=1)
    traffic("long-ago", 25 * 60, messages=1000, size=1000)
    found = [tuple(row.values()) for row in report()["topics"]]
    assert found == [
        (15, 1, 2, "small-and-many", 100, 10, 1),
        (15, 2, 1, "large-and-few", 3, 5000, 1),
        (60, 1, 2, "small-and-many", 101, 11, 2),
        (60, 2, 1, "large-and-few", 3, 5000, 1),
        (1440, 1, 1, "large-and-few", 303, 5001, 2),
        (1440, 2, 2, "small-and-many", 101, 11, 2),
    ]


def test_groups_are_ordered_by_how_long_they_take_on_average() -> None:
    latency("quick", 5, messages=100, mean=0.1)
    latency("slow", 5, messages=1, mean=10)
    latency("slow", 6, messages=3, mean=2)
    latency("slow", 6, messages=3, mean=0.5, leg="claimed")
    latency("quick", 120, messages=1, mean=1000)
    rows = [tuple(row.values()) for row in report()["latencies"]]
    assert rows == [
        # 95 % to within 5 %: of one value, and between 2 and 10 seconds.
        ("slow", "orders", "in the log → claimed", 3, 0.5, pytest.approx(0.5, rel=0.05), 2.0),
        ("slow", "orders", "sent → done", 4, 4.0, pytest.approx(8.8, rel=0.05), 40.0),
        ("quick", "orders", "sent → done", 100, 0.1, pytest.approx(0.1, rel=0.05), 0.4),
    ]


def test_the_backlog_is_that_of_the_hours_of_a_day() -> None:
    hour = ago(0).replace(minute=0)
    for hours, most, least in ((25, 9000, 0), (23, 500, 40), (0, 70, 8)):
        BacklogLevel.objects.create(
            group=group("mail"),
            grain=Grain.HOUR,
            start=hour - timedelta(hours=hours),
            samples=60,
            behind=most,
            least=least,
            waiting=2,
            dead=hours,
            age_seconds=90.0,
        )
    (row,) = report()["backlog"]
    assert (row["at most"], row["at least"], row["retries"], row["dead"]) == (500, 8, 2, 23)
    assert row["age"] == 90.0
    assert "0:01:30" in text()


def test_a_backlog_of_which_nothing_is_known_is_a_dash() -> None:
    BacklogLevel.objects.create(
        group=group("all"), grain=Grain.HOUR, start=ago(0), samples=1, waiting=0, dead=0
    )
    (row,) = report()["backlog"]
    assert (row["at most"], row["at least"], row["age"]) == (None, None, None)
    assert "–" in text()


def test_the_most_frequent_errors_of_a_day_come_first() -> None:
    for name, minutes_ago, failed in (("A", 1, 2), ("B", 2, 5), ("A", 3, 4), ("C", 2000, 9)):
        ErrorClass.objects.create(
            group=group("mail"), minute=ago(minutes_ago), error_class=name, failed=failed, dead=1
        )
    assert [(row["error"], row["failed"], row["dead"]) for row in report()["errors"]] == [
        ("A", 6, 2),
        ("B", 5, 1),
    ]


def test_it_says_until_when_there_are_figures() -> None:
    assert "rolled up until – UTC" in text()
    until = timezone.now()
    Run.objects.create(job="traffic", state="done", until=until)
    assert f"rolled up until {until:%Y-%m-%d %H:%M:%S} UTC" in text()


def test_a_group_that_is_gone_is_left_out() -> None:
    latency("gone", 1, messages=1, mean=1)
    ConsumerGroup.objects.all().delete()
    assert report()["latencies"] == []


def test_an_unknown_word_is_an_error() -> None:
    with pytest.raises(CommandError, match="unknown: --topics"):
        call_command("ems_spark", "report", "--topics")


@pytest.mark.django_db(databases=["default", "other"])
def test_the_report_is_of_all_databases_and_of_those_that_are_there(
    ems_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from monitoring import report as reports

    traffic("orders", 5, messages=1, size=1)
    ems_settings(SHARDS={"clicks": "other"})
    found = report()
    assert [row["topic"] for row in found["default"]["topics"]] == ["orders"] * 3
    assert found["other"]["topics"] == []
    assert "default: Topics, rolled up until" in text()
    assert "other: Topics, rolled up until" in text()
    sections = reports.sections

    def away(using: str) -> Any:
        if using == "default":
            raise OperationalError(2003, "no server")
        return sections(using)

    monkeypatch.setattr(reports, "sections", away)
    out, err = StringIO(), StringIO()
    with pytest.raises(SystemExit) as error:
        call_command("ems_spark", "report", stdout=out, stderr=err)
    assert error.value.code == 1
    assert "no server" in err.getvalue()
    assert "other: Topics, rolled up until" in out.getvalue()

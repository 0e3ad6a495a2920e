"""The ranking of the topics: by what, of which time, and what has changed since the one before."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection as plain_connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from monitoring.live.levels import TimeSpan
from monitoring.live.pipeline import ranking
from monitoring.models import (
    BacklogLevel,
    ErrorClass,
    ErrorLevel,
    Grain,
    GroupSample,
    PartitionSample,
    Run,
    Traffic,
    TrafficLevel,
)
from monitoring.sample.grain import floor
from sparkjobs.rollup import tables
from streams.database.clock import database_now
from streams.models import Cursor, Partition, Topic
from tests.monitoring.test_levels import at, written
from tests.monitoring.test_overview import (  # noqa: F401 - a fixture
    BUDGET,
    FRAME,
    MORE,
    browser,
    figures,
    make,
    page,
)
from tests.monitoring.test_sinks import traffic

pytestmark = pytest.mark.django_db

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def until() -> datetime:
    """Spark has counted until this minute, and from long before on."""
    found = floor(database_now("default"), 1)
    for job in ("traffic", "consumption"):
        Run.objects.create(job=job, state="done", until=found, finished_at=found)
    start = floor(found, 60) - 30 * DAY
    sums = {"partition": Partition(pk=999), "messages": 0, "bytes": 0, "delayed": 0}
    TrafficLevel.objects.create(grain=Grain.HOUR, start=start, **sums)
    return found


def topic(name: str, now: int, before: int, at: datetime, *, size: int = 1) -> Any:
    """A topic with a group, and so many messages in the hour until then, and in the one before."""
    group = make(name, f"g-{name}")
    Topic.objects.filter(name=name).update(created_at=at - 300 * DAY)
    for number, (count, minute) in enumerate(((now, at - 2 * MINUTE), (before, at - 61 * MINUTE))):
        counted(group, minute, count, number * 10**6, size)
    return group


def counted(group: Any, minute: datetime, count: int, first: int = 0, size: int = 1) -> None:
    partition = group.topic.partitions.get()
    row = {"end_offset": first + count, "messages": count, "bytes": count * size}
    Traffic.objects.create(
        partition=partition, minute=minute, first_offset=first, keys=0, delayed=0, **row
    )
    sums = {"messages": count, "bytes": count * size}
    added_up(TrafficLevel, minute, {"partition": partition, "delayed": 0}, sums)


def added_up(model: Any, minute: datetime, place: Any, counts: Any) -> None:
    """Add the counts to the hour and the day, as Spark does."""
    for grain in Grain:
        start = floor(minute, grain)
        zeros = dict.fromkeys(counts, 0)
        row, _made = model.objects.get_or_create(grain=grain, start=start, **place, defaults=zeros)
        sums = {name: getattr(row, name) + count for name, count in counts.items()}
        model.objects.filter(pk=row.pk).update(**sums)


def ranks(browser: Any, query: str = "") -> list[Any]:  # noqa: F811
    return figures(browser, "topics", query=query)["ranking"]["topics"]  # type: ignore[no-any-return]


def test_a_topic_has_its_place_where_it_has_moved_and_by_how_much_it_has_changed(
    browser,  # noqa: F811
    until: datetime,
) -> None:
    topic("falls", 50, 100, until)
    topic("grows", 80, 40, until)
    topic("stays", 10, 10, until)
    topic("back", 5, 0, until)
    topic("silent", 0, 7, until)
    new = topic("new", 60, 0, until)
    Topic.objects.filter(pk=new.topic_id).update(created_at=until - 5 * MINUTE)
    found = ranks(browser)
    assert [(one["name"], one["place"], one["moved"], one["is_new"]) for one in found] == [
        ("grows", 1, 1, False),
        ("new", 2, None, True),
        ("falls", 3, -2, False),
        ("stays", 4, -1, False),
        ("back", 5, None, False),
        ("silent", None, None, False),
    ]
    assert [one["messages"]["change"] for one in found] == [1.0, None, -0.5, 0, None, -1.0]
    html = browser.get(page("topics")).text
    for shown in ("+100\xa0%", "\N{MINUS SIGN}50\xa0%", "before: 0", "up by 1", "down by 2"):
        assert shown in html
    assert html.count(">new</span>") == 1


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("messages", ["many", "large", "fails"]),
        ("bytes", ["large", "many", "fails"]),
        ("failures", ["fails", "many", "large"]),
        ("lag", ["many", "fails", "large"]),
    ],
)
def test_the_order_is_that_of_the_figure_that_the_url_names(
    browser,  # noqa: F811
    until: datetime,
    by: str,
    expected: list[str],
) -> None:
    groups = {
        "many": topic("many", 90, 9, until),
        "large": topic("large", 80, 9, until, size=100),
        "fails": topic("fails", 1, 9, until),
    }
    for name, failed, behind in (("fails", 5, 3), ("many", 2, 8)):
        group, minute = groups[name], until - 3 * MINUTE
        place = {"group": group, "error_class": "E"}
        ErrorClass.objects.create(**place, minute=minute, failed=failed, dead=0)
        added_up(ErrorLevel, minute, place, {"failed": failed, "dead": 0})
        sampled = {"open": 0, "waiting": 0, "dead": 0, "consumers": 1, "behind": behind}
        GroupSample.objects.create(group=group, minute=minute, taken_at=minute, **sampled)
    found = ranks(browser, f"&by={by}")
    assert [one["name"] for one in found] == expected
    by_name = {one["name"]: one for one in found}
    assert [by_name["fails"][name]["now"] for name in ("failures", "lag")] == [5, 3]
    assert by_name["large"]["bytes"]["now"] == 8000


def test_a_time_is_compared_with_the_equally_long_one_before(browser, until: datetime) -> None:  # noqa: F811
    group = make("orders", "mail")
    Topic.objects.update(created_at=until - 300 * DAY)
    day = floor(until, Grain.DAY) - 3 * DAY
    for number, hours in enumerate((8.98, 9, 9.98, 10, 10.5, 10.98, 11)):
        counted(group, floor(day + hours * HOUR, 1), 10**number, number * 10**7)
    written = f"{day:%Y-%m-%d}"
    found = figures(browser, "topics", query=f"&since={written}T10:00&until={written}T11:00")
    (one,) = found["ranking"]["topics"]
    assert (one["messages"]["now"], one["messages"]["before"]) == (111_000, 110)
    assert found["ranking"]["since"] == f"{written}T10:00:00.000000Z"
    assert found["ranking"]["before"] == f"{written}T09:00:00.000000Z"
    # What is of now only is not shown beside it.
    html = browser.get(page("topics") + f"?since={written}T10:00&until={written}T11:00").text
    assert "Inbox" not in html
    assert f'value="{written}T10:00"' in html
    assert '<a href="?range=24h">24h</a>' in html


@pytest.mark.django_db(transaction=True)
@pytest.mark.every_database
def test_any_time_has_the_sums_of_its_minutes(connection: Any) -> None:
    Topic.objects.create(name="orders")
    partition = Topic.objects.get().partitions.get().pk
    topics = {partition: Topic.objects.get().pk}
    chosen = random.Random(26)  # noqa: S311
    minutes = sorted({floor(at(chosen.random() * 100), 1) for _n in range(300)})
    rows = [
        traffic(n, minute=minute, partition_id=partition, messages=n + 1, bytes=n)
        for n, minute in enumerate(minutes)
    ]
    written(connection, tables.TRAFFIC, *rows)
    edges = [floor(at(chosen.random() * 100), 1) for _n in range(60)]
    edges += [at(24), at(48), at(25), at(49), at(49.5), at(1)]
    for _time in range(60):
        first, middle, last = sorted(chosen.sample(edges, 3))
        spans = [TimeSpan(middle, last), TimeSpan(first, middle)]
        expected = [
            sum(row["messages"] for row in rows if span.since <= row["minute"] < span.until)
            for span in spans
            if span.until
        ]
        found = ranking("default", spans, topics)
        assert [sum(one.messages for one in of.values()) for of in found] == expected


def test_the_range_ends_where_spark_has_counted(browser, until: datetime) -> None:  # noqa: F811
    """Else the newest time would always look as if it had less than the one before."""
    behind = until - 20 * MINUTE
    Run.objects.update(until=behind)
    topic("orders", 30, 30, behind)
    found = figures(browser, "topics")["ranking"]
    assert (found["by_spark"], found["topics"][0]["messages"]["change"]) == (True, 0)
    assert datetime.fromisoformat(found["until"]) == behind


def test_failures_are_unknown_where_the_consumption_is_not_counted(
    browser,  # noqa: F811
    until: datetime,
) -> None:
    """A job of Spark that fails keeps the others from nothing: the traffic goes on."""
    group = topic("orders", 30, 30, until)
    place = {"group": group, "error_class": "E"}
    ErrorClass.objects.create(**place, minute=until - 65 * MINUTE, failed=7, dead=0)
    added_up(ErrorLevel, until - 65 * MINUTE, place, {"failed": 7, "dead": 0})
    ends = until - 60 * MINUTE
    Run.objects.create(job="consumption", state="done", until=ends, finished_at=ends)
    failed = {"job": "consumption", "state": "failed", "error": "OSError: the disk is full"}
    Run.objects.bulk_create(Run(**failed) for _ in range(20))
    again = {"job": "consumption", "state": "done", "since": ends, "finished_at": until}
    Run.objects.create(**again)  # of the past once more: it has no end
    (one,) = ranks(browser)
    assert one["messages"]["now"] == 30
    assert one["failures"] == {"now": None, "before": 7, "change": None}
    Run.objects.create(job="consumption", state="done", until=until, finished_at=until)
    (one,) = ranks(browser)
    assert one["failures"] == {"now": 0, "before": 7, "change": -1.0}


def test_failures_are_unknown_where_nothing_says_how_far_they_are_counted(
    browser,  # noqa: F811
    until: datetime,
) -> None:
    topic("orders", 30, 30, until)
    Run.objects.filter(job="consumption").delete()
    (one,) = ranks(browser)
    assert one["messages"] == {"now": 30, "before": 30, "change": 0}
    assert one["failures"] == {"now": None, "before": None, "change": None}


def test_the_ranking_is_that_of_spark_whatever_runs_have_failed_since(
    browser,  # noqa: F811
    until: datetime,
) -> None:
    topic("orders", 30, 30, until)
    Run.objects.bulk_create(Run(job="traffic", state="failed", error="gone") for _ in range(20))
    found = figures(browser, "topics")["ranking"]
    assert (found["by_spark"], found["topics"][0]["bytes"]["now"]) == (True, 30)
    overview = browser.get(page("changelist")).text
    assert "Nothing is rolled up yet" not in overview
    assert "gone" in overview


def test_before_spark_has_counted_nothing_is_known(browser, until: datetime) -> None:  # noqa: F811
    TrafficLevel.objects.all().delete()
    group = make("orders", "mail")
    Topic.objects.update(created_at=until - DAY)
    counted(group, until - 2 * MINUTE, 30)
    (one,) = ranks(browser)
    assert (one["messages"]["before"], one["moved"], one["is_new"]) == (None, None, False)


def test_a_time_before_spark_has_counted_is_unknown_and_not_zero(browser, until: datetime) -> None:  # noqa: F811
    group = topic("orders", 30, 30, until)
    Topic.objects.update(created_at=until - 90 * DAY)
    day = until - 60 * DAY
    (one,) = ranks(browser, f"&since={day:%Y-%m-%d}T10:30&until={day:%Y-%m-%d}T11:10")
    for name in ("messages", "bytes", "failures"):
        assert one[name] == {"now": None, "before": None, "change": None}
    # A topic that was made later was not there.
    Topic.objects.filter(pk=group.topic_id).update(created_at=until - 50 * DAY)
    asked = f"since={day:%Y-%m-%d}T10:30&until={day:%Y-%m-%d}T11:10"
    assert not ranks(browser, f"&{asked}")
    assert "There was no topic in this time." in browser.get(f"{page('topics')}?{asked}").text


def test_where_minutes_are_deleted_a_time_has_whole_hours(browser, until: datetime) -> None:  # noqa: F811
    group = topic("orders", 0, 0, until)
    TrafficLevel.objects.update(start=F("start") - 30 * DAY)
    day = floor(until, Grain.DAY) - 40 * DAY
    for hour in (9, 10):
        counted(group, day + hour * HOUR + 40 * MINUTE, hour, hour)
    Traffic.objects.all().delete()
    asked = f"&since={day:%Y-%m-%d}T10:30&until={day:%Y-%m-%d}T10:50"
    found = figures(browser, "topics", query=asked)["ranking"]
    assert (found["since"][11:16], found["until"][11:16]) == ("10:00", "11:00")
    assert found["topics"][0]["messages"] == {
        "now": 10,
        "before": 9,
        "change": pytest.approx(1 / 9),
    }


def sampled(group: Any, *ends: tuple[timedelta, int]) -> None:
    for back, end in ends:
        minute = floor(database_now("default"), 1) - back
        values = {"taken_at": minute, "first_offset": 0, "next_offset": end, "inbox": 0}
        PartitionSample.objects.create(
            partition=group.topic.partitions.get(), minute=minute, grain=1, **values
        )


def test_without_spark_messages_are_those_of_the_samples(browser) -> None:  # noqa: F811
    orders, mails = make("orders", "mail", end=1000), make("mails", "smtp", end=100)
    young, late = make("young", "y", end=7), make("late", "l", end=50)
    now = database_now("default")
    Topic.objects.exclude(name="young").update(created_at=now - 9 * DAY)
    sampled(orders, (119 * MINUTE, 300), (59 * MINUTE, 700))
    sampled(mails, (119 * MINUTE, 0), (59 * MINUTE, 90))
    sampled(young, (5 * MINUTE, 3))
    sampled(late, (40 * MINUTE, 10))  # nobody sampled in the hour before, nor at its end
    found = {one["name"]: one for one in ranks(browser)}
    messages = {name: one["messages"] for name, one in found.items()}
    assert {name: (one["now"], one["before"]) for name, one in messages.items()} == {
        "orders": (300, 400),
        "mails": (10, 90),
        "young": (7, 0),
        "late": (None, None),
    }
    assert [one["place"] for one in found.values()] == [1, 2, 3, None]
    html = browser.get(page("topics")).text
    assert "Spark adds bytes and failures" in html
    assert '<th scope="col" role="columnheader" class="ems-right">Bytes</th>' not in html


def test_a_spark_that_has_stopped_before_the_range_is_none(browser, until: datetime) -> None:  # noqa: F811
    Run.objects.update(until=until - 3 * DAY)
    make("orders", "mail")
    assert figures(browser, "topics")["ranking"]["by_spark"] is False
    assert figures(browser, "topics", query="&range=7d")["ranking"]["by_spark"] is True


@pytest.mark.every_database
def test_the_lag_is_the_highest_of_the_samples_the_hours_and_now(browser) -> None:  # noqa: F811
    group = make("orders", "mail", behind=5)
    now = database_now("default")
    hour = floor(now, 60)

    def behind(query: str) -> tuple[int | None, int | None]:
        (one,) = ranks(browser, query)
        return one["lag"]["now"], one["lag"]["before"]

    assert behind("") == behind("&range=7d") == (5, None)
    figures_of = {"open": 0, "waiting": 0, "dead": 0, "consumers": 1, "group": group}
    for back, count in ((10 * MINUTE, 30), (70 * MINUTE, 20), (3 * HOUR, 60)):
        minute = floor(now, 1) - back
        GroupSample.objects.create(
            minute=minute, taken_at=minute, behind=count, grain=1, **figures_of
        )
    assert behind("") == (30, 20)
    # Of a day, samples of minutes are not read: Spark has added them up.
    levels = {"samples": 9, "waiting": 0, "dead": 0, "group": group}
    for hours, count in ((3, 60), (30, 90)):
        for grain in Grain:
            start = floor(hour - hours * HOUR, grain)
            BacklogLevel.objects.create(start=start, grain=grain, behind=count, **levels)
    assert behind("&range=24h") == (60, 90)
    Cursor.objects.update(next_offset=0)
    assert behind("&range=24h") == (100, 90)
    # Where samples of minutes are deleted, the hour still has the highest of them.
    day = floor(now, Grain.DAY) - 10 * DAY
    start = day + 10 * HOUR
    BacklogLevel.objects.create(start=start, grain=Grain.HOUR, behind=70, **levels)
    Topic.objects.update(created_at=now - 20 * DAY)
    assert behind(f"&since={day:%Y-%m-%d}T10:00&until={day:%Y-%m-%d}T11:00") == (70, None)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("since=never", "is not a time"),
        ("since=2026-01-02T00:00&until=2026-01-01T00:00", "must end a minute after its beginning"),
        ("until=0001-01-01T00:00", "before there was anything"),
        ("since=0001-01-01T00:00", ""),
        ("since=9999-12-31T23:59&until=9999-12-31T23:59", "must end a minute"),
    ],
)
def test_a_time_that_cannot_be_is_said(browser, query: str, said: str) -> None:  # noqa: F811
    make("orders", "mail")
    response = browser.get(f"{page('topics')}?{query}")
    assert response.status_code == 200
    assert said in response.text
    assert "orders" in response.text


def test_of_hundreds_of_topics_the_first_are_listed(browser, until: datetime) -> None:  # noqa: F811
    for number in range(60):
        Topic.objects.create(name=f"topic-{number}", created_at=datetime(2026, 1, 1, tzinfo=UTC))
    found = figures(browser, "topics")
    assert (len(found["topics"]), found["topics_in_all"]) == (50, 60)
    assert len(found["ranking"]["topics"]) == 50
    assert "The first 50 topics of this order, of 60." in browser.get(page("topics")).text


@pytest.mark.parametrize("query", ["?range=1h", "?range=30d", "?since=2026-01-01&until=2026-02-01"])
def test_the_ranking_keeps_to_its_budget_however_many_topics(
    browser,  # noqa: F811
    until: datetime,
    query: str,
) -> None:
    def statements() -> int:
        with CaptureQueriesContext(plain_connection) as captured:
            assert browser.get(page("topics") + query).status_code == 200
        return sum(not any(part in one["sql"] for part in FRAME) for one in captured)

    topic("first", 1, 1, until)
    few = statements()
    for number in range(9):
        topic(f"topic-{number}", number, 1, until)
    # Bytes and failures, since when Spark has counted, and how far the consumption is.
    assert statements() == few <= BUDGET + MORE["topics"] + 3

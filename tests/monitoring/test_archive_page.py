"""The page of the archive: days, gaps, what is held back and why, and the lake."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from monitoring import java as java_of_host
from monitoring import jobs
from monitoring.figures.archive import DAYS
from monitoring.models import Run
from monitoring.models.archive import ArchivedDay
from monitoring.models.lake import LakeFile, LakePosition
from monitoring.pages import starting
from monitoring.pages.archive import NEWEST, ArchivePage
from monitoring.pages.base import VIEW
from monitoring.pages.starting import START
from streams.models import Message, Partition, Topic
from tests.browser.worst.nights import many
from tests.monitoring.test_pages import (  # noqa: F401 - fixtures
    WITHOUT_BANNER,
    user_with,
    viewer,
    world,
)

pytestmark = pytest.mark.django_db

LAKE = ("ems_monitoring.view_lakefile", "ems_monitoring.view_lakeposition")
SEE = (VIEW, *ArchivePage.permissions, *LAKE)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_looked", [])
    monkeypatch.setattr(java_of_host, "missing", lambda: "")


@pytest.fixture(autouse=True)
def place(ems_settings: Any) -> None:
    ems_settings(ARCHIVE="/srv/ems")


def today() -> date:
    return timezone.now().astimezone(UTC).date()


def noon(ago: int) -> datetime:
    day = today() - ago * DAY
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def partition(name: str, **values: Any) -> Partition:
    topic = Topic.objects.create(name=name, archive=True)
    topic.partitions.update(**values)
    return topic.partitions.get()


def archived(log: Partition, ago: int, first: int, end: int, **values: Any) -> None:
    ArchivedDay.objects.create(
        partition=log,
        topic=log.topic.name,
        number=log.number,
        day=today() - ago * DAY,
        first_offset=first,
        end_offset=end,
        **{"messages": end - first, "bytes": 10 * (end - first), "path": "/srv/ems", **values},
    )


def message(log: Partition, offset: int, at: datetime) -> None:
    Message.objects.create(
        partition=log, offset=offset, body=b"{}", body_type="json", size=2, sequenced_at=at
    )


def figures(client: Any, query: str = "") -> dict[str, Any]:
    return client.get(ArchivePage.url() + f"?format=json{query}").json()  # type: ignore[no-any-return]


def of(client: Any, name: str) -> dict[str, Any]:
    (one,) = [row for row in figures(client)["topics"] if row["name"] == name]
    return dict(one)


def test_without_a_topic_it_says_what_to_do(user_with):  # noqa: F811
    client = user_with(*SEE)
    text = client.get(ArchivePage.url()).text
    assert "No topic is archived." in text
    assert "ems_topics set TOPIC --archive yes" in text
    assert "The lake is empty" in text
    assert client.get(ArchivePage.url() + "?topic=none").status_code == 404


def test_figures_are_those_of_the_rows(user_with):  # noqa: F811
    log = partition("orders", next_offset=60, archived_offset=50)
    archived(log, 4, 0, 20)
    archived(log, 2, 20, 50)  # a day without messages has no row, and is no gap
    message(log, 50, timezone.now())
    client = user_with(*SEE)
    one = of(client, "orders")
    assert (one["messages"], one["bytes"], one["left"], one["state"]) == (50, 500, 10, "kept")
    assert (one["first_day"], one["last_day"]) == (str(today() - 4 * DAY), str(today() - 2 * DAY))
    assert (one["gaps"], one["since"], one["held"]) == ([], None, None)
    kept = [part for part in one["stretches"] if part["state"]]
    assert [(part["state"], part["at"], part["days"]) for part in kept] == [("kept", DAYS - 5, 3)]
    assert sum(part["days"] for part in one["stretches"]) == DAYS
    text = client.get(ArchivePage.url()).text
    assert "No gap, and nothing is held back." in text
    assert f"{today() - 4 * DAY} – {today() - 2 * DAY}: archived" in text


def test_a_gap_is_found_by_offsets_and_shown_with_its_days(user_with):  # noqa: F811
    log = partition("orders", next_offset=90, first_offset=15, archived_offset=90)
    archived(log, 9, 0, 10)
    archived(log, 5, 20, 30)
    archived(log, 4, 40, 60)
    Partition.objects.create(topic=log.topic, number=1)
    client = user_with(*SEE)
    found = figures(client)["gaps"]
    places = [(gap["first_offset"], gap["last_offset"]) for gap in found]
    assert places == [(10, 19), (30, 39), (60, 89)]  # the last has left the manifest
    ago = [(gap["since"], gap["until"]) for gap in found]
    assert ago[0] == (str(today() - 8 * DAY), str(today() - 6 * DAY))
    assert ago[1] == (str(today() - 4 * DAY),) * 2
    assert [gap["is_in_log"] for gap in found] == [False, True, True]
    assert of(client, "orders")["state"] == "gap"
    text = client.get(ArchivePage.url()).text
    assert "orders/0@10-19" in text
    assert "3 gaps" in text
    assert 'class="ems-strip-gap"' in text
    assert "No gap, and nothing is held back." not in text


@pytest.mark.parametrize(("ago", "state"), [(0, "kept"), (1, "waits"), (2, "held"), (9, "held")])
def test_what_is_over_and_not_archived_waits_and_from_the_next_day_on_is_held_back(
    user_with,  # noqa: F811
    ago,
    state,
):
    log = partition("orders", next_offset=60, archived_offset=50)
    archived(log, 10, 0, 50)
    message(log, 52, noon(ago) if ago else timezone.now())  # 50 and 51 are not in the log any more
    one = of(user_with(*SEE), "orders")
    assert one["state"] == state
    assert bool(one["held"]) is (state == "held")
    late = [part for part in one["stretches"] if part["state"] == "late"]
    assert sum(part["days"] for part in late) == ago
    assert one["over"] is None or ago > 7


def test_how_much_longer_than_its_retention_a_topic_is_kept_for_the_archive(user_with):  # noqa: F811
    log = partition("orders", next_offset=60)
    Topic.objects.update(retention_seconds=2 * 86400)
    message(log, 0, timezone.now() - 5 * DAY)
    assert abs(of(user_with(*SEE), "orders")["over"] - 3 * 86400) < 60


def test_why_a_topic_is_held_back_is_said_once_for_all_topics(user_with, ems_settings):  # noqa: F811
    for name in ("orders", "mails"):
        message(partition(name, next_offset=9), 0, noon(3))
    client = user_with(*SEE)

    def reasons() -> dict[str, list[str]]:
        return {one["reason"]: sorted(one["topics"]) for one in figures(client)["held"]}

    both = ["mails", "orders"]
    assert reasons() == {"No job has archived anything yet.": both}
    text = client.get(ArchivePage.url()).text
    assert "2 topics are held back: nothing of them is purged." in text
    assert "python manage.py ems_spark archive" in text
    run = Run.objects.create(job="archive", state="running", started_at=timezone.now())
    assert reasons() == {"The job is at work.": both}
    Run.objects.update(started_at=timezone.now() - 2 * DAY)
    assert reasons() == {"The last run was killed.": both}
    error = "NotArchived: mails 2026-03-01: ArchiveDiffers: count; orders 2026-03-02: OSError: full"
    Run.objects.update(state="failed", error=error, finished_at=timezone.now())
    assert reasons() == {
        "mails 2026-03-01: ArchiveDiffers: count": ["mails"],
        "orders 2026-03-02: OSError: full": ["orders"],
    }
    Run.objects.update(error="NotArchived: mails 2026-03-01: ArchiveDiffers: count")
    assert reasons() == {
        "mails 2026-03-01: ArchiveDiffers: count": ["mails"],
        "The last run has not come to it.": ["orders"],
    }
    Run.objects.update(error="BadConfig: the disk is away")
    assert reasons() == {"BadConfig: the disk is away": both}
    Run.objects.update(state="done", error="")
    assert reasons() == {"The last run has not come to it.": both}
    Run.objects.update(finished_at=timezone.now() - 2 * DAY)
    assert reasons() == {"Nothing has started the job since its last run.": both}
    assert run.pk
    ems_settings(ARCHIVE=None)
    assert reasons() == {"EMS['ARCHIVE'] names no place for the archive.": both}


def test_a_topic_that_is_not_archived_any_more_is_shown_and_waits_for_nothing(user_with):  # noqa: F811
    log = partition("orders", next_offset=60, archived_offset=50)
    archived(log, 10, 0, 50)
    message(log, 50, noon(5))
    Topic.objects.update(archive=False)
    one = of(user_with(*SEE), "orders")
    assert (one["state"], one["left"], one["held"]) == ("off", None, None)


def test_a_topic_has_its_days_its_partitions_and_its_files(user_with):  # noqa: F811
    log = partition("orders", next_offset=60, first_offset=5, archived_offset=50)
    for ago in range(1, NEWEST + 9):
        archived(log, ago, 50 - ago, 51 - ago)
    archived(partition("mails", next_offset=9, archived_offset=9), 1, 0, 9)
    LakePosition.objects.create(partition=log, first_offset=2, next_offset=57)
    common = {"topic": "orders", "messages": 5, "bytes": 50, "size": 20, "version": 1}
    for n, retired in enumerate((None, None, timezone.now())):
        LakeFile.objects.create(**common, day=today() - DAY, path=f"{n}", retired_at=retired)
    client = user_with(*SEE)
    found = figures(client, "&topic=orders")
    assert [one["name"] for one in found["topics"]] == ["orders"]
    assert len(found["days"]) == NEWEST
    assert len(figures(client, "&topic=orders&all=1")["days"]) == NEWEST + 8
    assert (found["days"][0]["files"], found["days"][0]["messages"]) == (2, 1)
    (part,) = found["partitions"]
    assert (part["archived_offset"], part["left"], part["lake_next"]) == (50, 10, 57)
    (lake,) = found["lake"]
    assert (lake["files"], lake["retired"], lake["messages"], lake["size"]) == (2, 1, 10, 40)
    assert (lake["behind"], lake["bytes"]) == (3, 100)
    every = figures(client)
    assert len(every["days"]) == NEWEST
    assert (every["days"][0]["topics"], every["days"][0]["messages"]) == (2, 10)
    assert every["partitions"] is None
    assert "orders/0" in client.get(ArchivePage.url() + "?topic=orders").text
    # Who may not view the tables of the lake does not see it.
    client = user_with(VIEW, *ArchivePage.permissions)
    found = figures(client, "&topic=orders")
    assert found["lake"] is None
    assert found["days"][0]["files"] == 0
    assert found["partitions"][0]["lake_next"] is None


@pytest.mark.every_database
def test_what_the_archive_has_taken_over_does_not_wait_for_the_lake(user_with):  # noqa: F811
    """The lake begins again behind it: after a pause, it never gets these messages."""
    for name, archived_offset in (("orders", 20), ("mails", 15), ("stock", 5)):
        log = partition(name, next_offset=20, archived_offset=archived_offset)
        LakePosition.objects.create(partition=log, first_offset=0, next_offset=10)
    found = figures(user_with(*SEE))["lake"]
    behind = {one["name"]: one["behind"] for one in found}
    assert behind == {"orders": 0, "mails": 5, "stock": 10}


def test_many_topics_of_ninety_days_are_read_by_few_statements(user_with):  # noqa: F811
    many(timezone.now(), 60)
    client = user_with(*SEE)
    with CaptureQueriesContext(connection) as queries:
        text = client.get(ArchivePage.url(), headers=WITHOUT_BANNER).text
    assert len(queries) <= 18
    assert text.count('class="ems-strip"') == 50
    assert len(text) < 200_000
    assert "All 60 topics" in text
    found = figures(client)
    assert [one["state"] for one in found["topics"][:5]] == ["gap"] * 3 + ["held", "kept"]
    assert (len(found["gaps"]), found["topics_in_all"]) == (3, 60)
    assert client.get(ArchivePage.url() + "?all=1").text.count('class="ems-strip"') == 60


def test_the_archive_is_started_by_who_may(user_with, monkeypatch):  # noqa: F811
    started: list[str] = []
    monkeypatch.setattr(jobs, "start", lambda job, using, *, seconds: started.append(job))
    partition("orders")
    client = user_with(*SEE)
    assert client.post(ArchivePage.url(), {"verb": "archive"}).status_code == 403
    assert "Archive now" not in client.get(ArchivePage.url()).text
    client = user_with(*SEE, START)
    assert "Archive now" in client.get(ArchivePage.url()).text
    assert client.post(ArchivePage.url(), {"verb": "archive"}).status_code == 302
    assert started == ["archive"]
    assert "archive" in LogEntry.objects.get().object_repr


def test_a_strip_says_in_words_what_it_shows():
    from monitoring.charts.svg import strip

    drawn = strip([("", 0, 3, "none"), ("gap", 3, 1, "<gap>")], 4, "a & b")
    assert 'aria-label="a &amp; b"' in drawn
    assert "&lt;gap&gt;" in drawn
    assert re.findall(r'x="(\d+)" y="(\d+)" width="(\d+)"', drawn) == [
        ("0", "11", "3"),
        ("3", "0", "1"),
    ]

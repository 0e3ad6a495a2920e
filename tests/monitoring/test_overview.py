"""The pages say what the tables say, the worst first, in a number of statements that stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import translation

from monitoring.models import (
    Alarm,
    ErrorClass,
    GroupSample,
    Latency,
    PartitionSample,
    Run,
    Traffic,
    TrafficLevel,
)
from monitoring.models.level import Grain
from monitoring.sample import take
from streams import send
from streams.database.clock import database_now
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    Step,
    Topic,
    UtcNow,
)
from streams.produce.identity import producer_name

pytestmark = pytest.mark.django_db

# One statement more than a dozen finds the inboxes that are not empty: joined to the partitions, it
# sorts each inbox on MariaDB. Where one is not empty, two more say since when, and how many wait.
BUDGET, NOT_EMPTY = 13, 2
# The page of a topic reads all that it shows of groups and of the topic, and which alarms fire. Its
# size needs the other logs, and two statements to a server of MySQL. But for the overview, the
# banner asks whether the steps run; a group also reads what blocks it, its alarms, and whether a
# replay runs that can be cancelled, or a call that can be given up. Two read who has sent to a
# topic, and one which streams of Spark read it. The ranking also reads how far Spark is, and its
# lags. Where there are charts, two read what happened.
MORE = {"topic": 9, "topics": 2, "groups": 1, "group": 7}
# Of the frame, and settings that each process reads once in 5 s.
TABLES = ("django_session", "auth_user", "auth_permission", "ems_system_config")
FRAME = ("SAVEPOINT", "BEGIN", "RELEASE", "SET ", *TABLES)
HOUR = timedelta(hours=1)


@pytest.fixture
def browser() -> Client:
    client = Client()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


def page(name: str, *args: int) -> str:
    return reverse(f"admin:ems_monitoring_overview_{name}", args=args)


def figures(browser: Client, name: str, *args: int, query: str = "") -> Any:
    return browser.get(f"{page(name, *args)}?format=json{query}").json()


def make(name: str, group: str, *, behind: int = 0, end: int = 100, **options: Any) -> Any:
    """A topic with a log up to ``end``, and a group with a client that is so far behind."""
    topic = Topic.objects.create(name=name)
    partition = topic.partitions.get()
    Partition.objects.filter(pk=partition.pk).update(next_offset=end)
    made = ConsumerGroup.objects.create(topic=topic, name=group, **options)
    Cursor.objects.create(group=made, partition=partition, next_offset=end - behind)
    Consumer.objects.create(client_id=f"10.0.0.1@7@{group}", group=made, lease_until=UtcNow(HOUR))
    return made


def message(group: Any, offset: int, age: timedelta) -> None:
    """A message that came into the log so long ago."""
    Message.objects.create(
        partition=group.topic.partitions.get(),
        offset=offset,
        body=b"",
        body_type="text",
        size=100,
        producer="p",
        sequenced_at=UtcNow(-age),
    )


def called(group: Any, running: timedelta, usual: timedelta | None = timedelta(0)) -> Delivery:
    """A claim of ten messages so long ago, after others that took so long a message."""
    place = {"group": group, "partition": group.topic.partitions.get(), "client_id": "c"}
    for first in range(0, 50 if usual is not None else 0, 10):
        Delivery.objects.create(
            **place,
            first_offset=first,
            last_offset=first + 9,
            progress=first + 10,
            state="DONE",
            claimed_at=UtcNow(-HOUR),
            started_at=UtcNow(-HOUR),
            finished_at=UtcNow(-HOUR + 10 * (usual or timedelta(0))),
            deadline=UtcNow(),
        )
    return Delivery.objects.create(
        **place,
        first_offset=50,
        last_offset=59,
        progress=50,
        thread="t-0",
        token="t",
        claimed_at=UtcNow(-running),
        deadline=UtcNow(4 * HOUR),
    )


def letters(group: Any, count: int, age: timedelta = HOUR) -> None:
    DeadMessage.objects.bulk_create(
        DeadMessage(
            topic=group.topic,
            group=group,
            partition=group.topic.partitions.get(),
            offset=offset,
            message_id=offset,
            body=b"",
            body_type="text",
            size=0,
            producer="p",
            sent_at=UtcNow(),
            attempts=17,
            error_class="shop.Declined",
            error="no",
            died_at=UtcNow(-age),
        )
        for offset in range(count)
    )


def sampled(group: Any, done: int, end: int, ago: timedelta) -> None:
    """A sample of the group and its partition, so long ago."""
    now = database_now("default") - ago
    common = {"minute": now.replace(second=0, microsecond=0), "taken_at": now, "grain": 360}
    partition = group.topic.partitions.get()
    PartitionSample.objects.create(
        **common, partition=partition, first_offset=0, next_offset=end, inbox=0
    )
    GroupSample.objects.create(
        **common, group=group, open=0, waiting=0, dead=0, consumers=1, done=done, behind=end - done
    )


def conditions(browser: Client) -> dict[str, str]:
    return {one["name"]: one["condition"] for one in figures(browser, "groups")["groups"]}


@pytest.mark.exhaustive
def test_two_million_behind_one_group_stuck_and_5800_dead_are_on_the_first_page(browser) -> None:
    stuck = make("orders", "billing", behind=2_000_000, end=5_000_000)
    message(stuck, 3_000_000, 2 * HOUR)
    sampled(stuck, 2_999_990, 4_990_000, timedelta(minutes=5))  # ten of ten thousand
    letters(make("payments", "ledger"), 5800)
    make("mails", "smtp")
    found = figures(browser, "changelist")
    assert found["headline"]["behind"] == 2_000_000
    assert found["headline"]["oldest"] == pytest.approx(7200, abs=60)
    assert found["headline"]["dead_new"] == found["headline"]["dead"] == 5800
    assert [(one["name"], one["condition"]) for one in found["groups"]] == [
        *(("billing", "stuck"), ("ledger", "running"), ("smtp", "running"))
    ]
    assert found["groups_in_trouble"] == 2
    html = browser.get(page("changelist")).text
    for text in ("2,000,000", "5,800", "2 h 0 min".replace(" ", "\N{NO-BREAK SPACE}"), "stuck"):
        assert text in html


def test_groups_stand_in_the_order_of_their_need_for_somebody(browser) -> None:
    old = 2 * HOUR
    five = timedelta(minutes=5)
    paused = make("a", "paused", behind=9, paused=True)
    message(paused, 91, 3 * HOUR)
    grows = make("b", "grows", behind=50)
    message(grows, 50, old)
    sampled(grows, 45, 60, five)  # 40 came in, 5 were done
    falls = make("c", "falls", behind=50)
    message(falls, 50, old)
    sampled(falls, 10, 95, five)  # 5 came in, 40 were done
    alone = make("d", "alone", behind=5)
    message(alone, 95, HOUR)
    Consumer.objects.filter(group=alone).delete()
    make("e", "busy", behind=1000, end=1000)  # young enough
    blocked = make("f", "blocked", behind=1, ordered=True)
    Cursor.objects.filter(group=blocked).update(attempt=3)
    Consumer.objects.filter(group=make("g", "idle")).delete()
    letters(make("h", "bills"), 2)
    fires, slow, told = (make(n, n) for n in ("fires", "slow", "told"))
    called(slow, 9 * HOUR)
    for group, metric, state in (
        (fires, "expired", "firing"),
        (told, "lag_age", "acknowledged"),
        (paused, "lag_age", "pending"),
    ):
        Alarm.objects.create(
            rule=metric,
            metric=metric,
            topic=group.topic.name,
            group=group.name,
            subject=str(group),
            severity="critical",
            state=state,
            value=1,
            threshold=0,
            since=UtcNow(-HOUR),
        )
    ConsumerGroup.objects.filter(pk=paused.pk).update(paused_at=UtcNow(-HOUR))
    forgotten = make("i", "forgotten", paused=True)
    ConsumerGroup.objects.filter(pk=forgotten.pk).update(paused_at=UtcNow(-25 * HOUR))
    found = figures(browser, "changelist")
    rows = {one["name"]: one for one in figures(browser, "groups")["groups"]}
    needs = [
        (n, row["condition"], [need["trouble"] for need in row["needs"]]) for n, row in rows.items()
    ]
    assert needs == [
        ("blocked", "blocked", ["blocked"]),
        ("alone", "no consumer", ["no consumer"]),
        ("slow", "running", ["slow call"]),
        ("fires", "running", ["alarm"]),
        ("bills", "running", ["dead letters"]),
        ("grows", "falling behind", ["behind"]),
        ("paused", "paused", ["behind"]),
        ("told", "running", ["behind"]),
        ("forgotten", "paused", ["paused"]),
        ("falls", "catching up", []),
        ("busy", "running", []),
        ("idle", "idle", []),
    ]
    assert found["groups_in_trouble"] == 9
    assert [one["name"] for one in found["groups"]] == list(rows)[:10]
    since = {name: row["needs"][0]["since"] for name, row in rows.items() if row["needs"]}
    ago = datetime.now(UTC) - datetime.fromisoformat(since["forgotten"])
    assert ago == pytest.approx(25 * HOUR, abs=timedelta(minutes=1))


def test_the_time_to_clear_and_the_rates_are_those_of_the_last_five_minutes(browser) -> None:
    group = make("orders", "mail", behind=3000, end=10_000)
    sampled(group, 1000, 8800, timedelta(minutes=5))
    (row,) = figures(browser, "groups")["groups"]
    assert row["published"] == pytest.approx(4, rel=0.02)  # 1,200 in 300 s
    assert row["consumed"] == pytest.approx(20, rel=0.02)
    assert row["clearing"]["time"] == pytest.approx(3000 / 16, rel=0.05)
    assert "clears in" in browser.get(page("groups")).text


def test_without_samples_rates_are_unknown_and_not_zero(browser) -> None:
    make("orders", "mail")
    found = figures(browser, "changelist")
    assert found["headline"]["published"] is found["headline"]["consumed"] is None
    assert found["groups"][0]["consumed"] is None


def test_an_empty_installation_says_what_to_do(browser) -> None:
    html = browser.get(page("changelist")).text
    assert "ems_send" in html
    assert "ems_consume" in browser.get(page("groups")).text
    Topic.objects.create(name="orders")
    assert "ems_consume" in browser.get(page("changelist")).text


def test_steps_that_nobody_runs_and_messages_without_an_offset_are_at_the_top(browser) -> None:
    group = make("orders", "mail")
    Message.objects.create(
        partition=group.topic.partitions.get(),
        body=b"",
        body_type="text",
        size=0,
        producer="p",
        created_at=UtcNow(-HOUR),
    )
    Step.objects.create(name="sequence", last_run_at=UtcNow(-HOUR))
    found = figures(browser, "changelist")
    assert [(one["name"], one["inbox"]) for one in found["not_sequenced"]] == [("orders", 1)]
    assert {one["name"] for one in found["overdue"]} >= {"sequence", "sweep"}
    html = browser.get(page("changelist")).text
    assert html.index("wait for an offset") < html.index("ems-figure-row")


def test_the_page_of_a_group_says_what_its_clients_have_in_hand_and_since_when(browser) -> None:
    group = make("orders", "mail", behind=10)
    client = "10.0.0.1@7@mail"
    Delivery.objects.create(
        group=group,
        partition=group.topic.partitions.get(),
        first_offset=80,
        last_offset=89,
        progress=83,
        client_id=client,
        thread="mail-0",
        token="t",
        claimed_at=UtcNow(-timedelta(seconds=50)),
        started_at=UtcNow(-timedelta(seconds=40)),
        deadline=UtcNow(timedelta(seconds=20)),
    )
    letters(group, 3)
    found = figures(browser, "group", group.pk)
    (only,) = found["clients"]
    assert (only["client_id"], only["is_live"], len(only["calls"])) == (client, True, 1)
    assert only["calls"][0]["running"] == pytest.approx(40, abs=5)
    assert found["errors"][0][:2] == ["shop.Declined", 3]
    (place,) = found["places"]
    assert (place["at"], place["next_offset"], place["behind"]) == (90, 100, 10)
    html = browser.get(page("group", group.pk)).text
    assert "slow" in html
    assert 'value="pause"' in html
    assert 'value="resume"' not in html


def test_who_may_not_pause_a_group_gets_no_button(browser) -> None:
    group = make("orders", "mail")
    log_in_with(browser, "view_overview", "view_consumergroup")
    html = browser.get(page("group", group.pk)).text
    assert "ems-verb" not in html
    assert "/topics/" not in html


def test_a_topic_that_spark_has_not_counted_has_no_bytes_beside_one_that_it_has(browser) -> None:
    group, other = make("orders", "mail"), make("quiet", "archive")
    now = database_now("default")
    Run.objects.create(job="traffic", state="done", until=now, finished_at=now)
    row = {"end_offset": 4, "messages": 4, "bytes": 4096, "keys": 0, "delayed": 0}
    for first, partition in ((0, group.topic.partitions.get()), (0, Partition(pk=999))):
        Traffic.objects.create(partition=partition, minute=now, first_offset=first, **row)
        hour = now.replace(minute=0, second=0, microsecond=0)
        sums = {"partition": partition, "messages": 4, "bytes": 4096, "delayed": 0}
        TrafficLevel.objects.create(grain=Grain.HOUR, start=hour, **sums)
        TrafficLevel.objects.create(grain=Grain.DAY, start=hour.replace(hour=0), **sums)
    counted = {str(group.topic_id): {"messages": 4, "bytes": 4096}}
    assert figures(browser, "changelist")["ranking"] == counted
    assert figures(browser, "changelist", query="&range=7d")["ranking"] == counted
    html = browser.get(page("changelist")).text
    assert "4\xa0KiB" in html
    assert other.topic.name in html


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        (["view_errorclass", "view_deadmessage"], ["shop.RolledUp"]),
        (["view_errorclass"], ["shop.RolledUp"]),
        (["view_deadmessage"], ["shop.Declined"]),
        ([], None),
    ],
)
def test_classes_of_errors_are_shown_to_who_may_view_their_table(browser, more, shown) -> None:
    group = make("orders", "mail")
    letters(group, 2)
    now = database_now("default")
    Latency.objects.create(
        group=group, minute=now, leg="total", messages=1, mean=1, p50=1, p95=1, p99=1, worst=1
    )
    ErrorClass.objects.create(
        group=group, minute=now, error_class="shop.RolledUp", failed=3, dead=1
    )
    log_in_with(browser, "view_overview", "view_consumergroup", *more)
    errors = figures(browser, "group", group.pk)["errors"]
    assert (errors and [one[0] for one in errors]) == shown
    html = browser.get(page("group", group.pk)).text
    assert ("Errors by class" in html) is (shown is not None)


def test_an_alarm_is_at_the_top_for_who_may_view_alarms(browser) -> None:
    make("orders", "mail")
    for name in ("sequence", "sweep"):
        Step.objects.create(name=name, last_run_at=UtcNow())
    Alarm.objects.create(
        rule="lag_age",
        metric="lag_age",
        severity="critical",
        state="firing",
        subject="mail on orders",
        value=700,
        threshold=600,
    )
    groups = reverse("admin:ems_consumergroup_changelist")
    assert "1 alarm fires" in browser.get(groups).text
    log_in_with(browser, "view_overview", "view_consumergroup")
    assert "alarm fires" not in browser.get(groups).text
    assert "alarm fires" not in browser.get(page("groups")).text


def log_in_with(browser: Client, *permissions: str) -> None:
    """As somebody who has no other permissions."""
    user = User.objects.create(username="viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    browser.force_login(user)


def test_the_page_of_a_topic_shows_skew_size_and_the_purge_if_asked(browser) -> None:
    group = make("orders", "mail", end=1000)
    message(group, 999, HOUR)
    sampled(group, 0, 100, timedelta(minutes=5))
    Topic.objects.update(retention_count=10)
    Partition.objects.create(topic=group.topic, number=1, next_offset=10)
    found = figures(browser, "topic", group.topic_id)
    assert found["size"]["mean"] == 100
    assert [one["share"] for one in found["partitions"]] == [1.0, None]
    assert found["topic"]["in_range"] == 900
    url = page("topic", group.topic_id)
    assert "orders/0: " not in browser.get(url).text
    assert "orders/0: " in browser.get(url + "?purge=1").text


def crowd(count: int) -> None:
    for number in range(ConsumerGroup.objects.count(), count):
        group = make(f"topic-{number}", f"group-{number}", behind=5)
        message(group, 95, HOUR)
        letters(group, 2)
        RetryMessage.objects.create(
            group=group, partition=group.topic.partitions.get(), offset=1, due_at=UtcNow()
        )
        sampled(group, 1, 2, timedelta(minutes=2))


def test_the_page_of_a_topic_says_who_has_sent_lately(browser) -> None:
    send("orders", 1)
    sequence("default")
    topic = Topic.objects.get()
    (one,) = figures(browser, "topic", topic.pk)["producers"]["listed"]
    host, pid, _thread = producer_name().split("@")
    assert (one["host"], one["process"], one["threads"], one["messages"]) == (host, pid, 1, 1)
    text = browser.get(page("topic", topic.pk)).content.decode()
    assert f"process {pid}" in text
    assert "one of the newest 1,000 messages of a partition in the last 15 minutes" in text
    some = User.objects.create(username="some", is_staff=True)
    names = ("view_overview", "view_topic")
    some.user_permissions.set(Permission.objects.filter(codename__in=names))
    browser.force_login(some)
    assert figures(browser, "topic", topic.pk)["producers"] is None  # who sends is in the messages
    assert 'id="producers"' not in browser.get(page("topic", topic.pk)).content.decode()


@pytest.mark.parametrize("name", ["changelist", "topics", "groups", "topic", "group"])
@pytest.mark.parametrize("asked", ["1h", "7d"])
def test_a_page_takes_a_dozen_statements_however_many_groups(browser, name, asked) -> None:
    crowd(2)

    def statements() -> int:
        first = ConsumerGroup.objects.order_by("pk")[0]
        args = {"topic": [first.topic_id], "group": [first.pk]}.get(name, [])
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(page(name, *args) + f"?range={asked}").status_code == 200
        return sum(not any(part in one["sql"] for part in FRAME) for one in captured)

    few = statements()
    crowd(9)
    assert statements() == few
    # Of a longer range, the overview also reads where the logs were at its beginning, and the page
    # of a topic or a group the backlog as Spark has added it up.
    most = BUDGET + (name in ("changelist", "topic", "group") and asked != "1h") + MORE.get(name, 0)
    assert few <= most
    for partition in Partition.objects.all():
        Message.objects.create(
            partition=partition, body=b"", body_type="text", size=0, producer="p"
        )
    assert few <= statements() <= most + NOT_EMPTY


def test_figures_are_those_of_the_sample_that_is_taken_at_the_same_time(browser) -> None:
    group = make("orders", "mail", behind=7)
    letters(group, 2)
    take.sample("default")
    row = GroupSample.objects.get()
    (shown,) = figures(browser, "groups")["groups"]
    assert (row.behind, row.dead, row.waiting) == (shown["behind"], shown["dead"], shown["waiting"])


def test_alarms_that_fire_come_first(browser) -> None:
    make("orders", "mail")
    common = {"value": 700, "threshold": 600, "subject": "mail on orders"}
    Alarm.objects.create(
        rule="lag_age", metric="lag_age", severity="warning", state="firing", **common
    )
    Alarm.objects.create(rule="lag", metric="lag", severity="critical", state="firing", **common)
    Alarm.objects.create(rule="soon", metric="lag", severity="critical", state="pending", **common)
    found = figures(browser, "changelist")["alarms"]
    assert [one["rule"] for one in found] == ["lag", "lag_age"]
    html = browser.get(page("changelist")).text
    told = (
        "<strong>Warning:</strong>",
        "Age of the oldest message that a group has not claimed: 11 min",
    )
    assert html.index(told[0]) < html.index(told[1]) < html.index("ems-figure-row")
    assert "lag_age" not in html  # what it is about, not the name of the rule
    assert "soon" not in html


def test_what_kind_of_group_it_is_stands_there_in_the_language_of_the_reader(browser) -> None:
    group = make("orders", "mail", ordered=True)
    with translation.override("de"):
        html = browser.get(page("group", group.pk)).text
        row = browser.get(page("groups")).text
    assert "geordnet" in html
    assert "geordnet" in row
    assert "ordered" not in html

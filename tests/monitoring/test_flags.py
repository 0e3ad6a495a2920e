"""The flags of the charts: what happened, merged so that few are left, each with its place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse

from monitoring.figures import flags
from monitoring.models import Alarm, Mark
from streams.database.clock import database_now
from streams.models import ConsumerGroup, Topic, UtcNow
from tests.monitoring.test_overview import (  # noqa: F401 - a fixture
    browser,
    figures,
    log_in_with,
    make,
    page,
    sampled,
)

pytestmark = pytest.mark.django_db

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
RANGES = {"1h": HOUR, "7d": 7 * DAY, "90d": 90 * DAY}


def mark(kind: str, ago: timedelta, *groups: ConsumerGroup, **values: Any) -> Mark:
    topic = None if kind == "deployment" or not groups else groups[0].topic_id
    at = {"at": UtcNow(-ago), "until": UtcNow(-ago)}
    place = {"groups": [group.pk for group in groups], "topic_id": topic}
    return Mark.objects.create(kind=kind, **{**at, **place, **values})


def fired(ago: timedelta, topic: str, group: str = "", **values: Any) -> Alarm:
    now = database_now("default")
    state = {"state": "resolved", "slot": None, "resolved_at": now - ago + MINUTE}
    rule = {"rule": "lag", "metric": "lag", "severity": "critical", "value": 9, "threshold": 1}
    about = {"topic": topic, "group": group, "subject": f"{group} on {topic}"}
    at = {"since": now - ago, "fired_at": now - ago}
    return Alarm.objects.create(**{**rule, **about, **at, **state, **values})


def shown(browser: Any, name: str, *args: int, query: str = "") -> list[dict[str, Any]]:  # noqa: F811
    found: list[dict[str, Any]] = figures(browser, name, *args, query=query)["happened"]["flags"]
    return found


def told(found: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(one["kind"], one["text"], one["count"]) for flag in found for one in flag["told"]]


def test_a_group_has_the_flags_of_its_own_in_order_with_who_and_a_link(browser) -> None:  # noqa: F811
    mail, bill = make("orders", "mail"), make("bills", "bill")
    mark("reset", 40 * MINUTE, mail, text="orders/0: 9 → 0", who="mei")
    mark("deployment", 30 * MINUTE, mail, bill, count=12)
    sampled(mail, 0, 5, 30 * MINUTE)
    alarm = fired(20 * MINUTE, "orders", "mail")
    fired(19 * MINUTE, "bills", "bill")
    mark("pause", 10 * MINUTE, bill, text="paused")
    found = shown(browser, "group", mail.pk)
    assert told(found) == [
        ("reset", "orders/0: 9 → 0", 1),
        ("deployment", "12 processes", 1),
        ("alarm", "Messages that a group is behind", 1),
    ]
    assert [flag["number"] for flag in found] == [1, 2, 3]
    assert [flag["look"] for flag in found] == ["act", "deployment", "alarm"]
    assert found[0]["told"][0]["who"] == "mei"
    urls = [flag["told"][0]["url"] for flag in found]
    assert urls == [
        reverse("admin:ems_consumergroup_history", args=[mail.pk]),
        reverse("admin:ems_consumer_changelist"),
        reverse("admin:ems_monitoring_alarm_change", args=[alarm.pk]),
    ]
    for url in urls:
        assert browser.get(url).status_code == 200
    html = browser.get(page("group", mail.pk)).text
    for number in (1, 2, 3):
        assert f'id="ems-flag-{number}"' in html
        assert f'href="#ems-flag-{number}"' in html


def test_a_topic_has_those_of_its_groups_and_its_own(browser) -> None:  # noqa: F811
    mail, bill = make("orders", "mail"), make("bills", "bill")
    mark("pause", 40 * MINUTE, mail, text="paused")
    mark("pause", 40 * MINUTE, bill, text="paused")
    mark("purge", 30 * MINUTE, topic_id=mail.topic_id, text="orders/0", count=1234)
    mark("purge", 30 * MINUTE, topic_id=bill.topic_id, text="bills/0", count=1)
    fired(20 * MINUTE, "orders")
    fired(20 * MINUTE, "bills", "bill")
    own = [
        ("pause", "mail on orders: paused", 1),
        ("purge", "orders/0: 1,234 messages skipped", 1),
        ("alarm", " on orders: Messages that a group is behind", 1),
    ]
    assert told(shown(browser, "topic", mail.topic_id)) == own
    # What the whole topic had is on the page of its group, too.
    assert told(shown(browser, "group", mail.pk))[1:] == own[1:]
    alone = Topic.objects.create(name="alone")
    mark("grow", 5 * MINUTE, topic_id=alone.pk, text="3 partitions")
    assert told(shown(browser, "topic", alone.pk)) == [("grow", "3 partitions", 1)]


def test_many_at_about_the_same_time_are_one_flag_that_counts_them(browser) -> None:  # noqa: F811
    mail = make("orders", "mail")
    for n in range(200):
        fired(30 * MINUTE - n * timedelta(seconds=1), "orders", "mail")
    for n in range(10):
        mark("deployment", 30 * MINUTE - n * timedelta(seconds=2), mail, count=12)
    for n in range(6):
        kinds = ("reset", "undo", "pause", "resume", "replay", "skip")
        mark(kinds[n], 29 * MINUTE + n * timedelta(seconds=1), mail, text=str(n))
    (flag,) = shown(browser, "group", mail.pk)
    assert flag["look"] == "act"
    assert told([flag]) == [
        ("reset", "0", 1),
        ("undo", "1", 1),
        ("pause", "2", 1),
        ("act", "and 3 more", 1),
        ("alarm", "Messages that a group is behind", 200),
        ("deployment", "120 processes", 10),
    ]


@pytest.mark.parametrize("asked", RANGES)
def test_no_chart_has_more_flags_than_fit_on_a_phone(browser, asked) -> None:  # noqa: F811
    mail = make("orders", "mail")
    now = database_now("default")
    Mark.objects.bulk_create(
        Mark(kind="pause", at=at, until=at, groups=[mail.pk], text="paused")
        for at in (now - RANGES[asked] * n / 700 for n in range(700))
    )
    found = shown(browser, "group", mail.pk, query=f"&range={asked}")
    assert 10 < len(found) <= flags.FLAGS
    assert 695 <= sum(count for _kind, _text, count in told(found)) <= 700


@pytest.mark.parametrize("asked", RANGES)
def test_many_deployments_are_ticks_and_a_sum_and_hide_no_flag(browser, asked) -> None:  # noqa: F811
    mail, bill = make("orders", "mail"), make("bills", "bill")
    now = database_now("default")
    Mark.objects.bulk_create(
        Mark(kind="deployment", at=at, until=at, groups=[mail.pk, bill.pk], count=2)
        for at in (now - RANGES[asked] * n / 700 for n in range(700))
    )
    mark("reset", RANGES[asked] / 2, mail, text="orders/0: 9 → 0")
    found = figures(browser, "group", mail.pk, query=f"&range={asked}")["happened"]
    assert told(found["flags"]) == [("reset", "orders/0: 9 → 0", 1)]
    assert 60 < len(found["ticks"]) <= flags.TICKS
    assert 695 <= found["deployments"]["count"] <= 700
    every = figures(browser, "backlog", query=f"&range={asked}")["happened"]
    assert every["deployments"]["text"].endswith("processes: bill, mail")


def test_what_is_too_much_is_left_out_and_the_page_says_since_when(browser, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setattr(flags, "MOST", 5)
    mail = make("orders", "mail")
    for n in range(6):
        mark("pause", n * 5 * MINUTE, mail, text=str(n))
    found = figures(browser, "group", mail.pk)["happened"]
    assert [text for _kind, text, _n in told(found["flags"])] == ["4", "3", "2", "1", "0"]
    assert found["since"] == found["flags"][0]["at"]
    assert "too much to show" in browser.get(page("group", mail.pk)).text


def test_alarms_are_for_who_may_view_them(browser) -> None:  # noqa: F811
    mail = make("orders", "mail")
    fired(20 * MINUTE, "orders", "mail")
    mark("pause", 10 * MINUTE, mail, text="paused")
    log_in_with(browser, "view_overview", "view_consumergroup")
    assert told(shown(browser, "group", mail.pk)) == [("pause", "paused", 1)]


def test_marks_of_another_namespace_are_not_shown(browser) -> None:  # noqa: F811
    mail = make("orders", "mail")
    mark("pause", 10 * MINUTE, mail, namespace="other")
    assert shown(browser, "group", mail.pk) == []


def test_an_alarm_that_still_fires_is_a_flag_and_one_that_never_fired_is_none(browser) -> None:  # noqa: F811
    mail = make("orders", "mail")
    fired(20 * MINUTE, "orders", "mail", state="firing", slot=0, resolved_at=None)
    never = {"state": "pending", "slot": 0, "fired_at": None, "resolved_at": None}
    fired(10 * MINUTE, "orders", "mail", rule="b", **never)
    assert len(shown(browser, "group", mail.pk)) == 1


def test_texts_are_data(browser) -> None:  # noqa: F811
    mail = make("orders", "mail")
    mark("reset", 10 * MINUTE, mail, text="<script>alert(1)</script>", who="<b>mei</b>")
    html = browser.get(page("group", mail.pk)).text
    assert "<script>alert(1)" not in html
    assert "<b>mei" not in html

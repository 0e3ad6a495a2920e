"""What blocks an ordered group on its pages; retry now and skip, shown before they are done."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django import VERSION
from django.contrib.admin.models import CHANGE, LogEntry
from django.urls import reverse

from monitoring.alarms.groups import blocked as alarm
from streams import Outgoing, consumer, send_many
from streams.log.condition import Condition
from streams.log.standings import standings
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    Topic,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.observe.backlogs import blocked as doctor
from streams.testing import advance, drain
from tests.admin.conftest import action, messages
from tests.admin.test_resets import confirm, error_below, page
from tests.consuming import MINUTE, Process, rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

SECRET = "the body of the message"
ERROR = "<b>51</b>: insufficient funds " + "x" * 400
OVERVIEW = "ems_monitoring.view_overview"


@pytest.fixture
def ledger() -> ConsumerGroup:
    """An ordered group that its third message blocks; two wait behind it."""

    @consumer("orders", group="ledger", ordered=True, max_retries=3)
    def handle(message: Any) -> None:
        if message.body == [SECRET, 2]:
            raise ValueError(ERROR)

    send_many([Outgoing("orders", [SECRET, n], key="k") for n in range(5)])
    drain()
    return ConsumerGroup.objects.select_related("topic").get()


def two_blocked(group: ConsumerGroup) -> None:
    log = Partition.objects.create(topic=Topic.objects.get(), number=1, next_offset=9)
    Cursor.objects.create(
        group=group,
        partition=log,
        next_offset=4,
        attempt=3,
        blocked_at=UtcNow(-MINUTE),
        last_error="KeyError",
    )


def pages(group: ConsumerGroup) -> tuple[str, str]:
    names = ("ems_monitoring_overview_group", "ems_consumergroup_change")
    first, second = (reverse(f"admin:{name}", args=[group.pk]) for name in names)
    return first, second


def test_both_pages_begin_with_what_blocks_the_group(ledger: ConsumerGroup, as_role: Any) -> None:
    client = as_role("operator", OVERVIEW)
    message = Message.objects.get(offset=2)
    for url in pages(ledger):
        shown = client.get(url).text
        panel = re.search(r'<section class="ems-blockade".*?</section>', shown, re.DOTALL)
        assert panel
        text = panel[0]
        link = reverse("admin:ems_message_change", args=[message.pk])
        assert f'<a href="{link}">orders/0@2</a>' in text
        assert "ValueError: &lt;b&gt;51&lt;/b&gt;: insufficient funds" in text
        assert "<b>51" not in shown
        assert SECRET not in shown
        assert "2 of 4" in text
        assert re.search(r"Wait behind it</dt><dd><span[^>]*>2<", text)
        assert re.findall(r'name="action" value="(\w+)"', text) == ["retry", "skip"]
        # From Django 6.1 on the admin has the buttons beside the title, before all content.
        if VERSION < (6, 1) or url == pages(ledger)[0]:
            assert panel.start() < shown.index('value="pause"')
    shown = client.get(pages(ledger)[0]).text
    assert "1 to be retried" in re.sub(r"\s+", " ", shown)
    assert "No failure is known" not in shown


def test_a_group_that_nothing_blocks_has_no_panel(ledger: ConsumerGroup, as_role: Any) -> None:
    Cursor.objects.update(next_offset=5, attempt=1, blocked_until=None, blocked_at=None)
    client = as_role("operator", OVERVIEW)
    for url in pages(ledger):
        shown = client.get(url).text
        assert "ems-blockade" not in shown
        assert 'value="skip"' not in shown


@pytest.mark.parametrize(
    ("state", "blocks"),
    [
        ({}, True),
        # Its body could not be read: no attempt is spent.
        ({"attempt": 1}, True),
        # An older release has left it at the end of the log.
        ({"attempt": 1, "next_offset": 5}, False),
        # Another batch is in hand.
        ({"attempt": 1, "next_offset": 5, "open_delivery": 7}, False),
        # Its next attempt is in hand.
        ({"next_offset": 3, "open_delivery": 7}, True),
    ],
)
def test_every_page_and_answer_says_the_same_of_what_is_blocked(
    ledger: ConsumerGroup, as_role: Any, state: dict[str, Any], blocks: bool
) -> None:
    Cursor.objects.update(**state)
    client = as_role("operator", OVERVIEW)
    shown = [client.get(url).text for url in pages(ledger)]
    figures = client.get(f"{pages(ledger)[0]}?format=json").json()
    (stand,) = standings([ledger], "default")
    (one,) = Cursor.objects.all()
    found = {
        "the panels": ["ems-blockade" in text for text in shown],
        "the figures": bool(figures["blockade"]),
        "the list of partitions": figures["places"][0]["is_blocked"],
        "the list of cursors": "blocked" in _state(client),
        "the alarm": bool(alarm(using="default")),
        "the doctor": bool(list(doctor("default"))),
        "the condition": stand.condition == Condition.BLOCKED,
        "the lag": bool(stand.lag.blocked),
        "the row": one.is_blocked,
    }
    assert found == dict.fromkeys(found, blocks) | {"the panels": [blocks, blocks]}


def _state(client: Any) -> str:
    shown = client.get(reverse("admin:ems_cursor_changelist")).text
    cell = re.search(r"field-blocked[^>]*>(.*?)</td>", shown, re.DOTALL)
    assert cell
    return cell[1]


def test_its_error_is_for_who_may_view_messages(ledger: ConsumerGroup, as_role: Any) -> None:
    client = as_role("staff", OVERVIEW, "ems.view_consumergroup")
    for url in (*pages(ledger), f"{pages(ledger)[0]}?format=json"):
        shown = client.get(url).text
        assert "insufficient" not in shown
        assert "Retry now" not in shown
    assert "orders/0@2" in client.get(pages(ledger)[0]).text
    found = client.get(f"{pages(ledger)[0]}?format=json").json()["blockade"]
    assert found["worst"][0]["error"] is None
    client = as_role("staff", OVERVIEW, "ems.view_consumergroup", "ems.view_message")
    found = client.get(f"{pages(ledger)[0]}?format=json").json()["blockade"]
    assert found["partitions"] == 1
    assert found["worst"][0]["error"].startswith("ValueError")


def test_the_page_of_many_blocked_partitions_shows_fifty_and_says_how_many_more(
    ledger: ConsumerGroup, as_role: Any
) -> None:
    logs = [Partition(topic=ledger.topic, number=n, next_offset=9) for n in range(1, 61)]
    for log in Partition.objects.bulk_create(logs):
        blocked = {"attempt": 2, "blocked_at": UtcNow(), "last_error": ERROR}
        partition = Partition.objects.get(number=log.number)
        Cursor.objects.create(group=ledger, partition=partition, **blocked)
    shown = as_role("operator", OVERVIEW).get(pages(ledger)[0]).text
    assert "Blocked: 61 partitions" in shown
    assert shown.count('class="ems-blocked-what"') == 50
    assert "And 11 more partitions" in shown


def test_retry_now_is_shown_and_then_done_and_logged(ledger: ConsumerGroup, as_role: Any) -> None:
    client = as_role("operator")
    before = rows(Cursor)
    shown = page(client, "retry", ledger, partition="0")
    assert "orders/0@2" in shown.text
    assert rows(Cursor) == before
    response = confirm(client, "retry", ledger, shown)
    assert messages(client, response) == [
        "ledger on orders: Retry now: Offset 2 of partition 0: its next attempt begins now."
    ]
    assert Cursor.objects.get().blocked_until is None
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_repr) == (CHANGE, "ledger on orders")
    assert "its next attempt begins now" in entry.change_message


def test_skip_is_shown_and_then_done_once_and_logged(ledger: ConsumerGroup, as_role: Any) -> None:
    client = as_role("operator")
    shown = page(client, "skip", ledger)
    assert not DeadMessage.objects.exists()
    response = confirm(client, "skip", ledger, shown)
    (text,) = messages(client, response)
    assert "Offset 2 of partition 0: it is a dead letter now" in text
    letter = DeadMessage.objects.get()
    assert (letter.offset, letter.error_class) == (2, "ValueError")
    assert Delivery.objects.get(state="SKIPPED").client_id == "operator"
    again = confirm(client, "skip", ledger, shown)
    assert "does not block" in again.text
    assert DeadMessage.objects.count() == LogEntry.objects.count() == 1
    drain()
    assert audit("default") == []


def test_of_several_partitions_one_is_skipped(ledger: ConsumerGroup, as_role: Any) -> None:
    two_blocked(ledger)
    client = as_role("operator")
    shown = page(client, "skip", ledger)
    assert 'name="offer"' not in shown.text
    said = error_below(shown, "partition")
    assert "orders/0@2" in said
    assert "orders/1@4" in said
    one = page(client, "skip", ledger, partition="1")
    assert 'name="offer"' in one.text
    assert "orders/1@4" in one.text
    assert "orders/0@2" not in one.text


def test_of_several_partitions_all_are_tried_again(ledger: ConsumerGroup, as_role: Any) -> None:
    two_blocked(ledger)
    client = as_role("operator")
    shown = page(client, "retry", ledger)
    (text,) = messages(client, confirm(client, "retry", ledger, shown))
    assert "Offset 2 of partition 0" in text
    assert "Offset 4 of partition 1" in text
    assert not Cursor.objects.exclude(blocked_until=None).exists()


@pytest.mark.parametrize("verb", ["retry", "skip"])
@pytest.mark.parametrize(
    ("partition", "said"),
    [("7", "No message blocks"), ("x", "Enter a whole number"), ("9" * 30, "No message blocks")],
)
def test_a_wrong_partition_is_said(
    ledger: ConsumerGroup, as_role: Any, verb: str, partition: str, said: str
) -> None:
    shown = page(as_role("operator"), verb, ledger, partition=partition)
    assert said in shown.text
    assert 'name="offer"' not in shown.text


@pytest.mark.parametrize("verb", ["retry", "skip"])
def test_what_has_changed_since_it_was_shown_is_not_done(
    ledger: ConsumerGroup, as_role: Any, verb: str
) -> None:
    client = as_role("operator")
    shown = page(client, verb, ledger)
    advance(MINUTE)
    drain()
    before = rows(Cursor, DeadMessage)
    assert "attempt 3 is next" in confirm(client, verb, ledger, shown).text
    assert rows(Cursor, DeadMessage) == before
    advance(2 * MINUTE)
    shown = page(client, verb, ledger)
    Process("ledger").claim()
    assert "just now" in confirm(client, verb, ledger, shown).text
    assert "handling the message just now" in page(client, verb, ledger).text
    assert not DeadMessage.objects.exists()
    assert not LogEntry.objects.exists()


def test_a_foreign_offer_and_another_verbs_are_refused(ledger: ConsumerGroup, as_role: Any) -> None:
    shown = page(as_role("operator"), "retry", ledger)
    assert "not valid any more" in confirm(as_role("operator"), "skip", ledger, shown).text
    other = as_role("staff", "ems.view_consumergroup", "ems.retry_consumergroup")
    assert "not valid any more" in confirm(other, "retry", ledger, shown).text
    assert Cursor.objects.get().blocked_until is not None


def test_they_are_done_with_one_group_at_a_time(ledger: ConsumerGroup, as_role: Any) -> None:
    other = ConsumerGroup.objects.create(topic=ledger.topic, name="other", ordered=True)
    url = reverse("admin:ems_consumergroup_changelist")
    client = as_role("operator")
    response = client.post(url, action("skip", ledger.pk, other.pk))
    assert "one at a time" in messages(client, response)[0]

"""What an operator does in a browser: alarms, resets, redrives, edits; each to its end."""

from __future__ import annotations

from datetime import timedelta
from http.server import HTTPServer
from threading import Thread
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models import F
from django.urls import reverse

from monitoring.alarms.delivering import LADDER, deliver
from monitoring.alarms.evaluation import evaluate
from monitoring.alarms.groups import RECENTLY
from monitoring.models import Alarm
from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    RetryMessage,
    State,
    UtcNow,
)
from streams.testing import drain
from tests.browser.chromium import Tab
from tests.browser.shop import (
    CONSUMER,
    REPAIRED,
    SHOP,
    CardRefused,
    figure,
    open_shop,
    page,
    row,
    wait_for_figure,
)
from tests.hostapp.models import Handled
from tests.monitoring.alarming import pass_time, receiver
from tests.processes import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


def order(count: int, card: str = "good") -> None:
    first = Message.objects.count()
    send_many([Outgoing("orders", {"n": n, "card": card}) for n in range(first, first + count)])


def group(name: str) -> ConsumerGroup:
    return ConsumerGroup.objects.get(name=name)


def handled(name: str) -> list[str]:
    return sorted(Handled.objects.filter(group=name).values_list("value", flat=True), key=int)


def press(tab: Tab, text: str) -> None:
    tab.click(f'button:text-is("{text}")')


@pytest.mark.exhaustive
def test_an_alarm_is_acknowledged_and_resolves_and_its_webhook_gets_each_message_once(
    tab: Tab,
) -> None:
    open_shop()
    with receiver() as first:
        address, got = first.url, first.got
        handler, port = first._handler, first.port
    # Nobody listens there now. The channel is made as an operator makes it.
    tab.go(reverse("admin:ems_monitoring_alarmchannel_add"))
    tab.do(lambda page: page.select_option("#id_kind", "webhook"))
    tab.fill("#id_name", "ops")
    tab.fill("#id_url", address)
    tab.fill("#id_secret", "s3cret")
    tab.click("#id_allow_private")
    tab.click('input[name="_save"]')
    tab.wait(".messagelist .success")

    order(3, "stolen")
    drain()
    evaluate("default")
    assert deliver("default") == 0  # refused
    tab.go(page("alarms"))
    assert "New dead letters of a group" in tab.text("#firing h3")
    assert "billing" in tab.text("#firing h3")
    assert CardRefused.__name__ in tab.text("#firing .ems-alarm-detail")
    assert row(tab, "ops")["State"] == "down"
    assert row(tab, "ops")["Waiting"] == "1"

    tab.fill('#firing input[name="note"]', "on it")
    press(tab, "Acknowledge")
    tab.wait("#acknowledged", "root")
    tab.wait("#acknowledged", "on it")
    assert tab.text("#firing h2 .ems-number") == "0"

    up = HTTPServer(("127.0.0.1", port), handler)
    serving = Thread(target=up.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    try:
        pass_time(LADDER[0] + 1)
        assert deliver("default") == 1
        tab.go(page("alarms"))
        assert row(tab, "ops")["State"] == "up"

        old = timedelta(minutes=1) + RECENTLY
        DeadMessage.objects.update(died_at=F("died_at") - old)
        evaluate("default")
        assert deliver("default") == 1
        for _again in range(3):
            pass_time(3600)
            evaluate("default")
            assert deliver("default") == 0
    finally:
        up.shutdown()
        up.server_close()
        serving.join()
    told = [(body["event"], body["alarm"]["rule"]) for body in first.bodies]
    assert told == [("fired", "dead_new"), ("resolved", "dead_new")]
    assert len({body["id"] for body in first.bodies}) == len(got) == 2
    tab.go(page("alarms"))
    told_of = "billing on orders: New dead letters of a group, in 5 minutes dead_new"
    assert row(tab, told_of)["Note"] == "root: on it"
    assert Alarm.objects.get().state == "resolved"
    assert LogEntry.objects.filter(change_message="Acknowledged: on it").count() == 1


@pytest.mark.exhaustive
def test_a_backlog_grows_and_clears_on_the_screen(tab: Tab, spawn: Any) -> None:
    open_shop()
    order(30)
    drain()
    order(300)
    sequence("default")
    mail = group("mail")
    tab.take_clock()
    tab.go(page("group", mail.pk) + "?refresh=5")
    wait_for_figure(tab, "Behind", "300")
    assert tab.text(".ems-facts .ems-state") == "no consumer"
    order(200)
    sequence("default")
    tab.pass_time(6)
    wait_for_figure(tab, "Behind", "500")
    spawn(CONSUMER).expect("open")
    cursor = Cursor.objects.get(group=mail)
    wait_for(lambda: Cursor.objects.get(pk=cursor.pk).next_offset == 530, "the end of the log")
    wait_for(lambda: not Delivery.objects.held().filter(group=mail).exists(), "all is settled")
    tab.pass_time(6)
    wait_for_figure(tab, "Behind", "0")
    assert tab.text(".ems-facts .ems-state") == "running"
    assert handled("mail") == [str(n) for n in range(530)]


@pytest.mark.exhaustive
def test_a_group_is_reset_after_a_preview_and_the_reset_is_undone(tab: Tab) -> None:
    open_shop()
    order(40)
    drain()
    mail = group("mail")
    tab.go(page("group", mail.pk) + "?refresh=off")
    press(tab, "Reset …")
    tab.fill("#ems-to", "10")
    press(tab, "Preview")
    assert tab.texts("#content-main tbody td")[:2] == ["40", "10"]
    assert "30" in tab.texts("#content-main tbody td")[2]
    assert Cursor.objects.get(group=mail).next_offset == 40  # a preview changes nothing
    press(tab, "Reset")
    tab.wait(".messagelist .success", "mail")
    tab.go(page("group", mail.pk) + "?refresh=off")
    assert figure(tab, "Behind") == "30"

    press(tab, "Undo the last reset …")
    assert tab.texts("#content-main tbody td")[:2] == ["10", "40"]
    press(tab, "Undo the last reset")
    tab.wait(".messagelist .success", "mail")
    tab.go(page("group", mail.pk) + "?refresh=off")
    assert figure(tab, "Behind") == "0"
    drain()
    assert handled("mail") == [str(n) for n in range(40)]  # none of them twice
    assert Delivery.objects.filter(state=State.SKIPPED).count() == 1
    noted = LogEntry.objects.order_by("pk").values_list("change_message", flat=True)
    assert [text.partition(":")[0] for text in noted] == ["Reset", "Undo the last reset"]


@pytest.mark.exhaustive
def test_all_letters_that_match_are_redriven_at_a_rate(
    tab: Tab, spawn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a page of them, by a real consumer, whose handler is repaired meanwhile."""
    open_shop()
    order(120, "stolen")
    drain()
    assert DeadMessage.objects.count() == 120
    tab.go(reverse("admin:ems_deadmessage_changelist") + f"?group={group('billing').pk}")
    # "120+" where ids are high: the classes are counted among the newest ids.
    assert tab.text("table.ems-cards tbody td").removesuffix("+") == "120"
    tab.click("#action-toggle")
    tab.click(".question a")
    tab.do(lambda page: page.select_option('select[name="action"]', "redrive"))
    tab.click('.actions button[name="index"]')
    assert tab.texts("#content-main tbody td")[0] == "120"
    tab.fill("#ems-rate", "20")
    press(tab, "Redrive dead letters")
    tab.wait(".messagelist .success", "20 a second")
    assert not RetryMessage.objects.exists()

    monkeypatch.setenv(SHOP, REPAIRED)
    shop = spawn(CONSUMER)
    wait_for(lambda: len(handled("billing")) == 120, shop.text, 120)
    assert handled("billing") == [str(n) for n in range(120)]  # each of them once
    wait_for(lambda: not RetryMessage.objects.exists(), "all is settled")
    begun = Delivery.objects.filter(group__name="billing", kind="retry").order_by("started_at")
    took = begun.last().started_at - begun.first().started_at  # type: ignore[union-attr]
    assert took >= timedelta(seconds=119 / 20 - 1)
    wait_for(lambda: not DeadMessage.objects.waiting().exists(), "no letter waits")
    tab.go(page("group", group("billing").pk) + "?refresh=off")
    assert figure(tab, "Dead letters") == "0"


@pytest.mark.exhaustive
def test_a_letter_is_edited_and_only_its_group_gets_what_was_edited(tab: Tab) -> None:
    open_shop()
    order(1, "stolen")
    drain()
    letter = DeadMessage.objects.get()
    tab.go(reverse("admin:ems_deadmessage_change", args=[letter.pk]))
    tab.click('a:text("Edit and send again")')
    tab.fill("#ems-body", '{"n": 77, "card": }')
    press(tab, "Show the difference")
    assert "line 1" in tab.text("#ems-body-error")
    tab.fill("#ems-body", '{"n": 77, "card": "good"}')
    press(tab, "Show the difference")
    assert any("77" in line for line in tab.texts(".ems-added"))
    assert any("stolen" in line for line in tab.texts(".ems-removed"))
    press(tab, "Send it to the group")
    tab.wait(".messagelist .success", "Edited and redriven")
    RetryMessage.objects.update(due_at=UtcNow())
    drain()
    assert handled("billing") == ["77"]
    assert handled("mail") == ["0"]
    tab.go(reverse("admin:ems_deadmessage_change", args=[letter.pk]))
    tab.wait("details summary", "root")
    assert bytes(Message.objects.get().body) == b'{"n":0,"card":"stolen"}'


@pytest.mark.exhaustive
def test_a_test_message_is_sent_from_the_page_of_its_topic(tab: Tab) -> None:
    open_shop()
    order(1)
    drain()
    tab.go(page("topic", group("mail").topic_id) + "?refresh=off")
    press(tab, "Send a test message …")
    tab.fill("#ems-body", '{"n": 5, "card": "good"}')
    press(tab, "Preview")
    tab.wait("#content-main", "billing, mail")
    press(tab, "Send the message")
    tab.wait(".messagelist .success", f"Test message {Message.objects.latest('pk').pk}")
    drain()
    assert handled("mail") == ["0", "5"]
    tab.click(".messagelist .success a")
    tab.wait("#content", "key")
    assert {"billing", "mail"} <= {*" ".join(tab.texts("#content-main")).split()}

"""Reset and replay in the admin: shown before they are done, done as shown, and logged."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.urls import reverse

from streams import send
from streams.log.sequencer import sequence
from streams.models import Consumer, Cursor, Message, Partition, RetryMessage
from streams.operate.replay import replays
from tests.admin.conftest import action, messages, offered
from tests.admin.world import snapshot

pytestmark = pytest.mark.django_db

GROUPS = reverse("admin:ems_consumergroup_changelist")


def page(client: Any, name: str, group: Any, **fields: str) -> Any:
    response = client.post(GROUPS, action(name, group.pk, **fields))
    assert response.status_code == 200, response.headers
    return response


def confirm(client: Any, name: str, group: Any, shown: Any, **fields: str) -> Any:
    return client.post(GROUPS, action(name, group.pk, offer=offered(shown), **fields))


def position(group: Any) -> int:
    return Cursor.objects.get(group=group, replay=0).next_offset


def error_below(shown: Any, field: str) -> str:
    """The error below this field, to which the field refers."""
    found = re.search(f'<ul class="errorlist" id="ems-{field}-error"><li>(.*?)</li>', shown.text)
    assert found, f"there is none below {field}"
    assert f'aria-describedby="ems-{field}-error" autofocus' in shown.text
    return found[1]


# -- reset --


def test_the_page_of_a_reset_says_where_the_group_is(world, as_role):
    client = as_role("operator")
    before = snapshot()
    shown = page(client, "reset", world.slow)
    cells = re.findall(r"<td[^>]*>([^<]+)</td>", shown.text)
    assert cells == ["0", "5", "5", "–"]
    assert snapshot() == before


def test_a_preview_says_what_will_happen_and_changes_nothing(world, as_role):
    client = as_role("operator")
    before = snapshot()
    shown = page(client, "reset", world.slow, to="2")
    assert "3 delivered again, retries that begin anew: 2" in shown.text
    assert snapshot() == before


def test_what_was_shown_is_done_and_logged(world, as_role):
    client = as_role("operator")
    shown = page(client, "reset", world.slow, to="latest")  # it is there
    assert "nothing to do" in shown.text
    shown = page(client, "reset", world.slow, to="2")
    response = confirm(client, "reset", world.slow, shown)
    text = "orders/0 from 5 to 2, 3 delivered again, retries that begin anew: 2"
    assert messages(client, response) == [f"slow on orders: Reset: {text}."]
    assert position(world.slow) == 2
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_id) == ("operator", str(world.slow.pk))
    assert (entry.action_flag, entry.change_message) == (CHANGE, f"Reset: {text}")


def test_a_large_skip_wants_its_number_typed_in(world, as_role):
    client = as_role("operator")
    Partition.objects.update(next_offset=2_012_350)
    shown = page(client, "reset", world.slow, to="latest")
    assert "2,012,345 messages are skipped" in shown.text
    assert "2,012,345 skipped" in shown.text
    for typed in ("", "2012344", "all"):
        again = confirm(client, "reset", world.slow, shown, typed=typed)
        assert "That is not the number" in error_below(again, "typed")
        assert position(world.slow) == 5
    assert confirm(client, "reset", world.slow, again, typed="2,012,345").status_code == 302
    assert position(world.slow) == 2_012_350
    # Neither a small skip nor a way back asks for it.
    assert 'name="typed"' not in page(client, "reset", world.slow, to="earliest").text
    assert 'name="typed"' not in page(client, "reset", world.mail, to="+10").text


def test_the_end_of_the_log_is_the_one_that_was_shown(world, as_role):
    client = as_role("operator")
    Cursor.objects.filter(group=world.slow).update(next_offset=3)
    shown = page(client, "reset", world.slow, to="latest")
    assert "2 skipped" in shown.text
    send("orders", "one more")
    sequence("default")
    confirm(client, "reset", world.slow, shown)
    assert position(world.slow) == 5  # the new one was not shown


def test_a_partition_that_is_new_since_the_preview_ends_it(world, as_role):
    client = as_role("operator")
    shown = page(client, "reset", world.slow, to="2")
    new = Partition.objects.create(topic=world.slow.topic, number=1)
    Cursor.objects.create(group=world.slow, partition=new)
    assert "is not so any more" in confirm(client, "reset", world.slow, shown).text
    places = Cursor.objects.filter(group=world.slow).order_by("partition")
    assert [cursor.next_offset for cursor in places] == [5, 0]
    shown = page(client, "reset", world.slow, to="3", partition="0")
    assert re.findall(r'<th scope="row" role="rowheader">(orders/.)</th>', shown.text) == [
        "orders/0"
    ]


def test_a_group_with_live_consumers_is_reset_only_with_a_tick(world, as_role):
    client = as_role("operator")
    shown = page(client, "reset", world.mail, to="2")
    assert "The group has 1 live consumer" in shown.text
    assert "open deliveries taken from consumers: 1" in shown.text
    before = snapshot()
    refused = confirm(client, "reset", world.mail, shown)
    assert "mail on orders has live consumers" in refused.text
    assert snapshot() == before
    confirm(client, "reset", world.mail, shown, force="1")
    assert position(world.mail) == 2
    Consumer.objects.all().delete()
    assert "live consumer" not in page(client, "reset", world.mail, to="1").text


def test_a_reset_is_undone(world, as_role):
    client = as_role("operator")
    assert "has not been reset" in page(client, "undo", world.slow).text
    change = reverse("admin:ems_consumergroup_change", args=[world.slow.pk])
    assert 'value="undo"' not in client.get(change).text  # nothing to undo yet
    waiting = list(RetryMessage.objects.filter(group=world.slow).values_list("offset", "attempt"))
    confirm(client, "reset", world.slow, page(client, "reset", world.slow, to="0"))
    assert 'value="undo"' in client.get(change).text
    shown = page(client, "undo", world.slow)
    assert "5 skipped, retries as before: 2" in shown.text
    confirm(client, "undo", world.slow, shown)
    assert position(world.slow) == 5
    found = RetryMessage.objects.filter(group=world.slow).values_list("offset", "attempt")
    assert list(found) == waiting
    # What was shown is not what an undo would do now.
    again = confirm(client, "undo", world.slow, shown)
    assert "is not so any more" in again.text
    assert position(world.slow) == 5


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"to": "9"}, "ends before offset 5"),
        ({"to": "soon"}, "is not a place in a log"),
        ({"to": "2026-11-20T10:00"}, "say the time zone"),
        ({"to": "2", "partition": "7"}, "has no such partition"),
        ({"to": "2", "partition": "x"}, "Enter a whole number"),
        ({"to": "<script>alert(1)</script>"}, "&lt;script&gt;"),
    ],
)
def test_what_cannot_be_done_is_said_below_its_field(world, as_role, fields, text):
    client = as_role("operator")
    before = snapshot()
    shown = page(client, "reset", world.slow, **fields)
    assert text in error_below(shown, "partition" if "partition" in fields else "to")
    assert "<script>alert" not in shown.text
    assert snapshot() == before


@pytest.mark.parametrize(("name", "fields"), [("reset", {"to": "2"}), ("replay", {"message": ""})])
def test_an_offer_is_only_good_for_its_user_its_group_and_its_verb(world, as_role, name, fields):
    if name == "replay":
        fields = {"from": "1", "to": "2"}
    client = as_role("operator")
    token = offered(page(client, name, world.slow, **fields))
    before = snapshot()
    stranger = as_role("staff", "ems.view_consumergroup", f"ems.{name}_consumergroup")
    other = {"reset": "replay", "replay": "reset"}[name]
    for who, verb, group, text in (
        (stranger, name, world.slow, token),
        (client, other, world.slow, token),
        (client, name, world.billing, token),
        (client, name, world.slow, token[:-1] + ("A" if token[-1] != "A" else "B")),
        (client, name, world.slow, ""),
    ):
        response = page(who, verb, group, offer=text)
        assert "not valid any more" in response.text
    assert snapshot() == before


def test_only_one_group_at_a_time(world, as_role):
    client = as_role("operator")
    for name in ("reset", "replay"):
        response = client.post(GROUPS, action(name, world.slow.pk, world.mail.pk, to="0"))
        assert "at a time: choose one" in messages(client, response)[0]


def test_a_broadcast_group_offers_neither(world, as_role):
    client = as_role("operator")
    type(world.slow).objects.filter(pk=world.slow.pk).update(mode="broadcast")
    text = client.get(reverse("admin:ems_consumergroup_change", args=[world.slow.pk])).text
    for name in ("reset", "replay"):
        assert f'name="action" value="{name}"' not in text
    assert "broadcast group" in page(client, "reset", world.slow, to="0").text
    assert "broadcast group" in page(client, "replay", world.slow, **{"from": "0", "to": "1"}).text


# -- replay --


def test_a_message_is_replayed_and_the_replay_cancelled_with_its_progress_on_the_page(
    world, as_role
):
    client = as_role("operator")
    message = Message.objects.get(offset=4)
    assert "errornote" not in page(client, "replay", world.slow).text  # nothing is asked for yet
    shown = page(client, "replay", world.slow, message=str(message.pk))
    assert "<li>replay 1: 1 message: orders/0@4</li>" in shown.text
    response = confirm(client, "replay", world.slow, shown)
    text = "Replay: replay 1: 1 message: orders/0@4"
    assert messages(client, response) == [f"slow on orders: {text}."]
    assert LogEntry.objects.get().change_message == text
    cursor = Cursor.objects.get(replay=1)
    assert (cursor.group_id, cursor.next_offset, cursor.stop_offset) == (world.slow.pk, 4, 5)
    url = reverse("admin:ems_consumergroup_change", args=[world.slow.pk])
    assert "1: orders/0@4, 0 of 1 given out, running" in client.get(url).text
    shown = page(client, "cancel-replay", world.slow)
    assert "<li>replay 1: 1 message is not given out</li>" in shown.text
    confirm(client, "cancel-replay", world.slow, shown)
    text = client.get(url).text
    assert "0 of 1 given out, cancelled" in text
    assert 'value="cancel-replay"' not in text


def test_it_must_be_said_which_of_several_replays_is_cancelled(world, as_role):
    client = as_role("operator")
    for _number in range(2):
        shown = page(client, "replay", world.slow, **{"from": "0", "to": "1"})
        confirm(client, "replay", world.slow, shown)
    for fields, text in (
        ({}, "say which (1, 2)"),
        ({"number": "0"}, "has no replay 0 that is running"),
        ({"number": "3"}, "has no replay 3 that is running"),
    ):
        assert text in error_below(page(client, "cancel-replay", world.slow, **fields), "number")
    shown = page(client, "cancel-replay", world.slow, number="1")
    confirm(client, "cancel-replay", world.slow, shown)
    assert [one.number for one in replays([world.slow], "default") if one.is_running] == [2]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"from": "1"}, "Give from and to, or one message"),
        ({"from": "1", "to": "2", "message": "1"}, "Give from and to, or one message"),
        ({"from": "1", "to": "9"}, "is not all there yet"),
        ({"from": "latest", "to": "9"}, "not &#x27;latest&#x27;"),
        ({"message": "x"}, "names no message"),
        ({"message": "9" * 30}, "There is no message"),
        ({"message": "99999999"}, "There is no message"),
        ({"from": "0", "to": "1", "partition": "4"}, "no such partition"),
    ],
)
def test_what_cannot_be_replayed_is_said_on_the_page(world, as_role, fields, text):
    client = as_role("operator")
    before = snapshot()
    assert text in page(client, "replay", world.slow, **fields).text
    assert snapshot() == before


@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        ({"from": "x", "to": "2"}, "from", "is not a place in a log"),
        ({"from": "1", "to": "latest"}, "to", "from an offset or a time"),
        ({"from": "1"}, "to", "Give from and to"),
        ({"to": "1"}, "from", "Give from and to"),
        ({"from": "1", "to": "2", "partition": "9"}, "partition", "no such partition"),
        ({"from": "1", "to": "2", "partition": "x"}, "partition", "Enter a whole number"),
        ({"message": "abc"}, "message", "names no message"),
        ({"message": "999999"}, "message", ""),
    ],
)
def test_an_error_of_a_replay_stands_below_its_field(world, as_role, fields, field, text):
    assert text in error_below(page(as_role("operator"), "replay", world.mail, **fields), field)

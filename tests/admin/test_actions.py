"""What an operator can do: each action with its permission, its entry in the log, its outcome."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from streams import conf, send
from streams.admin.verbs import plan as plans
from streams.consume.outcome.dead_letter import redrive
from streams.errors import TopicDenied
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    RetryMessage,
    State,
)
from streams.operate.acts import delete as group_deletion
from streams.testing import drain
from tests.admin.conftest import action, messages
from tests.admin.world import snapshot
from tests.consuming import Process

pytestmark = pytest.mark.django_db

LETTERS = reverse("admin:ems_deadmessage_changelist")
GROUPS = reverse("admin:ems_consumergroup_changelist")


def preview(client: Any, name: str, *pks: int, url: str = LETTERS, **more: str) -> Any:
    response = client.post(url, action(name, *pks, **more))
    assert response.status_code == 200, response.headers
    return response


def confirm(client: Any, shown: Any, **more: str) -> Any:
    """Send the form of the preview as a browser would."""
    form = re.search(r'<form method="post" action="([^"]*)"(?!.*class="ems-verb")', shown.text)
    assert form
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', shown.text))
    return client.post(form[1].replace("&amp;", "&"), {**fields, "index": "0", **more})


def by_object() -> list[LogEntry]:
    """The log in the order of its objects: their ids are text there, and 97 comes before 100."""
    return sorted(LogEntry.objects.all(), key=lambda entry: int(entry.object_id or 0))


def letters() -> list[int]:
    return list(DeadMessage.objects.order_by("pk").values_list("pk", flat=True))


def test_a_preview_changes_nothing_and_says_how_many(world, as_role):
    client = as_role("operator")
    before = snapshot()
    for name in ("redrive", "discard"):
        shown = preview(client, name, *letters()[:2])
        assert "2 dead letters" in shown.text
        assert "billing on orders" in shown.text
    assert snapshot() == before


def test_a_redriven_selection_is_handled_again_and_logged_one_by_one(world, as_role):
    client = as_role("operator")
    first, second, third = letters()
    response = confirm(client, preview(client, "redrive", first, second))
    assert messages(client, response) == ["Redriven: 2."]
    assert list(DeadMessage.objects.waiting().values_list("pk", flat=True)) == [third]
    assert (
        RetryMessage.objects.filter(group=world.billing, dead_letter__in=[first, second]).count()
        == 2
    )
    entries = by_object()
    assert [(e.user.username, e.object_id, e.action_flag, e.change_message) for e in entries] == [
        ("operator", str(first), CHANGE, "Redriven"),
        ("operator", str(second), CHANGE, "Redriven"),
    ]
    assert entries[0].object_repr == "orders/0@0 for billing on orders"
    assert drain("billing").dead == 2  # it still fails: seen again, and dead again


def test_all_that_match_the_filter_are_redriven_not_only_a_page(world, as_role):
    DeadMessage.objects.filter(pk=letters()[0]).update(group=world.mail)
    client = as_role("operator")
    url = f"{LETTERS}?group={world.billing.pk}"
    shown = preview(client, "redrive", letters()[1], url=url, select_across="1")
    assert "2 dead letters" in shown.text
    response = confirm(client, shown)
    assert response.url == url  # the filter is kept
    assert list(DeadMessage.objects.waiting().values_list("group", flat=True)) == [world.mail.pk]
    entry = LogEntry.objects.get()
    assert entry.object_repr == f"all that match group={world.billing.pk}"
    assert entry.change_message.startswith("Redriven: 2.")
    assert "Of 2 in the preview" in entry.change_message


def test_letters_that_come_after_the_preview_are_left_alone(world, as_role):
    client = as_role("operator")
    shown = preview(client, "discard", letters()[0], select_across="1")
    newer = DeadMessage.objects.get(pk=letters()[0])
    newer.pk, newer.offset = None, 4
    newer.save(force_insert=True)
    confirm(client, shown, typed="3")
    assert letters() == [newer.pk]


@pytest.mark.parametrize("rows", [{"select_across": "1"}, {}])
def test_a_letter_that_was_with_its_group_in_the_preview_is_left_alone(world, as_role, rows):
    client = as_role("operator")
    again = DeadMessage.objects.get(pk=letters()[0])
    redrive(again)
    Message.objects.filter(partition=again.partition_id, offset=again.offset).delete()  # purged
    shown = preview(client, "discard", *letters(), **rows)
    assert "2 dead letters" in shown.text
    drain("billing")  # it fails again, and its letter, which has the only copy, waits again
    assert again.pk in DeadMessage.objects.waiting().values_list("pk", flat=True)
    confirm(client, shown, typed="2")
    assert letters() == [again.pk]


def test_discarding_needs_the_number_typed_in(world, as_role):
    client = as_role("operator")
    shown = preview(client, "discard", *letters())
    before = snapshot()
    for typed in ("", "2", "yes"):
        again = confirm(client, shown, typed=typed)
        assert "That is not the number" in again.text
    assert snapshot() == before
    response = confirm(client, again, typed="3")
    assert messages(client, response)[0].startswith("Discarded: 3.")
    assert letters() == []
    entries = LogEntry.objects.all()
    assert [(e.action_flag, e.change_message) for e in entries] == [(DELETION, "Discarded")] * 3


def test_what_was_redriven_meanwhile_is_left_out_and_counted(world, as_role):
    client = as_role("operator")
    shown = preview(client, "redrive", *letters())
    redrive(DeadMessage.objects.get(pk=letters()[1]))
    response = confirm(client, shown)
    told = "Redriven: 2. Left out: 1 (redriven already, gone, or behind an edited one)."
    assert messages(client, response) == [told]
    outcomes = [entry.change_message for entry in by_object()]
    assert outcomes == [
        "Redriven",
        "Left out: redriven already, gone, or behind an edited one",
        "Redriven",
    ]
    shown = client.post(LETTERS, action("redrive", *letters()))
    assert "Nothing to do" in messages(client, shown)[0]


def test_a_plan_is_only_good_for_its_user_its_verb_and_its_list(world, as_role):
    client = as_role("operator")
    shown = preview(client, "redrive", *letters())
    (token,) = re.findall(r'name="offer" value="([^"]*)"', shown.text)
    before = snapshot()
    stranger = as_role("staff", "ems.view_deadmessage", "ems.redrive_deadmessage")
    tries = (
        (stranger, LETTERS, "redrive", token),
        (client, LETTERS, "discard", token),
        (client, f"{LETTERS}?state=waiting", "redrive", token),
        (client, LETTERS, "redrive", token[:-1] + ("A" if token[-1] != "A" else "B")),
        (client, LETTERS, "redrive", ""),
    )
    for who, url, name, text in tries:
        response = who.post(url, action(name, 0, select_across="1", offer=text, typed="3"))
        assert messages(who, response) == ["This preview is not valid any more: begin again."]
    assert snapshot() == before


def test_a_long_plan_goes_on_in_steps(world, as_role, monkeypatch):
    monkeypatch.setattr(plans, "STEP_SECONDS", -1)  # a step is over after one row
    client = as_role("operator")
    shown = confirm(client, preview(client, "redrive", letters()[0], select_across="1"))
    assert "1 of 3: 1 done, 0 left out." in shown.text
    assert "ems/continue.js" in shown.text
    shown = confirm(client, shown)
    assert "2 of 3" in shown.text
    response = confirm(client, shown)
    assert messages(client, response)[0].startswith("Redriven: 3.")
    assert not DeadMessage.objects.waiting().exists()
    assert LogEntry.objects.count() == 3  # one a step, each with its own count
    assert all(e.change_message.startswith("Redriven: 1.") for e in LogEntry.objects.all())


def test_a_step_that_is_sent_twice_does_nothing_more(world, as_role, monkeypatch):
    monkeypatch.setattr(plans, "STEP_SECONDS", -1)
    client = as_role("operator")
    first = preview(client, "redrive", letters()[0], select_across="1")
    confirm(client, first)
    attempts = RetryMessage.objects.filter(group=world.billing).count()
    shown = confirm(client, first)
    assert "1 of 3: 0 done, 1 left out." in shown.text
    assert RetryMessage.objects.filter(group=world.billing).count() == attempts


def test_what_was_done_before_an_error_is_in_the_log(world, as_role, monkeypatch):
    client = as_role("operator", raise_request_exception=False)
    shown = preview(client, "redrive", *letters())
    broken = letters()[1]

    def fail(letter):
        if letter.pk == broken:
            raise RuntimeError("no")
        return redrive(letter)

    monkeypatch.setattr("streams.admin.pages.dead.REDRIVE", _with_verb(fail))
    assert confirm(client, shown).status_code == 500
    assert LogEntry.objects.get().change_message == "Redriven"


def _with_verb(verb: Any) -> Any:
    from dataclasses import replace

    from streams.admin.pages.dead import REDRIVE

    return replace(REDRIVE, verb=verb)


def handled_by(group: str) -> int:
    """Messages that a consumer process of the group takes now."""
    deliveries = Delivery.objects.filter(group__name=group, state=State.DONE)
    before = deliveries.count()
    Process(group).run_until_idle()
    return deliveries.count() - before


@pytest.mark.django_db(transaction=True)
def test_pause_and_resume_are_in_force_and_logged(world, as_role):
    client = as_role("operator")
    pks = [world.mail.pk, world.billing.pk]
    response = client.post(GROUPS, action("pause", *pks))
    assert messages(client, response) == ["Pause: 2 consumer groups."]
    assert set(ConsumerGroup.objects.filter(paused=True)) == {world.mail, world.billing}
    send("orders", "while paused")
    assert handled_by("mail") == 0
    response = client.post(GROUPS, action("pause", *pks))
    assert messages(client, response) == ["Pause: 0 consumer groups. It was already so for 2."]
    response = client.post(f"{GROUPS}?paused=1", action("resume", pks[0], select_across="1"))
    assert messages(client, response) == ["Resume: 2 consumer groups."]
    assert not ConsumerGroup.objects.filter(paused=True).exists()
    assert handled_by("mail") == 1
    assert list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True)) == [
        "paused", "paused", "resumed", "resumed",
    ]  # fmt: skip


def test_a_group_is_deleted_after_its_name_was_typed_in(world, as_role):
    client = as_role("operator")
    shown = preview(client, "delete", world.billing.pk, url=GROUPS)
    assert "dead letters" in shown.text
    before = snapshot()
    fields = action("delete", world.billing.pk, offer=shown.context["offer"])
    for typed in ("", "mail", "BILLING"):
        assert "not its name" in client.post(GROUPS, {**fields, "typed": typed}).text
    assert snapshot() == before
    response = client.post(GROUPS, {**fields, "typed": "billing"})
    assert "billing on orders: Delete: deleted, with" in messages(client, response)[0]
    for model in (Cursor, Delivery, RetryMessage, DeadMessage):
        assert not model.objects.filter(group=world.billing.pk).exists()
        assert model is DeadMessage or model.objects.filter(group=world.slow.pk).exists()
    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.object_id) == ("billing on orders", str(world.billing.pk))
    assert "3 dead letters" in entry.change_message
    assert entry.is_deletion()


def test_a_group_with_a_live_consumer_or_too_many_rows_is_not_deleted(world, as_role, monkeypatch):
    client = as_role("operator")
    before = snapshot()
    assert "live consumers" in client.post(GROUPS, action("delete", world.mail.pk)).text
    monkeypatch.setattr(group_deletion, "AT_MOST", 2)
    with CaptureQueriesContext(connection) as queries:
        told = client.post(GROUPS, action("delete", world.billing.pk)).text
    assert sum("LIMIT 3" in query["sql"] for query in queries) == 8  # no count goes further
    assert "more than 2 rows" in told
    assert "ems_groups delete" in told
    response = client.post(GROUPS, action("delete", world.slow.pk, world.billing.pk))
    assert "choose one" in messages(client, response)[0]
    assert snapshot() == before


@pytest.mark.parametrize("selected", ["abc", "1 OR 1=1", "-1", "9" * 30])
def test_a_selection_that_is_no_number_is_refused(world, as_role, selected):
    client = as_role("operator")
    before = snapshot()
    response = client.post(
        LETTERS, {"action": "redrive", "index": "0", "_selected_action": selected}
    )
    assert response.status_code == 302
    assert snapshot() == before


def test_the_page_of_a_row_offers_what_makes_sense_for_it(world, as_role):
    def offered(client: Any, row: Any) -> list[str]:
        url = reverse(f"admin:ems_{row._meta.model_name}_change", args=[row.pk])
        return [name for name, _ in client.get(url).context["verbs"]]

    operator = as_role("operator")
    assert offered(operator, world.letter) == ["rehearse", "redrive", "discard"]
    assert offered(operator, world.mail) == ["pause", "reset", "replay", "delete", "rehearse"]
    redrive(world.letter)
    ConsumerGroup.objects.pause()
    assert offered(operator, world.letter) == []
    assert offered(operator, world.mail) == ["resume", "reset", "replay", "delete", "rehearse"]
    viewer = as_role("viewer", "ems.resume_consumergroup")
    assert offered(viewer, world.mail) == ["resume"]


def test_saving_a_group_keeps_a_pause_of_somebody_else(world, as_role, monkeypatch):
    """Only what was changed in the form is written."""
    url = reverse("admin:ems_consumergroup_change", args=[world.mail.pk])
    save = ConsumerGroup.save

    def paused_meanwhile(group, **options):
        ConsumerGroup.objects.filter(pk=group.pk).pause()
        save(group, **options)

    monkeypatch.setattr(ConsumerGroup, "save", paused_meanwhile)
    form = {"max_retries": "3", "consume_timeout": "", "batch": ""}
    assert as_role("operator").post(url, form).status_code == 302
    world.mail.refresh_from_db()
    assert (world.mail.paused, world.mail.max_retries) == (True, 3)
    assert "Maximum retries" in LogEntry.objects.get().get_change_message()


def test_a_change_of_access_holds_everywhere_within_5_seconds(world, as_role, monkeypatch):
    topic = world.mail.topic
    url = reverse("admin:ems_topic_change", args=[topic.pk])
    form = {"access": "denied", "retention_seconds": ""}
    assert as_role("operator").post(url, form).status_code == 302
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + conf.FRESH_SECONDS)
    with pytest.raises(TopicDenied):
        send("orders", 1)
    assert "Access" in LogEntry.objects.get().get_change_message()

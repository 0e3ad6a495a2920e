"""The page of a message: who sent it, and what each group has done with it."""

from __future__ import annotations

import html
import os
import re
import threading
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils.html import strip_tags

from streams import send
from streams.models import Delivery, Message, RetryMessage, State
from streams.produce.identity import host
from streams.testing import drain

pytestmark = pytest.mark.django_db


def page(client, message):
    return client.get(reverse("admin:ems_message_change", args=[message.pk])).text


def words(text):
    return re.sub(r"\s+", " ", html.unescape(strip_tags(text)))


def group_part(text, group):
    """The rows of one group in the trace."""
    (part,) = [p for p in re.split(r"<tbody[^>]*>", text) if f">{group}</a>:" in p]
    return part


def test_it_names_the_producers_host_process_and_thread(world, as_role):
    text = words(page(as_role("viewer"), world.message))
    assert f"Producer's host: {host()}" in text
    assert f"Process id: {os.getpid()}" in text
    assert f"Thread: {threading.current_thread().name}" in text
    assert "orders/0@0" in text


def test_a_producer_of_an_unknown_form_is_shown_as_it_is(world, as_role):
    Message.objects.filter(offset=0).update(producer="somebody")
    text = words(page(as_role("viewer"), world.message))
    assert "Producer's host: somebody" in text
    assert "Process id: –" in text


def test_the_trace_has_every_group_with_its_deliveries_and_what_comes_next(world, as_role):
    client = as_role("viewer")
    text = page(client, Message.objects.get(offset=3))
    for group, state in (("billing", "done"), ("mail", "done"), ("slow", "attempt 2 is due at")):
        part = group_part(text, group)
        assert f"{group}: {state}" in words(part)
        delivery = Delivery.objects.filter(group__name=group, last_offset__gte=3)[0]
        assert reverse("admin:ems_delivery_change", args=[delivery.pk]) in part
        assert delivery.client_id in part
        assert delivery.thread in part
        assert f'datetime="{delivery.claimed_at.isoformat()}"' in part
    slow = group_part(text, "slow")
    retry = RetryMessage.objects.get(offset=3)
    assert reverse("admin:ems_retrymessage_change", args=[retry.pk]) in slow
    assert "TimeoutError: the bank does not answer" in slow
    assert reverse("admin:ems_consumergroup_change", args=[world.slow.pk]) in slow


def test_a_batch_says_how_many_of_its_offsets_failed(world, as_role):
    part = words(group_part(page(as_role("viewer"), world.message), "slow"))
    assert "offsets 0–4: 2 / 5 failed" in part


def test_each_message_of_a_claim_is_shown_with_its_own_error(world, as_role):
    client = as_role("viewer")
    Delivery.objects.filter(group=world.slow).update(
        error="that of another", errors='{"KeyError: its own": [3]}', failed=1
    )
    delivery = Delivery.objects.get(group=world.slow)
    Delivery.objects.filter(pk=delivery.pk).update(
        started_at=delivery.claimed_at, finished_at=delivery.claimed_at + timedelta(seconds=1.5)
    )
    failed = group_part(page(client, Message.objects.get(offset=3)), "slow")
    assert '<span class="ems-state ems-state-bad">failed</span>' in failed
    assert "KeyError: its own" in failed
    assert "1.5\xa0s" in failed
    done = group_part(page(client, Message.objects.get(offset=1)), "slow")
    assert '<span class="ems-state ems-state-good">done</span>' in done
    assert "KeyError" not in done
    assert "that of another" not in failed + done


def test_a_dead_message_leads_to_its_dead_letter_and_back(world, as_role):
    client = as_role("viewer")
    letter_page = reverse("admin:ems_deadmessage_change", args=[world.letter.pk])
    part = group_part(page(client, world.message), "billing")
    assert "billing: dead" in words(part)
    assert letter_page in part
    (back,) = re.findall(r'href="([^"]*/ems/message/\?q=[^"]*)"', client.get(letter_page).text)
    assert client.get(back).url == reverse("admin:ems_message_change", args=[world.message.pk])


def test_every_outcome_is_told_in_words(world, as_role):
    client = as_role("viewer")
    delivery = Delivery.objects.get(group=world.mail, first_offset=0)
    lost = "lost: its consumer died, or took too long"
    wanted = {
        # state, failed, dead, missing, progress: of the message, of all five of the claim
        (State.START, 0, 0, 0, 0): ("being handled", "open"),
        (State.DONE, 0, 0, 0, 5): ("done", "done"),
        (State.DONE, 0, 0, 2, 5): ("done, or missing", "2 / 5 missing"),
        (State.RELEASED, 0, 0, 0, 0): ("released", "released"),
        (State.SKIPPED, 0, 0, 0, 5): ("skipped", "skipped"),
        (State.RETRY, 2, 0, 0, 5): ("done, or failed", "2 / 5 failed"),
        (State.RETRY, 2, 1, 1, 5): (
            "done, or failed, or missing",
            "2 / 5 failed, 1 / 5 dead, 1 / 5 missing",
        ),
        (State.RETRY, 0, 0, 0, 0): (lost, lost),
    }
    for (state, failed, dead, missing, progress), (told, of_all) in wanted.items():
        Delivery.objects.filter(pk=delivery.pk).update(
            state=state, failed=failed, dead=dead, missing=missing, progress=progress
        )
        part = group_part(page(client, world.message), "mail")
        cells = [words(cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", part, re.S)]
        assert cells[1] == told
        assert f"offsets 0–4: {of_all}" in cells[0]
    Delivery.objects.filter(pk=delivery.pk).update(last_offset=0, failed=1, dead=1, missing=0)
    assert "failed" in words(group_part(page(client, world.message), "mail"))


def test_messages_that_have_no_place_yet_have_a_page_too(world, as_role):
    client = as_role("viewer")
    waiting = Message.objects.get(pk=send("orders", 1).message_id)
    assert "mail: not sequenced yet" in words(page(client, waiting))
    assert "Due: at once" in words(page(client, waiting))
    delayed = Message.objects.exclude(pk=waiting.pk).get(offset=None)
    assert f'datetime="{delayed.due_at.isoformat()}"' in page(client, delayed)
    alone = Message.objects.get(pk=send("alone", 1).message_id)
    drain()
    assert "No group reads this topic." in page(client, alone)


def test_a_secret_token_is_on_no_page(world, as_role):
    client = as_role("operator")
    for delivery in Delivery.objects.exclude(token=""):
        url = reverse("admin:ems_delivery_change", args=[delivery.pk])
        assert delivery.token not in client.get(url).text

"""What a handler needs is away, as the broker of a relay: nothing is spent, and the group waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streams import Outgoing, consumer, send, send_many
from streams.consume.outcome.failure import ResourceAway
from streams.log.standings import standings
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    RetryMessage,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.observe.diagnoses import groups as diagnosed
from streams.testing import advance, drain
from tests.consuming import given_back
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


class Bank:
    """A handler of batches that needs a bank, which goes away before the message ``away_at``."""

    def __init__(self, away_at: int | None, failing: int | None = None) -> None:
        self.away_at, self.failing = away_at, failing
        self.done: list[int] = []
        self.attempts: set[int] = set()

    def __call__(self, messages):
        failed: dict[Any, Exception] = {}
        for message in messages:
            self.attempts.add(message.attempt)
            if self.away_at is not None and message.body >= self.away_at:
                failed[message] = ResourceAway("the bank is closed")
            elif message.body == self.failing:
                failed[message] = ValueError("no such account")
            else:
                self.done.append(message.body)
        return failed


@pytest.mark.mariadb_11
@pytest.mark.parametrize("ordered", [False, True])
def test_what_was_done_before_is_settled_and_the_rest_comes_again_unspent(ordered):
    bank = Bank(away_at=3)
    consumer("orders", group="bank", batch=10, ordered=ordered, max_retries=0)(bank)
    send_many([Outgoing("orders", n) for n in range(5)])
    with pytest.raises(ResourceAway):
        drain()
    assert bank.done == [0, 1, 2]
    assert not RetryMessage.objects.exists()
    if ordered:
        cursor = Cursor.objects.get()
        assert (cursor.next_offset, cursor.attempt, cursor.is_blocked) == (3, 1, False)
    else:
        assert given_back() == [(3, 4)]
        assert not Delivery.objects.given_back().exclude(started_at=None).exists()
    bank.away_at = None
    assert drain().done == 2
    assert bank.done == [0, 1, 2, 3, 4]
    assert bank.attempts == {1}
    assert not DeadMessage.objects.exists()
    assert not any(audit("default"))


def test_a_message_that_has_failed_before_is_retried_and_not_counted_as_done():
    bank = Bank(away_at=3, failing=1)
    consumer("orders", group="bank", batch=10)(bank)
    send_many([Outgoing("orders", n) for n in range(5)])
    with pytest.raises(ResourceAway):
        drain()
    retry = RetryMessage.objects.get()
    assert (retry.offset, retry.attempt) == (1, 2)
    assert given_back() == [(3, 4)]
    bank.away_at = bank.failing = None
    advance(timedelta(hours=1))
    assert drain().done == 3
    assert sorted(bank.done) == [0, 1, 2, 3, 4]
    assert not any(audit("default"))


def test_a_retry_that_finds_it_away_keeps_its_attempt():
    bank = Bank(away_at=None, failing=0)
    consumer("orders", group="bank", batch=10, max_retries=1)(bank)
    send("orders", 0)
    drain()
    bank.away_at = 0
    advance(timedelta(hours=1))
    with pytest.raises(ResourceAway):
        drain()
    assert RetryMessage.objects.get().attempt == 2
    bank.away_at = bank.failing = None
    assert drain().done == 1
    assert not RetryMessage.objects.exists()
    assert not DeadMessage.objects.exists()


def test_the_word_of_a_group_is_that_its_broker_is_away_while_a_live_client_says_so():
    consumer("orders", group="bank", start="earliest")(lambda message: None)
    send("orders", 0)
    drain()
    group = ConsumerGroup.objects.get()
    alive = Consumer.objects.create(client_id="a", group=group, lease_until=UtcNow(timedelta(1)))
    rows = Consumer.objects.filter(pk=alive.pk)
    rows.note_away("the bank is closed")
    rows.update(away_since=UtcNow(timedelta(seconds=-30)))
    rows.note_away("it is still closed")  # since when it is away stays
    (found,) = standings([group], "default")
    assert (found.condition, found.trouble) == ("broker away", ["broker away"])
    assert found.told(found.needs[0]) == "for 30 s"
    (limited,) = standings([group], "default", 100)
    assert limited.lag.away is not None
    (said,) = [one for one in diagnosed("default") if one.name == "group"]
    assert (said.text, said.hint) == ("bank on orders: broker away for 30 s", "it is still closed")
    rows.update(lease_until=UtcNow(timedelta(seconds=-1)))
    (found,) = standings([group], "default")
    assert found.condition == "idle"
    rows.update(lease_until=UtcNow(timedelta(1)))
    rows.note_back()
    (found,) = standings([group], "default")
    assert found.condition == "running"


AWAY = """
import sys
from pathlib import Path
from django.core.management import call_command
from streams import consumer
from streams.consume.outcome.failure import ResourceAway
from tests.hostapp.models import Handled

def handle(message):
    def note(what):
        Handled.objects.create(group=what, topic="orders", partition=0, offset=message.offset,
                               value=message.attempt)

    if not Handled.objects.filter(group="open").exists():
        note("tried")
        raise ResourceAway("the bank is closed")
    note("done")

consumer("orders", group="bank")(handle)
call_command("ems_consume", "--start", "earliest", *sys.argv[1:])
"""


@pytest.mark.slow
def test_a_drain_waits_for_what_is_away_and_says_so_meanwhile(spawn: Spawn, ems_settings):
    ems_settings(POLL_SECONDS=0.05)
    send_many([Outgoing("orders", n) for n in range(200)])
    child = spawn(AWAY, "--drain")
    child.expect("bank on orders waits: the bank is closed; next try in 1 s")
    child.expect("next try in 4 s")
    wait_for(Consumer.objects.away().filter(away_reason="the bank is closed").exists)
    (found,) = standings(ConsumerGroup.objects.all(), "default")
    assert found.lag.away is not None
    assert found.lag.away >= timedelta(seconds=3)  # it rested 1 s, and then 2 s
    assert Handled.objects.filter(group="tried").count() < 30  # once for each try of a thread
    assert not RetryMessage.objects.exists()
    Handled.objects.create(group="open", topic="", partition=0, offset=0, value="")
    child.expect("bank on orders goes on")
    child.succeed()
    done = Handled.objects.filter(group="done")
    assert sorted(done.values_list("offset", flat=True)) == list(range(200))
    assert set(done.values_list("value", flat=True)) == {"1"}
    assert not any(audit("default"))


FAILS_AFTER_AWAY = """
from django.core.management import call_command
from streams import consumer
from streams.consume.outcome.failure import ResourceAway

tries = []

def handle(message):
    tries.append(message)
    raise ResourceAway("the bank is closed") if len(tries) == 1 else ValueError("no such account")

consumer("orders", group="bank", threads=1)(handle)
call_command("ems_consume", "--start", "earliest", "--processes", "1")
"""


@pytest.mark.slow
def test_what_refuses_a_message_is_not_away(spawn: Spawn, ems_settings):
    ems_settings(POLL_SECONDS=0.05)
    send("orders", 0)
    child = spawn(FAILS_AFTER_AWAY)
    child.expect("bank on orders waits: the bank is closed; next try in 1 s")
    wait_for(RetryMessage.objects.filter(attempt=2).exists)
    wait_for(lambda: not Consumer.objects.away().exists(), child.text, timeout=20)

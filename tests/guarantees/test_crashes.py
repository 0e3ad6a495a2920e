"""Invariant 7: a process may be killed at any instruction, and nothing is lost.

A fork of the test consumes with the code of a worker and is killed before its n-th statement or
COMMIT; then the test takes over, as the next process would.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import count

import pytest

from streams import Outgoing, Reject, Retry, consumer, send_many
from streams.chaos.forks import in_fork
from streams.consume import registry
from streams.consume.outcome.settle import release, settle
from streams.log.sequencer import sequence
from streams.models import (
    Cursor,
    DeadMessage,
    Delivery,
    KeyEntry,
    Message,
    RetryMessage,
    Topic,
)
from streams.observe.audit.walk import audit
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import (
    LONG_AFTER,
    Process,
    consume_the_rest,
    given_back,
    sequence_after_a_kill,
)
from tests.faults import Guillotine, strides
from tests.hostapp.models import Handled

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

BODIES = ["good", "shaky", "odd", "hopeless"]
MUST_DIE = {"odd", "hopeless"}


def note(message):
    Handled.objects.create(
        group=message.group,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        value=message.body,
    )


def error_of(message):
    """What is wrong with it: shaky fails once, hopeless for ever, odd can never be handled."""
    if message.body == "odd":
        return Reject("odd")
    if message.body == "hopeless" or (message.body == "shaky" and message.attempt == 1):
        return Retry(message.body, delay=0)
    return None


def handle_one(message):
    note(message)
    if error := error_of(message):
        raise error


def handle_batch(messages):
    failures = {m: error for m in messages if (error := error_of(m))}
    for message in messages:
        if message not in failures:
            note(message)
    return failures


def register(name, *, batch, atomic):
    registry._registered.clear()
    if batch:
        consumer(name, group=name, batch=3, atomic=atomic, max_retries=2)(handle_batch)
    else:
        consumer(name, group=name, atomic=atomic, max_retries=2)(handle_one)


def consume_until_killed(group, point):
    Guillotine(point).install()
    Process(group).run_until_idle()


def assert_nothing_is_lost(name, *, batch, atomic):
    group = {"group__name": name}
    assert not Delivery.objects.open().filter(**group).exists()
    assert not RetryMessage.objects.filter(**group).exists()
    cursor = Cursor.objects.select_related("partition").get(**group)
    assert cursor.next_offset == cursor.partition.next_offset == len(BODIES)
    dead = DeadMessage.objects.filter(**group).values_list("body", flat=True)
    assert sorted(bytes(body).decode() for body in dead) == sorted(MUST_DIE)
    times = Counter(Handled.objects.filter(group=name).values_list("offset", flat=True))
    for offset, body in enumerate(BODIES):
        if body not in MUST_DIE:
            assert times[offset] == 1 if atomic else times[offset] >= 1, (body, times)
        elif atomic or batch:
            assert not times[offset], (body, times)


@strides(31)
@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
@pytest.mark.parametrize("batch", [False, True], ids=["one", "batch"])
@pytest.mark.timeout(400)
def test_a_consumer_may_be_killed_between_any_two_statements(batch, atomic, stride):
    for point in count(1, stride):
        name = f"orders-{point}"
        register(name, batch=batch, atomic=atomic)
        send_many([Outgoing(name, body) for body in BODIES])
        status = in_fork(partial(consume_until_killed, name, point))
        assert status in (0, -9)
        consume_the_rest(name)
        assert_nothing_is_lost(name, batch=batch, atomic=atomic)
        if status == 0:
            break
    assert point > 60  # it did die at many places
    assert audit("default") == []


def give_back_in_part(process):
    """Claim all messages, settle the first one, and give the others back."""
    delivery = process.claim(len(BODIES))
    settle(delivery, 1, max_retries=2)
    yield  # from here on it may be killed
    release(delivery)


def stop_until_killed(group, point):
    steps = give_back_in_part(Process(group))
    next(steps)
    Guillotine(point).install()
    next(steps, None)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", ["giving back", "taking over"])
def test_a_consumer_may_be_killed_while_a_range_changes_hands(part):
    """The rest of a claim, which a consumer that stops gives back and another one takes over."""
    for point in count(1):
        name = f"orders-{point}"
        register(name, batch=True, atomic=False)
        send_many([Outgoing(name, "good") for _ in BODIES])
        sequence("default")
        if part == "taking over":
            list(give_back_in_part(Process(name)))
            assert given_back() == [(1, len(BODIES) - 1)]
        killed = stop_until_killed if part == "giving back" else consume_until_killed
        status = in_fork(partial(killed, name, point))
        assert status in (0, -9)
        consume_the_rest(name)
        assert given_back() == []
        handled = Handled.objects.filter(group=name).values_list("offset", flat=True)
        assert set(handled) == set(range(1, len(BODIES)))
        if status == 0:
            break
    assert point > 4  # it did die at several places
    assert audit("default") == []


def sequence_until_killed(point):
    Guillotine(point).install()
    sequence("default")


def test_a_sequencer_may_be_killed_while_it_indexes_keys():
    Topic.objects.create(name="orders", index_keys=True)
    for point in count(1):
        send_many([Outgoing("orders", "good", key=f"{point}-{n}") for n in range(3)])
        status = in_fork(partial(sequence_until_killed, point))
        assert status in (0, -9)
        sequence_after_a_kill()
        in_the_log = Message.objects.exclude(offset=None).values_list("key", "offset")
        assert set(KeyEntry.objects.values_list("key", "offset")) == set(in_the_log)
        if status == 0:
            break
    assert point > 5
    assert len(in_the_log) == 3 * point


def test_a_consumer_that_dies_again_and_again_loses_nothing():
    """Each process takes over what the one before it left, and dies a little later."""
    register("orders", batch=False, atomic=True)
    send_many([Outgoing("orders", body) for body in BODIES])
    for point in (30, 47, 58):
        assert in_fork(partial(consume_until_killed, "orders", point)) == -9
        advance(LONG_AFTER)
        sweep("default")
        RetryMessage.objects.update(attempt=1)  # this is not about attempts
        advance(LONG_AFTER)
    consume_the_rest("orders")
    assert_nothing_is_lost("orders", batch=False, atomic=True)
    assert audit("default") == []


CONSUMER = """
import os, time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

@consumer("orders", group="work", threads=5, max_retries=3)
def handle(message):
    def note(what):
        Handled.objects.create(group=what, topic="orders", partition=0, offset=message.offset,
                               value=message.attempt)
    note("started")
    if message.body == "poison":
        others = Handled.objects.filter(group="started").exclude(offset=message.offset)
        while message.attempt == 1 and others.count() < 4:
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    while message.attempt == 1:  # until the poison works
        time.sleep(0.01)
    note("done")

call_command("ems_consume", "--start", "earliest", "--batch", "1", "--drain")
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_message_that_kills_its_process_dies_and_its_slow_neighbours_do_not(spawn, ems_settings):
    ems_settings(RETRY_DELAYS=[0.01], POLL_SECONDS=0.05)
    consumer("orders", group="work", max_retries=3)(handle_one)  # so that the sweep knows it
    send_many([Outgoing("orders", body) for body in ("a", "b", "poison", "c", "d")])
    for _process in range(10):
        if spawn(CONSUMER).wait() == 0:
            break
        advance(timedelta(seconds=16))  # the lease of the process, not the deadline of its calls
        sweep("default")
    letter = DeadMessage.objects.get()
    assert bytes(letter.body) == b"poison"
    assert letter.attempts == 4
    assert letter.error_class.endswith("ProcessDied")
    done = Handled.objects.filter(group="done").values_list("offset", "value")
    # At most two crashes took them along; since then the poison ran alone.
    assert {offset for offset, _attempt in done} == {0, 1, 3, 4}
    assert {attempt for _offset, attempt in done} <= {"2", "3"}
    assert not RetryMessage.objects.exists()
    assert audit("default") == []

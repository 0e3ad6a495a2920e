"""A reset may be killed, cut off and raced anywhere: it is done or it is not, and nothing is lost.

Nor by what runs beside it: consumers that claim and settle, sequencers, purges, other resets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest

from streams import Outgoing, consumer, send_many
from streams.chaos.forks import in_fork
from streams.consume import registry
from streams.consume.outcome.settle import settle
from streams.log import topics
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
    Topic,
)
from streams.observe.audit.walk import audit
from streams.operate.replay import cancel, spans, start
from streams.operate.reset import CursorMove, Reset, towards
from streams.operate.target import Target
from streams.testing import drain
from tests.consuming import Process, consume_the_rest
from tests.faults import Guillotine, Severed, strides
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for
from tests.proxy import Proxy
from tests.sessions import Session

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

MESSAGES = 12
HOUR = timedelta(hours=1)
ORDERED = pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])


def note(message: Any) -> None:
    Handled.objects.create(
        group=message.group,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        value="",
    )


def register(name: str, *, ordered: bool = False, fails: set[int] | None = None) -> None:
    registry._registered.clear()

    @consumer(name, group=name, ordered=ordered, batch=4)
    def handle(messages):
        failed = {m: ValueError("no") for m in messages if fails and m.offset in fails}
        for message in messages:
            if message not in failed:
                note(message)
        return failed


def group(name: str) -> ConsumerGroup:
    return ConsumerGroup.objects.select_related("topic").get(name=name)


def prepare(name: str, *, ordered: bool = False) -> None:
    """Handled: 0 … 7 but 5, which waits to be retried. In hand: 8 … 11, of which 8 is done."""
    fails = set() if ordered else {5}
    register(name, fails=fails, ordered=ordered)
    send_many([Outgoing(name, n, key="k") for n in range(8)])
    drain(name)
    send_many([Outgoing(name, n, key="k") for n in range(4)])
    sequence("default")
    settle(Process(name).claim(4), 9, max_retries=5)
    Handled.objects.create(group=name, topic=name, partition=0, offset=8, value="")


def reset(name: str, to: str | None) -> list[CursorMove]:
    goal = None if to is None else towards(Target.parse(to))
    return Reset(group(name), goal, "default", force=True).run()


def back_and_undo(name: str) -> None:
    reset(name, "6")
    reset(name, None)


def on_and_undo(name: str) -> None:
    reset(name, "2")
    reset(name, "latest")
    reset(name, None)


def replay_and_cancel(name: str) -> None:
    here = spans(group(name), Target.parse("2"), Target.parse("9"), "default")
    number = start(group(name), here, "default")
    Process(name).claim(3)
    cancel(group(name), number, "default")
    start(group(name), here[:1], "default")


WORKS = {
    "back": lambda name: reset(name, "2"),
    "across": lambda name: reset(name, "10"),
    "back and undo": back_and_undo,
    "on and undo": on_and_undo,
    "replay": replay_and_cancel,
}
# What they skip, if they come so far, is not seen, as was wished for.
SKIPPING = {"across", "on and undo"}


def killed(work: Callable[[str], object], name: str, point: int) -> None:
    Guillotine(point).install()
    work(name)


@strides(11)
@ORDERED
@pytest.mark.parametrize("what", WORKS)
@pytest.mark.timeout(400)
def test_it_may_be_killed_between_any_two_statements(what: str, ordered: bool, stride: int) -> None:
    for point in count(1, stride):
        prepare("orders", ordered=ordered)
        status = in_fork(partial(killed, WORKS[what], "orders", point))
        assert status in (0, -9)
        assert audit("default") == []
        register("orders", ordered=ordered)
        consume_the_rest("orders")
        assert audit("default") == []
        missing = set(range(MESSAGES)) - set(Handled.objects.values_list("offset", flat=True))
        assert missing <= (skipped() if what in SKIPPING else set()), (what, point)
        clean()
        if status == 0:
            break
    assert point > 10  # it did die at some places


def skipped() -> set[int]:
    rows = Delivery.objects.filter(state=State.SKIPPED, kind=Kind.NEW)
    return {offset for row in rows for offset in row.offsets}


def clean() -> None:
    for model in (Handled, RetryMessage, Delivery, Cursor, Consumer, Message, ConsumerGroup):
        model._default_manager.all().delete()
    Partition.objects.all().delete()
    Topic.objects.all().delete()
    topics.forget()


@pytest.mark.mysql
@pytest.mark.parametrize("done", [False, True], ids=["lost before", "lost after"])
@strides(5)
def test_a_lost_connection_repeats_nothing_that_was_done(
    second_connection: Callable[[], Session], done: bool, stride: int
) -> None:
    """ "-4" twice would go back by eight."""
    session = second_connection()
    for point in count(1, stride):
        name = f"orders-{point}"
        prepare(name)
        here = Reset(group(name), towards(Target.parse("-4")), "default", force=True)
        with Severed(point, session, done=done) as severed:
            (move,) = here.run()
        assert (move.position, move.target) == (12, 8)
        cursor = Cursor.objects.get(group__name=name)
        assert (cursor.next_offset, cursor.previous_offset) == (8, 12)
        assert Delivery.objects.filter(group__name=name, token="taken back").count() == 1
        assert audit("default") == []
        if not severed.fired:
            break
    assert point > 10


@pytest.mark.mysql
def test_a_reset_whose_commit_was_not_confirmed_is_done_once(proxied: Proxy) -> None:
    prepare("orders")
    here = Reset(group("orders"), towards(Target.parse("-4")), "default", force=True)
    proxied.lose_reply_to(b"COMMIT")
    (move,) = here.run()
    assert proxied.fired == [b"COMMIT"]
    assert (move.position, move.target, len(move.fenced)) == (12, 8, 1)
    assert Cursor.objects.get().next_offset == 8
    undo = Reset(group("orders"), None, "default", force=True)
    proxied.lose_reply_to(b"COMMIT")
    (move,) = undo.run()
    assert proxied.fired == [b"COMMIT", b"COMMIT"]
    assert (move.position, move.target, move.restored) == (8, 12, 3)
    assert Cursor.objects.get().next_offset == 12
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize("done", [False, True], ids=["lost before", "lost after"])
def test_a_lost_connection_starts_one_replay_and_cancels_it_once(
    second_connection: Callable[[], Session], done: bool
) -> None:
    session = second_connection()
    prepare("orders")
    mine = group("orders")
    here = spans(mine, Target.parse("2"), Target.parse("9"), "default")
    expected = 0
    for point in count(1):
        expected += 1
        with Severed(point, session, done=done) as severed:
            assert start(mine, here, "default") == expected
        assert Cursor.objects.filter(replay=expected).count() == 1
        with Severed(point, session, done=done) as of_cancel:
            assert cancel(mine, expected, "default") == 7
        if not severed.fired and not of_cancel.fired:
            break
    assert point > 8
    skipped = Delivery.objects.filter(state=State.SKIPPED)
    assert skipped.count() == expected  # one for each that was cancelled
    assert audit("default") == []


CONSUMER = """
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

@consumer("orders", group="orders", batch=5, threads=3, ordered={ordered})
def handle(messages):
    Handled.objects.bulk_create(
        Handled(group="orders", topic="orders", partition=0, offset=m.offset, value="")
        for m in messages
    )
    return {{m: ValueError("no") for m in messages if m.offset % 7 == 3 and m.attempt == 1}}

call_command("ems_consume", "--start", "earliest")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_consumers_that_run_and_die_lose_nothing_to_resets(
    spawn: Spawn, ems_settings: Callable[..., None], ordered: bool
) -> None:
    ems_settings(RETRY_DELAYS=[0.05], POLL_SECONDS=0.05)
    register("orders", ordered=ordered)
    Process("orders")  # the group
    send_many([Outgoing("orders", n, key="k") for n in range(300)])
    sequence("default")
    consumers = [spawn(CONSUMER.format(ordered=ordered)) for _ in range(2)]
    for child in consumers:
        child.expect("connections")

    def went_on(before: int) -> bool:
        if Handled.objects.count() > before + 5:
            return True
        return Cursor.objects.filter(next_offset=300).exists()

    for round_, to in enumerate(
        ("40", "-30", None, "earliest", "100", None, "250", "5", "60", "0")
    ):
        before = Handled.objects.count()
        reset("orders", to)
        if round_ == 6:
            consumers[0].kill()
        # They may have handled all of it before they are looked at: an undo then leaves nothing.
        wait_for(partial(went_on, before))
        assert [str(f) for f in audit("default") if f.kind != "unended"] == []
    consumers[1].terminate()
    consumers[1].wait()
    Handled.objects.all().delete()
    # The last one was back to 0: all of it is handled since, or will be.
    reset("orders", "0")
    register("orders", ordered=ordered)
    consume_the_rest("orders")
    times = Counter(Handled.objects.values_list("offset", flat=True))
    assert times == Counter(range(300))
    assert not RetryMessage.objects.exists()
    assert audit("default") == []

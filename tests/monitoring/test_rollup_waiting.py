"""What waits for its key, or for its rate, is found by how it comes again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from sparkjobs.rollup.waiting import waiting
from streams import Outgoing, Postpone, ReceivedMessage, Reject, consumer, send_many
from streams.consume.outcome.dead_letter import redrive
from streams.deliver.key_starts import KeyStarts
from streams.log.sequencer import sequence
from streams.models import DeadMessage, Delivery, KeyBucket, Kind, RetryMessage, State
from streams.testing import advance, drain
from tests.consuming import Process

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

EVER = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


def found(connection: Any) -> dict[int, list[int]]:
    return dict(waiting(connection, (0, 2**40), *EVER))


def consumed(connection: Any) -> int:
    """How many messages are done, as the roll-ups count them."""
    waits = found(connection)
    done = 0
    for one in Delivery.objects.exclude(state__in=[State.START, State.SKIPPED]):
        settled = one.progress - one.first_offset - one.failed - one.missing - one.passed
        alone = len(one.offsets) == 1 and one.state == State.RETRY
        done += 0 if alone else settled - len(waits.get(one.pk, ()))
    return done


def test_what_is_neither_done_nor_failed_comes_again_with_its_attempt_unspent(
    connection: Any,
) -> None:
    done: list[int] = []
    broken = {"a", "p"}

    @consumer("orders", group="mail", ordered="key")
    def handle(message: ReceivedMessage) -> None:
        if message.key in broken:
            raise Postpone(5) if message.key == "p" else ValueError("no")
        done.append(message.offset)

    def sent(keys: str) -> None:
        send_many([Outgoing("orders", n, key=key) for n, key in enumerate(keys)])

    sent("abapbppa")
    drain()
    # In the call that failed, and in a later claim.
    sent("bacpa")
    drain()
    assert len(done) == consumed(connection) == 4
    assert sum(map(len, found(connection).values())) == 8
    advance(timedelta(minutes=1))
    drain()  # they fail again, and those behind them have not had a call
    assert len(done) == consumed(connection) == 4
    broken.clear()
    for _retry in range(9):
        advance(timedelta(minutes=10))
        drain()
    assert not RetryMessage.objects.exists()
    assert len(done) == len(set(done)) == consumed(connection) == 13
    assert sum(map(len, found(connection).values())) == 8


def test_what_waits_for_the_rate_of_its_key_is_not_done(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyStarts, "serve", True)  # however busy the machine is
    done: list[int] = []

    @consumer("orders", group="mail", batch=10, rate="10/h", rate_key="tenant")
    def handle(messages: Any) -> dict[Any, Exception]:
        failed: dict[Any, Exception] = {
            one: ValueError("no") for one in messages if one.body == 7 and one.attempt == 1
        }
        done.extend(one.offset for one in messages if one not in failed)
        return failed

    process = Process("mail")
    send_many([Outgoing("orders", n, headers={"tenant": str(n // 4)}) for n in range(10)])
    sequence("default")
    process.run_until_idle()
    assert sorted(done) == [0, 4, 8]
    for _later in range(5):
        process.run_until_idle()
        assert len(done) == consumed(connection)
        KeyBucket.objects.update(next_slot=0, queued_until=0)
        advance(timedelta(days=1))
    assert sorted(done) == list(range(10))
    assert found(connection)


@pytest.mark.parametrize("ordered", [False, True, "key"])
def test_what_was_postponed_is_not_done_also_if_it_blocks_its_group(
    connection: Any, ordered: bool | Literal["key"]
) -> None:
    done: list[int] = []
    later = {2, 6}

    @consumer("orders", group="mail", batch=8, ordered=ordered)
    def handle(messages: Any) -> dict[Any, Exception]:
        # What comes behind a failure in an ordered group is handed over again.
        first = min((one.offset for one in messages if one.offset in later), default=99)
        given = [one for one in messages if ordered is not True or one.offset <= first]
        done.extend(one.offset for one in given if one.offset not in later)
        return {one: Postpone(30) for one in given if one.offset in later}

    send_many([Outgoing("orders", n, key=str(n)) for n in range(8)])
    for _later in range(3):
        drain()
        assert len(done) == len(set(done)) == consumed(connection)
        advance(timedelta(seconds=30))
        drain()  # once more as late: of one offset now
        assert len(done) == len(set(done)) == consumed(connection)
        later.discard(min(later, default=-1))
        advance(timedelta(seconds=30))
    assert sorted(done) == list(range(8))
    assert found(connection)


def test_a_retry_of_before_a_reset_is_not_one_of_the_delivery(connection: Any) -> None:
    @consumer("orders", group="mail", batch=3)
    def handle(messages: Any) -> dict[Any, Exception]:
        return {messages[0]: ValueError("no")}

    send_many([Outgoing("orders", n) for n in range(3)])
    drain()
    (one,) = Delivery.objects.all()
    place = {"group": one.group, "partition": one.partition, "offset": 1}
    before = Delivery.objects.get(pk=one.pk)
    before.pk, before.kind, before.last_offset = None, Kind.RETRY, 1
    before.first_offset, before.progress, before.state = 1, 2, State.DONE
    before.save(force_insert=True)
    again = Delivery.objects.get(pk=one.pk)
    again.pk = None
    again.save(force_insert=True)
    # The delivery before it was of offset 1, too, and what comes after it is of its next attempt.
    assert found(connection) == {one.pk: [1]}
    RetryMessage.objects.create(**place, attempt=2)
    assert found(connection) == {one.pk: [1]}


def test_a_dead_letter_that_is_redriven_did_not_wait(connection: Any) -> None:
    """It has failed, and comes again as at first."""

    @consumer("orders", group="mail", batch=3)
    def handle(messages: Any) -> dict[Any, Exception]:
        return {messages[0]: Reject("no")}

    send_many([Outgoing("orders", n) for n in range(3)])
    drain()
    redrive(DeadMessage.objects.get())
    assert RetryMessage.objects.get().attempt == Delivery.objects.get().attempt
    assert found(connection) == {}

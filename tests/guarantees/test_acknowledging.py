"""Invariants 3, 4 and 5: what a claim passes is covered, what is settled is accounted for, and a
stale token changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import OperationalError, connection

from streams import Outgoing, Reject, consumer, send, send_many
from streams.consume.outcome.expire import expire
from streams.consume.outcome.failure import Failure
from streams.consume.outcome.settle import release, settle
from streams.deliver import calls as loop
from streams.errors import LeaseLost
from streams.log.lag import lags
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
    Topic,
)
from streams.observe.audit.walk import audit
from streams.retain.purge import Purge
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process, given_back, rows
from tests.faults import Once, Recorder, statements
from tests.hostapp.models import Handled

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

MINUTE = timedelta(seconds=60)
ACCOUNTS = (Delivery, RetryMessage, DeadMessage, Cursor)


def claimed(count=3, batch=10):
    consumer("orders", group="mail")(print)
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(count)])
    sequence("default")
    return process.claim(batch, MINUTE)


def state():
    return Delivery.objects.get().state


# -- claims ------------------------------------------------------------------------------------


def test_a_claim_moves_the_cursor_over_what_it_covers():
    delivery = claimed(5, batch=3)
    assert (delivery.first_offset, delivery.last_offset, delivery.progress) == (0, 2, 0)
    assert Cursor.objects.get().next_offset == 3
    assert audit("default") == []


def test_claims_of_two_processes_do_not_overlap():
    claimed(5, batch=3)
    other = Process("mail").claim(3, MINUTE)
    assert (other.first_offset, other.last_offset) == (3, 4)
    assert audit("default") == []


def test_a_claim_that_fails_half_way_moves_nothing():
    consumer("orders", group="mail")(print)
    process = Process("mail")
    send("orders", 1)
    sequence("default")

    def fail(execute):
        raise RuntimeError("no insert")

    fault = Once("INSERT INTO `ems_topic_group_log`", fail)
    with statements(fault), pytest.raises(RuntimeError):
        process.claim(10, MINUTE)
    assert Cursor.objects.get().next_offset == 0
    assert not Delivery.objects.exists()


# -- tokens ------------------------------------------------------------------------------------


def stale(delivery):
    other = Delivery.objects.get(pk=delivery.pk)
    other.token = "0" * 32
    return other


@pytest.mark.parametrize(
    "write",
    [
        lambda d: settle(d, 3, max_retries=16),
        lambda d: settle(d, 1, max_retries=16),
        lambda d: settle(d, 3, [Failure(1, ValueError())], max_retries=16),
        lambda d: settle(d, 3, [Failure(1, Reject("no"))], max_retries=16),
        lambda d: release(d),
        lambda d: d.start(MINUTE),
    ],
    ids=["done", "progress", "failed", "dead", "release", "start"],
)
class TestAStaleToken:
    def test_changes_nothing(self, write):
        delivery = claimed()
        before = rows(*ACCOUNTS)
        with pytest.raises(LeaseLost):
            write(stale(delivery))
        assert rows(*ACCOUNTS) == before

    def test_that_was_valid_until_the_end_changes_nothing(self, write):
        delivery = claimed()
        late = Delivery.objects.get(pk=delivery.pk)
        settle(delivery, 2, max_retries=16)
        release(delivery)
        before = rows(*ACCOUNTS)
        with suppress(LeaseLost):  # to release what is released already is not an error
            write(late)
        assert rows(*ACCOUNTS) == before

    def test_after_the_sweep_changes_nothing(self, write):
        delivery = claimed()
        assert not expire(Delivery.objects.get(pk=delivery.pk), 16, MINUTE)  # not yet
        advance(MINUTE * 2)
        assert expire(Delivery.objects.get(pk=delivery.pk), 16, MINUTE)
        before = rows(*ACCOUNTS)
        with pytest.raises(LeaseLost):
            write(delivery)
        assert rows(*ACCOUNTS) == before


def test_a_stale_heartbeat_extends_nothing():
    delivery = claimed()
    before = rows(*ACCOUNTS)
    assert not stale(delivery).extend(MINUTE)
    assert rows(*ACCOUNTS) == before
    assert delivery.extend(MINUTE)


def test_two_writers_of_one_token_cannot_both_move_progress():
    """Both have the token: say, a thread that was believed to be dead, and its successor."""
    delivery = claimed()
    late = Delivery.objects.get(pk=delivery.pk)
    settle(delivery, 2, max_retries=16)
    with pytest.raises(LeaseLost):
        settle(late, 1, [Failure(0, ValueError())], max_retries=16)
    assert Delivery.objects.get().progress == 2
    assert not RetryMessage.objects.exists()


# -- settling ----------------------------------------------------------------------------------


def test_a_delivery_ends_when_progress_passes_its_last_offset():
    delivery = claimed()
    settle(delivery, 2, max_retries=16)
    assert (state(), Delivery.objects.get().finished_at) == (State.START, None)
    settle(delivery, 3, max_retries=16)
    assert state() == State.DONE
    assert Delivery.objects.get().finished_at


def test_a_delivery_with_a_failure_on_its_way_ends_as_failed():
    delivery = claimed()
    settle(delivery, 2, [Failure(1, ValueError("no"))], max_retries=16)
    settle(delivery, 3, max_retries=16)
    ended = Delivery.objects.get()
    assert (ended.state, ended.failed, ended.error) == (State.RETRY, 1, "ValueError: no")
    assert [r.offset for r in RetryMessage.objects.all()] == [1]
    assert audit("default") == []


@pytest.mark.parametrize("table", ["ems_retry_msg", "ems_dead_msg"])
def test_progress_never_passes_a_failure_that_is_not_written(table):
    """The second statement of the settlement fails: the first must be undone."""
    delivery = claimed()
    before = rows(*ACCOUNTS)

    def fail(execute):
        raise RuntimeError("the server is on fire")

    failures = [Failure(0, ValueError()), Failure(1, Reject("no"))]
    with statements(Once(f"INSERT INTO `{table}`", fail)), pytest.raises(RuntimeError):
        settle(delivery, 3, failures, max_retries=16)
    assert rows(*ACCOUNTS) == before
    settle(delivery, 3, failures, max_retries=16)
    assert audit("default") == []


def test_a_success_costs_one_statement_and_no_transaction():
    delivery = claimed()
    recorder = Recorder()
    with statements(recorder):
        settle(delivery, 3, max_retries=16)
    assert len(recorder.seen) == 1


def test_a_deadlock_while_settling_is_repeated():
    delivery = claimed()

    def deadlock(execute):
        raise OperationalError(1213, "Deadlock found when trying to get lock")

    fault = Once("UPDATE `ems_topic_group_log`", deadlock)
    with statements(fault):
        settle(delivery, 3, [Failure(1, ValueError())], max_retries=16)
    assert fault.fired
    assert state() == State.RETRY
    assert RetryMessage.objects.count() == 1


def test_a_success_whose_reply_was_lost_is_written_once():
    delivery = claimed()

    def lose_reply(execute):
        execute()
        raise OperationalError(2013, "Lost connection to server during query")

    with statements(Once("UPDATE `ems_topic_group_log`", lose_reply)):
        settle(delivery, 3, max_retries=16)
    assert state() == State.DONE


def test_failures_whose_commit_was_not_confirmed_are_written_once(monkeypatch):
    delivery = claimed()
    lost: list[bool] = []
    commit = connection._commit  # type: ignore[attr-defined]

    def commit_and_lose_reply():
        commit()
        if not lost:
            lost.append(True)
            raise OperationalError(2013, "Lost connection to server during query")

    monkeypatch.setattr(connection, "_commit", commit_and_lose_reply)
    settle(delivery, 3, [Failure(1, ValueError())], max_retries=16)
    assert lost
    ended = Delivery.objects.get()
    assert (ended.state, ended.failed, ended.progress) == (State.RETRY, 1, 3)
    assert RetryMessage.objects.get().attempt == 2


# -- releasing ---------------------------------------------------------------------------------


def test_what_is_released_is_due_at_once_with_its_attempt_unspent():
    delivery = claimed()
    settle(delivery, 1, max_retries=16)
    release(delivery)
    ended = Delivery.objects.get(pk=delivery.pk)
    assert (ended.state, ended.progress, ended.last_offset) == (State.RELEASED, 1, 0)
    assert given_back() == [(1, 2)]
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


def test_a_range_that_was_given_back_is_one_claim_again_with_its_attempt_unspent():
    release(claimed(10))
    assert given_back() == [(0, 9)]
    again = Process("mail").claim(10, MINUTE)
    assert (again.first_offset, again.last_offset, again.attempt) == (0, 9, 1)
    assert given_back() == []
    settle(again, 10, max_retries=16)
    assert audit("default") == []


def test_a_smaller_claim_takes_a_part_and_leaves_the_rest():
    release(claimed(10))
    process = Process("mail")
    parts = [process.claim(4, MINUTE) for _ in range(3)]
    assert [(d.first_offset, d.last_offset) for d in parts] == [(0, 3), (4, 7), (8, 9)]
    assert given_back() == []
    assert audit("default") == []


def test_no_sweep_spends_an_attempt_of_what_was_given_back():
    release(claimed())
    advance(LONG_AFTER)
    Consumer.objects.all().delete()
    assert sweep("default") == 0
    assert given_back() == [(0, 2)]
    assert audit("default") == []


def test_no_purge_takes_what_was_given_back():
    release(claimed())
    Topic.objects.update(retention_count=1)
    Purge("default").run()
    assert Partition.objects.get().first_offset == 0


def test_what_was_given_back_counts_as_behind():
    release(claimed())
    (lag,) = lags(ConsumerGroup.objects.all(), "default")
    assert (lag.behind, lag.open, lag.waiting) == (3, 0, 0)
    assert lag.age is not None


def test_a_released_retry_keeps_its_attempt_and_what_is_known_of_it():
    delivery = claimed(1)
    settle(delivery, 1, [Failure(0, ValueError("first"))], max_retries=16)
    advance(MINUTE)
    retry, _row = Process("mail").claim_retry(MINUTE)
    assert retry.kind == Kind.RETRY
    release(retry)
    row = RetryMessage.objects.due().get()
    assert (row.attempt, row.last_error, row.delivery_id) == (2, "ValueError: first", None)
    assert audit("default") == []


def test_a_handler_that_may_not_go_on_gives_the_rest_back():
    seen = []

    @consumer("orders", group="mail")
    def handle(message):
        seen.append(message.offset)
        if len(seen) == 2:
            process.lifecycle.stop()

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(4)])
    sequence("default")
    process.worker.step()
    assert seen == [0, 1]
    assert given_back() == [(2, 3)]
    assert drain("mail").done == 2
    assert seen == [0, 1, 2, 3]
    assert audit("default") == []


def test_failures_before_a_release_are_kept():
    @consumer("orders", group="mail")
    def handle(message):
        process.lifecycle.stop()
        raise ValueError

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    process.worker.step()
    assert list(RetryMessage.objects.values_list("offset", "attempt")) == [(0, 2)]
    assert given_back() == [(1, 2)]
    assert audit("default") == []


def test_a_long_delivery_is_settled_on_its_way(monkeypatch):
    """So that a crash repeats seconds of work, not the whole batch."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1)
    progress = []

    @consumer("orders", group="mail")
    def handle(message):
        progress.append(Delivery.objects.get().progress)
        if message.offset == 1:
            raise ValueError

    send_many([Outgoing("orders", n) for n in range(4)])
    drain("mail")
    assert progress == [0, 1, 2, 3]
    ended = Delivery.objects.get()
    assert (ended.state, ended.failed) == (State.RETRY, 1)
    assert audit("default") == []


# -- a message that is asked for again while it is handled -------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_asked_for_again_while_it_was_handled_is_handled_again(fails):
    """A redrive or reset may come while a retry of the same offset runs."""
    attempts = []

    @consumer("orders", group="mail")
    def handle(message):
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise ValueError
        if len(attempts) == 2:
            RetryMessage.objects.update(again=True)
            if fails:
                raise ValueError

    send("orders", 1)
    drain("mail")
    advance(MINUTE)
    drain("mail")
    assert len(attempts) == 3  # at once: it was asked for
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


# -- bodies ------------------------------------------------------------------------------------


@pytest.fixture
def seen():
    return []


def consume_in(batch, seen):
    @consumer("orders", group="mail", batch=batch)
    def handle(messages):
        seen.extend((m.offset, m.attempt) for m in (messages if batch else [messages]))

    Process("mail")  # a group that began later would begin after what was purged
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")


@pytest.mark.parametrize("batch", [None, 10])
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_an_offset_that_was_purged_ends_as_missing_and_never_as_done(batch, gone, seen):
    consume_in(batch, seen)
    Partition.objects.update(first_offset=gone)
    Message.objects.filter(offset__lt=gone).delete()
    result = drain("mail")
    assert (result.done, result.missing) == (3 - gone, gone)
    assert seen == [(n, 1) for n in range(gone, 3)]
    ended = Delivery.objects.get()
    assert (ended.state, ended.missing, ended.progress) == (State.DONE, gone, 3)
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


@pytest.mark.parametrize("batch", [None, 10])
@pytest.mark.parametrize("gone", [[0], [1], [2], [0, 2], [0, 1, 2]])
def test_an_offset_whose_body_is_gone_is_read_once_more_and_is_then_missing(batch, gone, seen):
    consume_in(batch, seen)
    Message.objects.filter(offset__in=gone).delete()
    result = drain("mail")
    assert (result.done, result.failed, result.missing) == (3 - len(gone), 0, 0)
    waiting = sorted(RetryMessage.objects.values_list("offset", "attempt"))
    assert waiting == [(offset, 1) for offset in gone]  # no attempt was made
    advance(MINUTE)
    result = drain("mail")
    assert (result.done, result.failed, result.missing) == (0, 0, len(gone))
    assert seen == [(n, 1) for n in range(3) if n not in gone]
    assert not RetryMessage.objects.exists()
    assert not DeadMessage.objects.exists()
    assert sum(Delivery.objects.values_list("missing", flat=True)) == len(gone)
    assert not Delivery.objects.open().exists()


@pytest.mark.parametrize("batch", [None, 10])
def test_a_body_that_is_not_there_yet_is_handled_when_it_is(batch, seen):
    """After a failover the primary may not have caught up."""
    consume_in(batch, seen)
    row = Message.objects.filter(offset=1).values().get()
    Message.objects.filter(offset=1).delete()
    assert drain("mail").done == 2
    Message.objects.create(**row)
    advance(MINUTE)
    assert drain("mail").done == 1
    assert seen == [(0, 1), (2, 1), (1, 1)]
    assert audit("default") == []


def test_a_retry_whose_body_is_gone_is_read_once_more_and_is_then_missing():
    attempts = []

    @consumer("orders", group="mail")
    def handle(message):
        attempts.append(message.attempt)
        raise ValueError

    send("orders", 1)
    drain("mail")
    Message.objects.all().delete()
    missing = 0
    for _reading in range(2):
        advance(MINUTE)
        result = drain("mail")
        assert (result.done, result.failed) == (0, 0)
        missing += result.missing
    assert missing == 1
    assert attempts == [1]
    assert not RetryMessage.objects.exists()
    assert not DeadMessage.objects.exists()
    assert not Delivery.objects.open().exists()


def test_a_body_that_goes_while_its_last_attempt_runs_is_counted_as_missing():
    @consumer("orders", group="mail")
    def handle(message):
        Message.objects.all().delete()
        raise Reject("never")

    send("orders", 1)
    drain("mail")
    assert not DeadMessage.objects.exists()
    assert Delivery.objects.get().missing == 1


def test_after_an_emergency_truncate_the_stream_goes_on():
    seen = []
    consumer("orders", group="mail")(lambda message: seen.append((message.offset, message.body)))
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("TRUNCATE ems_msg")
        else:
            cursor.execute("DELETE FROM ems_msg")
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'ems_msg'")
    assert send("orders", "after").message_id == 1  # ids start again, offsets do not
    assert drain("mail").done == 1
    assert seen == [(3, "after")]
    advance(MINUTE)
    assert drain("mail").missing == 3


@pytest.mark.parametrize("dropped", [slice(1, None), slice(0, 2), slice(0, 0)])
def test_a_short_first_read_is_read_again_on_the_primary(dropped):
    """A proxy may have sent the first read to a replica that lags behind."""
    seen: list[int] = []
    consumer("orders", group="mail")(lambda message: seen.append(message.offset))
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    reads: list[str] = []

    def lagging(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if "`body`" in sql and sql.startswith("SELECT") and not reads:
            context["cursor"].cursor = Short(context["cursor"].cursor, dropped)
        if "`body`" in sql:
            reads.append(sql)
        return result

    with statements(lagging):
        result = drain("mail")
    assert (result.done, result.missing) == (3, 0)
    assert seen == [0, 1, 2]
    assert len(reads) == 2
    if connection.vendor == "mysql":
        assert reads[1].endswith("FOR UPDATE")  # only a primary answers that


class Short:
    """A database cursor that keeps some of its rows to itself."""

    def __init__(self, cursor, part):
        self._cursor = cursor
        self._part = part

    def fetchall(self):
        return self._cursor.fetchall()[self._part]

    def __getattr__(self, name):
        return getattr(self._cursor, name)


def test_a_message_handled_is_the_message_sent():
    """The body read belongs to the offset claimed: ids and offsets differ."""

    @consumer("orders", group="mail")
    def handle(m):
        Handled.objects.create(
            group=m.group, topic=m.topic, partition=m.partition, offset=m.offset, value=m.body
        )

    send("other", "x")
    send_many([Outgoing("orders", f"body {n}") for n in range(25)])
    assert drain("mail").done == 25
    found = Handled.objects.order_by("offset").values_list("offset", "value")
    assert list(found) == [(n, f"body {n}") for n in range(25)]

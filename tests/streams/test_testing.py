"""streams.testing as a host project uses it: in a django TestCase, on its connection."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from streams import Outgoing, ReceivedMessage, Reject, Retry, consumer, send, send_many
from streams.consume import registry
from streams.models import (
    ConsumerGroup,
    DeadMessage,
    Delivery,
    Message,
    RetryMessage,
    Topic,
)
from streams.testing import DrainResult, advance, drain, sent
from tests.hostapp.models import Order

MINUTE = timedelta(minutes=1)


class CleanRegistry(SimpleTestCase):
    """Consumers are registered in each test, and forgotten after it."""

    def setUp(self):
        super().setUp()
        registered = dict(registry._registered)
        registry._registered.clear()
        self.addCleanup(registry._registered.update, registered)
        self.addCleanup(registry._registered.clear)
        self.seen: list[Any] = []

    def consume(self, topic="orders", group="mail", **options):
        """Register a consumer that notes what it gets."""
        consumer(topic, group=group, **options)(self.seen.append)


class DrainTest(CleanRegistry, TestCase):
    def test_delivers_what_the_test_has_sent(self):
        self.consume()
        send("orders", {"n": 1}, key="k", tag="t", headers={"h": "1"})
        result = drain("mail")
        assert result == DrainResult(done=1)
        (message,) = self.seen
        assert isinstance(message, ReceivedMessage)
        assert (message.topic, message.group, message.partition) == ("orders", "mail", 0)
        assert (message.body, message.key, message.tag) == ({"n": 1}, "k", "t")
        assert (message.headers, message.attempt) == ({"h": "1"}, 1)

    def test_delivers_each_message_once(self):
        self.consume()
        send("orders", 1)
        drain("mail")
        assert drain("mail") == DrainResult()
        assert len(self.seen) == 1

    def test_delivers_in_the_order_of_sending(self):
        self.consume()
        send("orders", 0)
        send_many([Outgoing("orders", n) for n in range(1, 30)])
        send("orders", 30)
        drain("mail")
        assert [m.body for m in self.seen] == list(range(31))

    def test_delivers_to_one_group_or_to_all(self):
        self.consume(group="mail")
        self.consume(group="board")
        send("orders", 1)
        drain("board")
        assert [m.group for m in self.seen] == ["board"]
        drain()
        assert [m.group for m in self.seen] == ["board", "mail"]

    def test_a_group_of_that_name_on_several_topics_is_drained_on_all(self):
        self.consume("orders", "mail")
        self.consume("payments", "mail")
        send("orders", 1)
        send("payments", 2)
        assert drain("mail").done == 2

    def test_delivers_also_what_handlers_send(self):
        @consumer("orders", group="billing")
        def bill(message):
            send("invoices", message.body)

        self.consume("invoices", "mail")
        send("orders", 7)
        result = drain()
        assert result.done == 2
        assert [m.body for m in self.seen] == [7]

    def test_a_message_that_is_rolled_back_is_not_delivered(self):
        self.consume()
        with pytest.raises(KeyError), transaction.atomic():
            send("orders", 1)
            raise KeyError
        assert drain("mail") == DrainResult()

    def test_an_unknown_group_is_an_error(self):
        self.consume()
        with pytest.raises(ValueError, match="'male'"):
            drain("male")

    def test_without_any_consumer_there_is_nothing_to_do(self):
        send("orders", 1)
        assert drain() == DrainResult()

    def test_a_failure_is_reported_and_not_raised(self):
        error = ValueError("no")

        @consumer("orders", group="mail")
        def handle(message):
            raise error

        send("orders", 1)
        result = drain("mail")
        assert (result.done, result.failed, result.dead) == (0, 1, 0)
        assert result.errors == [error]
        assert RetryMessage.objects.count() == 1

    def test_retries_wait_for_their_time(self):
        @consumer("orders", group="mail")
        def handle(message):
            self.seen.append(message.attempt)
            if message.attempt < 3:
                raise ValueError

        send("orders", 1)
        drain("mail")
        assert drain("mail") == DrainResult()
        advance(MINUTE)
        assert drain("mail").failed == 1
        advance(MINUTE)
        assert drain("mail").done == 1
        assert self.seen == [1, 2, 3]

    def test_the_end_of_the_ladder_is_a_dead_letter(self):
        @consumer("orders", group="mail", max_retries=1)
        def handle(message):
            raise ValueError

        send("orders", 1)
        drain("mail")
        advance(MINUTE)
        result = drain("mail")
        assert (result.failed, result.dead) == (1, 1)
        assert DeadMessage.objects.get().attempts == 2

    def test_reject_and_retry_without_delay_need_no_advance(self):
        @consumer("orders", group="mail")
        def handle(message):
            self.seen.append(message.attempt)
            raise Reject("no") if message.attempt == 2 else Retry(delay=0)

        send("orders", 1)
        assert drain("mail").dead == 1
        assert self.seen == [1, 2]

    def test_batches(self):
        @consumer("orders", group="mail", batch=3)
        def handle(messages):
            self.seen.append([m.body for m in messages])
            return {m: ValueError() for m in messages if m.body == 1}

        send_many([Outgoing("orders", n) for n in range(5)])
        result = drain("mail")
        assert (result.done, result.failed) == (4, 1)
        assert self.seen == [[0, 1, 2], [3, 4]]

    def test_atomic_handlers_are_rolled_back_alone(self):
        @consumer("orders", group="mail", atomic=True)
        def handle(message):
            Order.objects.create(number=f"{message.body}")
            if message.body == 1:
                raise ValueError

        Order.objects.create(number="of the test")
        send_many([Outgoing("orders", n) for n in range(3)])
        result = drain("mail")
        assert (result.done, result.failed) == (2, 1)
        numbers = sorted(Order.objects.values_list("number", flat=True))
        assert numbers == ["0", "2", "of the test"]

    def test_plain_handlers_keep_what_they_wrote_as_they_do_in_production(self):
        @consumer("orders", group="mail")
        def handle(message):
            Order.objects.create(number=f"{message.body}")
            raise ValueError

        send("orders", 1)
        drain("mail")
        assert Order.objects.count() == 1

    def test_a_database_error_of_a_plain_handler_does_not_break_the_test(self):
        """In production the handler is in no transaction, so an error breaks none."""

        @consumer("orders", group="mail")
        def handle(message):
            Order.objects.create(number="the same")

        send_many([Outgoing("orders", n) for n in range(2)])
        result = drain("mail")
        assert (result.done, result.failed) == (1, 1)
        assert isinstance(result.errors[0], IntegrityError)
        assert Order.objects.count() == 1

    def test_a_database_error_that_a_handler_survives_does_not_break_the_test(self):
        @consumer("orders", group="mail")
        def handle(message):
            with suppress(IntegrityError):
                Order.objects.create(number="the same")

        send_many([Outgoing("orders", n) for n in range(2)])
        assert drain("mail").done == 2
        assert Order.objects.count() == 1

    def test_a_database_error_of_a_batch_does_not_break_the_test(self):
        @consumer("orders", group="mail", batch=2)
        def handle(messages):
            for _message in messages:
                Order.objects.create(number="the same")

        send_many([Outgoing("orders", n) for n in range(2)])
        assert drain("mail").failed == 2
        assert Order.objects.count() == 1

    def test_a_group_reads_all_that_the_test_has_sent_wherever_it_starts(self):
        send("orders", 1)
        self.consume(group="none")
        self.consume(group="latest", start="latest")
        self.consume(group="time", start=datetime.now(UTC) + timedelta(hours=1))
        for group in ("none", "latest", "time"):  # the first one sequences
            drain(group)
        assert [(m.group, m.body) for m in self.seen] == [("none", 1), ("latest", 1), ("time", 1)]

    def test_an_admins_limits_hold_here_too(self):
        sizes = []
        consumer("orders", group="mail", batch=10)(lambda messages: sizes.append(len(messages)))
        send_many([Outgoing("orders", n) for n in range(5)])
        drain("mail")
        ConsumerGroup.objects.update(batch=2)
        send_many([Outgoing("orders", n) for n in range(5)])
        drain("mail")
        assert sizes == [5, 2, 2, 1]

    def test_everything_happens_on_the_connection_of_the_test(self):
        self.consume()
        assert connection.in_atomic_block
        send("orders", 1)
        drain("mail")
        assert connection.in_atomic_block
        assert not connection.needs_rollback


class LeakTest(CleanRegistry, TestCase):
    """Nothing of one test is left for the next: the order of these two does not matter."""

    def leave_something(self):
        assert not Topic.objects.exists()
        assert not Delivery.objects.exists()
        self.consume()
        send("orders", 1)
        assert drain("mail").done == 1
        assert self.seen[0].offset == 0

    def test_one(self):
        self.leave_something()

    def test_two(self):
        self.leave_something()


class OnCommitTest(CleanRegistry, TestCase):
    def test_sends_of_on_commit_callbacks_are_delivered(self):
        self.consume()
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: send("orders", 1))
        assert drain("mail").done == 1


class AdvanceTest(CleanRegistry, TestCase):
    def test_delayed_messages_come_due(self):
        self.consume()
        send("orders", "later", delay=timedelta(hours=2))
        send("orders", "now")
        drain("mail")
        assert [m.body for m in self.seen] == ["now"]
        advance(timedelta(hours=1))
        assert drain("mail").done == 0
        advance(timedelta(hours=1, seconds=1))
        drain("mail")
        assert [m.body for m in self.seen] == ["now", "later"]

    def test_immediate_messages_stay_immediate_and_in_order(self):
        self.consume()
        send_many([Outgoing("orders", n) for n in range(3)])
        advance(timedelta(days=1))
        drain("mail")
        assert [m.body for m in self.seen] == [0, 1, 2]

    def test_sequenced_messages_are_left_as_they_are(self):
        self.consume()
        send("orders", 1)
        drain("mail")
        before = Message.objects.values().get()
        advance(timedelta(days=1))
        assert Message.objects.values().get() == before


class SentTest(CleanRegistry, TestCase):
    def test_lists_what_was_sent_in_order(self):
        send("orders", {"n": 1}, key="7", tag="paid", headers={"h": "1"})
        send("orders", b"\x00")
        send("orders", "text")
        send("payments", 1)
        assert sent("orders") == [
            Outgoing("orders", {"n": 1}, key="7", tag="paid", headers={"h": "1"}),
            Outgoing("orders", b"\x00"),
            Outgoing("orders", "text"),
        ]
        assert sent("nothing") == []

    def test_filters(self):
        for n in range(4):
            send("orders", n, key=f"{n % 2}", tag="even" if n % 2 == 0 else "odd")
        assert [m.body for m in sent("orders", key="1")] == [1, 3]
        assert [m.body for m in sent("orders", tag="even", body=2)] == [2]
        assert sent("orders", key="9") == []

    def test_filters_by_the_partition(self):
        call_command("ems_topics", "create", "orders", "--partitions", "2")
        for n in range(4):
            send("orders", n, partition=n % 2)
        assert [m.body for m in sent("orders", partition=1)] == [1, 3]
        assert sent("orders", partition=7) == []
        assert sent("orders", partition=0, body=2) == [Outgoing("orders", 2)]

    def test_another_filter_is_an_error_also_if_nothing_was_sent(self):
        for name in ("colour", "dedup_key", "dedup_window", "delay"):
            with pytest.raises(TypeError, match=name):
                sent("orders", using=None, **{name: 1})

    def test_shows_when_a_delayed_message_is_due(self):
        due = datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)
        send("orders", 1, deliver_at=due)
        send("orders", 2)
        assert [m.deliver_at for m in sent("orders")] == [due, None]

    def test_shows_what_is_delivered_already(self):
        self.consume()
        send("orders", 1)
        drain("mail")
        assert [m.body for m in sent("orders")] == [1]

    def test_does_not_show_what_was_rolled_back(self):
        with pytest.raises(KeyError), transaction.atomic():
            send("orders", 1)
            raise KeyError
        assert sent("orders") == []


class OtherDatabaseTest(CleanRegistry, TestCase):
    databases = {"default", "other"}

    def test_each_alias_is_a_stream_of_its_own(self):
        self.consume()
        with transaction.atomic("other"):
            send("orders", "there", using="other")
        assert drain("mail") == DrainResult()
        assert sent("orders") == []
        assert [m.body for m in sent("orders", using="other")] == ["there"]
        assert drain("mail", using="other").done == 1
        assert [m.body for m in self.seen] == ["there"]
        assert not Topic.objects.using("default").filter(name="nothing").exists()

    def test_advance_moves_only_its_alias(self):
        self.consume()
        send("orders", 1, delay=60, using="other")
        advance(timedelta(hours=1))
        assert drain("mail", using="other").done == 0
        advance(timedelta(hours=1), using="other")
        assert drain("mail", using="other").done == 1


class RealTransactionsTest(CleanRegistry, TransactionTestCase):
    def test_works_without_a_surrounding_transaction_too(self):
        @consumer("orders", group="mail", atomic=True)
        def handle(message):
            transaction.on_commit(lambda: self.seen.append(message.body))

        send("orders", 1)
        assert drain("mail").done == 1
        assert self.seen == [1]

"""Broadcast consumers in a host project's tests: one client, which has listened all the time."""

from __future__ import annotations

from pathlib import Path

from django.test import TestCase

from streams import Outgoing, consumer, send, send_many
from streams.conf import settings
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
)
from streams.observe.audit.walk import audit
from streams.testing import DrainResult, drain
from tests.streams.test_testing import CleanRegistry


class BroadcastTest(CleanRegistry, TestCase):
    def listen(self, group="cache", **options):
        self.consume("prices", group, mode="broadcast", **options)

    def bodies(self):
        return [message.body for message in self.seen]

    def test_is_given_all_that_the_test_has_sent_once(self):
        self.listen()
        send_many([Outgoing("prices", n) for n in range(25)])
        assert drain("cache") == DrainResult(done=25)
        assert drain("cache") == DrainResult()
        send("prices", 25)
        drain()
        assert self.bodies() == list(range(26))

    def test_what_another_drain_has_sequenced_is_still_for_it(self):
        self.listen()
        self.consume("prices", "mail")
        send("prices", 1)
        drain("mail")
        assert drain("cache").done == 1

    def test_what_fails_is_counted_and_not_repeated(self):
        def fail(message):
            raise KeyError(message.body)

        consumer("prices", group="cache", mode="broadcast")(fail)
        send_many([Outgoing("prices", n) for n in range(3)])
        result = drain("cache")
        assert (result.done, result.failed, result.dead) == (0, 3, 0)
        assert [error.args[0] for error in result.errors] == [0, 1, 2]
        assert drain("cache") == DrainResult()
        for model in (RetryMessage, DeadMessage, Delivery):
            assert not model.objects.exists()

    def test_what_it_sends_is_delivered_too(self):
        @consumer("prices", group="cache", mode="broadcast")
        def handle(message):
            if message.body < 3:
                send("prices", message.body + 1)

        send("prices", 0)
        assert drain("cache").done == 4

    def test_tags_and_batches_are_as_in_production(self):
        sizes = []
        consumer("prices", group="cache", mode="broadcast", batch=4, tags=["a"])(
            lambda messages: sizes.append(len(messages))
        )
        send_many([Outgoing("prices", n, tag="ab"[n % 2]) for n in range(10)])
        result = drain("cache")
        assert (result.done, result.passed) == (5, 5)
        assert sizes == [2, 2, 1]

    def test_what_is_gone_is_counted(self):
        self.listen()
        send_many([Outgoing("prices", n) for n in range(5)])
        drain("cache")
        send_many([Outgoing("prices", n) for n in range(5, 9)])
        self.consume("prices", "mail")
        drain("mail")
        Partition.objects.update(first_offset=7)
        Message.objects.filter(offset__lt=7).delete()
        assert drain("cache") == DrainResult(done=2, missing=2)

    def test_a_message_that_cannot_be_read_does_not_keep_drain_busy(self):
        self.listen()
        self.consume("prices", "mail")
        send_many([Outgoing("prices", n) for n in range(3)])
        drain("mail")
        Message.objects.filter(offset=1).delete()
        assert drain("cache").done == 1
        assert drain("cache") == DrainResult()

    def test_nothing_is_written_to_the_disk_and_the_audit_finds_nothing(self):
        self.listen()
        send("prices", 1)
        before = list(Path(settings().STATE_DIR).glob("*"))
        drain("cache")
        assert list(Path(settings().STATE_DIR).glob("*")) == before
        assert audit("default") == []


class LeakTest(CleanRegistry, TestCase):
    """Nothing of one test is left for the next: the order of these two does not matter."""

    def leave_something(self):
        assert not ConsumerGroup.objects.exists()
        assert not Cursor.objects.exists()
        self.consume("prices", "cache", mode="broadcast")
        send_many([Outgoing("prices", n) for n in range(3)])
        assert drain("cache").done == 3
        assert [message.offset for message in self.seen] == [0, 1, 2]

    def test_one(self):
        self.leave_something()

    def test_two(self):
        self.leave_something()

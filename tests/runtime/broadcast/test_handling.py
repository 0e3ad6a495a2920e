"""What becomes of messages in the hands of a broadcast consumer."""

from __future__ import annotations

import errno
import logging
import os
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, Reject, Retry, consumer, send_many
from streams.consume.limits import Overrides, threads
from streams.consume.registry import registrations
from streams.deliver import calls as loop
from streams.errors import PositionDamaged, StateUnusable
from streams.log import bodies
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    SystemConfig,
)
from streams.process.broadcast import handling as stretches
from streams.process.broadcast import turn as turns
from streams.process.shared import in_flight
from streams.process.supervisor import Supervisor
from streams.process.worker import NOT_ALIVE_SECONDS
from tests.broadcasting import files, offsets

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

HOUR = timedelta(hours=1)


def send_prices(*bodies: object, tag: str = "") -> None:
    send_many([Outgoing("prices", body, tag=tag) for body in bodies])
    sequence("default")


def listen(handler, **options):
    consumer("prices", group="cache", mode="broadcast", start="earliest", **options)(handler)


@pytest.mark.parametrize("error", [KeyError("x"), Retry("again", delay=60), Reject("never")])
def test_what_fails_is_logged_and_the_position_moves_on(start, caplog, error):
    seen = []

    def handle(message):
        seen.append(message.body)
        if message.body == 1:
            raise error

    listen(handle)
    client = start()
    send_prices(0, 1, 2)
    client.run_until_idle()
    assert seen == [0, 1, 2]
    assert offsets() == {0: 3}
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "failed on prices/0@1, and goes on" in record.getMessage()
    asked = isinstance(error, Retry | Reject)
    assert (record.exc_info and record.exc_info[1]) is (None if asked else error)
    for model in (Delivery, RetryMessage, DeadMessage):
        assert not model.objects.exists()


def test_the_report_counts_what_was_handled_and_what_failed(start):
    def handle(message):
        if message.body % 3 == 0:
            raise KeyError

    listen(handle, tags=["a"])
    client = start()
    send_prices(*range(7), tag="a")
    send_prices(*range(5), tag="b")
    Partition.objects.update(first_offset=2)
    client.run_until_idle()
    assert client.feed.report() == (
        "cache on prices: 3 handled, 2 failed, 5 without its tags, 2 missed"
    )


def test_messages_without_its_tags_are_passed_over(start):
    seen: list[Any] = []
    listen(seen.append, tags=["paid"])
    client = start()
    send_prices(0, tag="paid")
    send_prices(*range(1, 20), tag="other")
    send_prices(20, tag="paid")
    send_prices(21)
    client.run_until_idle()
    assert [m.body for m in seen] == [0, 20]
    assert offsets() == {0: 22}


def test_batches_are_handed_over_whole_and_in_order(start):
    seen = []
    listen(lambda messages: seen.append([m.body for m in messages]), batch=4)
    client = start()
    send_prices(*range(10))
    client.run_until_idle()
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_batch_handler_may_say_which_have_failed(start, caplog):
    listen(lambda messages: {messages[1]: KeyError("x")}, batch=4)
    client = start()
    send_prices(*range(4))
    client.run_until_idle()
    assert "3 handled, 1 failed" in client.feed.report()
    assert "prices/0@1" in caplog.text


def test_a_batch_that_fails_is_passed_whole(start):
    calls = []

    def handle(messages):
        calls.append(len(messages))
        raise KeyError

    listen(handle, batch=4)
    client = start()
    send_prices(*range(6))
    client.run_until_idle()
    assert calls == [4, 2]
    assert offsets() == {0: 6}


def test_a_batch_is_what_fits_into_memory(start, monkeypatch):
    seen = []
    listen(lambda messages: seen.append(len(messages)), batch=10)
    client = start()
    send_prices(*["x" * 100] * 6)
    monkeypatch.setattr(bodies, "CLAIM_BYTES", 250)
    client.run_until_idle()
    assert seen == [2, 2, 2]


def test_the_groups_row_decides_on_the_batch(start):
    seen = []
    listen(lambda messages: seen.append(len(messages)), batch=10)
    client = start()
    ConsumerGroup.objects.update(batch=3)
    client.feed._fresh_until = 0
    send_prices(*range(6))
    client.run_until_idle()
    assert seen == [3, 3]


def test_a_stop_lets_the_running_call_finish_and_keeps_the_position(start):
    seen = []

    def handle(message):
        seen.append(message.body)
        if message.body == 3:
            client.lifecycle.stop()

    listen(handle)
    client = start()
    send_prices(*range(10))
    client.run_until_idle()
    assert seen == [0, 1, 2, 3]
    assert offsets() == {0: 4}


def test_a_slow_stretch_keeps_its_position_on_the_way(start, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    kept = []
    listen(lambda message: kept.append(offsets()[0]))
    client = start()
    send_prices(*range(3))
    client.run_until_idle()
    assert kept == [0, 1, 2]


def test_a_stretch_writes_its_position_no_oftener_than_it_must(start, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.3)

    def handle(message):
        began = time.monotonic()
        while message.body == 0 and time.monotonic() - began < 0.4:
            pass

    listen(handle)
    client = start()
    send_prices(*range(10))
    saved: list[dict[int, int]] = []
    save = client.feed._file.save

    def save_and_note():
        save()
        saved.append(offsets())

    monkeypatch.setattr(client.feed._file, "save", save_and_note)
    client.run_until_idle()
    assert saved == [{0: 1}, {0: 10}]


def test_what_is_handled_is_held_and_then_let_go(start):
    held: list[int] = []

    def handle(message):
        held.append(len(client.held.all()))

    listen(handle)
    client = start()
    send_prices(0)
    client.run_until_idle()
    assert held == [1]
    assert client.held.all() == []


def test_a_beat_during_a_call_renews_the_client_and_nothing_else(start):
    statements: list[str] = []

    def handle(message):
        with CaptureQueriesContext(connection) as queries:
            client.heartbeat.step()
        statements.extend(query["sql"] for query in queries)

    listen(handle)
    client = start()
    send_prices(0)
    client.run_until_idle()
    (renewal,) = [s for s in statements if s.startswith("UPDATE")]
    assert "ems_client" in renewal


def test_there_is_one_thread_whatever_the_settings_say(start):
    listen(print)
    SystemConfig.objects.create(name="consumerThreads", value=7)
    assert start().feed.threads == 1
    (registration,) = registrations()
    assert threads(registration, "default", Overrides(threads=7)) == 1


def test_a_stopping_client_calls_nothing(start):
    seen: list[Any] = []
    listen(seen.append)
    client = start()
    send_prices(0)
    client.lifecycle.stop()
    client.worker.step()
    assert seen == []
    assert offsets() == {0: 0}


def test_a_handler_that_changes_the_directory_of_the_process_does_not_move_the_position(
    start, tmp_path, monkeypatch, ems_settings
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    ems_settings(STATE_DIR="relative")
    listen(lambda message: os.chdir(tmp_path / "elsewhere"))
    client = start()
    send_prices(0, 1)
    client.run_until_idle()
    monkeypatch.chdir(tmp_path)
    assert offsets() == {0: 2}


def test_a_client_that_cannot_begin_leaves_its_name(start, monkeypatch):
    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    listen(print)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StateUnusable):
            start()
    start()


def test_a_client_that_cannot_run_leaves_the_other_ones_running(start, caplog):
    listen(print)
    consumer("orders", group="board", mode="broadcast")(print)
    start("board").close()
    (damaged,) = files()
    damaged.write_text("")
    supervisor = Supervisor(list(registrations()), "default")
    assert [feed.group.name for feed in supervisor._feeds] == ["cache"]
    assert "board on orders is left out" in caplog.text
    supervisor._close_broadcasts()


def test_a_process_with_no_client_that_can_run_is_refused(start):
    listen(print)
    start("cache").close()
    (damaged,) = files()
    damaged.write_text("")
    with pytest.raises(PositionDamaged):
        Supervisor(list(registrations()), "default")


def test_quick_handlers_are_read_for_in_larger_and_larger_stretches(start, monkeypatch):
    sizes = []
    listen(print)
    client = start()
    move = client.feed.reader.move

    def note(delivery, progress, *proof):
        sizes.append(progress - delivery.first_offset)
        move(delivery, progress, *proof)

    monkeypatch.setattr(client.feed.reader, "move", note)
    monkeypatch.setattr(turns, "READ_AHEAD", 50)
    send_prices(*range(150))
    client.run_until_idle()
    assert sizes == [10, 20, 40, 50, 30]


def test_slow_handlers_are_not_read_for_in_vain_and_let_others_have_their_turn(start, monkeypatch):
    seen: list[Any] = []
    listen(seen.append)
    client = start()
    client.feed.ahead = 40
    monkeypatch.setattr(stretches, "TURN_SECONDS", 0.0)
    send_prices(*range(5))
    client.worker.step()
    assert ([m.body for m in seen], offsets(), client.feed.ahead) == ([0], {0: 1}, 0)
    client.run_until_idle()
    assert [m.body for m in seen] == list(range(5))


def test_a_disk_that_is_full_stops_the_process_after_one_stretch(start, monkeypatch):
    seen: list[Any] = []
    listen(seen.append)
    client = start()
    send_prices(*range(25))

    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    client.worker.run()
    assert "No space left on device" in client.lifecycle.failure
    assert len(seen) == 10
    assert offsets() == {0: 0}


def test_a_lost_lease_of_the_client_costs_nothing_that_is_in_hand(start):
    seen = []

    def handle(message):
        seen.append(message.body)
        Consumer.objects.all().delete()
        client.heartbeat.step()

    listen(handle)
    client = start()
    send_prices(0, 1)
    client.run_until_idle()
    assert seen == [0, 1]
    assert offsets() == {0: 2}
    assert Consumer.objects.live().count() == 1


def test_a_client_without_a_lease_waits_for_a_new_one(start):
    listen(print)
    client = start()
    client.client._lease_ends = 0.0
    assert client.worker.step() == NOT_ALIVE_SECONDS


def test_a_hung_call_is_noticed(start, monkeypatch):
    def handle(message):
        (running,) = client.held.all()
        while running.time_left() >= timedelta(0):
            pass
        client.heartbeat.step()

    monkeypatch.setattr(in_flight, "HUNG_GRACE", timedelta(0))
    listen(handle, consume_timeout=0.001)
    client = start()
    send_prices(0)
    client.run_until_idle()
    assert "hangs" in client.lifecycle.failure


def test_an_absent_body_in_a_batch_ends_the_batch_before_it(start):
    seen = []
    listen(lambda messages: seen.append([m.offset for m in messages]), batch=10)
    client = start()
    send_prices(*range(10))
    Message.objects.filter(offset=4).delete()
    client.run_until_idle()
    assert seen == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    "option", [{"ordered": True}, {"atomic": True}, {"max_retries": 3}, {"threads": 2}]
)
def test_what_a_broadcast_consumer_cannot_have_is_refused(option):
    with pytest.raises(TypeError, match="broadcast"):
        consumer("prices", group="cache", mode="broadcast", **option)

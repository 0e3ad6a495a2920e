"""Broadcast groups: every client reads all, whatever happens to it. Real processes."""

from __future__ import annotations

import re
import signal
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from streams import Outgoing, send, send_many, wakeup
from streams.log.lag import lags
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    Topic,
)
from streams.observe.audit.walk import audit
from streams.retain.purge import Purge
from tests.broadcasting import files, offsets
from tests.processes import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

# The handler writes the offset to a file, past every buffer: it is there also after a SIGKILL.
CONSUMER = """
import os, sys, time
from pathlib import Path
from streams import consumer
from django.core.management import call_command

out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@consumer("prices", group="cache", mode="broadcast", start="earliest")
def handle(message):
    os.write(out, f"{message.partition} {message.offset}\\n".encode())
    if message.body == "slow":
        print("slow begins")
        while not Path(sys.argv[1] + ".go").exists():
            time.sleep(0.01)
    if message.body == "takes time":
        time.sleep(0.002)
    if message.body == "fails":
        raise ValueError("no")

call_command("ems_consume", "--start", "earliest", *sys.argv[2:])
"""

READY = "database connections"  # printed when all is taken, just before the threads start


@pytest.fixture(autouse=True)
def state(tmp_path, ems_settings):
    ems_settings(STATE_DIR=str(tmp_path / "state"), POLL_SECONDS=0.05)


@pytest.fixture
def client(spawn, tmp_path):
    """Start a client; what it reads is in the file of this name."""

    def start(*options, into="out"):
        return spawn(CONSUMER, tmp_path / into, *options)

    return start


@pytest.fixture
def read(tmp_path):
    """The offsets that a client has handed over, in order."""

    def of(name="out"):
        path = Path(tmp_path / name)
        lines = path.read_text().splitlines() if path.exists() else []
        return [int(line.split()[1]) for line in lines]

    return of


def send_prices(count, body="x"):
    send_many([Outgoing("prices", body) for _ in range(count)])


@pytest.mark.exhaustive
def test_two_clients_get_ten_thousand_messages_each_in_order_and_write_no_row(client, read):
    left = client("--name", "left", "--batch", "500", into="left")
    right = client("--name", "right", "--batch", "500", into="right")
    for child in (left, right):
        child.expect(READY)
    for _ in range(10):
        send_prices(1000)
    for child in (left, right):
        child.terminate()
        child.succeed()
    client("--name", "left", "--batch", "500", "--drain", into="left").succeed()
    client("--name", "right", "--batch", "500", "--drain", into="right").succeed()
    assert read("left") == list(range(10_000))
    assert read("right") == list(range(10_000))
    for model in (Delivery, RetryMessage, DeadMessage, Cursor):
        assert not model.objects.exists()
    assert audit("default") == []


def test_a_restart_goes_on(client, read):
    send_prices(30)
    assert "30 handled, 0 failed" in client("--drain").succeed()
    send_prices(5)
    assert "5 handled, 0 failed" in client("--drain").succeed()
    assert read() == list(range(35))


@pytest.mark.exhaustive
def test_killed_at_any_moment_it_repeats_at_most_what_was_not_written(client, read, tmp_path):
    send_prices(9)
    send("prices", "slow")
    send_prices(10)
    child = client("--batch", "4")
    child.expect("slow begins")
    child.kill()
    assert read() == list(range(10))
    assert offsets() == {0: 4}  # a stretch of four was written; one of eight was being handled
    (tmp_path / "out.go").touch()
    client("--drain").succeed()
    assert read() == [*range(10), *range(4, 20)]


@pytest.mark.exhaustive
def test_killed_again_and_again_it_leaves_nothing_out(client, read):
    def has_read_more_than(count):
        return len(read()) > count

    send_prices(2000, "takes time")
    for enough in (50, 300, 700):
        child = client()
        wait_for(partial(has_read_more_than, enough))
        child.kill()
        assert offsets()[0] <= len(set(read()))  # what is written has been handled
    client("--drain").succeed()
    offsets_read = read()
    assert set(offsets_read) == set(range(2000))
    again = [b for a, b in pairwise(offsets_read) if b != a + 1]
    assert len(again) <= 3  # in order, save that each life begins where the last one had written
    assert offsets() == {0: 2000}


def test_what_the_purge_takes_while_a_client_reads_is_counted_to_the_last_message(client, read):
    child = client()
    child.expect(READY)
    Topic.objects.update(retention_count=20)
    for _ in range(8):
        send_prices(200, "takes time")
        wait_for(lambda: not Message.objects.inbox().exists())
        Purge("default").run()
    assert Partition.objects.get().first_offset == 1580
    wait_for(lambda: offsets() == {0: 1600})
    child.terminate()
    (counts,) = re.findall(r"([\d,]+) handled, 0 failed, .* ([\d,]+) missed", child.succeed())
    handled, missed = (int(count.replace(",", "")) for count in counts)
    assert handled == len(read()) == len(set(read()))
    assert missed > 0
    assert handled + missed == 1600
    assert child.text().count("have been purged") >= 1


@pytest.mark.exhaustive
def test_two_processes_of_one_name_are_refused_until_the_first_has_gone(client, read):
    send_prices(3)
    first = client()
    first.expect(READY)
    second = client(into="second")
    assert second.wait() == 1
    assert f"{first.pid}) is the client 'default' of cache on prices" in second.text()
    assert "--name" in second.text()
    assert "CommandError" in second.text() or "Traceback" not in second.text()
    assert read("second") == []
    client("--name", "other", "--drain", into="other").succeed()
    assert read("other") == [0, 1, 2]
    first.kill()
    client("--drain").succeed()
    assert len(files()) == 2


@pytest.mark.exhaustive
def test_a_frozen_process_keeps_its_name(client):
    first = client()
    first.expect(READY)
    first.freeze()
    second = client()
    assert second.wait() == 1
    assert "is the client 'default'" in second.text()
    first.thaw()
    first.terminate()
    first.succeed()


def test_a_state_dir_that_cannot_be_used_is_said_before_anything_is_consumed(
    client, read, tmp_path, ems_settings
):
    (tmp_path / "file").touch()
    ems_settings(STATE_DIR=str(tmp_path / "file" / "state"))
    send_prices(3)
    child = client("--drain")
    assert child.wait() == 1
    assert "EMS['STATE_DIR'] cannot be used" in child.text()
    assert read() == []
    assert not Consumer.objects.exists()


def test_a_stop_signal_finishes_the_running_call_and_keeps_the_position(client, read, tmp_path):
    send_prices(2)
    send("prices", "slow")
    send_prices(5)
    child = client()
    child.expect("slow begins")
    child.send_signal(signal.SIGTERM)
    child.expect("Stopping")
    (tmp_path / "out.go").touch()
    child.succeed()
    assert read() == [0, 1, 2]
    assert offsets() == {0: 3}
    assert not Consumer.objects.exists()


def test_a_failure_is_logged_with_its_place_and_the_rest_goes_on(client, read):
    send_prices(1)
    send("prices", "fails")
    send_prices(1)
    text = client("--drain").succeed()
    assert "failed on prices/0@1, and goes on: ValueError: no" in text
    assert "2 handled, 1 failed" in text
    assert read() == [0, 1, 2]


@pytest.mark.exhaustive
def test_a_client_that_was_away_for_too_long_is_told_what_it_has_missed(client, read):
    send_prices(5)
    client("--drain").succeed()
    send_prices(10)
    Partition.objects.update(first_offset=9)
    text = client("--drain").succeed()
    assert "cache has missed 4 messages of prices/0: offsets 5 … 8 have been purged" in text
    assert "6 handled, 0 failed, 0 without its tags, 4 missed" in text
    assert read() == [*range(5), *range(9, 15)]


def test_a_live_client_is_seen_and_how_far_it_is_is_not(client):
    child = client()
    child.expect(READY)
    (lag,) = lags(ConsumerGroup.objects.all(), "default")
    assert (lag.consumers, lag.behind, lag.age) == (1, None, None)
    child.terminate()
    child.succeed()


@pytest.mark.redis
def test_with_redis_a_message_arrives_long_before_the_next_poll(spawn, tmp_path, ems_settings):
    ems_settings(REDIS="redis", POLL_SECONDS=30)
    sleepy = "from streams.deliver import poller\npoller.QUICK_SECONDS = 30\n"
    child = spawn(sleepy + CONSUMER, tmp_path / "out")
    child.expect(READY)
    channel = wakeup.channel("default")
    wait_for(lambda: wakeup._redis().pubsub_numsub(channel)[0][1])
    for _ in range(3):
        send("prices", "slow")
        child.expect("slow begins", timeout=10)
        (tmp_path / "out.go").touch()

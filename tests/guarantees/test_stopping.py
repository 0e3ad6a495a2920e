"""How a consumer process ends: what it tells the database, its exit status, and that nothing is
lost. Real processes of ``ems_consume``.
"""

from __future__ import annotations

import signal
import time
from functools import partial

import pytest
from django.db import connection

from streams import Outgoing, consumer, send, send_many
from streams.log.sequencer import sequence
from streams.models import Consumer, Delivery, RetryMessage, State
from streams.observe.audit.walk import audit
from streams.steps.sweep import sweep
from streams.testing import drain
from tests.consuming import consume_the_rest, given_back
from tests.faults import kill_other_connections
from tests.hostapp.models import Handled
from tests.processes import PATIENCE_SECONDS, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.slow,
]

# The handler notes that it has begun, and ends when the test says so (or at once: "quick").
CONSUMER = """
import sys, time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

def note(what, message):
    Handled.objects.create(group=what, topic="orders", partition=0, offset=message.offset,
                           value=message.attempt)

def handle(message):
    note("begun", message)
    if message.body != "quick":
        while not Handled.objects.filter(group="go").exists():
            time.sleep(0.01)
    note("ended", message)
"""
PLAIN = CONSUMER + 'consumer("orders", group="mail")(handle)\n'
RUN = 'call_command("ems_consume", "--start", "earliest", *sys.argv[1:])\n'


def begun():
    return Handled.objects.filter(group="begun")


def let_go():
    Handled.objects.create(group="go", topic="", partition=0, offset=0, value="")


@pytest.fixture(autouse=True)
def quick_polling(ems_settings):
    ems_settings(POLL_SECONDS=0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_finishes_what_runs_and_gives_the_rest_back_unspent(spawn, number):
    send_many([Outgoing("orders", n) for n in range(5)])
    child = spawn(PLAIN + RUN, "--threads", "1", "--claim-seconds", "0")
    wait_for(begun().exists)
    child.send_signal(number)
    child.expect("Stopping")
    assert Delivery.objects.open().exists()
    let_go()
    child.succeed()
    assert [h.offset for h in begun()] == [0]
    ended = Delivery.objects.ended().get()
    assert (ended.progress, ended.last_offset) == (1, 0)
    assert given_back() == [(1, 4)]
    assert not Consumer.objects.exists()  # deregistered
    assert audit("default") == []

    consumer("orders", group="mail")(lambda message: None)
    assert drain("mail").done == 4


BATCHES = """
import sys, time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

@consumer("orders", group="mail", batch=200)
def handle(messages):
    time.sleep(0.02)
    Handled.objects.bulk_create(
        Handled(group="mail", topic="orders", partition=0, offset=m.offset, value=len(messages))
        for m in messages
    )
call_command("ems_consume", "--start", "earliest", *sys.argv[1:])
"""


@pytest.mark.exhaustive
def test_deploys_leave_batches_whole_and_no_single_retries(spawn):
    """Two consumers of batches, each replaced again and again while they work."""

    def worked(before):
        return before < Handled.objects.count() or before == 20_000

    send_many([Outgoing("orders", n) for n in range(20_000)])
    sequence("default")
    running = [spawn(BATCHES, "--threads", "4") for _ in range(2)]
    for _ in range(3):
        for number, child in enumerate(running):
            before = Handled.objects.count()
            child.expect("database connections")  # from then on a signal stops it in good order
            wait_for(partial(worked, before))
            child.terminate()
            child.succeed()
            assert not RetryMessage.objects.exists()
            running[number] = spawn(BATCHES, "--threads", "4")
    for child in running:
        child.expect("database connections")
        child.terminate()
        child.succeed()
    spawn(BATCHES, "--drain").succeed()
    assert not RetryMessage.objects.exists()
    assert given_back() == []
    assert Handled.objects.count() == 20_000
    assert Handled.objects.values("offset").distinct().count() == 20_000
    assert set(Handled.objects.values_list("value", flat=True)) == {"200"}
    assert audit("default") == []


def test_while_it_drains_it_keeps_its_leases(spawn):
    code = PLAIN.replace('group="mail")', 'group="mail", consume_timeout=2)')  # beats often
    send("orders", "slow")
    child = spawn(code + RUN, "--threads", "1")
    wait_for(begun().exists)
    child.terminate()
    child.expect("Stopping")
    before = Delivery.objects.get().deadline
    wait_for(lambda: Consumer.objects.live().exists() and Delivery.objects.get().deadline > before)
    assert sweep("default") == 0
    let_go()
    child.succeed()
    assert Delivery.objects.get().state == State.DONE


def test_while_it_drains_it_claims_nothing(spawn):
    send("orders", "slow")
    child = spawn(PLAIN + RUN, "--threads", "3", "--batch", "1")
    wait_for(begun().exists)
    child.terminate()
    child.expect("Stopping")
    send_many([Outgoing("orders", "quick") for _ in range(3)])
    let_go()
    child.succeed()
    assert begun().count() == 1
    consumer("orders", group="mail")(lambda message: None)
    assert drain("mail").done == 3


def test_an_idle_process_stops_at_once(spawn):
    child = spawn(PLAIN + RUN, "--threads", "2")
    child.expect("database connections")
    wait_for(Consumer.objects.exists)
    started = time.monotonic()
    child.terminate()
    child.succeed()
    assert time.monotonic() - started < 5
    assert not Consumer.objects.exists()


@pytest.mark.mysql
def test_it_deregisters_also_when_the_server_has_ended_its_idle_connections(
    spawn, second_connection
):
    """The main thread is silent for longer than wait_timeout: the rule, not the exception."""
    child = spawn(PLAIN + RUN, "--threads", "1")
    wait_for(Consumer.objects.exists)
    send("orders", "quick")
    wait_for(lambda: Delivery.objects.filter(state=State.DONE).exists())
    kill_other_connections(second_connection())
    child.terminate()
    child.succeed()
    assert not Consumer.objects.exists()
    assert "Traceback" not in child.text()


@pytest.mark.parametrize("apart", [True, False], ids=["one-by-one", "at-once"])
def test_a_second_signal_leaves_at_once_and_loses_nothing(spawn, apart):
    send_many([Outgoing("orders", n) for n in range(3)])
    child = spawn(PLAIN + RUN, "--threads", "1")
    wait_for(begun().exists)
    if apart:
        child.terminate()
        child.expect("Stopping")
        child.terminate()
    else:  # both are there before the process looks
        child.freeze()
        child.terminate()
        child.send_signal(signal.SIGINT)
        child.thaw()
    started = time.monotonic()
    assert child.wait() == 1
    assert time.monotonic() - started < 10
    assert not Consumer.objects.exists()  # so the sweep need not wait for the lease
    let_go()
    consumer("orders", group="mail")(lambda message: None)
    sweep("default")  # unless the process has, which looks after the others to its last moment
    assert Delivery.objects.get().state == State.RETRY
    consume_the_rest("mail")
    assert audit("default") == []
    assert not Handled.objects.filter(group="ended").exists()


def test_after_drain_seconds_it_leaves_what_still_runs_behind(spawn, ems_settings):
    ems_settings(DRAIN_SECONDS=0.3, POLL_SECONDS=0.05)
    send("orders", "slow")
    child = spawn(PLAIN + RUN, "--threads", "1")
    wait_for(begun().exists)
    child.terminate()
    assert child.wait() == 1
    assert "DRAIN_SECONDS" in child.text()
    assert sweep("default") == 1
    assert RetryMessage.objects.get().attempt == 2
    assert audit("default") == []


HUNG = """
import datetime
from streams.process.shared import in_flight
from streams.process.shared.stopping import Stopping as Lifecycle
in_flight.HUNG_GRACE = datetime.timedelta(seconds=0.5)

fail = Lifecycle.fail
def say_and_fail(self, reason):
    fail(self, reason)
    print("failed:", reason)
Lifecycle.fail = say_and_fail

@consumer("orders", group="hung", consume_timeout=1, max_retries=3)
def hang(message):
    note("begun", message)
    time.sleep(3600)
consumer("payments", group="mail")(handle)
"""


def test_a_hung_handler_ends_its_process_and_its_neighbours_finish(spawn, ems_settings):
    ems_settings(DRAIN_SECONDS=3, POLL_SECONDS=0.05)
    send("orders", "hangs")
    send("payments", "slow")
    child = spawn(CONSUMER + HUNG + RUN, "--threads", "2")
    wait_for(lambda: begun().count() == 2)
    assert "hangs" in child.expect("failed:")
    let_go()
    assert child.wait() == 1
    assert Handled.objects.filter(group="ended").count() == 1  # the neighbour was drained
    assert Delivery.objects.get(group__name="mail").state == State.DONE

    consumer("orders", group="hung", max_retries=3)(lambda message: None)
    consume_the_rest("hung")  # its message goes to a process that can handle it
    assert Delivery.objects.filter(group__name="hung").latest("id").state == State.DONE
    assert audit("default") == []


def test_a_hung_handler_costs_its_neighbours_no_drain(spawn, ems_settings):
    ems_settings(DRAIN_SECONDS=PATIENCE_SECONDS * 2, POLL_SECONDS=0.05)
    send("orders", "hangs")
    child = spawn(CONSUMER + HUNG + RUN, "--threads", "1")
    assert "hangs" in child.expect("failed:")
    assert child.wait() == 1
    assert not Consumer.objects.exists()  # so its message comes back at once


def test_a_failing_keeper_ends_the_process_with_status_1(spawn):
    code = PLAIN + (
        "from streams.process.shared.client import Client\n"
        "def fail(self): raise RuntimeError('the heartbeat is broken')\n"
        "Client.renew = fail\n"
    )
    child = spawn(code + RUN)
    assert child.wait() == 1
    assert "the heartbeat is broken" in child.text()
    assert not Consumer.objects.exists()


def test_a_failing_worker_ends_the_process_with_status_1_and_drains_the_others(spawn):
    code = PLAIN + (
        "from streams.process.worker import Worker\n"
        "step = Worker.step\n"
        "def fail(self):\n"
        "    if Handled.objects.filter(group='begun').exists():\n"
        "        raise RuntimeError('a worker is broken')\n"
        "    return step(self)\n"
        "Worker.step = fail\n"
    )
    send("orders", "slow")
    child = spawn(code + RUN, "--threads", "2")
    wait_for(begun().exists)
    send("orders", "quick")  # wakes the other worker
    child.expect("a worker is broken")
    let_go()
    assert child.wait() == 1
    assert Handled.objects.filter(group="ended", offset=0).exists()


def test_drain_handles_everything_also_what_handlers_send_and_then_ends(spawn):
    code = """
from streams import consumer, send
from django.core.management import call_command

@consumer("orders", group="mail")
def copy(message):
    send("copies", message.body)

@consumer("copies", group="copies", batch=7)
def swallow(messages):
    pass

call_command("ems_consume", "--start", "earliest", "--drain", "--threads", "2")
"""
    send_many([Outgoing("orders", n) for n in range(40)])
    spawn(code).succeed()
    assert Delivery.objects.exclude(state=State.DONE).count() == 0
    for group in ("mail", "copies"):
        ended = Delivery.objects.filter(group__name=group)
        assert sum(d.last_offset + 1 - d.first_offset for d in ended) == 40
    assert not RetryMessage.objects.exists()
    assert not Consumer.objects.exists()


def test_drain_waits_for_handlers_that_run(spawn):
    """Nothing is left to claim, but a slow handler may still send something."""
    code = """
import time
from streams import consumer, send
from django.core.management import call_command

@consumer("orders", group="mail")
def copy(message):
    time.sleep(0.8)
    send("copies", message.body)

consumer("copies", group="copies")(lambda message: None)
call_command("ems_consume", "--start", "earliest", "--drain")
"""
    send("orders", 1)
    spawn(code).succeed()
    assert Delivery.objects.get(group__name="copies").state == State.DONE


def test_the_command_says_what_it_runs_and_how_many_connections_that_may_take(spawn):
    send("orders", "quick")
    text = spawn(PLAIN + RUN, "--threads", "3", "--drain").succeed()
    assert "mail on orders" in text
    assert "3 threads" in text
    assert "up to 7 database connections" in text


@pytest.mark.parametrize(
    "arguments",
    [("--group", "nobody"), ("--topic", "nothing"), ("--group", "mail", "--topic", "x")],
)
def test_without_a_consumer_the_command_says_so(spawn, arguments):
    child = spawn(PLAIN + RUN, *arguments)
    assert child.wait() == 1
    assert "No registered consumer matches" in child.text()


def test_only_the_groups_that_were_asked_for_are_consumed(spawn):
    code = PLAIN + 'consumer("orders", group="board")(handle)\n'
    send("orders", "quick")
    spawn(code + RUN, "--group", "board", "--drain").succeed()
    assert [d.group.name for d in Delivery.objects.all()] == ["board"]


IDLE = """
import sys
from datetime import timedelta
from django.core.management import call_command
from streams import consumer
from streams.process.shared import connections

connections.MARGIN = timedelta(seconds=1)
consumer("orders", group="mail", consume_timeout=2)(lambda message: None)
consumer("orders", group="cache", mode="broadcast")(lambda message: None)
call_command("ems_consume", "--threads", "4")
"""


@pytest.mark.mysql
@pytest.mark.exhaustive  # a minute of waiting for time limits
def test_the_server_has_to_cut_no_connection_of_a_consumer(spawn):
    """From its start over a time longer than wait_timeout to SIGTERM."""

    def aborted():
        with connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Aborted_clients'")
            return int(cursor.fetchone()[1])

    def others():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.processlist"
                " WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            )
            return int(cursor.fetchone()[0])

    before, mine = aborted(), others()
    child = spawn(IDLE)
    child.expect("database connections")
    send("orders", 1)
    wait_for(lambda: Delivery.objects.filter(state=State.DONE).exists())
    # The poller, the heartbeat and the maintenance go on. Those of the workers and of the main
    # thread are closed, and not by the server.
    wait_for(lambda: others() == mine + 3, others)
    send("orders", 2)  # an idle worker connects again
    wait_for(lambda: Delivery.objects.filter(state=State.DONE).count() == 2)
    wait_for(lambda: others() == mine + 3, others)
    child.terminate()
    child.succeed()
    wait_for(lambda: others() == mine, others)
    assert aborted() == before

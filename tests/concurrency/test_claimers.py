"""Many claimers of one cursor: served fairly, each offset to exactly one of them."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Count

from streams import Outgoing, consumer, send_many
from streams.log.sequencer import sequence
from streams.models import Cursor, Delivery, Kind, Partition, RetryMessage
from streams.models.retry import Again
from streams.operate.topics import create
from streams.process.worker import Worker
from tests.concurrency.conftest import MINUTE, Stream
from tests.concurrency.locks import held_before, wait_until_one_waits
from tests.consuming import Process
from tests.faults import LateCommit
from tests.processes import PATIENCE_SECONDS, Spawn, wait_for
from tests.sessions import Threads

pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]

CLAIMERS, EACH = 12, 40
# The last statement of a claim: it has the lock of its cursor.
END_OF_CLAIM = "INSERT INTO `ems_topic_group_log`"

# A claimer of a child process, in each of its threads: claims one by one until the end.
CHILD = """
import sys, threading
from datetime import timedelta
from django.db import connection
from streams.deliver.claim import Claimer
from streams.models import ConsumerGroup, Cursor

group = ConsumerGroup.objects.get()

def claim_all(name):
    claimer = Claimer(group, f"10.0.0.1@{sys.argv[1]}@x", name, "default")
    while Cursor.objects.get().next_offset < int(sys.argv[2]):
        claimer.claim(1, timedelta(minutes=1))
    connection.close()

threads = [threading.Thread(target=claim_all, args=[f"t{n}"]) for n in range(3)]
for thread in threads:
    thread.start()
print("ready")
for thread in threads:
    thread.join()
"""


def assert_fair_and_complete(total: int) -> None:
    deliveries = Delivery.objects.filter(kind=Kind.NEW)
    offsets = sorted(deliveries.values_list("first_offset", flat=True))
    assert offsets == list(range(total))
    by_claimer: Any = deliveries.values("client_id", "thread").annotate(claims=Count("id"))
    counts = sorted(row["claims"] for row in by_claimer)
    assert len(counts) == CLAIMERS, counts
    assert counts[0] * 2 >= counts[-1], counts


def test_twelve_threads_on_one_cursor_are_served_fairly(stream: Stream, in_thread: Threads) -> None:
    stream.fill(CLAIMERS * EACH)
    start = threading.Barrier(CLAIMERS)

    def claim_all(name: str) -> None:
        claimer = stream.claimer(name)
        assert claimer.claim_retry(MINUTE) is None  # connected
        start.wait(PATIENCE_SECONDS)
        while claimer.claim(1, MINUTE):
            pass

    futures = [in_thread(claim_all, f"c{number}") for number in range(CLAIMERS)]
    for future in futures:
        future.result(PATIENCE_SECONDS)
    assert_fair_and_complete(CLAIMERS * EACH)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_twelve_claimers_in_four_processes_are_served_fairly(stream: Stream, spawn: Spawn) -> None:
    total = CLAIMERS * EACH
    stream.fill(total)
    Partition.objects.update(next_offset=0)  # nothing to claim until all are there
    children = [spawn(CHILD, number, total) for number in range(4)]
    for child in children:
        child.expect("ready")
    Partition.objects.update(next_offset=total)
    for child in children:
        child.succeed()
    assert_fair_and_complete(total)


class Locking:
    """The cursors whose rows the thread in this block has asked the server to lock."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def step(self, worker: Worker) -> float | None:
        with connection.execute_wrapper(self._note):
            return worker.step()

    def _note(self, execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT c.`next_offset`"):
            self.ids.append(parameters[0])
        return execute(sql, parameters, many, context)


def two_workers(partitions: int) -> tuple[Worker, Worker, Process]:
    """Return two threads of one process, for a group that is behind in each partition."""
    create("orders", partitions, "default")
    consumer("orders", group="mail", threads=2, batch=5)(lambda messages: None)
    process = Process("mail")
    for number in range(partitions):
        send_many([Outgoing("orders", n, partition=number) for n in range(10)])
    sequence("default")
    return process.worker, process.new_worker(1), process


@pytest.mark.usefixtures("clean_registry")
def test_threads_of_a_process_do_not_wait_for_each_other_in_the_server(in_thread: Threads) -> None:
    """A wait there has a transaction open, and the server puts a thread to sleep and wakes it."""
    first, second, process = two_workers(partitions=1)
    cursor, locking = Cursor.objects.get(), Locking()
    with held_before(in_thread, END_OF_CLAIM, first.step):
        waiting = in_thread(locking.step, second)
        locks = process.feed.locks._waiting
        wait_for(lambda: locking.ids or locks.get(cursor.pk))
        assert locking.ids == []
    assert waiting.result(PATIENCE_SECONDS) == 0.0
    assert locking.ids == [cursor.pk]
    spans = Delivery.objects.order_by("first_offset").values_list("first_offset", "last_offset")
    assert [*spans] == [(0, 4), (5, 9)]


@pytest.mark.usefixtures("clean_registry")
def test_a_thread_asks_for_no_cursor_that_another_one_of_its_process_has(
    in_thread: Threads,
) -> None:
    first, second, process = two_workers(partitions=2)
    # Both begin with the same cursor.
    with held_before(in_thread, END_OF_CLAIM, first.step):
        (taken,) = process.feed.locks._waiting
        locking = Locking()
        assert in_thread(locking.step, second).result(PATIENCE_SECONDS) == 0.0
        assert locking.ids == [*Cursor.objects.exclude(pk=taken).values_list("pk", flat=True)]


def test_retries_claimed_by_six_threads_go_to_one_each(stream: Stream, in_thread: Threads) -> None:
    total = 120
    stream.fill(total)
    retries = RetryMessage.objects.using("default")
    again = [Again(offset, 2, -timedelta(seconds=offset)) for offset in range(total)]
    retries.schedule(stream.group.pk, stream.partition.pk, again)
    start = threading.Barrier(6)

    def claim_all(name: str) -> list[int]:
        claimer = stream.claimer(name)
        start.wait(PATIENCE_SECONDS)
        mine = []
        # None may also mean that others are just claiming what is left.
        while RetryMessage.objects.filter(delivery=None).exists():
            if claimed := claimer.claim_retry(MINUTE):
                assert claimed[1].offset == claimed[0].first_offset
                mine.append(claimed[0].first_offset)
        return mine

    futures = [in_thread(claim_all, f"c{number}") for number in range(6)]
    shares = [future.result(PATIENCE_SECONDS) for future in futures]
    assert sorted(offset for share in shares for offset in share) == list(range(total))
    assert all(shares), [len(share) for share in shares]
    assert Delivery.objects.filter(kind=Kind.RETRY).count() == total


@pytest.mark.parametrize("kind", [Kind.NEW, Kind.RETRY])
def test_a_claim_whose_commit_is_still_under_way_is_waited_for(
    stream: Stream, in_thread: Threads, kind: Kind
) -> None:
    """Claimed anew, the first claim would be nobody's until its deadline."""
    stream.fill(10)
    retries = RetryMessage.objects.using("default")
    retries.schedule(stream.group.pk, stream.partition.pk, [Again(4, 2), Again(7, 2)])

    def claim() -> int:
        claimer = stream.claimer()
        with late.of_this_thread():
            if kind == Kind.NEW:
                new = claimer.claim(5, MINUTE)
                return new.pk if new else 0
            retry = claimer.claim_retry(MINUTE)
            return retry[0].pk if retry else 0

    with LateCommit() as late:
        claimed = in_thread(claim)
        wait_until_one_waits(str(connection.settings_dict["NAME"]), claimed)
    assert claimed.result(PATIENCE_SECONDS) == Delivery.objects.get().pk

"""A log that has lost its last commits gives no offset twice, and everybody is told.

The tables are put back to an earlier state by another connection, as a failover to a server does
that lacks the last commits.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from streams import Outgoing, consumer, send, send_many
from streams.chaos.forks import in_fork
from streams.database import remembered, server
from streams.http.pulling.log import read_log
from streams.http.pulling.poller import PullPoller
from streams.log import ends, rewinds, sequencer
from streams.log.ends import End
from streams.log.holdings import holdings
from streams.log.rewinds import MARGIN, jump
from streams.log.search import Criteria, search
from streams.log.sequencer import UNSETTLED_SECONDS, Pass, sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    Delivery,
    Kind,
    Message,
    Partition,
    Rewind,
    State,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.operate import replay
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.steps.sequence import sequence_all
from tests.consuming import Process, sequence_after_a_kill
from tests.faults import Guillotine, strides
from tests.processes import Spawn, wait_for
from tests.rewinding import Replica

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

# Ten messages were replicated, and five more were not.
KEPT, LOST = 10, 15
GOES_ON = LOST + MARGIN
LEASE = timedelta(seconds=60)


def sent(*bodies: Any) -> None:
    send_many([Outgoing("orders", body) for body in bodies])
    while sequence("default").more:
        pass


def offsets() -> list[int | None]:
    return list(Message.objects.order_by("offset").values_list("offset", flat=True))


def partition() -> Partition:
    return Partition.objects.get()


@pytest.fixture
def seen() -> list[Any]:
    found: list[Any] = []
    consumer("orders", group="mail", start="earliest")(found.append)
    return found


@pytest.fixture
def process(seen: list[Any]) -> Process:
    return Process("mail")


def lose(process: Process | None = None) -> None:
    """Send, let the group handle it, and lose the last five messages in a failover."""
    sent(*range(KEPT))
    if process:
        process.run_until_idle()
    replica = Replica()
    sent(*range(KEPT, LOST))
    if process:
        process.run_until_idle()
    replica.promote()


def test_no_offset_is_given_twice(seen, process):
    lose(process)
    sent("new")
    assert offsets() == [*range(KEPT), GOES_ON]
    process.run_until_idle()
    assert [(m.offset, m.epoch) for m in seen[-2:]] == [(LOST - 1, 0), (GOES_ON, 1)]
    assert [m.body for m in seen] == [*range(LOST), "new"]
    assert audit("default") == []


def test_it_is_written_down_and_said_once(process, caplog):
    lose(process)
    sent("new")
    sent("newer")
    rewind = Rewind.objects.get()
    assert (rewind.epoch, rewind.first_offset, rewind.known_offset) == (1, KEPT, LOST)
    assert (rewind.next_offset, partition().epoch) == (GOES_ON, 1)
    (record,) = [r for r in caplog.records if r.levelno == logging.CRITICAL]
    assert record.message.startswith("orders/0 was rewound: it ended at offset 10, and had reached")
    assert record.ems_event == "log.rewound"
    assert (record.ems_first_offset, record.ems_known_offset) == (KEPT, LOST)


def test_the_poller_notices_it_without_a_message(process, caplog):
    lose(process)
    process.poller.step()
    assert partition().next_offset == GOES_ON
    assert [r.ems_event for r in caplog.records if r.levelno == logging.CRITICAL] == ["log.rewound"]


def test_what_a_worker_has_claimed_is_remembered(process):
    """Another process has given the offsets, and the poller has not looked since."""
    lose(process)
    remembered.forget()
    replica = Replica()
    sent(*range(KEPT, LOST))
    remembered.forget()
    process.claim(batch=100)
    replica.promote()
    sent("new")
    assert offsets()[-1] == GOES_ON


def test_a_group_at_the_end_passes_what_is_left_out_at_once(process):
    lose(process)
    process.poller.step()
    assert Cursor.objects.get().next_offset == GOES_ON
    skip = Delivery.objects.get(state=State.SKIPPED)
    assert (skip.first_offset, skip.last_offset, skip.kind) == (KEPT, GOES_ON - 1, Kind.NEW)


def test_a_group_that_is_behind_handles_all_that_is_kept_first(seen, process):
    lose()
    sent("new")
    assert Cursor.objects.get().next_offset == 0
    process.run_until_idle()
    assert [m.offset for m in seen] == [*range(KEPT), GOES_ON]
    assert Delivery.objects.filter(state=State.SKIPPED).count() == 1
    assert audit("default") == []


@pytest.mark.mysql
def test_a_group_that_was_set_back_meanwhile_loses_nothing_by_the_jump(
    seen, process, isolation_level, second_connection
):
    """The plain reads of the caller's transaction still see it at the end of the log."""
    sent(*range(KEPT))
    process.run_until_idle()
    isolation_level("repeatable read")
    with transaction.atomic():
        assert Cursor.objects.get().next_offset == KEPT
        with second_connection().active():
            goal = towards(Target.parse("4"))
            Reset(ConsumerGroup.objects.get(), goal, "default", force=True).run()
        assert jump(partition().pk, End(LOST, 0), "default")
    del seen[:]
    sent("new")
    process.run_until_idle()
    assert [m.offset for m in seen] == [*range(4, KEPT), GOES_ON]
    assert audit("default") == []


def test_an_ordered_group_passes_it_when_it_comes_there(clean_registry):
    found: list[Any] = []
    consumer("orders", group="mail", start="earliest", ordered=True)(found.append)
    process = Process("mail")
    lose()
    held = process.claim(batch=4)
    sent("new")
    held.held().update(state=State.RELEASED, finished_at=held.claimed_at)
    Cursor.objects.update(open_delivery=None, next_offset=0)
    process.run_until_idle()
    assert [m.offset for m in found] == [*range(KEPT), GOES_ON]
    assert audit("default") == []


FAILED = {"attempt": 3, "alone": True, "blocked_at": UtcNow(), "last_error": "ValueError: no"}


def assert_nothing_failed() -> None:
    cursor = Cursor.objects.get()
    assert (cursor.attempt, cursor.alone, cursor.blocked_until) == (1, False, None)
    assert (cursor.blocked_at, cursor.last_error) == (None, "")


def test_a_failed_message_that_is_left_out_blocks_its_group_no_more(clean_registry):
    consumer("orders", group="mail", start="earliest", ordered=True)(lambda message: None)
    process = Process("mail")
    lose(process)
    Cursor.objects.update(**FAILED, blocked_until=UtcNow(LEASE))
    process.poller.step()
    assert Cursor.objects.get().next_offset == GOES_ON
    assert_nothing_failed()


def test_a_claim_that_passes_a_failed_message_begins_the_next_one_anew(clean_registry):
    consumer("orders", group="mail", start="earliest", ordered=True)(lambda message: None)
    process = Process("mail")
    lose(process)
    Cursor.objects.update(open_delivery=7)
    sent("new", "newer")
    Cursor.objects.update(open_delivery=None, next_offset=KEPT, **FAILED)
    held = process.claim(batch=10)
    assert (list(held.offsets), held.attempt) == ([GOES_ON, GOES_ON + 1], 1)
    assert not held.alone
    cursor = Cursor.objects.get()
    assert (cursor.attempt, cursor.alone, cursor.blocked_at) == (1, False, None)
    assert cursor.last_error == ""


def test_a_group_that_begins_later_passes_it(process):
    lose(process)
    sent("new")
    found: list[Any] = []
    consumer("orders", group="late", start="earliest")(found.append)
    Process("late").run_until_idle()
    assert [m.offset for m in found] == [*range(KEPT), GOES_ON]
    assert audit("default") == []


def test_a_reset_and_a_replay_pass_it(seen, process):
    lose(process)
    sent("new")
    process.run_until_idle()
    del seen[:]
    group = ConsumerGroup.objects.get()
    Reset(group, towards(Target.parse("8")), "default", force=True).run()
    process.run_until_idle()
    assert [m.offset for m in seen] == [8, 9, GOES_ON]
    del seen[:]
    replay.start(group, [replay.Span(partition(), 7, partition().next_offset)], "default")
    process.run_until_idle()
    assert [m.offset for m in seen] == [7, 8, 9, GOES_ON]
    assert audit("default") == []


def test_a_message_where_offsets_are_left_out_is_found_by_the_audit(process):
    lose(process)
    sent("new")
    Message.objects.filter(offset=GOES_ON).update(offset=KEPT + 1)
    kinds = {finding.kind for finding in audit("default")}
    assert "outside the log" in kinds


def test_a_second_failover_may_lose_the_jump_itself(process):
    sent(*range(KEPT))
    replica = Replica()
    sent(*range(KEPT, LOST))
    replica.promote()
    sent("lost with the jump")
    replica.promote()
    sent("new")
    assert offsets() == [*range(KEPT), GOES_ON + 1 + MARGIN]
    assert partition().epoch == 2
    assert audit("default") == []


def test_who_knows_more_jumps_again(process):
    lose(process)
    known = ends.seen("default")
    process.poller.step()
    more = {pk: End(GOES_ON + 5, 0) for pk in known}
    ends.remember(more, "default")
    sent("new")
    assert offsets()[-1] == GOES_ON + 5 + MARGIN
    assert partition().epoch == 2


def test_a_log_that_has_come_as_far_as_is_known_does_not_jump(process):
    sent(*range(KEPT))
    assert jump(partition().pk, End(KEPT, 0), "default") is None
    assert partition().next_offset == KEPT


def test_of_two_that_notice_it_at_once_one_jumps(process):
    lose(process)
    pk, known = partition().pk, End(LOST, 0)
    start = threading.Barrier(2)

    def try_it() -> Rewind | None:
        try:
            start.wait()
            return jump(pk, known, "default")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(try_it) for _ in range(2)]
        found = [one.result() for one in done]
    assert [one is None for one in sorted(found, key=lambda one: one is None)] == [False, True]
    assert Rewind.objects.count() == 1
    assert Delivery.objects.filter(state=State.SKIPPED).count() == 1


@strides(6)
@pytest.mark.parametrize("work", ["poller", "sequencer"])
def test_a_kill_at_any_statement_of_the_jump_repeats_nothing(process, seen, work, stride):
    """The fork remembers what this process has seen, and is killed before its n-th statement."""
    sent(*range(KEPT))
    process.run_until_idle()
    replica = Replica()
    sent(*range(KEPT, LOST))
    process.run_until_idle()
    known = ends.seen("default")

    def notice(point: int) -> None:
        Guillotine(point).install()
        if work == "poller":
            process.poller.step()
        else:
            sequence("default")

    for point in count(1, stride):
        replica.promote()
        remembered.forget()
        ends.remember(known, "default")
        send("orders", f"new {point}")
        status = in_fork(partial(notice, point))
        sequence_after_a_kill()
        assert Rewind.objects.count() == 1
        assert offsets()[KEPT] == GOES_ON, f"killed before statement {point}"
        assert Delivery.objects.filter(state=State.SKIPPED).count() == 1
        assert audit("default") == []
        if not status:
            break
    assert point > 8


# -- what a process remembers may be wrong ----------------------------------------------------


def test_what_is_rolled_back_is_not_remembered(seen, process, caplog):
    sent("first")
    process.run_until_idle()
    for _ in range(2):
        with transaction.atomic():
            sent("taken back")
            process.turn._turns.claimer.claim(10, LEASE)
            transaction.set_rollback(True)
    sent("second")
    assert offsets() == [0, 1]
    assert not Rewind.objects.exists()
    assert [r for r in caplog.records if r.levelno == logging.CRITICAL] == []


def test_what_is_left_out_is_not_read_from_a_replica_without_it(process):
    lose(process)
    process.poller.step()
    place = partition()
    rows = list(Rewind.objects.values())
    rewinds._holes.clear()
    Rewind.objects.all().delete()
    assert rewinds.holes(place.pk, place.epoch, "default") == ()
    Rewind.objects.bulk_create([Rewind(**row) for row in rows])
    assert rewinds.readable(place.pk, place.epoch, KEPT, GOES_ON, "default") == range(
        GOES_ON, GOES_ON
    )


def test_what_is_left_out_is_read_on_the_primary(process):
    """A router or a proxy may send a plain read to a replica, and a transaction to none."""
    lose(process)
    process.poller.step()
    rewinds._holes.clear()
    place = partition()
    inside: list[bool] = []

    def spy(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "ems_rewind" in sql:
            inside.append(connection.in_atomic_block)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(spy):
        assert rewinds.epoch_of(place, GOES_ON, "default") == 1
    assert inside == [True]


def test_a_claim_passes_no_messages_after_another_jump_of_the_same_epoch(seen, process):
    sent(*range(KEPT))
    process.run_until_idle()
    replica = Replica()
    sent(*range(KEPT, LOST))
    replica.promote()
    sent("lost with the jump")
    process.run_until_idle()
    ours, holes = ends.seen("default"), dict(rewinds._holes)
    assert holes
    # The next failover loses the jump. Another process, which knew less, jumps less far.
    replica.promote()
    remembered.forget()
    ends.remember({partition().pk: End(LOST - 3, 0)}, "default")
    sent("b1", "b2", "b3")
    assert partition().epoch == 1
    remembered.forget()
    ends.remember(ours, "default")
    rewinds._holes.update(holes)
    Cursor.objects.update(next_offset=KEPT)
    del seen[:]
    process.turn._turns.claimer.claim(1, LEASE)
    process.run_until_idle()
    handled = {m.body for m in seen}
    claimed = {d.first_offset for d in Delivery.objects.open()}
    assert claimed == {GOES_ON - 3}
    assert handled == {"b2", "b3"}


def test_a_claim_stays_when_the_connection_is_lost_while_the_jump_is_told(process, caplog):
    lose(process)
    before = ends.seen("default")
    sent("new")  # another process jumps
    caplog.clear()
    remembered.forget()
    ends.remember(before, "default")
    lost = [True]

    def away(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if lost[0] and "ems_rewind" in sql and "noticed_by" in sql:
            raise OperationalError(2013, "Lost connection")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(away):
        delivery = process.turn._turns.claimer.claim(10, LEASE)
        assert delivery is not None
        assert caplog.records == []
        lost[0] = False
        process.poller.step()
    assert [r.ems_event for r in caplog.records] == ["log.rewound"]


def test_a_distance_passes_what_is_left_out(seen, process):
    lose(process)
    sent("new")
    process.run_until_idle()
    del seen[:]
    group = ConsumerGroup.objects.get()
    back = Reset(group, towards(Target.parse("-5")), "default", force=True)
    (move,) = back.preview()
    assert (move.target, move.again) == (KEPT - 4, 5)
    back.run()
    process.run_until_idle()
    assert [m.offset for m in seen] == [*range(KEPT - 4, KEPT), GOES_ON]
    Reset(group, towards(Target.parse("-5")), "default", force=True).run()
    forward = Reset(group, towards(Target.parse("+5")), "default", force=True)
    (move,) = forward.preview()
    assert (move.target, move.skipped) == (GOES_ON + 1, 5)


def test_what_is_left_out_is_no_message_that_a_topic_holds(process):
    lose(process)
    process.poller.step()
    assert holdings(partition().topic_id, "default").messages == KEPT
    Message.objects.all().delete()
    Partition.objects.update(first_offset=KEPT)  # as a purge leaves it
    assert holdings(partition().topic_id, "default").messages == 0


def test_the_log_over_http_goes_on_behind_what_is_left_out(process):
    lose(process)
    sent("new")
    first = read_log("orders", 0, 0, 100, "default")
    assert (len(first.messages), first.next) == (KEPT, KEPT)
    assert [m.offset for m in read_log("orders", 0, KEPT, 100, "default").messages] == [GOES_ON]


def test_a_search_reads_past_what_is_left_out(process):
    lose(process)
    sent("new")
    found = search([partition()], Criteria(tag=""), 100, "default")
    assert [m.offset for m in found.messages] == [GOES_ON, *reversed(range(KEPT))]
    assert found.is_complete


# -- after a failover: who knows nothing waits for those who do -------------------------------


@pytest.fixture
def promoted(process, monkeypatch):
    """The offsets were given on another server, and this process is new on this one."""
    since = [0.0]
    monkeypatch.setattr(sequencer, "_told", {})
    monkeypatch.setattr(sequencer, "server", lambda using: "this one")
    monkeypatch.setattr(sequencer, "seconds_on", lambda name, using: since[0])
    lose(process)
    Partition.objects.update(server="another one")
    return since


def test_after_a_failover_offsets_are_given_when_those_who_know_more_have_looked(promoted, caplog):
    known = ends.seen("default")
    remembered.forget()  # a process that has not seen what is lost
    send("orders", "new")
    for _ in range(3):
        assert sequence("default") == Pass(busy=True, unsettled=True)
    assert [getattr(r, "ems_event", "") for r in caplog.records].count("sequencer.unsettled") == 1
    assert partition().next_offset == KEPT
    # Another one looks.
    ends.remember(known, "default")
    rewinds.jump_if_rewound(partition().pk, "default")
    remembered.forget()
    promoted[0] = sequencer.settle_seconds()
    assert sequence("default").sequenced == 1
    assert offsets()[-1] == GOES_ON
    assert partition().server == "this one"


def test_after_a_failover_that_lost_nothing_offsets_are_dense(promoted):
    remembered.forget()
    send("orders", "new")
    promoted[0] = sequencer.settle_seconds()
    assert sequence("default").sequenced == 1
    assert offsets()[-1] == KEPT
    assert not Rewind.objects.exists()


@pytest.mark.mysql
def test_a_partition_has_the_name_of_the_server_that_gave_its_offsets(monkeypatch):
    sent("old")
    name = server.server("default")
    assert partition().server == name != ""
    Partition.objects.update(server="another one")
    server._on.clear()  # as a process that comes here now
    connection.close()
    send("orders", "new")
    assert sequence("default") == Pass(busy=True, unsettled=True)
    monkeypatch.setattr(sequencer, "settle_seconds", lambda: 0.0)
    assert sequence("default").sequenced == 1
    assert partition().server == name


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"server_uuid": "u", "group_replication_group_name": ""}, "u"),
        ({"server_uuid": "u", "group_replication_group_name": "g"}, "g"),
        ({"wsrep_on": "OFF", "wsrep_cluster_name": "c"}, "7@db:3306"),
        ({"wsrep_on": "ON", "wsrep_cluster_name": "c"}, "c"),
    ],
)
def test_a_cluster_that_loses_nothing_has_one_name(variables, name):
    given = {"server_id": "7", "hostname": "db", "port": "3306", **variables}
    assert server._name(given) == name


def test_where_no_offset_was_given_before_nobody_waits(promoted):
    remembered.forget()
    Partition.objects.update(server="")
    send("orders", "new")
    assert sequence("default").sequenced == 1


def test_a_group_that_begins_at_the_latest_waits_for_that(promoted, clean_registry):
    promoted[0] = sequencer.settle_seconds() - 0.1
    remembered.forget()
    send("orders", "old")
    found: list[Any] = []
    consumer("orders", group="late", start="latest")(found.append)
    timer = threading.Timer(0.1, lambda: promoted.__setitem__(0, 60.0))
    timer.start()
    Process("late").run_until_idle()
    timer.join()
    assert found == []


def test_a_short_task_waits_until_it_may_sequence(promoted, monkeypatch):
    """A process of one task would otherwise end before, each time."""
    remembered.forget()
    send("orders", "new")
    timer = threading.Timer(0.2, lambda: promoted.__setitem__(0, 60.0))
    timer.start()
    assert sequence_all("default") == 1
    timer.join()


def test_while_offsets_wait_after_a_failover_the_poller_looks_seldom(promoted, process):
    remembered.forget()
    send("orders", "new")
    assert process.poller.step() == UNSETTLED_SECONDS
    assert PullPoller("default").step() == UNSETTLED_SECONDS


@pytest.mark.mysql
def test_a_look_at_the_logs_tells_on_which_server_a_process_is(process):
    sent("old")
    server._on.clear()
    connection.close()
    process.poller.step()
    assert server.seconds_on(server.server("default"), "default") > 0.0


# -- the processes of ems_consume ---------------------------------------------------------------

CONSUME = """
import sys
from django.core.management import call_command
from streams import consumer
@consumer("orders", group="mail", start="earliest")
def handle(message):
    print("handled", message.offset, flush=True)
call_command("ems_consume")
"""


@pytest.mark.mysql
def test_every_running_process_says_so_within_two_seconds(spawn: Spawn, clean_registry):
    send_many([Outgoing("orders", n) for n in range(KEPT)])
    consumers = [spawn(CONSUME), spawn(CONSUME)]
    for child in consumers:
        child.expect("orders")
    wait_for(lambda: Delivery.objects.filter(state=State.DONE, last_offset=KEPT - 1).exists())
    replica = Replica()
    send_many([Outgoing("orders", n) for n in range(KEPT, LOST)])
    wait_for(lambda: Delivery.objects.filter(state=State.DONE, last_offset=LOST - 1).exists())
    known = partition().next_offset
    replica.promote()
    for child in consumers:
        child.expect(f"orders/0 was rewound: it ended at offset {KEPT}", timeout=2.0)
    send("orders", "new")
    wait_for(lambda: Message.objects.filter(offset=known + MARGIN).exists())
    for child in consumers:
        child.terminate()
    for child in consumers:
        assert child.wait() == 0
    assert Rewind.objects.count() == 1
    assert audit("default") == []

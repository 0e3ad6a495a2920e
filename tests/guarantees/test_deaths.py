"""A consumer process dies by SIGKILL: its host-mates know what it had done, and what ran.

A fork of the test consumes with the code of a worker and is killed in a call or between two; then
the test looks for its progress file, as the next process of the host does.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from streams import Outgoing, ReceivedMessage, consumer, send_many
from streams.chaos.forks import in_fork
from streams.consume.outcome.any_order import Ends, bits, settle_any_order, split
from streams.consume.outcome.expire import expire
from streams.consume.outcome.failure import BodyUnread, Failure, ProcessDied
from streams.consume.outcome.settle import Settlement
from streams.deliver import recovery
from streams.deliver.claim import Claimer
from streams.deliver.pace import Pace
from streams.deliver.recovery import OutcomeLost
from streams.deliver.slot import COPY_SIZE, Copies, ProgressSlot, newest
from streams.errors import describe
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    RetryMessage,
    State,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.observe.audit.walk import audit
from streams.process.deaths import Deaths
from streams.process.shared import progress_file
from streams.process.shared.progress_file import (
    HEADER_AT,
    HEADER_COPY,
    MAGIC,
    SLOTS_AT,
    NoFile,
    ProgressFile,
    locked,
    opened,
)
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.concurrency.locks import wait_until_one_waits
from tests.consuming import LONG_AFTER, Process, consume_the_rest, given_back, rows
from tests.faults import Guillotine
from tests.hostapp.models import Handled
from tests.sessions import Session, Threads

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

MANY = 10


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, ems_settings: Callable[..., None]) -> Path:
    """Where the progress files of this test are."""
    ems_settings(STATE_DIR=str(tmp_path))
    return tmp_path


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def note(message: ReceivedMessage) -> None:
    """Write down that the call has ended, in a way that a kill does not undo."""
    Handled.objects.create(
        group=message.group,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        value=str(message.attempt),
    )


def handle(message: ReceivedMessage) -> None:
    """Do what the body says, at the first attempt."""
    if message.attempt == 1 and message.body == "die":
        die()
    if message.attempt == 1 and message.body == "fail":
        raise ZeroDivisionError
    note(message)


def handle_batch(messages: Sequence[ReceivedMessage]) -> dict[ReceivedMessage, Exception]:
    failed: dict[ReceivedMessage, Exception]
    failed = {m: ZeroDivisionError() for m in messages if (m.attempt, m.body) == (1, "fail")}
    for message in messages:
        if message not in failed:
            if (message.attempt, message.body) == (1, "die"):
                die()
            note(message)
    return failed


def send(bodies: str, **keys: Any) -> None:
    """Send a message for each letter: d(ie), f(ail), g(ood)."""
    words = {"d": "die", "f": "fail", "g": "good", "o": "other"}
    send_many([Outgoing("orders", words[one], **keys) for one in bodies])
    sequence("default")


def consume(group: str = "work") -> None:
    Process(group, file=ProgressFile("default", 1)).run_until_idle()


def killed(work: Callable[[], object] = consume) -> None:
    assert in_fork(work) == -signal.SIGKILL


def recover() -> None:
    """Look as the next process does."""
    assert Deaths("default").noticed()
    assert Deaths("default").recover() == 1


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.progress"))


def retries() -> dict[int, tuple[int, str]]:
    """Return of each retry its next attempt, and why it failed."""
    rows = RetryMessage.objects.order_by("offset")
    return {row.offset: (row.attempt, row.last_error) for row in rows}


def times() -> Counter[int]:
    """Return how often a call of each message has ended."""
    return Counter(Handled.objects.values_list("offset", flat=True))


DIED, LOST, UNREAD = (describe(error) for error in (ProcessDied(), OutcomeLost(), BodyUnread()))


def test_what_was_done_is_settled_what_ran_has_spent_an_attempt_the_rest_goes_back(
    folder: Path,
) -> None:
    consumer("orders", group="work")(handle)
    send("gggdgggggg")
    killed()
    assert len(files(folder)) == 1
    recover()
    assert retries() == {3: (2, DIED)}
    assert given_back() == [(4, 9)]
    assert not Consumer.objects.exists()
    assert not files(folder)
    consume_the_rest("work")
    assert times() == dict.fromkeys(range(MANY), 1)
    assert audit("default") == []


def test_failures_that_were_not_settled_yet_are_not_lost_and_what_came_after_is_not_repeated() -> (
    None
):
    consumer("orders", group="work")(handle)
    send("gfggfgdggg")
    killed()
    recover()
    assert retries() == {1: (2, LOST), 4: (2, LOST), 6: (2, DIED)}
    assert given_back() == [(7, 9)]
    consume_the_rest("work")
    assert times() == dict.fromkeys(range(MANY), 1)
    assert audit("default") == []


def test_a_batch_is_one_call() -> None:
    consumer("orders", group="work", batch=3)(handle_batch)
    send("gfgggdgggg")
    killed(_consume_in_one_claim)
    recover()
    assert retries() == {1: (2, LOST), 3: (2, DIED), 4: (2, DIED), 5: (2, DIED)}
    assert given_back() == [(6, 9)]
    consume_the_rest("work")
    twice = {3: 2, 4: 2}  # they were handled in the call that ran
    assert times() == {**dict.fromkeys(range(MANY), 1), **twice}
    assert audit("default") == []


def _consume_in_one_claim() -> None:
    """Claim all messages at once, as a thread that has become quick."""
    Pace.messages = lambda *_: MANY  # type: ignore[method-assign]
    consume()


def test_a_body_that_was_absent_is_read_again_with_its_attempt_unspent() -> None:
    """With 4 and 6 done and 5 unread, as after a failover, settling up to 7 would lose 5."""
    consumer("orders", group="work")(handle)
    send("gggggggdgg")
    Message.objects.filter(offset=5).delete()
    killed()
    recover()
    assert retries() == {5: (1, UNREAD), 7: (2, DIED)}
    assert given_back() == [(8, 9)]


def test_what_the_group_does_not_want_is_counted_as_passed_over() -> None:
    consumer("orders", group="work", tags=["mine"])(handle)
    send("gg", tag="mine")
    send("gg", tag="others")
    send("gdg", tag="mine")
    killed()
    recover()
    assert Delivery.objects.get(state=State.RETRY).passed == 2
    assert retries() == {5: (2, DIED)}
    assert given_back() == [(6, 6)]
    consume_the_rest("work")
    assert sorted(times()) == [0, 1, 4, 5, 6]


def test_an_ordered_group_goes_on_at_the_call_that_ran() -> None:
    consumer("orders", group="work", ordered=True)(handle)
    send("gggdgggggg")
    killed()
    recover()
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.open_delivery) == (3, 2, None)
    consume_the_rest("work")
    assert times() == dict.fromkeys(range(MANY), 1)
    assert audit("default") == []


def before_a_call(offset: int) -> Callable[[], None]:
    """Return what consumes, and dies just before the call of ``offset``."""

    def begin(slot: ProgressSlot, first: int, stop: int) -> None:
        if first == offset:
            die()
        BEGIN(slot, first, stop)

    def work() -> None:
        ProgressSlot.begin = begin  # type: ignore[method-assign, assignment]
        consume()

    return work


def after_a_call(offset: int) -> Callable[[], None]:
    """Return what consumes, and dies when the call of ``offset`` has just been noted."""

    def end(slot: ProgressSlot, stop: int, failed: Sequence[Failure] = ()) -> None:
        END(slot, stop, failed)
        if stop == offset + 1:
            die()

    def work() -> None:
        ProgressSlot.end = end  # type: ignore[method-assign, assignment]
        consume()

    return work


BEGIN, END = ProgressSlot.begin, ProgressSlot.end


@pytest.mark.parametrize("ordered", [False, True], ids=["", "ordered"])
@pytest.mark.parametrize("at", [before_a_call(4), after_a_call(3)], ids=["before", "after"])
def test_between_two_calls_no_attempt_is_spent_and_nothing_is_repeated(
    at: Callable[[], None], ordered: bool
) -> None:
    consumer("orders", group="work", ordered=ordered)(handle)
    send("g" * MANY)
    killed(at)
    recover()
    assert retries() == {}
    if ordered:
        cursor = Cursor.objects.get()
        assert (cursor.next_offset, cursor.attempt) == (4, 1)
    else:
        assert given_back() == [(4, 9)]
    drain("work")
    assert times() == dict.fromkeys(range(MANY), 1)
    assert set(Handled.objects.values_list("value", flat=True)) == {"1"}
    assert audit("default") == []


def test_a_failure_of_an_ordered_group_that_was_not_settled_yet_stops_it() -> None:
    consumer("orders", group="work", ordered=True)(handle)
    send("ggfggggggg")
    killed(after_a_call(2))
    recover()
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.last_error) == (2, 2, LOST)
    consume_the_rest("work")
    assert times() == dict.fromkeys(range(MANY), 1)


def test_a_claim_of_which_no_call_had_begun_goes_back_whole() -> None:
    consumer("orders", group="work")(handle)
    send("g" * MANY)

    def claim() -> None:
        Process("work", file=ProgressFile("default", 1)).claim(MANY)
        die()

    killed(claim)
    recover()
    assert given_back() == [(0, 9)]
    assert retries() == {}


class TestARetry:
    """A message that has failed once, whose process dies at its second attempt."""

    @pytest.fixture(autouse=True)
    def failed_once(self, transactional_db: None, clean_registry: None) -> None:
        consumer("orders", group="work", retry=[60])(self.handle)
        send("g")
        drain("work")
        assert retries()[0][0] == 2
        advance(LONG_AFTER)

    @staticmethod
    def handle(message: ReceivedMessage) -> None:
        if message.attempt == 1:
            raise ZeroDivisionError
        if message.attempt == 2 and Handled.objects.filter(group="die").exists():
            die()
        note(message)
        if Handled.objects.filter(group="fail").exists():
            raise ZeroDivisionError

    def test_that_was_in_its_call_has_spent_an_attempt(self) -> None:
        Handled.objects.create(group="die", topic="", partition=0, offset=9)
        killed()
        recover()
        assert retries() == {0: (3, DIED)}

    def test_that_was_not_begun_has_spent_none(self) -> None:
        killed(before_a_call(0))
        recover()
        assert retries()[0][0] == 2
        assert RetryMessage.objects.due().exists()

    def test_that_was_done_is_done(self) -> None:
        killed(after_a_call(0))
        recover()
        assert retries() == {}
        assert Delivery.objects.order_by("pk").last().state == State.DONE  # type: ignore[union-attr]

    def test_that_has_failed_again_comes_again(self) -> None:
        Handled.objects.create(group="fail", topic="", partition=0, offset=9)
        killed(after_a_call(0))
        recover()
        assert retries() == {0: (3, LOST)}


def test_an_atomic_call_that_ran_is_rolled_back_and_repeated() -> None:
    consumer("orders", group="work", atomic=True)(_note_and_die)
    send("gggdgggggg")
    killed()
    recover()
    assert retries() == {3: (2, DIED)}
    assert given_back() == [(4, 9)]
    consume_the_rest("work")
    assert times() == dict.fromkeys(range(MANY), 1)


def _note_and_die(message: ReceivedMessage) -> None:
    note(message)
    if (message.attempt, message.body) == (1, "die"):
        die()


def test_an_atomic_call_whose_commit_is_done_is_done_though_nobody_has_noted_it() -> None:
    consumer("orders", group="work", atomic=True)(handle)
    send("g" * MANY)

    def work() -> None:
        def end(slot: ProgressSlot, stop: int, failed: Sequence[Failure] = ()) -> None:
            if stop == 4:
                die()

        ProgressSlot.end = end  # type: ignore[method-assign, assignment]
        consume()

    killed(work)
    recover()
    assert Delivery.objects.get(first_offset=0).state == State.RELEASED  # it has not failed
    assert retries() == {}
    assert given_back() == [(4, 9)]
    drain("work")
    assert times() == dict.fromkeys(range(MANY), 1)


def test_a_message_that_kills_each_process_becomes_a_suspect_and_then_a_dead_letter() -> None:
    consumer("orders", group="work", max_retries=3, retry=[0.01])(_die_always)
    send("ggdg")
    for _death in range(4):
        killed()
        recover()
        advance(LONG_AFTER)
        if retries():
            assert RetryMessage.objects.get().alone == (retries()[2][0] > 2)
    assert DeadMessage.objects.get().offset == 2
    drain("work")
    assert times() == {0: 1, 1: 1, 3: 1}
    assert set(Handled.objects.values_list("value", flat=True)) == {"1"}


def _die_always(message: ReceivedMessage) -> None:
    if message.body == "die":
        die()
    note(message)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_process_on_two_databases_leaves_a_file_for_each(
    folder: Path, ems_settings: Callable[..., None]
) -> None:
    """The ids of their deliveries are the same."""
    ems_settings(STATE_DIR=str(folder), SHARDS={"clicks": "other"})
    both = {"default": ("orders", "work"), "other": ("clicks", "count")}
    for using, (topic, group) in both.items():
        consumer(topic, group=group)(handle)
        send_many([Outgoing(topic, "good") for _ in range(3)])
        sequence(using)

    def work() -> None:
        for using, (_topic, group) in both.items():
            file = ProgressFile(using, 2)
            slot = file.slot("worker")
            slot.claim(Process(group, using=using, file=file).claim())
            slot.begin(1, 2)
        die()

    killed(work)
    assert len(files(folder)) == 2
    for using, (_topic, group) in both.items():
        held = Delivery.objects.using(using).held()
        assert held.filter(group__name=group).count() == 1
        assert Deaths(using).recover() == 1
        assert not held.exists()
        assert RetryMessage.objects.using(using).get().offset == 1
        assert not Consumer.objects.using(using).exists()
    assert not files(folder)


def reader_killed_before(point: int) -> bool:
    """Let a reader be killed before its n-th statement, and another go on.

    Return whether the first one has made fewer, and was not killed.
    """

    def look() -> None:
        Guillotine(point).install()
        Deaths("default").recover()

    status = in_fork(look)
    Deaths("default").recover()
    return status == 0


@pytest.mark.exhaustive
def test_a_reader_may_be_killed_between_any_two_statements() -> None:
    """Whoever goes on finds the rest in the tables and in the file."""
    consumer("orders", group="work")(handle)
    for point in range(1, 100):
        send("gfggdg" + "g" * (MANY - 6))
        killed()
        came_to_its_end = reader_killed_before(point)
        begin = (point - 1) * MANY
        assert retries() == {begin + 1: (2, LOST), begin + 4: (2, DIED)}
        assert given_back() == [(begin + 5, begin + 9)]
        consume_the_rest("work")
        assert times() == dict.fromkeys(range(point * MANY), 1)
        if came_to_its_end:
            break
    assert point > 10  # it did die at many places
    assert audit("default") == []


# Of a claim that is settled in any order: settled, had ended, ran, or had not begun.
STATES = "srner"


def killed_in_any_order(before_its_death: Callable[[Delivery], object]) -> None:
    """Let a process claim as many messages as STATES has, and die."""
    settled, ended, begun = (
        bits([at for at, state in enumerate(STATES) if state in those], 0)
        for those in ("s", "se", "ser")
    )

    def work() -> None:
        file = ProgressFile("default", 2)
        slot = file.slot("worker")
        delivery = Process("work", file=file).claim()
        slot.claim(delivery)
        slot.any_order(begun, ended)
        ends = Ends(delivery, settled, timedelta(seconds=1))
        settle_any_order([ends], "default")
        before_its_death(delivery)
        die()

    send("g" * len(STATES))
    killed(work)


def ended_in_any_order(begin: int) -> bool:
    """Tell whether what ran has spent an attempt, and what had not begun none."""
    return (
        retries() == {begin + 1: (2, DIED), begin + 4: (2, DIED)}
        and given_back() == [(begin + 2, begin + 2)]
        and not Delivery.objects.held().exists()
    )


def test_a_process_may_die_before_it_has_noted_the_parts_of_its_claim() -> None:
    """Each part has a row of its own; the slot names the row of the whole only."""
    consumer("orders", group="work")(handle)
    killed_in_any_order(lambda delivery: split(delivery, {1}))
    recover()
    assert ended_in_any_order(0)
    consume_the_rest("work")
    assert times() == {1: 1, 2: 1, 4: 1}
    assert audit("default") == []


@pytest.mark.exhaustive
def test_a_reader_may_be_killed_between_the_parts_of_a_claim() -> None:
    consumer("orders", group="work")(handle)
    for point in range(1, 100):
        killed_in_any_order(lambda _delivery: None)
        came_to_its_end = reader_killed_before(point)
        begin = (point - 1) * len(STATES)
        assert ended_in_any_order(begin)
        consume_the_rest("work")
        again = {at for at in range(begin + len(STATES)) if STATES[at % len(STATES)] in "rn"}
        assert times() == dict.fromkeys(again, 1)
        if came_to_its_end:
            break
    assert point > 10  # it did die at many places
    assert audit("default") == []


# Of a batch of three the process dies in a call that did not get the third message.
IN_THE_CALL = [0, 1, 3]


def killed_in_a_call_with_a_gap() -> None:
    for one in "dgoggggggg":
        send(one, tag="others" if one == "o" else "mine")
    killed(_consume_in_one_claim)


def ended_with_a_gap(begin: int) -> bool:
    """Tell whether each message that the call got has spent an attempt, and no other."""
    return (
        retries() == {begin + at: (2, DIED) for at in IN_THE_CALL}
        and given_back() == [(begin + 2, begin + 2), (begin + 4, begin + 9)]
        and not Delivery.objects.held().exists()
    )


def test_a_reader_that_stops_within_a_call_with_a_gap_leaves_all_of_it_as_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each message of the call has a row of its own by then, and the slot names one of them."""
    consumer("orders", group="work", tags=["mine"], batch=3)(handle_batch)
    killed_in_a_call_with_a_gap()
    ended: list[int] = []

    def lock_the_second(delivery: Delivery, *arguments: Any, **keys: Any) -> Settlement | None:
        ended.append(delivery.first_offset)
        return None if len(ended) == 2 else expire(delivery, *arguments, **keys)

    monkeypatch.setattr(recovery, "expire", lock_the_second)
    assert Deaths("default").recover() == 0
    recover()
    assert ended_with_a_gap(0)


@pytest.mark.exhaustive
def test_a_reader_may_be_killed_between_the_messages_of_a_call_with_a_gap() -> None:
    consumer("orders", group="work", tags=["mine"], batch=3)(handle_batch)
    for point in range(1, 100):
        killed_in_a_call_with_a_gap()
        came_to_its_end = reader_killed_before(point)
        assert ended_with_a_gap((point - 1) * MANY)
        consume_the_rest("work")
        assert times() == {at: 1 for at in range(point * MANY) if at % MANY != 2}
        if came_to_its_end:
            break
    assert point > 10  # it did die at many places
    assert audit("default") == []


def test_two_readers_at_once_do_it_once(in_thread: Threads) -> None:
    consumer("orders", group="work")(handle)
    send("gfggdggggg")
    killed()
    looks = [in_thread(Deaths("default").recover) for _ in range(4)]
    assert sorted(look.result() for look in looks) == [0, 0, 0, 1]
    assert retries() == {1: (2, LOST), 4: (2, DIED)}
    assert given_back() == [(5, 9)]


@pytest.mark.mysql
def test_a_settlement_that_is_still_in_flight_is_waited_for(
    second_connection: Callable[..., Session], in_thread: Threads
) -> None:
    """The server may commit what a process has sent after the process is gone."""
    consumer("orders", group="work")(handle)
    send("gggdgggggg")
    killed()
    late = second_connection()
    late.execute("BEGIN")
    late.execute("UPDATE ems_topic_group_log SET progress = 6")
    look = in_thread(Deaths("default").recover)
    wait_until_one_waits(connection.settings_dict["NAME"], look)
    late.execute("COMMIT")
    assert look.result() == 1
    assert retries() == {}
    assert given_back() == [(6, 9)]


@pytest.mark.mysql
def test_a_claim_that_stays_locked_is_left_to_the_next_look(
    second_connection: Callable[..., Session],
) -> None:
    consumer("orders", group="work")(handle)
    send("gggdgggggg")
    killed()
    other = second_connection()
    other.execute("BEGIN")
    other.execute("SELECT id FROM ems_topic_group_log FOR UPDATE")
    assert Deaths("default").recover() == 0
    assert Consumer.objects.exists()
    other.execute("ROLLBACK")
    recover()
    assert retries() == {3: (2, DIED)}


@pytest.mark.mysql
def test_a_claim_whose_commit_arrives_after_the_death_is_given_back(late: Session) -> None:
    """Until then no look sees it. It holds its cursor, and so the file stays."""
    assert Deaths("default").recover() == 0
    with late.active():
        transaction.commit()
    recover()
    assert not Consumer.objects.exists()
    assert retries() == {}
    assert given_back() == [(0, 9)]


@pytest.mark.mysql
def test_a_claim_that_arrives_after_its_client_was_forgotten_is_given_back(late: Session) -> None:
    deaths = Deaths("default")
    assert deaths.recover() == 0
    Consumer.objects.update(lease_until=UtcNow(-3 * LEASE))
    sweep("default")
    assert not Consumer.objects.exists()
    assert deaths.recover() == 0
    with late.active():
        transaction.commit()
    assert deaths.recover() == 1
    assert retries() == {}
    assert given_back() == [(0, 9)]


@pytest.mark.mysql
def test_so_is_one_that_nobody_looked_at_before_its_client_was_forgotten(late: Session) -> None:
    Consumer.objects.update(lease_until=UtcNow(-3 * LEASE))
    sweep("default")
    assert not Consumer.objects.exists()
    assert Deaths("default").recover() == 0
    with late.active():
        transaction.commit()
    assert Deaths("default").recover() == 1
    assert retries() == {}
    assert given_back() == [(0, 9)]


@pytest.fixture
def late(second_connection: Callable[..., Session]) -> Session:
    """The connection of a process that has died, on which the commit of a claim is in flight."""
    consumer("orders", group="work")(handle)
    send("g" * MANY)
    killed(_register_and_die)
    late = second_connection()
    with late.active():
        transaction.set_autocommit(False)
        client = Consumer.objects.get()
        claimer = Claimer(client.group, client.client_id, "worker", "default")
        assert claimer.claim(MANY, timedelta(minutes=1))
    return late


def _register_and_die() -> None:
    Process("work", file=ProgressFile("default", 1))
    die()


class TestAFileThatIsNotUsed:
    """Whatever it says, it changes nothing: the end of the lease decides."""

    @pytest.fixture(autouse=True)
    def dead(self, transactional_db: None, clean_registry: None, folder: Path) -> None:
        consumer("orders", group="work")(handle)
        send("gggdgggggg")
        killed()
        (self.path,) = files(folder)
        self.content = self.path.read_bytes()

    def changes_nothing(self) -> str:
        before = rows(Delivery, RetryMessage, Cursor, Consumer)
        deaths = Deaths("default")
        assert deaths.recover() == 0
        assert deaths.recover() == 0  # said once
        assert not deaths.noticed()
        assert rows(Delivery, RetryMessage, Cursor, Consumer) == before
        return "nothing"

    def test_since_it_is_a_copy(self, caplog: pytest.LogCaptureFixture) -> None:
        """As a backup makes of the file of a process that lives: the copy is not locked."""
        self.path.rename(self.path.with_suffix(".old"))
        self.path.write_bytes(self.content)
        self.changes_nothing()
        assert caplog.text.count("is not used: it is a copy") == 1

    def test_since_it_is_of_another_format(self, caplog: pytest.LogCaptureFixture) -> None:
        self._write(MAGIC.replace(b"1", b"2") + self.content[len(MAGIC) :])
        self.changes_nothing()
        assert "it is of another version of EMS" in caplog.text

    def test_since_it_is_of_another_database(self, caplog: pytest.LogCaptureFixture) -> None:
        self._change(database="another")
        self.changes_nothing()
        assert "it is of another database" in caplog.text

    def test_since_the_host_was_restarted(self, caplog: pytest.LogCaptureFixture) -> None:
        self._change(boot="before")
        self.changes_nothing()
        assert "the host was restarted since" in caplog.text

    @pytest.mark.parametrize("size", [0, 10, 1500, SLOTS_AT])
    def test_since_it_was_cut_off(self, size: int) -> None:
        self._write(self.content[:size])
        self.changes_nothing()

    def test_since_its_header_is_damaged(self) -> None:
        header = self.content[HEADER_AT:SLOTS_AT].replace(b"client", b"cl1ent")
        self._write(self.content[:HEADER_AT] + header + self.content[SLOTS_AT:])
        self.changes_nothing()

    def test_since_its_process_lives(self) -> None:
        with locked(self.path) as fd:
            assert fd is not None
            self.changes_nothing()

    def test_it_is_deleted_when_it_is_old(self) -> None:
        self._change(boot="before")
        deaths = Deaths("default")
        assert deaths.recover() == 0
        os.utime(self.path, (0, 0))
        assert deaths.recover() == 0
        assert not self.path.exists()

    def _write(self, content: bytes) -> None:
        self.path.write_bytes(content)

    def _change(self, **keys: str) -> None:
        with self.path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        found = newest(memory[:], HEADER_AT, HEADER_COPY)
        assert found is not None
        about = json.loads(found[-1].rstrip(b"\0")) | keys
        header = Copies(memory, HEADER_AT, HEADER_COPY)
        for _both in range(2):
            header.say(json.dumps(about).encode())
            header.put(0, 0, 0)


class TestATornSlot:
    @pytest.fixture(autouse=True)
    def dead(self, transactional_db: None, clean_registry: None, folder: Path) -> None:
        consumer("orders", group="work")(handle)
        send("gggdgggggg")
        killed()
        (self.path,) = files(folder)

    def _tear(self, *copies: int) -> None:
        with self.path.open("r+b") as file:
            for copy in copies:
                file.seek(SLOTS_AT + copy * COPY_SIZE + 8)
                file.write(b"torn")

    def _newer(self) -> int:
        content = self.path.read_bytes()
        places = SLOTS_AT, SLOTS_AT + COPY_SIZE
        numbers = [int.from_bytes(content[at : at + 8], "little") for at in places]
        return numbers.index(max(numbers))

    def test_says_what_it_said_before(self) -> None:
        """As if the process had been killed a moment sooner: before the call."""
        self._tear(self._newer())
        recover()
        assert retries() == {}
        assert given_back() == [(3, 9)]

    def test_of_which_nothing_is_left_changes_nothing(self) -> None:
        self._tear(0, 1)
        before = rows(Delivery, RetryMessage, Cursor)
        recover()
        assert rows(Delivery, RetryMessage, Cursor) == before


def test_a_token_that_is_not_in_force_any_more_changes_nothing(folder: Path) -> None:
    """The lease has ended meanwhile, and somebody else has the messages."""
    consumer("orders", group="work")(handle)
    send("gggdgggggg")
    killed()
    advance(LONG_AFTER)
    sweep("default")
    before = rows(Delivery, RetryMessage, Cursor)
    recover()
    assert rows(Delivery, RetryMessage, Cursor) == before
    assert not files(folder)


def test_a_group_that_was_deleted_meanwhile_is_passed_over(folder: Path) -> None:
    consumer("orders", group="work")(handle)
    send("gggdgggggg")
    killed()
    Cursor.objects.all().delete()
    ConsumerGroup.objects.all().delete()
    recover()
    assert not files(folder)


def test_a_process_that_lives_is_left_alone_also_after_its_lease_has_ended(folder: Path) -> None:
    consumer("orders", group="work")(handle)
    file = ProgressFile("default", 1)
    process = Process("work", file=file)
    send("gggggggggg")
    advance(LONG_AFTER)
    process.heartbeat.step()  # takes a new client id
    claimed = process.claim(MANY)
    assert not Deaths("default").noticed()
    assert Deaths("default").recover() == 0
    assert claimed.held().exists()
    file.close()
    assert not files(folder)


def test_after_a_late_lease_the_file_names_the_new_client(folder: Path) -> None:
    consumer("orders", group="work")(handle)
    send("g" * MANY)

    def work() -> None:
        process = Process("work", file=ProgressFile("default", 1))
        advance(LONG_AFTER)
        process.heartbeat.step()
        process.turn._turns.claimer.client_id = process.client.client_id
        process.claim(MANY)
        die()

    killed(work)
    recover()
    assert given_back() == [(0, 9)]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_without_a_file_there_is_one_warning_and_the_end_of_the_lease_decides(
    error: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, folder: Path
) -> None:
    """As on a disk that is full: a store into memory without a place on it would be a SIGBUS."""

    def refuse(*_arguments: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    consumer("orders", group="work")(handle)
    send("gggdgggggg")
    file = opened("default", 1)
    assert isinstance(file, NoFile)
    assert caplog.text.count("wait for the end of its lease") == 1
    assert not list(folder.iterdir())
    killed(lambda: Process("work", file=file).run_until_idle())
    assert not Deaths("default").noticed()
    consume_the_rest("work")
    assert set(times()) == set(range(MANY))


def test_a_folder_on_a_network_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, folder: Path
) -> None:
    monkeypatch.setattr(progress_file, "NETWORK", {progress_file.kind_of(folder)})
    assert isinstance(opened("default", 1), NoFile)
    assert "is a file system of a network" in caplog.text


def test_a_folder_that_cannot_be_made_is_not_used(
    ems_settings: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    ems_settings(STATE_DIR=str(tmp_path / "file" / "state"))
    assert isinstance(opened("default", 1), NoFile)
    assert caplog.text.count("wait for the end of its lease") == 1
    assert not Deaths("default").noticed()
    assert Deaths("default").recover() == 0


def test_the_file_is_for_its_user_only_and_is_gone_after_the_end(folder: Path) -> None:
    file = ProgressFile("default", 3)
    (path,) = files(folder)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_blocks * 512 >= path.stat().st_size  # all of it has its place
    assert not os.get_inheritable(file._fd)
    file.close()
    assert list(folder.iterdir()) == []


def test_a_child_of_a_handler_does_not_hide_the_death_of_its_process(folder: Path) -> None:
    """It has the lock of its parent, as long as it has the descriptor or the memory."""
    reader, writer = os.pipe()
    consumer("orders", group="work")(partial(_fork_and_die, reader, writer))
    send("g")
    killed()
    try:
        recover()
    finally:
        os.close(writer)
    assert retries() == {0: (2, DIED)}


def _fork_and_die(reader: int, writer: int, message: ReceivedMessage) -> None:
    ready, told = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if not pid:
        os.close(writer)
        os.write(told, b"x")  # what is done after a fork is done
        os.read(reader, 1)  # until the test is over
        os._exit(0)
    os.read(ready, 1)
    die()

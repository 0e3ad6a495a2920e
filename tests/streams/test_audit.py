"""The audit finds each broken promise, and none where there is none, also while all is running."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from streams import Outgoing, Reject, Retry, consumer, send, send_many
from streams.consume import registry
from streams.consume.limits import limits
from streams.consume.outcome.dead_letter import redrive
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.deliver.handling import Handling
from streams.errors import LeaseLost
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
    UtcNow,
)
from streams.observe.audit import walk as walking
from streams.observe.audit.finding import AuditPosition, BadPosition, Finding, joined
from streams.observe.audit.walk import walk
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import fail
from tests.faults import Once, statements
from tests.sessions import Session, Threads

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "WINDOW", 7)


def found() -> list[str]:
    """What the audit says, without the ids."""
    return [finding.kind for finding in walking.audit("default")]


def said() -> str:
    (finding,) = walking.audit("default")
    return str(finding)


def handled(messages: int = 20, *, batch: int = 3) -> None:
    """A group that has done all of these; every fifth has failed once, and waits."""

    @consumer("orders", group="mail", batch=batch)
    def handle(received):
        return {m: ValueError("no") for m in received if m.body % 5 == 4 and m.attempt == 1}

    send_many([Outgoing("orders", number) for number in range(messages)])
    drain()


def handled_and_retried(messages: int = 20) -> None:
    handled(messages)
    advance(MINUTE)
    drain()


def claim(batch: int = 3) -> Delivery:
    group = subscribe(registry.find("orders", "mail"), "default")  # type: ignore[arg-type]
    delivery = Claimer(group, "gone", "thread", "default").claim(batch, MINUTE)
    assert delivery
    return delivery


# -- nothing to find --


def test_there_is_nothing_to_find_in_an_empty_database() -> None:
    assert found() == []


def test_there_is_nothing_to_find_where_messages_wait_run_fail_and_are_done() -> None:
    handled_and_retried()
    send_many([Outgoing("orders", n) for n in range(10)])
    sequence("default")
    claim()
    send("orders", 1, delay=60)
    assert RetryMessage.objects.count() == 0
    assert found() == []


def test_there_is_nothing_to_find_where_a_dead_letter_was_discarded_or_redriven() -> None:
    @consumer("orders", group="mail", batch=4)
    def handle(received):
        return {m: Reject("odd") for m in received if m.body % 2 and m.attempt == 1}

    send_many([Outgoing("orders", n) for n in range(8)])
    assert drain().dead == 4
    discarded, redriven, waiting, _ = DeadMessage.objects.order_by("id")
    assert discarded.discard()
    assert redrive(redriven)
    assert found() == []
    consumer("orders", group="mail", batch=4)(handle)
    drain()
    assert DeadMessage.objects.waiting().count() == 3  # once more: attempt 1
    assert redrive(waiting)
    assert found() == []


def test_there_is_nothing_to_find_where_a_process_died_and_its_messages_are_retried() -> None:
    handled(4)
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    claim()
    sweep("default")
    assert found() == []
    advance(MINUTE)
    drain()
    assert found() == []


def test_there_is_nothing_to_find_where_the_log_was_purged_in_the_middle_of_a_delivery() -> None:
    handled_and_retried()
    Partition.objects.update(first_offset=10)  # within the delivery of 9 … 11
    Message.objects.filter(offset__lt=10).delete()
    assert found() == []


def test_a_group_that_starts_late_owes_nothing_of_before() -> None:
    handled_and_retried()
    consumer("orders", group="late", start="latest")(print)
    subscribe(registry.find("orders", "late"), "default")  # type: ignore[arg-type]
    assert found() == []


def test_bodies_that_are_gone_are_missing_and_not_lost() -> None:
    handled_and_retried()
    send_many([Outgoing("orders", n) for n in range(6)])
    sequence("default")
    Message.objects.filter(offset__in=(20, 21)).delete()
    drain()
    assert found() == ["hole", "retry without body", "retry without body"]
    advance(MINUTE)
    assert drain().missing == 2
    assert found() == ["hole"]


def test_a_range_that_was_skipped_is_covered_however_long_it_is() -> None:
    handled_and_retried(5)
    sequence("default")
    send_many([Outgoing("orders", n) for n in range(40)])
    sequence("default")
    last = Delivery.objects.order_by("id").last()
    assert last
    Cursor.objects.update(next_offset=44)
    last.pk, last.first_offset, last.last_offset = None, 5, 43
    last.kind, last.state = Kind.NEW, State.SKIPPED
    last.save()
    assert found() == []
    Partition.objects.update(first_offset=20)
    Message.objects.filter(offset__lt=20).delete()
    assert found() == []


def test_a_cursor_that_was_set_back_accounts_for_what_it_will_claim_again() -> None:
    handled_and_retried(6)
    delivery = Delivery.objects.filter(kind=Kind.NEW).order_by("id")[0]
    Delivery.objects.filter(kind=Kind.RETRY).delete()
    assert found() == ["lost failure"]
    Cursor.objects.update(next_offset=0)
    assert found() == []
    drain()
    assert Delivery.objects.filter(first_offset=delivery.first_offset, kind=Kind.NEW).count() == 2
    assert found() == []


# -- planted faults --


def test_a_hole_is_found() -> None:
    handled_and_retried()
    Message.objects.filter(offset=11).delete()
    assert said() == "hole in orders/0: offsets 11 … 11 (1)"


def test_a_long_hole_is_one_finding() -> None:
    handled_and_retried(60)
    Message.objects.filter(offset__gte=5, offset__lt=50).delete()
    assert said() == "hole in orders/0: offsets 5 … 49 (45)"


@pytest.mark.parametrize("offset", [-3, 20, 10**12])
def test_a_message_outside_the_log_is_found(offset: int) -> None:
    handled_and_retried()
    extra = Message.objects.order_by("offset")[0]
    extra.pk, extra.offset = None, offset
    extra.save()
    assert said() == (
        f"outside the log in orders/0: 1 messages from offset {offset} on; the log ends before 20"
    )


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_repeated_offset_is_found_even_beside_a_hole() -> None:
    handled_and_retried()
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE ems_msg DROP INDEX ems_msg_log, ADD INDEX ems_msg_log"
            " (partition_id, `offset`)"
        )
    try:
        Message.objects.filter(offset=11).update(offset=12)
        assert sorted(found()) == ["hole", "repeat"]
    finally:
        Message.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute(
                "ALTER TABLE ems_msg DROP INDEX ems_msg_log, ADD UNIQUE INDEX"
                " ems_msg_log (partition_id, `offset`)"
            )


def test_messages_without_a_partition_are_found_in_inbox_and_log() -> None:
    handled_and_retried()
    for offset in (None, 7):
        lost = Message.objects.order_by("id")[0]
        lost.pk, lost.offset, lost.partition_id = None, offset, 4711
        lost.save()
    assert said() == "no partition in ems_msg of partition 4711: 2 messages or more"


def test_a_position_of_a_partition_that_is_not_there_hides_no_other_finding() -> None:
    handled_and_retried()
    Delivery.objects.filter(kind=Kind.NEW, first_offset__lte=10, last_offset__gte=10).delete()
    cursor = Cursor.objects.get()
    Cursor.objects.filter(pk=cursor.pk).update(id=cursor.pk + 10)
    Cursor.objects.create(id=cursor.pk, group_id=cursor.group_id, partition_id=4711)
    orphan, uncovered = map(str, walking.audit("default"))
    assert orphan.startswith(f"orphan in ems_cursor {cursor.pk}: its group, partition or topic")
    assert uncovered == "uncovered in mail on orders/0: offsets 9 … 11 (3)"


def test_an_offset_that_no_delivery_covers_is_found() -> None:
    handled_and_retried()
    Delivery.objects.filter(kind=Kind.NEW, first_offset__lte=10, last_offset__gte=10).delete()
    assert said() == "uncovered in mail on orders/0: offsets 9 … 11 (3)"


def test_what_a_cursor_has_jumped_over_is_one_finding() -> None:
    handled_and_retried(6)
    send_many([Outgoing("orders", n) for n in range(54)])
    sequence("default")
    Cursor.objects.update(next_offset=60)
    assert said() == "uncovered in mail on orders/0: offsets 6 … 59 (54)"


def test_a_delivery_that_nobody_ends_is_found() -> None:
    handled_and_retried(6)
    send("orders", 1)
    sequence("default")
    delivery = claim()
    Delivery.objects.filter(pk=delivery.pk).update(deadline=UtcNow(-walking.OVERDUE / 2))
    assert found() == []
    Delivery.objects.filter(pk=delivery.pk).update(deadline=UtcNow(-walking.OVERDUE * 2))
    assert said() == f"unended in mail on orders/0 at 6: delivery {delivery.pk}"


def test_a_failed_offset_that_is_in_no_table_is_found() -> None:
    handled()
    assert RetryMessage.objects.count() == 4
    RetryMessage.objects.filter(offset=14).delete()
    assert "1 failed and are not dead, 0 go on" in said()


def test_a_failed_offset_of_a_delivery_in_hand_is_found() -> None:
    handled(3)
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    delivery = claim()
    Delivery.objects.filter(pk=delivery.pk).update(progress=4, failed=1)
    assert "1 failed and are not dead, 0 go on" in said()


def test_a_failed_retry_that_is_in_no_table_is_found() -> None:
    consumer("orders", group="mail")(fail)
    send("orders", 1)
    for _ in range(3):
        drain()
        advance(MINUTE * 10)
    assert Delivery.objects.filter(kind=Kind.RETRY).count() == 2
    assert found() == []
    RetryMessage.objects.all().delete()
    newest = Delivery.objects.latest("id")
    assert f"delivery {newest.pk}" in said()


@pytest.mark.parametrize("state", [State.RETRY, State.RELEASED, State.DONE])
def test_what_a_delivery_left_undone_and_nobody_has_is_found(state: State) -> None:
    handled(3)
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    delivery = claim()
    Delivery.objects.filter(pk=delivery.pk).update(state=state, progress=4)
    assert said().endswith(f"delivery {delivery.pk}: nothing is known of offsets 4, 5")


def test_a_redriven_letter_that_is_no_retry_is_found() -> None:
    @consumer("orders", group="mail")
    def handle(message):
        raise Reject("no")

    send("orders", 1)
    drain()
    letter = DeadMessage.objects.get()
    redrive(letter)
    RetryMessage.objects.all().delete()
    assert f"dead letter {letter.pk} was redriven, and is not a retry" in said()


def test_an_open_retry_without_its_row_is_found() -> None:
    handled(5)
    advance(MINUTE)
    group = ConsumerGroup.objects.get()
    assert Claimer(group, "client", "thread", "default").claim_retry(MINUTE)
    assert found() == []
    RetryMessage.objects.all().delete()
    assert said() == "lost failure in mail on orders/0 at 4: no retry row for it"


def test_a_retry_held_by_an_ended_delivery_is_found() -> None:
    handled()
    ended = Delivery.objects.filter(state=State.DONE)[0]
    RetryMessage.objects.filter(offset=9).update(delivery=ended)
    assert said() == (
        f"stuck retry in mail on orders/0 at 9: held by delivery {ended.pk}, which has ended"
    )
    RetryMessage.objects.filter(offset=9).update(delivery=10**9)
    assert found() == ["stuck retry"]


def test_a_retry_without_a_body_is_found() -> None:
    handled()
    Message.objects.filter(offset=19).delete()
    assert found() == ["hole", "retry without body"]


def test_a_redriven_retry_has_the_body_of_its_letter() -> None:
    @consumer("orders", group="mail")
    def handle(message):
        raise Reject("no")

    send("orders", 1)
    drain()
    redrive(DeadMessage.objects.get())
    Message.objects.all().delete()
    assert found() == ["hole"]
    DeadMessage.objects.all().delete()
    assert found() == ["hole", "retry without body"]


# -- order --


def swapped(one: int, two: int) -> None:
    """Let two messages have each other's offset, and nothing else."""
    first, second = Message.objects.get(offset=one), Message.objects.get(offset=two)
    for pk, offset in ((first.pk, 10**9), (second.pk, one), (first.pk, two)):
        Message.objects.filter(pk=pk).update(offset=offset)


@pytest.mark.parametrize("at", [2, 6, 18])  # 6 and 7: on both sides of a window
def test_two_messages_of_a_pass_against_the_order_of_sending_are_found(at: int) -> None:
    handled_and_retried()
    swapped(at, at + 1)
    assert (
        f"disorder in orders/0: offset {at + 1} belongs before offset {at}: no later pass of the"
        " sequencer has placed it"
    ) in map(str, walking.audit("default"))
    assert set(found()) == {"disorder"}


def test_two_messages_of_different_passes_that_change_places_are_found() -> None:
    for number in range(4):
        send("orders", number)
        sequence("default")
    assert found() == []
    swapped(1, 2)
    assert "disorder" in found()


def test_delayed_messages_against_the_order_of_their_due_times_are_found() -> None:
    for minutes in (30, 10, 20):
        send("orders", minutes, delay=timedelta(minutes=minutes))
    send("orders", "at once")
    advance(timedelta(minutes=40))
    sequence("default")
    assert found() == []
    swapped(0, 1)
    assert found() == ["disorder"]
    swapped(0, 1)
    swapped(2, 3)  # the one that was sent at once comes last in a pass
    assert found() == ["disorder"]


def test_two_claims_at_once_in_a_partition_of_an_ordered_group_are_found() -> None:
    consumer("orders", group="mail", ordered=True, start="earliest")(print)
    send_many([Outgoing("orders", n) for n in range(4)])
    sequence("default")
    held = claim(1)
    assert found() == []
    Cursor.objects.update(open_delivery=None)  # as if nothing held it
    second = claim(1)
    assert said() == (
        f"disorder in mail on orders/0 at 1: deliveries {held.pk} and {second.pk} are open, and the"
        " group is ordered"
    )
    ConsumerGroup.objects.update(ordered=False)
    assert found() == []


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_late_commit_is_no_disorder_also_when_the_clock_steps_back(
    second_connection: Callable[[], Session],
) -> None:
    send("orders", "first")
    for back in (False, True):
        late = second_connection()
        with late.active():
            transaction.set_autocommit(False)
            send("orders", "late")
        send("orders", "early")
        sequence("default")
        if back:
            ahead = datetime.now(UTC) + timedelta(hours=1)
            Partition.objects.update(last_sequenced_at=ahead)
            Message.objects.filter(offset=Partition.objects.get().next_offset - 1).update(
                sequenced_at=ahead
            )
        with late.active():
            transaction.commit()
        sequence("default")
    ids = list(Message.objects.order_by("offset").values_list("pk", flat=True))
    assert ids != sorted(ids)
    assert found() == []


# -- windows --


def test_an_audit_goes_on_where_it_was_broken_off() -> None:
    handled_and_retried(60)
    Message.objects.filter(offset__in=(3, 30, 31, 55)).delete()
    Delivery.objects.filter(first_offset=27, kind=Kind.NEW).delete()
    whole = [finding for window in walk("default") for finding in window.findings]
    assert len(list(walk("default"))) > 20
    pieces: list[Finding] = []
    text = str(AuditPosition())
    while text:
        window = next(walk("default", AuditPosition.parse(text)))
        pieces += window.findings
        text = str(window.then or "")
    assert pieces == whole
    kinds = [finding.kind for finding in joined(pieces)]
    assert kinds == ["hole", "hole", "hole", "uncovered"]


@pytest.mark.parametrize("text", ["", "log", "log:1:2", "log:a:b:c", "moon:1:2:3", "log:1:2:3:4"])
def test_a_position_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadPosition):
        AuditPosition.parse(text)


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_window_is_read_in_a_snapshot(second_connection: Callable[[], Session]) -> None:
    handled()
    other = second_connection()

    def retry_them_first(read):
        with other.active():
            advance(MINUTE)
            drain()
        return read()

    # The deliveries that have failed are read; then their retries are done, and no retries are
    # there any more.
    between = Once("FROM `ems_retry_msg`", retry_them_first)
    with statements(between):
        assert found() == []
    assert between.fired
    assert not RetryMessage.objects.exists()


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_the_audit_goes_on_after_a_truncate(second_connection: Callable[[], Session]) -> None:
    handled_and_retried(5)
    other = second_connection()

    def truncate_first(read):
        other.execute("TRUNCATE TABLE ems_msg")
        return read()

    between = Once("SELECT `ems_msg`.`offset`", truncate_first)
    with statements(between):
        assert said() == "hole in orders/0: offsets 0 … 4 (5)"
    assert between.fired


# -- beside everything else --


@pytest.mark.exhaustive
@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_the_audit_finds_nothing_while_everything_runs(
    in_thread: Threads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Producers, a sequencer, consumers, a sweep that takes from the living, and operators."""
    caplog.set_level("CRITICAL")
    monkeypatch.setattr(walking, "WINDOW", 50)

    @consumer("orders", group="mail", batch=5)
    def batch(received):
        return {m: Retry("again", delay=0) for m in received if m.body % 3 == 0 and m.attempt == 1}

    @consumer("orders", group="shop", max_retries=1)
    def one(message):
        if message.body % 7 == 0:
            raise Reject("seven")
        if message.body % 2 == 0:
            raise Retry("even", delay=0)

    for registration in registry.registrations():
        subscribe(registration, "default")
    ended = threading.Event()
    audits: list[list[Finding]] = []

    def until_the_end(step: Callable[[], object], pause: float = 0.0) -> None:
        while not ended.wait(pause):
            step()

    def produce() -> None:
        with transaction.atomic():
            send_many([Outgoing("orders", n) for n in range(20)])

    def consume(group: str) -> Callable[[], None]:
        registration = registry.find("orders", group)
        assert registration
        row = subscribe(registration, "default")
        claimer = Claimer(row, group, "thread", "default")

        def step() -> None:
            current = limits(row, registration, "default")
            with suppress(LeaseLost):  # to the sweep below
                retry = claimer.claim_retry(MINUTE)
                delivery = retry[0] if retry else claimer.claim(current.batch, MINUTE)
                if delivery:
                    Handling(delivery, registration, current, retry=retry and retry[1]).run()

        return step

    def expire() -> None:
        # No client is registered: all that is open is taken.
        sweep("default")
        RetryMessage.objects.filter(delivery=None).update(due_at=UtcNow())

    def operate() -> None:
        for letter in DeadMessage.objects.waiting()[:5]:
            redrive(letter) if letter.offset % 2 else letter.discard()

    running = [
        in_thread(until_the_end, produce, 0.05),
        in_thread(until_the_end, lambda: sequence("default"), 0.01),
        in_thread(until_the_end, expire, 0.2),
        in_thread(until_the_end, operate, 0.05),
        in_thread(until_the_end, lambda: audits.append(walking.audit("default"))),
        *(in_thread(until_the_end, consume(group)) for group in ("mail", "mail", "shop", "shop")),
    ]
    limit = time.monotonic() + 30
    try:
        while time.monotonic() < limit and not any(future.done() for future in running):
            if len(audits) >= 10 and DeadMessage.objects.count() > 20:
                break
            time.sleep(0.05)
    finally:
        ended.set()
    for future in running:
        future.result(60)
    assert [finding for one in audits for finding in one] == []
    assert len(audits) >= 5
    assert Cursor.objects.filter(next_offset__gt=0).count() == 2
    assert Delivery.objects.filter(state=State.RETRY).count() > 10

"""What a rate says, who obeys it, and what it costs; guarantees/test_rates.py counts the starts."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, consumer, send, send_many
from streams.consume import registry
from streams.consume.limits import limits
from streams.consume.rate import MICROSECONDS, Rate
from streams.consume.subscription import subscribe
from streams.database.sql import rate as sql
from streams.deliver import starts as starting
from streams.deliver.claim import Claimer
from streams.deliver.starts import Slots
from streams.errors import InvalidConsumer, InvalidRate, InvalidValue
from streams.log.sequencer import sequence
from streams.log.standings import standings
from streams.models import Consumer, ConsumerGroup, Delivery, RateBucket, RetryMessage
from streams.operate.changes import change
from streams.testing import drain
from tests.consuming import MINUTE, Process, fail, given_back, registered

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

SLOW = "10/h"  # one message now, and none while a test runs


in_time = Slots.serve


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no message be too late because the machine is busy."""
    monkeypatch.setattr(Slots, "serve", lambda slots, number: number <= slots.number)


def mail(handler: Any = lambda message: None, **options: Any) -> Any:
    consumer("orders", group="mail", start="earliest", **options)(handler)
    return handler


def sent(number: int) -> None:
    send_many([Outgoing("orders", n) for n in range(number)])


def bucket_reads(queries: CaptureQueriesContext) -> list[str]:
    return [one["sql"] for one in queries if "ems_rate" in one["sql"]]


def distance() -> int:
    """Return how far the next slot is from now, in microseconds."""
    place = {"group": ConsumerGroup.objects.get().pk}
    with connection.cursor() as cursor:
        cursor.execute(sql.BUCKET[connection.vendor], place)
        return int(cursor.fetchone()[0])


def put_off(microseconds: int) -> None:
    """Let the next slot be so far away."""
    RateBucket.objects.update(next_slot=RateBucket.objects.get().next_slot - distance())
    row = RateBucket.objects.get()
    RateBucket.objects.update(next_slot=row.next_slot + microseconds)


def refill(process: Process) -> None:
    """Let a message begin, and let the process know it."""
    RateBucket.objects.update(next_slot=0)
    process.pool.hold(process.feed, 0.0)
    claimer = process.turn._turns.claimer
    claimer.starts.held_until = claimer._look_at = claimer._retries_at = 0.0


# -- what is a rate ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "burst", "written"),
    [
        ("50/s", None, "50/s, burst=5"),
        (" 90/m ", None, "90/m, burst=1"),
        ("10/h", None, "10/h, burst=1"),
        ("50/s, burst=100", None, "50/s, burst=100"),
        ("50/s", 7, "50/s, burst=7"),
        ("1000000/s", None, "1000000/s, burst=100000"),
    ],
)
def test_a_rate_is_written_as_people_say_it(text: str, burst: int | None, written: str) -> None:
    assert str(Rate.of(text, burst)) == written
    assert Rate.of(written) == Rate.of(text, burst)


@pytest.mark.parametrize(
    "text",
    ["", "50", "50/d", "0/s", "-1/s", "1.5/s", "1000001/s", "50/s, burst=2", "50/s burst=9", "٣/s"],
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidRate):
        Rate.of(text)


@pytest.mark.parametrize("burst", [None, 1, 3, 17])
@pytest.mark.parametrize("unit", ["s", "m", "h"])
@pytest.mark.parametrize("number", [1, 7, 33, 90, 119, 250, 999, 7164])
def test_no_second_has_more_than_rate_and_burst_however_late_each_start_is(
    number: int, unit: str, burst: int | None
) -> None:
    """The worst case: each of them is as late as it may be, up to one instant."""
    try:
        rate = Rate.of(f"{number}/{unit}", burst)
    except InvalidRate:
        assert burst is not None
        assert burst < Rate.of(f"{number}/{unit}").burst
        return
    slots = (MICROSECONDS + rate.late) // rate.interval + 1
    assert slots <= rate.a_second + rate.burst
    assert rate.late >= 0.05 * MICROSECONDS - 1
    assert 0 <= rate.depth < rate.late
    assert (rate.at_once - 1) * rate.interval <= rate.depth


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rate": 50}, "rate must be"),
        ({"burst": 5}, "burst must be"),
        ({"rate": "50/s", "burst": 0}, "burst must be"),
        ({"rate": "50/s", "mode": "broadcast"}, "no rate"),
    ],
)
def test_a_consumer_with_a_wrong_rate_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConsumer, match=text):
        mail(**options)
    with pytest.raises(InvalidRate, match="needs a burst of 3"):
        mail(rate="50/s", burst=2)


def test_the_operator_is_stronger_than_the_code() -> None:
    mail(rate="50/s", burst=9)
    registration = registered("orders", "mail")
    group = subscribe(registration, "default")

    def in_force() -> str:
        return str(limits(group, registration, "default").rate)

    assert (group.rate_in_force, in_force()) == ("50/s, burst=9", "50/s, burst=9")
    assert change(group, {"rate": "5/m"}, "default", "test") == {"rate": ("", "5/m, burst=1")}
    assert (group.rate_in_force, in_force()) == ("5/m, burst=1", "5/m, burst=1")
    change(group, {"rate": "unlimited"}, "default", "test")
    assert (group.rate_in_force, in_force()) == ("", "None")
    with pytest.raises(InvalidRate):
        change(group, {"rate": "quick"}, "default", "test")
    group.refresh_from_db()
    assert group.rate == "unlimited"


def test_a_rate_that_was_written_past_the_admin_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mail(rate="50/s")
    registration = registered("orders", "mail")
    group = subscribe(registration, "default")
    group.rate = "quick"
    assert limits(group, registration, "default").rate == Rate.of("50/s")
    assert "rate that was set for mail on orders is ignored" in caplog.text


def test_the_group_has_the_rate_of_the_consumer_that_started_last() -> None:
    mail(rate=SLOW)
    subscribe(registered("orders", "mail"), "default")
    assert ConsumerGroup.objects.get().rate_in_force == "10/h, burst=1"
    registry._registered.clear()
    mail()
    subscribe(registered("orders", "mail"), "default")
    assert ConsumerGroup.objects.get().rate_in_force == ""


# -- what begins ------------------------------------------------------------------------------


def test_a_claim_takes_no_more_than_may_begin_about_now() -> None:
    mail(rate="10/s")
    process = Process("mail")
    sent(20)
    sequence("default")
    starts = process.turn._turns.claimer.starts
    starts.rate = Rate.of("10/s")
    assert starts.look()
    # One slot of the last 50 ms, and those of the next 250 ms.
    assert len(process.claim(10).offsets) in (3, 4)
    assert process.turn._turns.claimer.claim(10, MINUTE) is None
    assert starts.held


def test_what_may_not_begin_stays_in_the_log() -> None:
    seen: list[int] = []
    mail(lambda message: seen.append(message.offset), rate=SLOW)
    process = Process("mail")
    sent(3)
    process.run_until_idle()
    assert seen == [0]
    assert [(row.first_offset, row.last_offset) for row in Delivery.objects.all()] == [(0, 0)]


def test_a_process_that_has_to_wait_asks_the_database_nothing() -> None:
    mail(rate=SLOW)
    process = Process("mail")
    sent(3)
    process.run_until_idle()
    process.worker.step()  # it finds that it is held back
    assert process.feed.limits()
    with CaptureQueriesContext(connection) as queries:
        for _look in range(10):
            process.worker.step()
            assert process.pool.take() is None
            assert not process.pool.wake(process.feed)
    assert not queries.captured_queries
    process.pool.hold(process.feed, 0.0)
    assert process.pool.take() is not None


def test_a_drain_does_not_end_before_what_its_rate_holds_back() -> None:
    mail(rate=SLOW)
    process = Process("mail", drain=True)
    sent(2)
    process.run_until_idle()
    for _look in range(3):
        process.poller.step()
    assert not process.lifecycle.stopping
    refill(process)
    process.run_until_idle()
    process.poller.step()
    assert process.lifecycle.stopping


def test_an_idle_poller_does_not_hurry_for_a_group_that_is_held_back() -> None:
    mail(rate=SLOW)
    process = Process("mail")
    sent(2)
    process.run_until_idle()
    pauses = [process.poller.step() for _look in range(8)]
    assert pauses[-1] > 10 * pauses[0]


def test_a_group_without_a_rate_has_not_one_statement_more() -> None:
    mail()
    process = Process("mail")
    send("orders", 1)
    with CaptureQueriesContext(connection) as queries:
        process.run_until_idle()
        standings(ConsumerGroup.objects.select_related("topic"), "default")
    assert queries.captured_queries
    assert not bucket_reads(queries)


def test_a_retry_takes_a_slot() -> None:
    mail(fail, rate=SLOW, retry=[timedelta(microseconds=1)])
    process = Process("mail")
    send("orders", 1)
    process.run_until_idle()
    assert RetryMessage.objects.get().attempt == 2
    process.worker.step()
    assert RetryMessage.objects.get().attempt == 2
    refill(process)
    process.worker.step()
    assert RetryMessage.objects.get().attempt == 3


def test_a_claim_of_a_retry_that_may_not_begin_changes_nothing() -> None:
    mail(fail, rate=SLOW, retry=[timedelta(microseconds=1)])
    process = Process("mail")
    send("orders", 1)
    process.run_until_idle()
    claimer = process.turn._turns.claimer
    claimer.starts.held_until = 0.0
    assert claimer.claim_retry(MINUTE) is None
    assert claimer.starts.held
    assert RetryMessage.objects.get().delivery_id is None
    assert Delivery.objects.count() == 1


def test_a_batch_begins_at_once_with_all_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no more than may begin at once, and waits until it may."""
    sizes: list[int] = []
    mail(lambda messages: sizes.append(len(messages)), batch=100, rate="100/s", burst=20)
    process = Process("mail")
    sent(60)
    rate = Rate.of("100/s", 20)
    assert rate.at_once == 14
    sequence("default")
    while sum(sizes) < 60:
        process.pool.hold(process.feed, 0.0)
        process.worker.step()
    assert sizes == [14, 14, 14, 14, 4]


def test_a_batch_has_no_more_than_may_begin_at_once() -> None:
    mail(lambda messages: None, batch=100, rate="100/s", burst=20)
    registration = registered("orders", "mail")
    group = subscribe(registration, "default")
    assert limits(group, registration, "default").batch == 14
    group.rate = "unlimited"
    assert limits(group, registration, "default").batch == 100


def test_messages_that_are_passed_over_take_no_slots() -> None:
    seen: list[Any] = []
    mail(lambda message: seen.append(message.body), rate=SLOW, tags=["paid"])
    process = Process("mail")
    send_many([Outgoing("orders", n, tag="paid" if n % 50 == 49 else "new") for n in range(100)])
    process.run_until_idle()
    assert seen == [49]
    process.worker.step()
    assert seen == [49]
    refill(process)
    process.run_until_idle()
    assert seen == [49, 99]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_start_that_is_too_late_gives_its_message_back(
    ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    mail(lambda message: seen.append(message.offset), rate=SLOW, ordered=ordered)
    process = Process("mail")
    sent(2)
    with monkeypatch.context() as patch:
        patch.setattr(Slots, "serve", lambda slots, number: False)
        process.run_until_idle()
    assert seen == []
    if ordered:
        assert process.feed.place().offsets == {0: 0}
    else:
        assert given_back() == [(0, 0)]
    refill(process)
    process.run_until_idle()
    assert seen == [0]


def test_who_is_late_waits_for_another_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    mail(lambda message: seen.append(message.offset), rate="10/s")
    process = Process("mail")
    sent(1)
    late = iter([True])  # the first time that it is asked
    with monkeypatch.context() as patch:
        patch.setattr(
            Slots, "serve", lambda slots, number: number <= slots.number and not next(late, False)
        )
        process.run_until_idle()
    assert seen == [0]
    assert Delivery.objects.get().attempt == 1
    assert distance() > -Rate.of("10/s").depth  # two slots are gone


def test_what_is_late_just_before_its_call_does_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its start was written meanwhile, which takes a while where the disk is busy."""
    seen: list[int] = []
    mail(lambda message: seen.append(message.offset), rate=SLOW)
    process = Process("mail")
    sent(1)
    late = iter([True, False])
    with monkeypatch.context() as patch:
        patch.setattr(Slots, "serve", lambda slots, number: next(late, False))
        process.run_until_idle()
    assert seen == []
    assert given_back() == [(0, 0)]


def test_each_slot_lasts_until_its_start_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slots, "serve", in_time)
    now = itertools.count(100).__next__
    monkeypatch.setattr("streams.deliver.starts.time.monotonic", lambda: float(now()))
    slots = Slots(3, earliest=103.0, latest=102.0, interval=2.0)
    assert slots.serve(3)  # at 100
    assert slots.wait(2) == 4.0  # at 101: the second slot is at 105
    assert slots.serve(3)  # at 102: the first slot lasts until then
    assert not slots.serve(3)  # at 103
    assert slots.serve(2)  # at 104: the second one lasts until then
    slots.use(1)
    assert slots.serve(1)  # at 105
    assert slots.serve(1)  # at 106
    assert not slots.serve(1)  # at 107


def test_a_claim_that_is_rolled_back_takes_no_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    mail(rate=SLOW)
    process = Process("mail")
    send("orders", 1)
    sequence("default")
    claimer = process.turn._turns.claimer
    claimer.starts.rate = Rate.of(SLOW)
    assert claimer.starts.look()

    def fails(*args: Any) -> None:
        raise DatabaseError

    with monkeypatch.context() as patch, pytest.raises(DatabaseError):
        patch.setattr(Claimer, "_insert", fails)
        claimer.claim(10, MINUTE)
    assert len(process.claim().offsets) == 1


def test_after_a_clock_was_set_back_the_rate_goes_on() -> None:
    mail(rate="10/s")
    process = Process("mail")
    sent(9)
    process.run_until_idle()
    put_off(3600 * MICROSECONDS)
    starts = process.turn._turns.claimer.starts
    starts.held_until = 0.0
    starts.look()
    assert distance() <= Rate.of("10/s").interval


def test_a_rate_that_is_raised_is_in_force_at_once() -> None:
    mail(rate=SLOW)
    process = Process("mail")
    sent(9)
    process.run_until_idle()
    starts = process.turn._turns.claimer.starts
    starts.rate, starts.held_until = Rate.of("10/s"), 0.0
    starts.look()
    assert distance() <= Rate.of("10/s").interval


def test_those_who_wait_do_not_come_at_the_same_time() -> None:
    mail(rate=SLOW)
    group = subscribe(registered("orders", "mail"), "default")
    RateBucket.objects.create(group=group)
    put_off(300 * MICROSECONDS)
    ends = set()
    for _process in range(20):
        starts = starting.Starts(group, "default")
        starts.rate = Rate.of(SLOW)
        assert not starts.look()
        ends.add(round(starts.held_until, 3))
    assert len(ends) > 10


def test_a_drain_of_a_test_does_not_wait_for_the_rate() -> None:
    seen: list[int] = []
    mail(lambda message: seen.append(message.offset), rate=SLOW)
    sent(5)
    assert drain("mail").done == 5
    assert not RateBucket.objects.exists()


def test_several_claimers_never_have_more_slots_than_there_are() -> None:
    mail(rate="10/s")
    group = subscribe(registered("orders", "mail"), "default")
    RateBucket.objects.create(group=group)
    rate = Rate.of("10/s")
    before = RateBucket.objects.get().next_slot
    spans: list[tuple[int, int]] = []
    for turn in range(30):
        starts = starting.Starts(group, "default")
        starts.rate = rate
        if starts.cut(0, 1 + turn % 5):
            row = RateBucket.objects.get()
            spans.append((row.next_slot - row.taken * rate.interval, row.next_slot))
    assert spans
    assert all(first >= last for (_f, last), (first, _l) in itertools.pairwise(spans))
    assert spans[0][0] > before


# -- what an operator sees --------------------------------------------------------------------


def test_a_group_that_is_held_back_says_so() -> None:
    mail(rate=SLOW)
    process = Process("mail")
    sent(3)
    process.run_until_idle()
    assert Consumer.objects.exists()
    (standing,) = standings(ConsumerGroup.objects.select_related("topic"), "default")
    assert (standing.condition.value, standing.level) == ("held back", "warning")
    RateBucket.objects.update(next_slot=0)
    (standing,) = standings(ConsumerGroup.objects.select_related("topic"), "default")
    assert standing.condition == "running"


def test_a_deleted_group_leaves_no_bucket() -> None:
    from streams.operate.group_deletion import delete_group

    mail(rate=SLOW)
    process = Process("mail")
    sent(1)
    process.run_until_idle()
    assert RateBucket.objects.exists()
    Consumer.objects.all().delete()
    delete_group(ConsumerGroup.objects.get())
    assert not RateBucket.objects.exists()


def test_a_rate_that_cannot_be_read_is_not_set_by_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from django.core.management import CommandError, call_command

    mail()
    subscribe(registered("orders", "mail"), "default")
    call_command("ems_groups", "set", "mail", "--rate", "50/s")
    assert ConsumerGroup.objects.get().rate == "50/s, burst=5"
    with pytest.raises((CommandError, InvalidValue, InvalidRate)):
        call_command("ems_groups", "set", "mail", "--rate", "quick")
    call_command("ems_groups", "list")
    assert "50/s, burst=5" in capsys.readouterr().out
    call_command("ems_groups", "set", "mail", "--rate", "none")
    assert ConsumerGroup.objects.get().rate == ""

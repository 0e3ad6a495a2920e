"""The time-driven steps: bounded, safe at the same time, and one runner wins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from django.db import connection

from streams import Outgoing, consumer, send, send_many
from streams.consume import registry
from streams.consume.outcome.dead_letter import give_up, redrive
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.log import sequencer
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
    Step,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.models.step import PURGE, REDRIVES, RETRIES, SEQUENCE, SWEEP
from streams.observe.diagnoses import silence
from streams.steps import retries, sweep, time_limit
from streams.steps import sequence as sequencing
from streams.steps.of_apps import steps_of_apps
from streams.steps.retries import step_retries, step_retries_if_due
from streams.steps.sequence import sequence_all
from streams.steps.sweep import sweep_if_due
from tests.sessions import Threads

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

MINUTE = timedelta(minutes=1)
STEPS: dict[str, tuple[ModuleType, str, Callable[[str], int], timedelta]] = {
    SWEEP: (sweep, "sweep", sweep_if_due, sweep.SWEEP_EVERY),
    RETRIES: (retries, "step_retries", step_retries_if_due, retries.RETRIES_EVERY),
}


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The aliases whose consumers were woken."""
    told: list[str] = []
    for step in (sequencing, retries):
        monkeypatch.setattr(step, "announce", told.append)
    return told


def group(name: str = "mail", **options: int) -> ConsumerGroup:
    consumer("orders", group=name, **options)(print)  # type: ignore[call-overload]
    return subscribe(registry.find("orders", name), "default", "earliest")  # type: ignore[arg-type]


def retry(of: ConsumerGroup, offset: int, attempt: int, due_in: timedelta = -MINUTE) -> None:
    RetryMessage.objects.create(
        group=of,
        partition=of.topic.partitions.get(),
        offset=offset,
        attempt=attempt,
        due_at=UtcNow(due_in),
    )


class Done:
    """Stands for what a step does, and notes that it was done."""

    def __init__(self) -> None:
        self.on: list[str] = []

    def __call__(self, using: str) -> int:
        self.on.append(using)
        return 1


def ran_ago(step: str) -> timedelta:
    age = silence(step, "default")
    assert age is not None
    return age


# -- one runner wins --


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("ran_before", [False, True])
def test_of_many_that_run_a_step_at_once_one_does_it(
    in_thread: Threads, monkeypatch: pytest.MonkeyPatch, step: str, ran_before: bool
) -> None:
    module, name, run, every = STEPS[step]
    if ran_before:
        Step.objects.create(name=step, last_run_at=UtcNow(-every))
    done = Done()
    monkeypatch.setattr(module, name, done)
    together = threading.Barrier(8)

    def runner() -> None:
        connection.ensure_connection()
        together.wait()
        run("default")

    for future in [in_thread(runner) for _ in range(8)]:
        future.result(60)
    assert done.on == ["default"]
    run("default")
    assert done.on == ["default"]  # not due yet


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_due_again_when_its_time_has_passed_and_not_before(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    module, name, run, every = STEPS[step]
    done = Done()
    monkeypatch.setattr(module, name, done)
    assert run("default") == 1
    Step.objects.update(last_run_at=UtcNow(-every * 0.8))
    assert run("default") == 0
    Step.objects.update(last_run_at=UtcNow(-every))
    assert run("default") == 1
    assert done.on == ["default"] * 2
    assert ran_ago(step) < timedelta(seconds=1)


# -- sequence --


def test_sequencing_wakes_consumers_only_if_there_was_something(announced: list[str]) -> None:
    assert sequence_all("default") == 0
    assert announced == []
    send_many([Outgoing("orders", n) for n in range(3)])
    assert sequence_all("default") == 3
    assert announced == ["default"]


def test_sequencing_goes_on_while_a_quota_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequencer, "IMMEDIATE_PER_PASS", 2)
    send_many([Outgoing("orders", n) for n in range(7)])
    assert sequence_all("default") == 7


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of every step is over at once."""
    monkeypatch.setattr(time_limit, "STEP_SECONDS", 0.0)


def unfinished(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The steps that said that they have stopped before they were done."""
    events = [r for r in caplog.records if getattr(r, "ems_event", "") == "step.unfinished"]
    caplog.clear()
    return [vars(record)["ems_step"] for record in events]


@pytest.mark.usefixtures("no_time")
def test_sequencing_ends_in_time_after_any_chunk_and_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "streams.maintenance")
    monkeypatch.setattr(sequencer, "CHUNK", 2)
    ids = [result.message_id for result in send_many([Outgoing("orders", n) for n in range(5)])]
    for sequenced, said in ((2, [SEQUENCE]), (2, [SEQUENCE]), (1, []), (0, [])):
        assert sequence_all("default") == sequenced
        assert unfinished(caplog) == said
    offsets = dict(Message.objects.values_list("pk", "offset"))
    assert [offsets[pk] for pk in ids] == [0, 1, 2, 3, 4]
    assert Partition.objects.get().next_offset == 5


@pytest.mark.usefixtures("no_time")
def test_without_time_every_partition_has_its_turn_all_the_same() -> None:
    for topic in ("orders", "mails", "prices"):
        send(topic, 1)
    for _ in range(3):
        sequence_all("default")
    assert not Message.objects.inbox().exists()


@pytest.mark.usefixtures("no_time")
def test_a_sweep_ends_in_time_and_the_next_one_takes_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "streams.maintenance")
    open_deliveries(3)
    assert [sweep.sweep("default") for _ in range(4)] == [1, 1, 1, 0]
    assert unfinished(caplog) == [SWEEP, SWEEP]
    assert RetryMessage.objects.count() == 3


@pytest.mark.usefixtures("no_time")
def test_what_has_no_attempt_left_is_buried_in_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "streams.maintenance")
    send_many([Outgoing("orders", n) for n in range(2)])
    sequence("default")
    mail = group(max_retries=1)
    for offset in range(2):
        retry(mail, offset, 3)
    assert step_retries("default") == 1
    assert unfinished(caplog) == [RETRIES]
    assert step_retries("default") == 1
    assert DeadMessage.objects.count() == 2


def test_sequencing_leaves_a_sign_of_life_even_when_idle() -> None:
    sequence_all("default")
    assert ran_ago(SEQUENCE) < timedelta(seconds=1)
    Step.objects.filter(name=SEQUENCE).update(last_run_at=UtcNow(-sequencing.NOTE_EVERY))
    sequence_all("default")
    assert ran_ago(SEQUENCE) < timedelta(seconds=1)


@pytest.mark.django_db(databases=["default", "other"])
def test_steps_work_on_their_alias_only() -> None:
    send("orders", 1)
    send("orders", 1, using="other")
    assert sequence_all("other") == 1
    sweep_if_due("other")
    assert Message.objects.inbox().count() == 1
    assert not Step.objects.exists()
    assert Step.objects.using("other").count() == 2


# -- retries --


def test_without_any_group_no_retry_is_due() -> None:
    assert step_retries("default") == 0


def test_consumers_are_woken_for_retries_that_are_due(announced: list[str]) -> None:
    send("orders", 1)
    sequence("default")
    mail = group()
    retry(mail, 0, 2, due_in=MINUTE)
    assert step_retries("default") == 0
    assert announced == []
    RetryMessage.objects.update(due_at=UtcNow())
    assert step_retries("default") == 0
    assert announced == ["default"]


def test_what_has_no_attempt_left_is_buried_and_nothing_else() -> None:
    send_many([Outgoing("orders", n) for n in range(4)])
    sequence("default")
    mail = group(max_retries=3)
    retry(mail, 0, 5)  # four attempts were made
    retry(mail, 1, 4)
    retry(mail, 2, 5, due_in=MINUTE)
    shop = group("shop")
    retry(shop, 0, 5)
    assert step_retries("default") == 1
    letter = DeadMessage.objects.get()
    assert (letter.group, letter.offset, letter.attempts) == (mail, 0, 4)
    assert "AttemptsExhausted" in letter.error_class
    left = RetryMessage.objects.order_by("group", "offset").values_list("group", "offset")
    assert list(left) == [(mail.pk, 1), (mail.pk, 2), (shop.pk, 0)]


def test_the_retries_that_a_group_leaves_lying_keep_no_other_groups_from_being_buried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "BATCH", 3)
    send_many([Outgoing("orders", n) for n in range(9)])
    sequence("default")
    lazy, mail = group("lazy"), group(max_retries=1)
    for offset in range(8):
        retry(lazy, offset, 2, due_in=-2 * MINUTE)
    retry(mail, 0, 3)
    assert step_retries("default") == 1


def test_a_retry_that_is_in_hand_is_not_buried() -> None:
    send("orders", 1)
    sequence("default")
    mail = group(max_retries=1)
    retry(mail, 0, 3)
    assert Claimer(mail, "client", "thread", "default").claim_retry(MINUTE)
    assert step_retries("default") == 0
    assert not DeadMessage.objects.exists()


@pytest.mark.parametrize("change", [{"delivery": 7}, {"attempt": 4}], ids=["claimed", "failed"])
def test_a_retry_that_somebody_takes_while_the_step_comes_to_it_is_not_buried(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, int]
) -> None:
    """Buried, it would be a letter of what its holder may be about to finish."""
    send("orders", 1)
    sequence("default")
    retry(group(max_retries=1), 0, 3)

    def late(found: RetryMessage, error: BaseException) -> bool:
        RetryMessage.objects.update(**change)
        return give_up(found, error)

    monkeypatch.setattr(retries, "give_up", late)
    assert step_retries("default") == 0
    assert RetryMessage.objects.exists()
    assert not DeadMessage.objects.exists()


def test_a_replay_in_hand_does_not_count_what_is_buried_beside_it() -> None:
    send("orders", 1)
    sequence("default")
    mail = group(max_retries=1)
    retry(mail, 0, 3)

    def delivery(**values: Any) -> Delivery:
        partition = mail.topic.partitions.get()
        return Delivery.objects.create(
            group=mail,
            partition=partition,
            first_offset=0,
            last_offset=0,
            progress=0,
            deadline=UtcNow(MINUTE),
            **values,
        )

    failed, replay = delivery(state=State.RETRY, failed=1), delivery(kind=Kind.REPLAY)
    assert step_retries("default") == 1
    assert [Delivery.objects.get(pk=one.pk).dead for one in (failed, replay)] == [1, 0]


def test_a_retry_whose_message_is_gone_is_back_in_the_letter_that_it_came_from() -> None:
    send("orders", 1)
    sequence("default")
    mail = group(max_retries=1)
    retry(mail, 0, 3)
    step_retries("default")
    letter = DeadMessage.objects.get()
    redrive(letter)
    Message.objects.all().delete()
    RetryMessage.objects.update(attempt=3, due_at=UtcNow(-MINUTE))
    assert step_retries("default") == 1
    letter.refresh_from_db()
    assert letter.redriven_at is None
    assert DeadMessage.objects.count() == 1


# -- sweep --


def open_deliveries(count: int) -> None:
    mail = group()
    send_many([Outgoing("orders", n) for n in range(count)])
    sequence("default")
    for _ in range(count):
        assert Claimer(mail, "gone", "thread", "default").claim(1, MINUTE)


def test_a_sweep_is_bounded_and_the_next_one_takes_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "BATCH", 3)
    open_deliveries(5)
    assert sweep.sweep("default") == 3
    assert sweep.sweep("default") == 2
    assert sweep.sweep("default") == 0
    assert RetryMessage.objects.count() == 5


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_sweeps_at_the_same_time_take_each_delivery_once(in_thread: Threads) -> None:
    open_deliveries(30)
    together = threading.Barrier(4)

    def run() -> int:
        connection.ensure_connection()
        together.wait()
        return sweep.sweep("default")

    taken = [future.result(60) for future in [in_thread(run) for _ in range(4)]]
    assert sum(taken) == 30
    assert set(RetryMessage.objects.values_list("attempt", flat=True)) == {2}
    assert not Delivery.objects.open().exists()


def test_the_first_sweep_after_an_outage_gives_everyone_one_lease() -> None:
    open_deliveries(1)
    Consumer.objects.create(
        client_id="gone", group=ConsumerGroup.objects.get(), lease_until=UtcNow()
    )
    Delivery.objects.update(deadline=UtcNow(-MINUTE))
    Step.objects.create(name=SWEEP, last_run_at=UtcNow(-LEASE - timedelta(seconds=1)))
    assert sweep_if_due("default") == 0
    assert Delivery.objects.open().filter(deadline__gt=UtcNow(LEASE - MINUTE / 6)).exists()
    assert Consumer.objects.live().exists()
    Step.objects.update(last_run_at=UtcNow(-sweep.SWEEP_EVERY))
    Delivery.objects.update(deadline=UtcNow(-MINUTE))
    assert sweep_if_due("default") == 1


def test_clients_that_are_dead_for_a_lease_are_forgotten() -> None:
    mail = group()
    for client, ended in (("alive", LEASE), ("dead", -LEASE / 2), ("long dead", -LEASE * 2)):
        Consumer.objects.create(client_id=client, group=mail, lease_until=UtcNow(ended))
    sweep.sweep("default")
    assert set(Consumer.objects.values_list("client_id", flat=True)) == {"alive", "dead"}


def test_the_name_of_each_step_fits_into_the_table_with_the_longest_namespace(ems_settings):
    ems_settings(NAMESPACE="n" * 16)
    names = [PURGE, REDRIVES, RETRIES, SEQUENCE, SWEEP, *steps_of_apps()]
    field: Any = Step._meta.get_field("name")
    stored = [field.get_prep_value(name) for name in names]
    assert [text for text in stored if len(text) > field.max_length] == []

"""Many dead letters are redriven at a rate: counted once each, stopped, gone on with, finished."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection, transaction

from streams import Outgoing, consumer, send_many
from streams.conf import database
from streams.consume.outcome.dead_letter import redrive, redrive_each
from streams.errors import InvalidValue
from streams.models import (
    ConsumerGroup,
    DeadMessage,
    Redrive,
    RedriveState,
    RetryMessage,
    Step,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.operate.edited_letter import EditableContent, edit_and_redrive
from streams.operate.redrives import begin
from streams.steps import redrives
from streams.steps.of_apps import run_steps_of_apps
from streams.steps.redrives import step_redrives
from streams.testing import drain
from tests.concurrency.locks import wait_until_one_waits
from tests.sessions import Threads

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

LETTERS = 12


@pytest.fixture
def group(clean_registry: None) -> ConsumerGroup:
    """12 letters: every third one with a TypeError, the others with a ValueError."""
    dies = [True]

    @consumer("orders", group="bill", max_retries=0)
    def bill(message):
        if dies[0]:
            raise TypeError("t") if message.offset % 3 == 0 else ValueError("v")

    send_many([Outgoing("orders", n) for n in range(LETTERS)])
    drain()
    dies[0] = False
    return ConsumerGroup.objects.get()


def started(group: ConsumerGroup, rate: float, **options: Any) -> Redrive:
    return begin([group], database(), **{"rate": rate, "who": "ann", "total": LETTERS, **options})


def later(seconds: float) -> None:
    """Let this time pass since the letters were redriven last."""
    for row in Redrive.objects.all():
        Redrive.objects.filter(pk=row.pk).update(
            stepped_at=row.stepped_at - timedelta(seconds=seconds)
        )


def step(row: Redrive) -> Redrive:
    step_redrives([row.pk], database())
    row.refresh_from_db()
    return row


def test_as_many_are_redriven_as_the_rate_allows_one_after_the_other(group):
    row = started(group, 2)
    assert step(row).done == 0  # no time has passed
    later(2.6)
    assert (step(row).done, row.left) == (5, 7)
    rows = RetryMessage.objects.order_by("offset").values_list("due_at", flat=True)
    due = [at for at in rows if at]
    assert len(due) == 5
    assert {round((b - a).total_seconds(), 1) for a, b in pairwise(due)} == {0.5}
    assert step(row).done == 5
    later(0.5)  # with what was left of the first 2.6 seconds
    assert step(row).done == 6


def test_the_group_handles_them_and_the_audit_is_content(group):
    row = started(group, 100)
    for _ in range(3):
        later(5)
        step(row)
    assert (row.state, row.done, row.skipped, row.left) == (RedriveState.DONE, LETTERS, 0, 0)
    assert row.finished_at is not None
    RetryMessage.objects.update(due_at=UtcNow())
    drain()
    assert not RetryMessage.objects.exists()
    assert not DeadMessage.objects.waiting().exists()
    assert list(audit(database())) == []


def test_each_retry_names_its_own_letter(group):
    row = started(group, 100)
    later(5)
    step(row)
    letters = dict(DeadMessage.objects.values_list("offset", "pk"))
    assert dict(RetryMessage.objects.values_list("offset", "dead_letter")) == letters


def test_a_batch_that_fails_is_neither_redriven_nor_counted(group, monkeypatch):
    row = started(group, 1)
    later(4)

    def fail(*args, **options):
        redrive_each(*args, **options)
        raise RuntimeError("killed")

    monkeypatch.setattr(redrives, "redrive_each", fail)
    with pytest.raises(RuntimeError):
        step(row)
    assert DeadMessage.objects.waiting().count() == LETTERS
    assert not RetryMessage.objects.exists()
    monkeypatch.setattr(redrives, "redrive_each", redrive_each)
    assert step(row).done == 4


def test_one_that_is_stopped_redrives_no_more_until_somebody_goes_on_with_it(group):
    row = started(group, 1)
    later(3)
    step(row)
    assert row.stop()
    assert not row.stop()
    later(5)
    assert (step(row).done, row.state) == (3, RedriveState.STOPPED)
    assert row.resume()
    assert not row.resume()
    assert step(row).done == 3  # the time in which it was stopped is not made up for
    later(2)
    assert step(row).done == 5


def test_a_long_pause_of_all_processes_is_not_made_up_for(group):
    row = started(group, 0.5)
    later(3600)
    assert step(row).done == 5


@pytest.mark.parametrize("rate", [0.013, 0.021, 0.09])
def test_a_rate_whose_inverse_is_rounded_comes_to_its_turn(group, rate):
    row = started(group, rate)
    later(1000)
    assert step(row).done == 1


def test_a_slow_rate_comes_to_its_turn(group):
    row = started(group, 0.01)
    later(99)
    assert step(row).done == 0
    later(1.5)
    assert step(row).done == 1


def test_after_a_clock_was_set_back_it_goes_on(group):
    row = started(group, 1)
    later(-3600)
    assert step(row).done == 0
    later(3)
    assert step(row).done == 3


def test_what_was_redriven_or_came_since_is_left_alone(group):
    row = started(group, 100, ids=list(DeadMessage.objects.values_list("pk", flat=True)))
    redrive(DeadMessage.objects.get(offset=5))
    later(5)
    step(row)
    assert (row.done, row.skipped) == (LETTERS - 1, 1)


def test_only_those_with_ids_below_its_end_are_redriven(group):
    fifth = DeadMessage.objects.order_by("pk")[4].pk
    row = started(group, 100, upto=fifth)
    later(5)
    assert step(row).done == 5


@pytest.mark.parametrize("error_class", ["", "ValueError"])
@pytest.mark.parametrize("rate", [1, 100])
def test_letters_that_wait_again_make_a_redrive_no_larger_than_its_number(group, rate, error_class):
    again = DeadMessage.objects.order_by("pk")[1]
    DeadMessage.objects.filter(pk=again.pk).update(redriven_at=UtcNow())
    row = started(group, rate, error_class=error_class, limit=3, total=None)
    DeadMessage.objects.filter(pk=again.pk).update(redriven_at=None)
    for _ in range(5):
        later(2)
        step(row)
    assert (row.done, row.skipped, row.total) == (3, 0, 3)
    assert row.state == RedriveState.DONE
    assert RetryMessage.objects.count() == 3


@pytest.mark.parametrize("compared", [2, 2000])
def test_only_those_of_a_class_are_redriven(group, monkeypatch, compared):
    monkeypatch.setattr(redrives, "COMPARED", compared)
    row = started(group, 100, error_class="TypeError")
    for _ in range(10):
        later(5)
        step(row)
    assert row.state == RedriveState.DONE
    waiting = DeadMessage.objects.waiting().values_list("error_class", flat=True)
    assert set(waiting) == {"ValueError"}
    assert (row.done, len(waiting)) == (4, 8)


def twin(letter: DeadMessage) -> DeadMessage:
    """Return a second letter of the same message, as one that died again in a replay."""
    return DeadMessage.objects.create(
        **{
            field.attname: getattr(letter, field.attname)
            for field in DeadMessage._meta.concrete_fields
            if field.attname not in ("id", "edited_at", "redriven_at")
        }
    )


@pytest.fixture
def edited(group: ConsumerGroup) -> DeadMessage:
    """A letter that somebody has edited, and that has died again."""
    letter = DeadMessage.objects.get(offset=5)
    DeadMessage.objects.filter(pk=letter.pk).update(edited_at=UtcNow())
    letter.refresh_from_db()
    return letter


def the_retry(offset: int = 5) -> int | None:
    return RetryMessage.objects.get(offset=offset).dead_letter_id


def is_waiting(letter: DeadMessage) -> bool:
    return DeadMessage.objects.waiting().filter(pk=letter.pk).exists()


def test_one_letter_of_each_message_is_redriven_in_a_batch(group, edited):
    other = twin(edited)
    row = started(group, 100, total=LETTERS + 1)
    later(5)
    step(row)
    assert (row.done, row.skipped) == (LETTERS, 1)
    assert the_retry() == edited.pk
    assert is_waiting(other)


@pytest.mark.parametrize("by_hand", [False, True])
def test_no_letter_takes_the_place_of_an_edited_one_that_is_a_retry(group, edited, by_hand):
    other = twin(edited)
    assert redrive(edited)
    if by_hand:
        assert not redrive(other)
        assert not edit_and_redrive(other, EditableContent.of(other), "ann")
    else:
        row = started(group, 100, ids=[other.pk])
        later(5)
        assert (step(row).done, row.skipped) == (0, 1)
    assert the_retry() == edited.pk
    assert is_waiting(other)
    RetryMessage.objects.update(due_at=UtcNow())
    drain()
    assert redrive(other)  # the edited one was handled
    assert the_retry() == other.pk


def test_an_edited_letter_takes_the_place_of_one_that_is_not(group, edited):
    other = twin(edited)
    assert redrive(other)
    assert redrive(edited)
    assert the_retry() == edited.pk


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_letters_of_one_message_that_are_redriven_at_once_take_turns(
    group, in_thread: Threads, second_connection
):
    first = DeadMessage.objects.get(offset=5)
    DeadMessage.objects.filter(pk=first.pk).update(edited_at=UtcNow())
    other = twin(first)
    holder = second_connection()
    with holder.active():
        transaction.set_autocommit(False)
        assert redrive(first)
    running = in_thread(redrive, other)
    wait_until_one_waits(connection.settings_dict["NAME"])
    with holder.active():
        transaction.commit()
    assert running.result(timeout=60) is False
    assert the_retry() == first.pk
    assert is_waiting(other)


@pytest.mark.parametrize("rate", [0, -1, 0.001, 1001, float("nan")])
def test_a_rate_has_limits(group, rate):
    with pytest.raises(InvalidValue, match="rate"):
        started(group, rate)
    assert not Redrive.objects.exists()


def test_consumers_and_beat_run_the_step_and_one_wins(group):
    row = started(group, 1)
    later(3)
    run_steps_of_apps(database())
    later(3)
    run_steps_of_apps(database())
    row.refresh_from_db()
    assert row.done == 3
    assert Step.objects.filter(name="redrives").exists()


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_of_many_that_begin_the_same_at_once_one_does(group, in_thread: Threads):
    running = [in_thread(started, group, 1) for _ in range(6)]
    begun = [one for one in running if one.exception(timeout=60) is None]
    assert (len(begun), Redrive.objects.count()) == (1, 1)


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_one_that_another_process_steps_is_left_to_it(group, second_connection):
    row = started(group, 1)
    later(4)
    other = second_connection()
    other.execute("BEGIN")
    other.execute("SELECT id FROM ems_redrive WHERE id = %s FOR UPDATE", [row.pk])
    assert step(row).done == 0
    assert not RetryMessage.objects.exists()
    other.execute("ROLLBACK")
    assert step(row).done == 4


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_of_many_processes_that_step_at_once_none_redrives_more_than_is_due(
    group, in_thread: Threads
):
    row = started(group, 1)
    later(8)
    running = [in_thread(step_redrives, [row.pk], database()) for _ in range(6)]
    assert sum(one.result(timeout=60) for one in running) == 8
    row.refresh_from_db()
    assert row.done == 8
    assert RetryMessage.objects.count() == 8

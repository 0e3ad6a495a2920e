"""What is stored of one person is found and erased, and the log keeps its offsets."""

from __future__ import annotations

import json
from functools import partial
from io import StringIO
from itertools import count
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

from streams import Decision, Reject, consumer, send
from streams.chaos.forks import in_fork
from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.models import TaskRun
from streams.database.sql import settle as sql
from streams.database.sql.dialect import execute
from streams.errors import InvalidValue
from streams.log.sequencer import sequence
from streams.models import DeadMessage, Delivery, Message, PreparedRow, RetryMessage, State
from streams.observe.audit.walk import audit
from streams.operate.erasure import ERASED, DataSubject, erase, find
from tests.concurrency.locks import wait_until_one_waits
from tests.consuming import Process
from tests.faults import Guillotine, strides
from tests.preparing import answering, held
from tests.processes import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]
BODY = {"customer": {"id": 17, "mails": ["ann@example.com"]}, "padding": "x" * 5000}
WHO = ("ann", "asked by letter")


def bodies() -> list[Any]:
    return [json.loads(bytes(row.body)) for row in Message.objects.order_by("pk")]


def test_messages_and_dead_letters_of_a_key_are_erased_and_the_log_stays_whole() -> None:
    def handle(message: Any) -> None:
        if message.body.get("bad"):
            raise Reject("ann@example.com is unknown")

    consumer("orders", group="mail")(handle)
    process = Process("mail")
    send("orders", BODY, key="17", headers={"mail": "ann@example.com"})
    send("orders", {"bad": 1}, key="17")
    send("orders", BODY, key="18")
    sequence("default")
    process.run_until_idle()
    found = find(DataSubject(key="17"), "default")
    assert (found.messages, found.unfinished, found.dead_letters) == (2, 0, 1)
    assert bodies() == [BODY, {"bad": 1}, BODY], "it only looks"
    erase(DataSubject(key="17"), "default", *WHO)
    assert bodies() == [None, None, BODY]
    erased, _, kept = Message.objects.order_by("offset")
    assert (erased.key, erased.offset, erased.headers, erased.size) == ("17", 0, {ERASED: "yes"}, 4)
    assert kept.headers is None
    letter = DeadMessage.objects.get()
    assert (bytes(letter.body), letter.error, letter.traceback) == (b"null", "", "")
    assert find(DataSubject(key="17"), "default").found == 0
    assert audit("default") == []


def test_a_value_in_the_body_is_found_by_its_path_also_in_compressed_ones() -> None:
    send("orders", BODY)
    send("orders", {"customer": {"id": 18}})
    send("orders", ["no", "object"])
    send("other", {"customer": {"id": "17"}})
    sequence("default")
    assert find(DataSubject(path="customer.id", value="17"), "default").messages == 2
    assert find(DataSubject(path="customer.id", value="17"), "default", "orders").messages == 1
    mail = DataSubject(path="customer.mails.0", value="ann@example.com")
    assert erase(mail, "default", *WHO).messages == 1
    assert bodies()[0] is None
    assert None not in bodies()[1:]


def test_what_was_prepared_is_erased_once_it_is_decided() -> None:
    answering(Decision.UNKNOWN)
    mail = {"mail": "ann@example.com"}
    held(1, BODY, key="17", context=mail).commit()
    held(2, BODY, key="17", context=mail)
    found = erase(DataSubject(key="17"), "default", *WHO)
    assert (found.prepared, found.undecided) == (1, 1)
    erased, kept = PreparedRow.objects.order_by("pk")
    assert (bytes(erased.body), erased.context, erased.headers) == (b"null", None, {ERASED: "yes"})
    assert kept.context == mail
    assert find(DataSubject(key="17"), "default").prepared == 0


@pytest.mark.parametrize("wrong", [{}, {"key": "1", "path": "a"}, {"value": "1"}])
def test_a_subject_is_a_key_or_a_path(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidValue):
        DataSubject(**wrong)


def test_what_groups_have_not_handled_is_erased_by_force_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer("orders", group="mail")(lambda message: None)
    Process("mail")
    send("orders", BODY, key="17")
    send("orders", BODY, key="17", delay=3600)
    sequence("default")
    words = ("ems_personal", "erase", "--key", "17", "--reason", "asked", "--yes")
    out = StringIO()
    call_command(*words, "--dry-run", stdout=out)
    assert "2 messages" in out.getvalue()
    with pytest.raises(CommandError, match="2 messages are not handled by all groups yet"):
        call_command(*words)
    assert bodies() == [BODY, BODY]
    with caplog.at_level("INFO", "streams.operate"):
        call_command(*words, "--force", "--json", stdout=StringIO())
    assert bodies() == [None, None], "that of the inbox, too"
    (said,) = (one for one in caplog.records if one.ems_event == "bodies.erased")  # type: ignore[attr-defined]
    assert said.ems_reason == "asked"  # type: ignore[attr-defined]
    assert "(ems_personal)" in said.ems_by  # type: ignore[attr-defined]


def test_the_error_of_a_waiting_retry_is_erased_too() -> None:
    def handle(message: Any) -> None:
        raise ValueError("ann@example.com")

    consumer("orders", group="mail")(handle)
    process = Process("mail")
    send("orders", BODY, key="17")
    sequence("default")
    process.run_until_idle()
    assert "ann" in RetryMessage.objects.get().last_error
    assert find(DataSubject(key="17"), "default").unfinished == 1
    erase(DataSubject(key="17"), "default", *WHO)
    assert RetryMessage.objects.get().last_error == ""


def test_an_error_of_a_handler_that_fails_after_the_erasure_is_erased_by_the_next() -> None:
    consumer("orders", group="mail")(Mock(side_effect=ValueError("ann@example.com")))
    process = Process("mail")
    send("orders", BODY, key="17")
    sequence("default")
    process.run_until_idle()
    erase(DataSubject(key="17"), "default", *WHO)
    RetryMessage.objects.update(last_error="ann@example.com")
    erase(DataSubject(key="17"), "default", *WHO)
    assert RetryMessage.objects.get().last_error == ""


def run_of(message_id: Any, **more: Any) -> TaskRun:
    return TaskRun.objects.create(
        result_id=str(message_id),
        message_id=message_id,
        backend="default",
        queue="mails",
        path="shop.tasks.mail",
        arguments={"args": ["ann@example.com"], "kwargs": {}},
        enqueued_at=timezone.now(),
        **more,
    )


def test_a_task_that_runs_during_an_erasure_is_erased_by_the_next() -> None:
    run = run_of(send("tasks.mails", {}, key="17").message_id, status=TaskResultStatus.RUNNING)
    sequence("default")
    erase(DataSubject(key="17"), "default", *WHO)
    TaskRun.objects.update(status=TaskResultStatus.SUCCESSFUL, return_value="ann@example.com")
    erase(DataSubject(key="17"), "default", *WHO)
    run.refresh_from_db()
    assert run.return_value is None
    assert run.arguments == {"args": [], "kwargs": {}}


def _erase_until(point: int) -> None:
    Guillotine(point).install()
    erase(DataSubject(key="17"), "default", *WHO)


@strides(5)
@pytest.mark.every_database
def test_an_erasure_that_is_killed_anywhere_is_complete_when_it_is_run_again(stride: int) -> None:
    """A message that is erased is not found again; what repeats it must not be left."""

    def handle(message: Any) -> None:
        raise (
            Reject("ann@example.com") if message.body.get("bad") else ValueError("ann@example.com")
        )

    consumer("tasks.mails", group="mail")(handle)
    process = Process("mail")
    for point in count(1, stride):
        numbers = [send("tasks.mails", body, key="17").message_id for body in (BODY, {"bad": 1})]
        sequence("default")
        process.run_until_idle()
        run_of(numbers[0], status=TaskResultStatus.SUCCESSFUL, return_value="ann@example.com")
        status = in_fork(partial(_erase_until, point))
        assert status in (0, -9)
        erase(DataSubject(key="17"), "default", *WHO)
        assert set(map(json.dumps, bodies())) == {"null"}, point
        assert set(RetryMessage.objects.values_list("last_error", flat=True)) == {""}, point
        assert set(DeadMessage.objects.values_list("error", "traceback")) == {("", "")}, point
        assert set(TaskRun.objects.values_list("return_value", flat=True)) == {None}, point
        if status == 0:
            break
    assert point > 10  # it did die at many places


@pytest.mark.mysql
def test_a_dead_letter_that_is_being_written_meanwhile_is_erased_too(
    second_connection: Any, in_thread: Any
) -> None:
    """Its transaction has copied the message before the erasure, and commits after it."""
    consumer("orders", group="mail")(lambda message: None)
    process = Process("mail")
    send("orders", BODY, key="17")
    sequence("default")
    delivery = process.claim()
    other = second_connection()
    with other.active(), transaction.atomic():
        Delivery.objects.filter(pk=delivery.pk).update(state=State.DONE, progress=1)
        group, partition = delivery.group, delivery.partition_id
        about = (group.topic_id, group.pk, 1, "ValueError", "no", "", partition, 0)
        execute("default", sql.COPY_TO_DEAD["mysql"], about)
        erasing = in_thread(erase, DataSubject(key="17"), "default", *WHO)
        with_erased = Message.objects.filter(size=4)
        wait_for(with_erased.exists, "the messages to be erased")
        # It has to wait for this transaction before it looks for letters.
        wait_until_one_waits(connection.settings_dict["NAME"], erasing)
    assert erasing.result(30).dead_letters == 1
    assert bytes(DeadMessage.objects.get().body) == b"null"
    assert connection.vendor == "mysql"

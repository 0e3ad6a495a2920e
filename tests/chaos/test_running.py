"""What chaos.run() does with a test: its rows, its cases, and what it refuses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from signal import SIGTERM, raise_signal
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.db import connection, models, transaction
from django.test.utils import isolate_apps

from streams import Outgoing, consumer, send, send_many
from streams.chaos.report import InvariantBroken
from streams.chaos.rows import _Table
from streams.consume.registry import registrations
from streams.consume.subscription import subscribe
from streams.models import Delivery, Message, Start
from tests.hostapp.models import Handled, Order

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def book(message: Any) -> None:
    order, _new = Order.objects.get_or_create(number=message.body)
    Order.objects.filter(pk=order.pk).update(note="booked")


def booked() -> bool:
    return Order.objects.filter(note="booked").count() == 1


def names(report: Any) -> list[str]:
    return [case.name for case in report.cases]


def test_rows_and_mail_are_what_they_were_before_each_case_and_at_the_end(chaos: Any) -> None:
    consumer("orders", group="book", atomic=True)(book)
    Order.objects.create(number="A7", note="new")
    outbox: list[Any] = mail.outbox
    outbox.append("before")
    send("orders", "A7")
    seen: list[str] = []

    def reset() -> None:
        seen.append(f"{Order.objects.get().note}, {len(outbox)}")
        outbox.append("during")

    report = chaos.run("book", booked, reset=reset, faults=("die-before",))
    assert seen == ["new, 1"] * (len(report.cases) + 3)
    assert Order.objects.get().note == "new"
    assert Message.objects.count() == 1
    assert not Delivery.objects.exists()


def join_team(message: Any) -> None:
    """Forget the team if the process dies between the two."""
    _order, new = Order.objects.get_or_create(number=message.body)
    if new:
        User.objects.get().groups.add(Group.objects.get())


def test_a_row_between_many_and_many_is_none_of_the_case_before(chaos: Any) -> None:
    User.objects.create(username="u")
    Group.objects.create(name="g")
    consumer("orders", group="book")(join_team)
    send("orders", "A7")
    with pytest.raises(InvariantBroken, match="die-after"):
        chaos.run("book", lambda: User.objects.get().groups.exists(), faults=("die-after",))


def test_rows_between_many_and_many_do_not_pile_up(chaos: Any) -> None:
    Group.objects.create(name="g")

    @consumer("orders", group="book", atomic=True)
    def handle(message: Any) -> None:
        user, _new = User.objects.get_or_create(username=message.body)
        user.groups.add(Group.objects.get())

    send("orders", "A7")
    chaos.run("book", lambda: User.groups.through.objects.count() == 1, faults=("die-after",))


def test_rows_with_a_composite_primary_key_are_put_back() -> None:
    with isolate_apps("tests.hostapp"):

        class Seat(models.Model):  # noqa: DJ008
            pk = models.CompositePrimaryKey("line", "number")
            line = models.IntegerField()
            number = models.IntegerField()

            class Meta:
                app_label = "hostapp"

    with connection.schema_editor() as editor:
        editor.create_model(Seat)
    try:
        table = _Table("default", Seat)
        table.write([(2, 1), (1, 2), (1, 1)])
        assert table.read() == [(1, 1), (1, 2), (2, 1)]
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Seat)


def test_one_case_of_a_report_is_run_again(chaos: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer("orders", group="book")(book)
    send("orders", "A7")
    monkeypatch.setenv("EMS_CHAOS", "die-after:2")
    assert names(chaos.run("book", booked)) == ["die-after:2"]


def test_a_run_without_a_case_proves_nothing(chaos: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer("orders", group="book")(book)
    send("orders", "A7")
    with pytest.raises(ValueError, match="can happen to the group 'book'"):
        chaos.run("book", booked, faults=("split",))
    monkeypatch.setenv("EMS_CHAOS", "die-aftre:2")
    with pytest.raises(ValueError, match=r"die-aftre:2 is not a case .* die-after:2"):
        chaos.run("book", booked)


def test_a_case_that_does_not_happen_is_told(chaos: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    @consumer("orders", group="book", atomic=True)
    def handle(message: Any) -> None:
        calls.append(1)
        if len(calls) < 3:  # not any more when the cases are run
            Order.objects.count()
        book(message)

    send("orders", "A7")
    report = chaos.run("book", booked, faults=("die-before",))
    missed = [case.name for case in report.cases if not case.happened]
    assert len(missed) == 1
    assert f"Did not happen, the statement was not reached: {missed[0]}" in str(report)
    monkeypatch.setenv("EMS_CHAOS", missed[0])
    calls.clear()
    with pytest.raises(ValueError, match="no fault has happened"):
        chaos.run("book", booked)


@pytest.mark.parametrize(
    "end", [partial(raise_signal, SIGTERM), partial(os._exit, 1)], ids=["signal", "status"]
)
def test_a_process_that_ends_by_itself_is_no_proof(
    chaos: Any, end: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    test = os.getpid()

    @consumer("orders", group="book", atomic=True)
    def handle(message: Any) -> None:
        if os.getpid() != test:
            end()
        book(message)

    send("orders", "A7")
    monkeypatch.setenv("EMS_CHAOS", "die-after:3")
    with pytest.raises(InvariantBroken, match="ended by itself, with s"):
        chaos.run("book", booked, processes=True)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_process_counts_as_the_run_without_a_fault(
    chaos: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = tmp_path / "attempt"

    @consumer("orders", group="book", atomic=True)
    def handle(message: Any) -> None:
        Handled.objects.using("other").count()  # the first statement on that connection
        attempt.write_text(str(message.attempt))

    send("orders", "A7")
    last = chaos.run("book", lambda: True, faults=("die-after",)).statements
    monkeypatch.setenv("EMS_CHAOS", f"die-after:{last}")
    chaos.run("book", lambda: attempt.read_text() == "1", processes=True)


@pytest.mark.parametrize("by_admin", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_message_that_may_be_tried_once_dies_with_its_process(chaos: Any, by_admin: bool) -> None:
    consumer("orders", group="book", atomic=True, max_retries=None if by_admin else 0)(book)
    send_many([Outgoing("orders", "A7"), Outgoing("orders", "A7")])
    if by_admin:
        (registered,) = registrations(("orders",), ("book",))
        subscribe(registered, "default", Start.EARLIEST, {"max_retries": 0})
    report = chaos.run("book", lambda: Order.objects.count() <= 1, faults=("die-before", "order"))
    assert any(case.happened for case in report.cases)
    assert "order" not in {case.kind for case in report.cases}


def test_of_too_many_cases_a_sample_is_run_that_the_seed_decides(chaos: Any) -> None:
    consumer("orders", group="book", atomic=True)(book)
    send_many([Outgoing("orders", "A7"), Outgoing("orders", "A7")])
    some = {"faults": ("die-before",), "max_cases": 3}
    report = chaos.run("book", booked, **some)
    assert (len(report.cases), report.left_out > 3) == (3, True)
    assert f"Left out: {report.left_out} cases" in str(report)
    assert names(chaos.run("book", booked, **some)) == names(report)
    assert names(chaos.run("book", booked, seed=1, **some)) != names(report)


def test_an_invariant_that_never_holds_is_told_apart(chaos: Any) -> None:
    consumer("orders", group="book")(book)
    send("orders", "A7")
    with pytest.raises(InvariantBroken, match="handled without a fault"):
        chaos.run("book", lambda: False)


def test_what_cannot_be_proved_is_refused(chaos: Any) -> None:
    consumer("orders", group="book")(book)
    consumer("news", group="cache", mode="broadcast")(print)
    with pytest.raises(ValueError, match="no consumer is registered"):
        chaos.run("boook", booked)
    with pytest.raises(ValueError, match="broadcast"):
        chaos.run("cache", booked)
    with pytest.raises(ValueError, match="unknown faults"):
        chaos.run("book", booked, faults=("die",))
    with pytest.raises(ValueError, match="send the messages before"):
        chaos.run("book", booked)
    with transaction.atomic(), pytest.raises(ValueError, match="in a transaction"):
        chaos.run("book", booked)


@pytest.mark.parametrize("processes", [False, True])
def test_only_in_a_killed_process_nothing_of_the_handler_runs_on(
    chaos: Any, processes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @consumer("orders", group="book", atomic=True)
    def handle(message: Any) -> None:
        try:
            book(message)
        finally:
            (tmp_path / f"{message.attempt}").touch()

    send("orders", "A7")
    monkeypatch.setenv("EMS_CHAOS", "die-before:2")
    (case,) = chaos.run("book", booked, processes=processes, reset=clean(tmp_path)).cases
    assert case.happened
    # The last reset is after the case.
    assert {path.name for path in (tmp_path / "kept").iterdir()} == (
        {"2"} if processes else {"1", "2"}
    )


def clean(folder: Path) -> Any:
    """Return a reset that moves the files of the case before into ``kept``."""

    def reset() -> None:
        kept = folder / "kept"
        kept.mkdir(exist_ok=True)
        for old in kept.iterdir():
            old.unlink()
        for path in folder.iterdir():
            if path.is_file():
                path.rename(kept / path.name)

    return reset


@pytest.mark.exhaustive
def test_all_cuts_of_ten_statements_take_less_than_ten_seconds(chaos: Any) -> None:
    @consumer("orders", group="book", atomic=True)
    def handle(message: Any) -> None:
        for number in range(10):
            Handled.objects.create(
                group="book", topic="", partition=0, offset=message.offset, value=str(number)
            )

    send("orders", "A7")
    began = time.process_time()
    report = chaos.run("book", lambda: Handled.objects.count() == 10)
    assert report.statements == 13
    assert time.process_time() - began < 10  # of this process: other tests may run beside

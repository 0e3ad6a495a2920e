"""What chaos.run() does with a test: its rows, its cases, and what it refuses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.db import transaction

from streams import Outgoing, consumer, send, send_many
from streams.chaos.report import InvariantBroken
from streams.models import Delivery, Message
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


def test_one_case_of_a_report_is_run_again(chaos: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer("orders", group="book")(book)
    send("orders", "A7")
    monkeypatch.setenv("EMS_CHAOS", "die-after:2")
    assert names(chaos.run("book", booked)) == ["die-after:2"]


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

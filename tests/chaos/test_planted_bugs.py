"""Chaos finds the bugs that handlers usually have, and none in handlers that are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core import mail
from django.core.mail import send_mail
from django.db import connection, transaction
from django.db.models import F

from streams import Outgoing, ReceivedMessage, consumer, send, send_many
from streams.chaos.report import InvariantBroken, Report
from tests.hostapp.models import Handled, Order

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]

NUMBERS = ("A7", "A8")


@pytest.fixture(autouse=True)
def orders() -> None:
    send_many([Outgoing("orders", {"number": number}) for number in NUMBERS])


def make_counter(using: str = "default") -> None:
    Handled.objects.using(using).create(group="counter", topic="", partition=0, offset=0)


def count(using: str = "default") -> None:
    Handled.objects.using(using).update(offset=F("offset") + 1)


def counted_once(using: str = "default") -> bool:
    return Handled.objects.using(using).get().offset == len(NUMBERS)


def each_has_one_mail() -> None:
    subjects = [message.subject for message in mail.outbox]
    assert sorted(subjects) == list(NUMBERS)


def kinds(report: Report) -> set[str]:
    return {one.case.kind for one in report.broken}


def breaks(chaos: Any, *arguments: Any, **named: Any) -> Report:
    with pytest.raises(InvariantBroken) as caught:
        chaos.run(*arguments, **named)
    report: Report = caught.value.report
    return report


@pytest.mark.one_server
def test_a_mail_that_is_sent_inside_the_transaction_is_sent_twice(chaos: Any) -> None:
    @consumer("orders", group="mail", atomic=True)
    def handle(message: Any) -> None:
        Order.objects.create(number=message.body["number"])
        send_mail(message.body["number"], "Pack it.", None, ["shop@example.com"])

    report = breaks(chaos, "mail", each_has_one_mail, faults=("die-before",))
    assert kinds(report) == {"die-before"}
    assert "Order.objects.create" not in str(report.broken[0].case.struck)
    assert not mail.outbox, "what the last case has sent"


@pytest.mark.one_server
def test_a_write_to_another_database_is_done_twice(chaos: Any) -> None:
    make_counter("other")

    @consumer("orders", group="counter", atomic=True)
    def handle(message: Any) -> None:
        count("other")

    deaths = ("die-before", "die-after")
    report = breaks(chaos, "counter", lambda: counted_once("other"), faults=deaths)
    assert kinds(report) == set(deaths)
    first = report.broken[0].case.struck
    assert first is not None
    assert "Handled.objects" in first.where
    assert "test_planted_bugs.py" in first.where


@pytest.mark.exhaustive
@pytest.mark.one_server
def test_an_increment_that_commits_apart_from_its_acknowledgement_is_done_twice(chaos: Any) -> None:
    make_counter()

    @consumer("orders", group="counter")
    def handle(message: Any) -> None:
        count()

    report = breaks(chaos, "counter", counted_once)
    assert kinds(report) >= {"die-after", "frozen", "twice"}


@pytest.mark.one_server
def test_a_mail_after_the_commit_is_lost(chaos: Any) -> None:
    @consumer("orders", group="mail")
    def handle(message: Any) -> None:
        number = message.body["number"]
        with transaction.atomic():
            _order, new = Order.objects.get_or_create(number=number)
            if new:
                send = lambda: send_mail(number, "Pack it.", None, ["shop@example.com"])  # noqa: E731
                transaction.on_commit(send)

    report = breaks(chaos, "mail", each_has_one_mail, faults=("die-after",))
    struck = {one.case.struck.text for one in report.broken if one.case.struck}
    assert "COMMIT" in struck


@pytest.mark.exhaustive
def test_a_handler_that_cannot_be_repeated_ends_as_a_dead_letter(chaos: Any) -> None:
    @consumer("orders", group="orders")
    def handle(message: Any) -> None:
        Order.objects.create(number=message.body["number"])

    report = breaks(chaos, "orders", lambda: Order.objects.count() == len(NUMBERS))
    assert "more dead letters than without a fault" in str(report)
    assert "IntegrityError" in str(report)


@pytest.mark.exhaustive
def test_a_handler_that_relies_on_an_order_is_told(chaos: Any) -> None:
    @consumer("orders", group="last", atomic=True)
    def handle(message: Any) -> None:
        Order.objects.update_or_create(number="last", defaults={"note": message.body["number"]})

    report = breaks(chaos, "last", lambda: Order.objects.get().note == NUMBERS[-1])
    assert kinds(report) >= {"order"}


def all_orders() -> None:
    assert sorted(Order.objects.values_list("number", flat=True)) == list(NUMBERS)
    assert counted_once()


def book(message: Any) -> None:
    Order.objects.create(number=message.body["number"])
    count()


@pytest.mark.parametrize(
    "ordered",
    [
        pytest.param(False, id="unordered"),
        pytest.param(True, id="ordered", marks=pytest.mark.exhaustive),
    ],
)
def test_a_handler_in_the_transaction_of_its_acknowledgement_is_right(
    chaos: Any, ordered: bool
) -> None:
    make_counter()
    consumer("orders", group="book", atomic=True, ordered=ordered)(book)
    report = chaos.run("book", all_orders)
    ran = {case.kind for case in report.cases if case.happened}
    assert ran >= {"die-before", "die-after"}
    if connection.vendor != "sqlite":
        assert ran >= {"lost-reply", "frozen", "clock-forward", "clock-back", "twice"}
    else:
        assert len(report.impossible) == 2
    assert ("order" in ran) is not ordered


@pytest.mark.exhaustive
def test_a_batch_handler_is_right(chaos: Any) -> None:
    make_counter()

    @consumer("orders", group="book", atomic=True, batch=3)
    def handle(messages: Any) -> None:
        for message in messages:
            book(message)

    report = chaos.run("book", all_orders)
    assert {case.name for case in report.cases} >= {"split:1"}


@pytest.mark.exhaustive
def test_a_handler_with_typed_bodies_is_right_and_what_does_not_fit_is_rejected(
    chaos: Any,
) -> None:
    @dataclass
    class Numbered:
        number: str

    make_counter()
    send("orders", {"number": 9})

    @consumer("orders", group="book", atomic=True, body=Numbered)
    def handle(message: ReceivedMessage[Numbered]) -> None:
        Order.objects.create(number=message.body.number)
        count()

    chaos.run("book", all_orders)


@pytest.mark.exhaustive
def test_an_idempotent_handler_is_right_without_a_transaction(chaos: Any) -> None:
    make_counter()

    @consumer("orders", group="book")
    def handle(message: Any) -> None:
        with transaction.atomic():
            _order, new = Order.objects.get_or_create(number=message.body["number"])
            if new:
                count()

    report = chaos.run("book", all_orders)
    ran = {case.kind for case in report.cases if case.happened}
    assert ran >= {"die-before", "die-after", "frozen", "clock-forward", "twice", "order"}


@pytest.mark.exhaustive
@pytest.mark.one_server
def test_an_async_handler_is_right(chaos: Any) -> None:
    make_counter()

    @consumer("orders", group="book", atomic=True)
    async def handle(message: Any) -> None:
        await Order.objects.acreate(number=message.body["number"])
        await sync_to_async(count)()

    chaos.run("book", all_orders)


@pytest.mark.exhaustive
def test_what_a_handler_sends_is_sent_once(chaos: Any) -> None:
    @consumer("orders", group="bill", atomic=True)
    def bill(message: Any) -> None:
        send("invoices", message.body)

    def once() -> None:
        from streams.testing import sent

        assert sorted(m.body["number"] for m in sent("invoices")) == list(NUMBERS)

    chaos.run("bill", once)

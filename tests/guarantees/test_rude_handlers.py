"""What a handler leaves on its connection costs its own call, not others and not the process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, consumer, send_many
from streams.consume import session
from streams.log.sequencer import sequence
from streams.models import Delivery, RetryMessage, State
from streams.testing import drain
from tests.consuming import Process
from tests.hostapp.models import Handled

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

LEAVES = {
    "read-only": ("SET SESSION TRANSACTION READ ONLY", "_read_only=1"),
    "autocommit": ("SET autocommit = 0", "autocommit=0"),
    "sql_mode": ("SET sql_mode = ''", "sql_mode="),
    "time zone": ("SET SESSION time_zone = '+05:00'", "time_zone=+05:00"),
    "isolation": ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "_isolation=SERIAL"),
    "comment": ("/* ours */ SET sql_select_limit = 1", "sql_select_limit=1"),
    "several": ("SELECT 1; SET SESSION TRANSACTION READ ONLY", "_read_only=1"),
    "transaction": ("START TRANSACTION", "an open transaction"),
    "begin": ("begin", "an open transaction"),
    "locks": ("LOCK TABLES django_content_type READ", "locked tables"),
    "table": ("CREATE TEMPORARY TABLE left_over (id int)", "the temporary table left_over"),
    "database": ("USE information_schema", "another database"),
}
if os.environ.get("EMS_TEST_DRIVER") == "pymysql":
    del LEAVES["several"]  # this driver takes one statement at a time
each = pytest.mark.parametrize(("statement", "left"), LEAVES.values(), ids=LEAVES)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_said", set())


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for one in statements:
            cursor.execute(one)


class Rude:
    """Has a worker whose handler does ``work`` for the bodies in ``rude``."""

    def __init__(self, work: Callable[[], Any], rude: tuple[int, ...] = (0, 3), **options: Any):
        self.handled: list[int] = []

        @consumer("orders", group="mail", **options)
        def handle(message: Any) -> None:
            self.handled.append(message.body)
            if options.get("atomic"):
                note(message)
            if message.body in rude:
                work()

        self.process = Process("mail")
        send_many([Outgoing("orders", n) for n in range(5)])
        sequence("default")

    def step(self) -> dict[int, str]:
        """Claim and handle once; return the errors of what comes back."""
        assert self.process.worker.step() == 0.0
        return dict(RetryMessage.objects.values_list("offset", "last_error"))


def note(message: Any) -> None:
    place = {"topic": "orders", "partition": 0, "offset": message.offset}
    Handled.objects.create(group="mail", value="", **place)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        vars(one)["ems_left"]
        for one in caplog.records
        if getattr(one, "ems_event", "") == "handler.session_changed"
    ]


@pytest.mark.mysql
@each
def test_what_a_handler_leaves_fails_its_call_alone(
    caplog: pytest.LogCaptureFixture, statement: str, left: str
) -> None:
    rude = Rude(lambda: execute(statement))
    caplog.set_level(logging.WARNING, "streams.handling")
    errors = rude.step()
    assert set(errors) == {0, 3}
    assert all(error.startswith("SessionChanged") and left in error for error in errors.values())
    assert rude.handled == [*range(5)]
    (text,) = said(caplog)
    assert left in text
    delivery = Delivery.objects.get()
    assert (delivery.progress, delivery.failed, delivery.state) == (5, 2, State.RETRY)
    send_many([Outgoing("orders", n) for n in (5, 6)])
    rude.process.run_until_idle()
    assert RetryMessage.objects.count() == 2
    assert rude.handled == [*range(7)]


@pytest.mark.mysql
@pytest.mark.parametrize("raises", [False, True])
@each
def test_an_atomic_handler_that_leaves_something_is_rolled_back(
    statement: str, left: str, raises: bool
) -> None:
    def work() -> None:
        execute(statement)
        if raises:
            raise ZeroDivisionError

    rude = Rude(work, atomic=True)
    errors = rude.step()
    # Django turns autocommit off for the transaction, and on after it, whatever a handler does.
    assert set(errors) == (set() if "autocommit" in statement and not raises else {0, 3})
    if raises:
        assert set(errors.values()) == {"ZeroDivisionError"}
    assert rude.handled == [*range(5)]
    committed = set(Handled.objects.values_list("offset", flat=True))
    ends = statement.startswith(("LOCK", "START", "begin"))  # these commit what is open
    assert committed == ({*range(5)} if ends or not errors else {1, 2, 4})
    with connection.cursor() as cursor:
        assert session._variables("default") == session._fresh.get("default", None) or raises
        cursor.execute("SELECT DATABASE()")
        assert cursor.fetchone() == (connection.settings_dict["NAME"],)


@pytest.mark.mysql
@pytest.mark.parametrize(
    "statements",
    [
        ("SET SESSION time_zone = '+05:00'", "SET SESSION time_zone = DEFAULT"),
        ("LOCK TABLES django_content_type READ", "UNLOCK TABLES"),
        ("CREATE TEMPORARY TABLE one (id int)", "DROP TEMPORARY TABLE IF EXISTS `one`, two"),
        ("START TRANSACTION", "COMMIT"),
        ("BEGIN", "ROLLBACK"),
        ("SET @mine = 1",),
        ("SET max_statement_time = 100",),
    ],
    ids=lambda statements: statements[0].partition(" ")[0],
)
def test_what_a_handler_puts_back_is_its_own_affair(statements: tuple[str, ...]) -> None:
    if "max_statement_time" in statements[0] and not connection.mysql_is_mariadb:  # type: ignore[attr-defined]
        statements = ("SET max_execution_time = 1000",)
    rude = Rude(lambda: execute(*statements))
    assert rude.step() == {}
    driver = connection.connection
    assert drain("mail").done == 0
    assert connection.connection is driver


@pytest.mark.mysql
def test_a_handler_that_leaves_nothing_costs_no_statement() -> None:
    def work() -> None:
        list(Handled.objects.all())
        Handled.objects.update(value="x")

    def statements(rude: tuple[int, ...]) -> int:
        with CaptureQueriesContext(connection) as captured:
            Rude.step(Rude(work, rude))
        Delivery.objects.all().delete()
        return len([one for one in captured if "@@" in one["sql"]])

    assert statements((0, 1, 2, 3, 4)) == 0


@pytest.mark.mysql
def test_a_server_whose_variables_were_changed_meanwhile_is_not_rude() -> None:
    session._fresh["default"] = {"sql_mode": "as it was"}
    assert Rude(lambda: execute("SET @mine = 1")).step() == {}


@pytest.mark.mysql
@pytest.mark.parametrize(
    "statement", ["SET SESSION TRANSACTION READ ONLY", "LOCK TABLES django_content_type READ"]
)
def test_what_is_done_past_django_does_not_end_the_process(
    caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    """Nobody sees it before a statement of EMS fails; then it is not known whose it was."""

    def work() -> None:
        connection.connection.query(statement)

    rude = Rude(work, (4,))
    caplog.set_level(logging.WARNING, "streams.handling")
    assert rude.step() == {}
    assert Delivery.objects.get().state == State.DONE
    assert len(said(caplog)) == 1


def test_an_open_transaction_fails_its_call_alone() -> None:
    rude = Rude(lambda: execute("BEGIN"))
    errors = rude.step()
    assert set(errors) == {0, 3}
    assert all("an open transaction" in error for error in errors.values())
    assert rude.handled == [*range(5)]


def test_a_transaction_that_django_was_told_to_open_is_rolled_back() -> None:
    def work() -> None:
        connection.set_autocommit(False)
        Handled.objects.create(group="mail", topic="orders", partition=0, offset=0, value="")

    errors = Rude(work, (3,)).step()
    assert set(errors) == {3}
    assert not Handled.objects.exists()


@pytest.mark.every_database
def test_a_transaction_that_the_handler_has_ended_is_nothing_left() -> None:
    def work() -> None:
        with transaction.atomic():
            Handled.objects.create(group="mail", topic="orders", partition=0, offset=0, value="")

    assert Rude(work).step() == {}
    assert Handled.objects.count() == 2

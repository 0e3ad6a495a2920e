"""Each diagnosis of the doctor: what provokes it, and what the command makes of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings

from streams import Outgoing, Reject, consumer, runtime_settings, send, send_many
from streams.management.commands import ems_doctor
from streams.models import (
    Consumer,
    ConsumerGroup,
    Delivery,
    Message,
    Step,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.models.step import SEQUENCE, SWEEP
from streams.observe import diagnoses
from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis
from streams.observe.doctor import examine, ready
from streams.observe.mysql_server import Server
from streams.steps.sequence import sequence_all
from streams.steps.sweep import sweep_if_due
from streams.testing import drain
from tests.processes import Spawn
from tests.sessions import Session

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

LONG = timedelta(hours=1)


@pytest.fixture(autouse=True)
def utc(settings: Settings) -> None:
    settings.TIME_ZONE = "UTC"


def diagnosed(name: str) -> Diagnosis:
    """The diagnosis of this name, of which there must be one."""
    (found,) = [diagnosis for diagnosis in examine("default") if diagnosis.name == name]
    assert found.hint if found.level != OK else True
    return found


def level(name: str) -> str:
    return diagnosed(name).level


def consumed(messages: int = 3) -> ConsumerGroup:
    """A group that has done all there is, and whose consumer is there."""
    SystemConfig.objects.create(name="messageRetentionDays", value=7)
    consumer("orders", group="mail")(print)
    send_many([Outgoing("orders", n) for n in range(messages)])
    drain()
    group = ConsumerGroup.objects.get()
    Consumer.objects.create(client_id="me", group=group, lease_until=UtcNow(LEASE))
    sequence_all("default")
    sweep_if_due("default")
    return group


def test_where_all_is_well_nothing_is_said_but_ok() -> None:
    consumed()
    assert [str(d) for d in examine("default") if d.level != OK] == []


# -- the tables --


def test_a_migration_that_has_not_run_is_an_error_and_nothing_more_is_asked() -> None:
    ((_app, last),) = MigrationLoader(None).graph.leaf_nodes("ems")
    MigrationRecorder(connection).record_unapplied("ems", last)
    (found,) = examine("default")
    assert (found.level, found.name) == (ERROR, "schema")
    assert f"ems.{last}" in found.text
    assert "manage.py migrate --database default" in found.hint
    assert ready("default") == [found]


@pytest.mark.django_db(transaction=True)
def test_a_table_that_is_not_there_is_an_error() -> None:
    with connection.schema_editor() as editor:
        editor.alter_db_table(Step, "ems_step", "ems_step_away")
    try:
        (found,) = examine("default")
        assert (found.level, found.text) == (ERROR, "There is no ems_step.")
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(Step, "ems_step_away", "ems_step")
    assert ready("default")[0].level == OK


def test_a_database_that_is_newer_than_the_code_is_ready_with_a_warning() -> None:
    MigrationRecorder(connection).record_applied("ems", "9999_of_the_future")
    (found,) = ready("default")
    assert (found.level, found.name) == (WARNING, "schema")
    assert "9999_of_the_future" in found.text
    assert run("--ready")[0] == 0


@pytest.mark.usefixtures("away")
def test_a_database_that_does_not_answer_is_one_line_and_exit_status_1() -> None:
    (found,) = examine("default")
    assert (found.level, found.name) == (ERROR, "database")
    for option in ("--ready", "--audit"):
        status, text = run(option)
        assert status == 1
        assert text.startswith("error    database  ")
        assert len(text.splitlines()) == 2  # it and the hint


# -- what must go on --


@pytest.mark.parametrize("step", [SEQUENCE, SWEEP])
def test_a_step_that_nobody_runs_is_an_error(step: str) -> None:
    consumed()
    assert level(step) == OK
    Step.objects.filter(name=step).update(last_run_at=UtcNow(-diagnoses.SILENT - LEASE))
    assert re.fullmatch(r"This step has not run for 3\d s\.", diagnosed(step).text)
    assert level(step) == ERROR
    Step.objects.filter(name=step).delete()
    assert level(step) == ERROR
    assert "never" in diagnosed(step).text


def test_messages_that_nobody_sequences_are_an_error() -> None:
    consumed()
    send("orders", 1, delay=60)
    assert (level("inbox"), diagnosed("inbox").text) == (OK, "empty")
    send("orders", 1)
    assert (level("inbox"), diagnosed("inbox").text) == (OK, "1 message waits for an offset")
    Step.objects.filter(name=SEQUENCE).update(last_run_at=UtcNow(-LONG))
    assert level("inbox") == ERROR
    Message.objects.inbox().delete()
    assert level("inbox") == OK


def test_a_topic_that_holds_messages_and_has_no_group_is_a_warning() -> None:
    consumed()
    send_many([Outgoing("order", n) for n in range(2)])
    found = diagnosed("topic")
    assert found.level == WARNING
    assert "order holds 2 messages" in found.text
    assert "Did you mean orders?" in found.text
    assert "delete" not in found.hint
    Topic.objects.filter(name="order").update(archive=True)  # Spark reads it
    assert not [found for found in examine("default") if found.name == "topic"]


def test_a_topic_whose_group_is_still_to_come_is_not_called_unread() -> None:
    consumed()
    consumer("later", group="mail", start="earliest")(print)
    consumer("told", group="mail")(print)
    send("later", 1)
    send("told", 1)
    assert not [found for found in examine("default") if found.name == "topic"]
    assert "mail on told is new" in diagnosed("ems.W011").text


def test_no_live_consumer_is_a_warning() -> None:
    group = consumed()
    Consumer.objects.create(client_id="me", group=other_group(), lease_until=UtcNow(LEASE))
    assert (level("consumers"), diagnosed("consumers").text) == (OK, "1 live")  # one process
    Consumer.objects.filter(group=group).update(lease_until=UtcNow(-LEASE))
    assert level("consumers") == OK
    Consumer.objects.update(lease_until=UtcNow(-LEASE))
    assert level("consumers") == WARNING


def other_group() -> ConsumerGroup:
    return ConsumerGroup.objects.create(name="shop", topic=ConsumerGroup.objects.get().topic)


def test_deliveries_that_nobody_sweeps_are_an_error() -> None:
    consumed()
    assert level("leases") == OK
    delivery = Delivery.objects.all()[0]
    delivery.pk, delivery.state = None, "START"
    delivery.save()
    Delivery.objects.filter(pk=delivery.pk).update(deadline=UtcNow(-LEASE))
    assert level("leases") == OK  # a sweep may be on its way
    Delivery.objects.filter(pk=delivery.pk).update(deadline=UtcNow(-3 * LEASE))
    assert level("leases") == ERROR
    assert diagnosed("leases").text.startswith("1 delivery")


def test_a_group_with_messages_and_nobody_to_take_them_is_a_warning() -> None:
    group = consumed()
    send("orders", 1)
    sequence_all("default")
    assert not [d for d in examine("default") if d.name == "group"]
    Consumer.objects.update(lease_until=UtcNow(-LEASE))
    assert diagnosed("group").text == "mail on orders has no consumer, and 1 message waits"
    ConsumerGroup.objects.filter(pk=group.pk).update(paused=True)
    found = diagnosed("group")
    assert found.text == "mail on orders is paused, and 1 message waits"
    assert found.hint == "ems_groups resume mail"


def test_dead_letters_are_a_warning() -> None:
    @consumer("orders", group="mail")
    def handle(message):
        raise Reject("no")

    send("orders", 1)
    assert level("dead letters") == OK
    drain()
    assert (level("dead letters"), diagnosed("dead letters").text) == (
        WARNING,
        "1 waits for a decision",
    )


@pytest.mark.redis
def test_redis_that_does_not_answer_is_a_warning(
    ems_settings: Callable[..., None], settings: Settings
) -> None:
    assert not [d for d in examine("default") if d.name == "redis"]
    ems_settings(REDIS="redis")
    assert level("redis") == OK
    settings.CACHES = {
        **settings.CACHES,
        "away": {**settings.CACHES["redis"], "LOCATION": "redis://127.0.0.1:1/0"},
    }
    ems_settings(REDIS="away")
    assert level("redis") == WARNING
    assert "poll" in diagnosed("redis").hint


def test_a_failed_system_check_is_shown_unless_it_is_silenced(
    ems_settings: Callable[..., None], settings: Settings
) -> None:
    settings.CELERY_TASK_SERIALIZER = "pickle"
    assert level("ems.W002") == WARNING
    settings.SILENCED_SYSTEM_CHECKS = ["ems.W002"]
    assert level("checks") == OK
    ems_settings(NONSENSE=1)
    with pytest.raises(CommandError, match="NONSENSE"):  # one line: without them nothing is known
        run("--ready")


# -- the server --


@pytest.mark.mysql
def test_a_clock_that_is_off_is_a_warning() -> None:
    assert level("clock") == OK
    with connection.cursor() as cursor:
        cursor.execute("SET TIMESTAMP = UNIX_TIMESTAMP() + 100")
    try:
        found = diagnoses.clock("default")  # alone: the server's clock stands still meanwhile
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET TIMESTAMP = DEFAULT")
    assert found.level == WARNING
    assert re.search(r"\+(99|100)\.\d s", found.text)


@pytest.mark.mysql
def test_the_server_is_described(vendor: str) -> None:
    said = {diagnosis.name: diagnosis.text for diagnosis in examine("default")}
    assert ("MariaDB" in said["server"]) == (vendor == "mariadb")
    assert said["isolation"] == "READ-COMMITTED"
    assert said["binlog"] == "off" or said["binlog"].startswith("ROW, ")
    assert said["time zone"].startswith("+08:00" if vendor == "mariadb" else "SYSTEM")
    assert said["collation"].startswith("utf8mb4")
    assert said["packet"] == f"{64 * 1024 * 1024} bytes"


@pytest.mark.mysql
@pytest.mark.parametrize("image", ["FULL", "NOBLOB"])
@pytest.mark.parametrize("annotated", [0, 1])
@pytest.mark.parametrize("granted", [False, True])
def test_the_doctor_says_what_a_binary_log_costs(
    image: str, annotated: int, granted: bool, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "GLOBAL.log_bin": 1,
        "binlog_format": "ROW",
        "SESSION.binlog_row_image": image,
        "GLOBAL.binlog_annotate_row_events": annotated,
    }
    asked = Server.variable
    monkeypatch.setattr(
        Server,
        "variable",
        lambda self, name: given[name] if name in given else asked(self, name),
    )
    monkeypatch.setattr(diagnoses, "bodies_left_out", lambda alias: nullcontext(granted))
    found = diagnosed("binlog")
    assert found.level == OK
    assert found.text.startswith(f"ROW, {image}.")
    lacks = image == "FULL" and not granted
    assert ("four times" in found.text) == ("GRANT" in found.hint) == lacks
    assert ("each body once" in found.text) == (image == "FULL" and granted)
    as_text = bool(annotated) and vendor == "mariadb"  # MySQL has no such setting
    assert ("as text" in found.text) == ("annotate" in found.hint) == as_text


@pytest.mark.mysql
def test_a_consumer_that_would_not_fit_is_a_warning() -> None:
    consumer("orders", group="mail", threads=7)(print)
    assert level("connections") == OK
    assert "up to 11 connections" in diagnosed("connections").text
    consumer("orders", group="shop", threads=300)(print)
    assert level("connections") == OK  # the pool has 8 threads
    SystemConfig.objects.create(name="processThreads", value=300)
    runtime_settings.forget()
    assert level("connections") == WARNING  # the servers of the tests take 300


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_an_old_transaction_is_a_warning_that_says_whom_to_end(
    second_connection: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = second_connection()
    other.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    found = diagnosed("transactions")
    assert found.level == OK  # also where the session's zone is not the host's
    assert int(re.findall(r"(\d+) s old", found.text)[0]) < 60
    monkeypatch.setattr(diagnoses, "LONG_TRANSACTION", timedelta(seconds=-1))
    found = diagnosed("transactions")
    assert found.level == WARNING
    assert re.search(r"KILL \d+", found.hint)


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_long_history_is_a_warning(
    second_connection: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumed()
    other = second_connection()
    other.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    other.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    for _ in range(30):
        Step.objects.update(last_run_at=UtcNow())
    monkeypatch.setattr(diagnoses, "LONG_HISTORY", 20)
    found = diagnosed("transactions")
    assert found.level == WARNING
    assert "purge" in found.hint


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_an_account_that_may_not_see_transactions_is_told_what_it_lacks() -> None:
    given = connection.settings_dict
    before = dict(given)
    name = f"ems_{os.getpid()}"  # others use the same server
    account = f"'{name}'@'127.0.0.1'"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE USER {account} IDENTIFIED BY 'plain'")
        cursor.execute(f"GRANT ALL ON `{given['NAME']}`.* TO {account}")
    try:
        given.update({"USER": name, "PASSWORD": "plain"})
        connection.close()
        found = diagnosed("transactions")
        assert (found.level, found.hint) == (WARNING, "Grant PROCESS to this account.")
        assert level("connections") == OK
    finally:
        given.update(before)
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute(f"DROP USER {account}")


# -- the command --


def run(*options: str) -> tuple[int, str]:
    """Exit status and output of ems_doctor."""
    out = StringIO()
    status = 0
    try:
        call_command("ems_doctor", *options, stdout=out)
    except SystemExit as end:
        status = int(end.code or 0)
    return status, out.getvalue()


def test_warnings_alone_leave_the_exit_status_0_and_errors_make_it_1() -> None:
    group = consumed()
    assert run()[0] == 0
    Consumer.objects.all().delete()
    ConsumerGroup.objects.filter(pk=group.pk).update(paused=True)
    status, text = run()
    assert (status, "warning  consumers" in text) == (0, True)
    Step.objects.all().delete()
    assert run()[0] == 1
    assert run("--ready")[0] == 0


def test_the_output_is_readable_by_people_and_by_programs() -> None:
    status, text = run("--json")
    rows = json.loads(text)
    assert status == 1
    assert {tuple(row) for row in rows} == {("level", "name", "text", "hint")}
    assert {row["level"] for row in rows} <= {OK, WARNING, ERROR}
    lines = run()[1].splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("error    sequence"))
    assert lines[place + 1].strip().startswith("→ Run ems_consume")


def test_an_audit_that_finds_nothing_says_so() -> None:
    consumed()
    status, text = run("--audit")
    assert status == 0
    assert "Every promise that the audit checks holds: offsets without hole or repeat" in text


def test_an_audit_that_finds_something_exits_with_1() -> None:
    consumed()
    Message.objects.filter(offset=1).delete()
    status, text = run("--audit")
    assert status == 1
    assert "orders/0: offsets 1 … 1 (1)" in text
    assert run()[0] == 0


def test_an_audit_stops_after_its_time_and_goes_on_from_there() -> None:
    consumed()
    Message.objects.filter(offset=1).delete()
    kinds, resume, looks = [], "inbox:0:0:0", 0
    while resume:
        rows = json.loads(run("--audit", "--seconds", "0", "--json", "--resume", resume)[1])
        kinds += [row["name"] for row in rows if row["level"] == ERROR]
        stopped = [row["hint"] for row in rows if "has stopped" in row["text"]]
        resume = stopped[0].removeprefix("ems_doctor --resume ") if stopped else ""
        looks += 1
    assert kinds == ["hole"]
    assert looks > 4
    assert rows[-1]["text"].startswith("From there on: Every promise that the audit checks holds:")


def test_an_audit_of_a_table_full_of_holes_stops_after_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ems_doctor, "FINDINGS_AT_MOST", 2)
    consumed(6)
    Message.objects.filter(offset__in=(1, 3, 5)).delete()
    status, text = run("--audit")
    assert status == 1
    assert "ems_doctor --resume log:" in text


def test_a_position_that_is_none_is_one_line() -> None:
    with pytest.raises(CommandError, match="give it one that an audit has printed"):
        run("--resume", "nonsense")


@pytest.mark.django_db(databases=["default", "other"])
def test_another_alias_is_examined() -> None:
    consumed()
    send("orders", 1, using="other")
    status, text = run("--database", "other", "--audit")
    assert status == 1  # nobody sequences there
    assert "1 message waits for an offset" in text
    assert run("--audit")[0] == 0
    assert connections["other"].alias == "other"


@pytest.mark.slow
def test_as_a_process_it_is_a_probe(spawn: Spawn) -> None:
    assert "All migrations are applied." in spawn.command("ems_doctor", "--ready").succeed()
    child = spawn.command("ems_doctor", "--audit", "--json")
    assert child.wait() == 1  # nobody sequences
    rows: list[dict[str, Any]] = json.loads(child.text())
    assert rows[-1]["text"].startswith("Every promise that the audit checks holds:")

"""EMS["ENABLED"] = False: the process neither sends nor consumes, and says so at each way in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.test import Client, override_settings
from django.urls import reverse

from monitoring import jobs
from monitoring import tasks as roll_ups
from streams import (
    Decision,
    Outgoing,
    PreparedMessage,
    asend,
    cancel,
    checkback,
    consumer,
    prepare,
    send,
    send_many,
    tasks,
)
from streams.errors import ConfigurationError, Disabled
from streams.models import Message, PreparedRow, Step
from streams.testing import drain
from tests.http.conftest import Api
from tests.rows import nothing_written

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

Change = Callable[..., None]


@pytest.fixture
def off(ems_settings: Change) -> Callable[[], None]:
    return lambda: ems_settings(ENABLED=False)


SENDS: list[Callable[[], Any]] = [
    lambda: send("new", 1),
    lambda: send("new", 1, dedup_key="a"),
    lambda: send("new", 1, using="default"),
    lambda: send_many([Outgoing("new", 1), Outgoing("other", 2)]),
    lambda: asyncio.run(asend("new", 1)),
    lambda: cancel(1, topic="new"),
    lambda: prepare("new", 1, biz="shop", biz_key="1", checker="ask"),
]


@pytest.mark.parametrize("call", SENDS)
def test_what_sends_raises_before_anything_is_written(
    call: Callable[[], Any], off: Callable[[], None]
) -> None:
    off()
    with nothing_written(), pytest.raises(Disabled, match=r"EMS is off .*ENABLED"):
        call()


def undecided(message: PreparedMessage) -> Decision:
    return Decision.UNKNOWN


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_a_prepared_message_is_not_decided(verb: str, off: Callable[[], None]) -> None:
    checkback("ask")(undecided)
    held = prepare("orders", 1, biz="shop", biz_key="1", checker="ask")
    off()
    with pytest.raises(Disabled):
        getattr(held, verb)()
    assert PreparedRow.objects.get().state == "PREPARED"
    assert not Message.objects.exists()


def test_nothing_is_consumed(off: Callable[[], None]) -> None:
    consumer("orders", group="mail")(print)
    send("orders", 1)
    off()
    with nothing_written():
        with pytest.raises(Disabled):
            drain()
        with pytest.raises(CommandError, match="EMS is off in this process"):
            call_command("ems_consume", "--drain", stdout=StringIO())
        with pytest.raises(CommandError, match="EMS is off in this process"):
            call_command("ems_stress", stdout=StringIO())


def test_tasks_do_nothing_and_the_worker_says_so_once(
    off: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    send("orders", 1)
    off()
    tasks._say_off.cache_clear()
    with caplog.at_level(logging.WARNING), nothing_written():
        for task in (tasks.sequence, tasks.sweep, tasks.retries, tasks.purge, tasks.steps):
            task()
        roll_ups.rollup()
    assert [record.getMessage() for record in caplog.records] == [
        "EMS is off in this worker: its tasks do nothing. See EMS['ENABLED']"
    ]
    assert not Step.objects.exists()
    with override_settings(EMS={}):
        tasks.sequence()
    assert not Message.objects.inbox().exists()


def test_no_spark_job_runs(off: Callable[[], None]) -> None:
    off()
    with pytest.raises(Disabled):
        jobs.run("rollup", [], None, seconds=1, say=pytest.fail)


def test_over_http_every_request_with_a_token_is_refused_before_the_token_is_read(
    off: Callable[[], None],
) -> None:
    off()
    api = Api("ems_of_nobody")
    with nothing_written():
        for answer in (api.post("/topics/orders/messages", {"body": 1}), api.get("/overview")):
            assert (answer.status_code, answer.json()["code"]) == (503, "disabled")
    assert api.get("/ems/healthz").json() == {"ready": True}


def test_pages_and_lists_are_read_as_always(off: Callable[[], None], admin_client: Client) -> None:
    send("orders", 1)
    off()
    assert admin_client.get(reverse("admin:ems_monitoring_overview_changelist")).status_code == 200
    assert admin_client.get(reverse("admin:ems_message_changelist")).status_code == 200
    out = StringIO()
    call_command("ems_topics", "list", stdout=out)
    assert "orders" in out.getvalue()


def test_check_and_doctor_say_that_it_is_off(off: Callable[[], None]) -> None:
    assert "ems.W023" not in [
        message.id for message in run_checks(tags=["ems"], databases=["default"])
    ]
    off()
    assert "ems.W023" in [message.id for message in run_checks(tags=["ems"], databases=["default"])]
    out = StringIO()
    with pytest.raises((CommandError, SystemExit)):
        call_command("ems_doctor", stdout=out)
    assert "EMS is off in this process: it neither sends nor consumes." in out.getvalue()


@pytest.mark.parametrize("value", [None, "False", 0, 1])
def test_only_true_and_false_are_taken(value: Any, ems_settings: Change) -> None:
    with pytest.raises(ConfigurationError, match="ENABLED"):
        ems_settings(ENABLED=value)
        send("orders", 1)

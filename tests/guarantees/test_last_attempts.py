"""What a death ends: only messages whose handler was called, and nobody who ran beside them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams import Outgoing, consumer, send_many
from streams.consume.outcome.failure import ProcessDied
from streams.log import bodies
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    DeadMessage,
    Delivery,
    State,
)
from streams.observe.audit.walk import audit
from streams.steps.retries import step_retries
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import Process, given_back
from tests.faults import statements
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

MINUTE = timedelta(minutes=1)


class Dies(KeyboardInterrupt):
    """The end of the process: nothing catches it, and nothing is written after it."""


class Recorder:
    """A handler that notes what it was called with, and dies with some bodies."""

    def __init__(self, *deadly: Any) -> None:
        self.called: list[Any] = []
        self.attempts: list[int] = []
        self.deadly = deadly

    def __call__(self, given: Any) -> None:
        messages = given if isinstance(given, list) else [given]
        self.called += [message.body for message in messages]
        self.attempts += [message.attempt for message in messages]
        if set(self.deadly).intersection(message.body for message in messages):
            raise Dies


def process_of(handler: Callable[[Any], None], count: int = 5, **options: Any) -> Process:
    consumer("orders", group="mail", **options)(handler)
    process = Process("mail")
    send_many([Outgoing("orders", n, tag="odd" if n % 2 else "even") for n in range(count)])
    sequence("default")
    return process


def leased_out() -> None:
    """The leases of all processes end, and the sweep notices."""
    Consumer.objects.all().delete()
    while sweep("default"):
        pass


def die_in(process: Process) -> None:
    with pytest.raises(Dies):
        process.run_until_idle()
    leased_out()
    process.client.register()


def buried() -> list[int]:
    return sorted(DeadMessage.objects.values_list("offset", flat=True))


# -- a group without retries ---------------------------------------------------------------------

KILLED = """
import time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

@consumer("orders", group="mail", max_retries=0, threads=4)
def handle(message):
    Handled.objects.create(group="mail", topic="orders", partition=0, offset=message.offset,
                           value=message.attempt)
    time.sleep(3600)

call_command("ems_consume", "--start", "earliest")
"""


@pytest.mark.slow
def test_kills_bury_no_message_whose_handler_was_not_called(spawn: Spawn) -> None:
    """Each of them took along all that its process had claimed: 36 of 40 in five kills."""
    consumer("orders", group="mail", max_retries=0)(print)
    send_many([Outgoing("orders", n) for n in range(40)])
    for kill in range(1, 6):
        child = spawn(KILLED)
        wait_for(lambda: Handled.objects.count() == 4 * kill, "the calls")  # noqa: B023
        child.kill()
        leased_out()
    called = sorted(Handled.objects.values_list("offset", flat=True))
    assert buried() == called
    assert drain("mail").done == 40 - len(called)
    assert audit("default") == []


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"atomic": True}], ids=str)
def test_a_death_ends_the_one_message_that_was_called(options: dict[str, Any]) -> None:
    handler = Recorder(2)
    process = process_of(handler, max_retries=0, **options)
    die_in(process)
    assert handler.called == [0, 1, 2]
    assert buried() == [2]
    process.run_until_idle()
    assert handler.called == [0, 1, 2, 3, 4]
    assert set(handler.attempts) == {1}
    assert audit("default") == []


@pytest.mark.parametrize("ordered", [False, True], ids=["side by side", "ordered"])
def test_a_death_before_the_call_spends_nothing(ordered: bool) -> None:
    handler = Recorder()
    process = process_of(handler, max_retries=0, batch=3, ordered=ordered)
    process.claim(3)
    leased_out()
    assert buried() == []
    if not ordered:
        assert given_back() == [(0, 2)]  # together, as they were claimed
    process.client.register()
    process.run_until_idle()
    assert sorted(handler.called) == [0, 1, 2, 3, 4]
    assert set(handler.attempts) == {1}
    assert audit("default") == []


def test_a_death_ends_the_batch_that_was_called() -> None:
    handler = Recorder(1)
    process = process_of(handler, max_retries=0, batch=3)
    die_in(process)
    assert (handler.called, buried()) == ([0, 1, 2], [0, 1, 2])
    process.run_until_idle()
    assert handler.called == [0, 1, 2, 3, 4]


def test_what_the_group_does_not_want_is_not_buried_with_a_batch() -> None:
    handler = Recorder(3)
    process = process_of(handler, max_retries=0, batch=5, tags=["odd"])
    die_in(process)
    assert buried() == [3]
    process.run_until_idle()
    assert handler.called == [1, 3]
    assert audit("default") == []


def test_nor_is_what_did_not_fit_into_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.deliver.reading.CLAIM_BYTES", 2)
    handler = Recorder(1)
    process = process_of(handler, max_retries=0, batch=5)
    die_in(process)
    assert (handler.called, buried()) == ([0, 1], [0, 1])
    process.run_until_idle()
    assert handler.called == [0, 1, 2, 3, 4]


def test_nor_what_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = bodies.stored_messages
    hidden = {2}

    def without(*args: Any, **kwargs: Any) -> Any:
        return [row for row in read(*args, **kwargs) if row.offset not in hidden]

    monkeypatch.setattr("streams.deliver.reading.stored_messages", without)
    handler = Recorder(3)
    process = process_of(handler, max_retries=0, batch=5)
    die_in(process)
    assert (handler.called, buried()) == ([0, 1, 3, 4], [3, 4])
    hidden.clear()
    advance(MINUTE)
    process.client.register()
    process.run_until_idle()
    assert handler.called == [0, 1, 3, 4, 2]
    assert audit("default") == []


def test_a_part_that_nobody_could_get_is_no_start_of_the_rest() -> None:
    """Who opens a delivery settles what is absent before the first message of its call."""
    handler = Recorder()
    process = process_of(handler, max_retries=0, batch=5, tags=["odd"])

    def die(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        if "`progress` = 1" in sql or ("SET `last_offset`" in sql.replace('"', "`")):
            raise Dies
        return execute(sql, *args)

    with statements(die), pytest.raises(Dies):
        process.run_until_idle()
    leased_out()
    assert buried() == []
    process.client.register()
    process.run_until_idle()
    assert handler.called == [1, 3]


def test_whoever_does_not_know_the_limit_buries_nothing_uncalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sweep of another project counts the attempt; the process that claims it next knows."""
    handler = Recorder(4)
    process = process_of(handler, max_retries=0, batch=3)
    process.claim(3)
    with monkeypatch.context() as patch:
        patch.setattr("streams.steps.sweep.known_max_retries", lambda *args: None)
        leased_out()
    advance(MINUTE)
    assert step_retries("default") == 0
    process.client.register()
    with pytest.raises(Dies):
        process.run_until_idle()
    assert 4 in handler.called
    assert set(handler.attempts) == {1}
    with monkeypatch.context() as patch:
        patch.setattr("streams.steps.sweep.known_max_retries", lambda *args: None)
        leased_out()
    advance(MINUTE)
    process.client.register()
    process.run_until_idle()
    assert (sorted(handler.called), buried()) == ([0, 1, 2, 3, 4], [3, 4])
    assert set(handler.attempts) == {1}
    assert audit("default") == []


class NeverAgain:
    """A policy that gives up on what a process died with."""

    def delay_after(self, attempt: int, error: BaseException) -> timedelta | None:
        return None if isinstance(error, ProcessDied) else timedelta(seconds=1)


def test_a_policy_that_gives_up_after_a_death_buries_nothing_uncalled() -> None:
    handler = Recorder(2)
    process = process_of(handler, retry=NeverAgain())
    die_in(process)
    assert (handler.called, buried()) == ([0, 1, 2], [2])
    process.claim(1)
    leased_out()
    assert buried() == [2]
    process.client.register()
    process.run_until_idle()
    assert sorted(handler.called) == [0, 1, 2, 3, 4]


def test_a_limit_that_is_lowered_under_a_claim_buries_nothing_uncalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was settled before had been called; of the rest nobody knows."""
    monkeypatch.setattr("streams.deliver.calls.CHECKPOINT_SECONDS", 0.0)
    handler = Recorder(2)
    process = process_of(handler, max_retries=1)
    with pytest.raises(Dies):
        process.run_until_idle()
    assert Delivery.objects.get(state=State.START).progress == 2
    ConsumerGroup.objects.update(max_retries=0)
    leased_out()
    assert buried() == []
    process.client.register()
    process.feed._fresh_until = 0.0
    die_in(process)
    assert (handler.called, buried()) == ([0, 1, 2, 2], [2])
    process.run_until_idle()
    assert handler.called == [0, 1, 2, 2, 3, 4]


def writes(process: Process) -> list[str]:
    """Handle what there is; return the first words of what is written of it."""
    seen: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        if not sql.lstrip().startswith("SELECT"):
            seen.append(" ".join(sql.replace('"', "`").split()[:4]))
        return execute(sql, *args)

    with statements(note):
        while process.worker.step() == 0.0:
            pass
    return [sql for sql in seen if "`ems_" in sql]


def test_only_a_last_attempt_costs_a_statement_more() -> None:
    for name, retries in (("others", 16), ("last", 0), ("policy", 16)):
        policy = NeverAgain() if name == "policy" else None
        consumer("orders", group=name, max_retries=retries, retry=policy)(print)
    processes = [Process(name) for name in ("others", "last", "policy")]
    send_many([Outgoing("orders", 1)])
    sequence("default")
    claim = [
        "UPDATE `ems_cursor` SET `next_offset`",
        "INSERT INTO `ems_topic_group_log` (`group_id`,",
    ]
    start = "UPDATE `ems_topic_group_log` SET `started_at`"
    settle = "UPDATE `ems_topic_group_log` SET `progress`"
    others, last, given_up = [writes(process) for process in processes]
    assert others == [*claim, settle]
    assert last == given_up == [*claim, start, settle]

"""After a kill -9 the next process has the messages at once, long before the lease ends.

Real processes, started as in a shell: ``ems_consume`` has a supervisor of its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from streams import Outgoing, send_many
from streams.conf import LEASE_SECONDS
from streams.models import Consumer, Delivery, RetryMessage, State
from streams.observe.audit.walk import audit
from tests.guarantees.test_processes import exists, pids
from tests.processes import Child, Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.slow,
]

CODE = """
import os, sys, time
from streams import consumer
from django.core.management import execute_from_command_line

calls = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)

def note(what, message):
    text = f"{what} {message.offset} {message.attempt} {time.time()} {message.group}\\n"
    os.write(calls, text.encode())

def handle(message):
    note("begun", message)
    time.sleep(0.002)
    note("ended", message)

for group in sys.argv[2].split(","):
    consumer("orders", group=group)(handle)

execute_from_command_line(["manage.py", "ems_consume", "--start", "earliest", *sys.argv[3:]])
"""
MANY = 3_000


class Call(NamedTuple):
    what: str
    offset: int
    attempt: int
    at: float
    group: str


class Calls:
    """What the handlers have written down, which a kill does not undo."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "calls"
        self.path.touch()

    def all(self) -> list[Call]:
        whole, _newline, _being_written = self.path.read_text().rpartition("\n")
        rows = [line.split() for line in whole.splitlines()]
        return [Call(r[0], int(r[1]), int(r[2]), float(r[3]), r[4]) for r in rows]

    def ended(self, group: str = "work") -> Counter[int]:
        return Counter(c.offset for c in self.all() if (c.what, c.group) == ("ended", group))


@pytest.fixture
def calls(tmp_path: Path, ems_settings: Callable[..., None]) -> Calls:
    folder = tmp_path / "state"
    ems_settings(STATE_DIR=str(folder), POLL_SECONDS=0.05, RETRY_DELAYS=[0.1])
    return Calls(tmp_path)


def kill_in_the_middle(calls: Calls, victim: int, after: int) -> float:
    """Kill the process when so many calls have ended; return when."""
    wait_for(lambda: sum(calls.ended().values()) >= after, "calls")
    os.kill(victim, signal.SIGKILL)
    return time.time()


def assert_done_once(calls: Calls, killed_at: float, group: str = "work") -> None:
    """Every message was handled, and only those whose call ran at the kill are begun twice."""
    wait_for(lambda: set(calls.ended(group)) == set(range(MANY)), "all messages")
    of_group = [call for call in calls.all() if call.group == group]
    twice = {offset for offset, times in calls.ended(group).items() if times > 1}
    assert not twice
    ended_before = {c.offset for c in of_group if c.what == "ended" and c.at <= killed_at}
    begun = {c.offset for c in of_group if c.what == "begun" and c.at <= killed_at}
    spent = {call.offset for call in of_group if call.attempt > 1}
    assert spent <= begun
    assert len(spent) <= len(begun - ended_before) + 1


def test_the_only_process_is_started_again_and_goes_on(spawn: Spawn, calls: Calls) -> None:
    send_many([Outgoing("orders", n) for n in range(MANY)])
    child = spawn(CODE, calls.path, "work", "--threads", "4")
    (victim,) = wait_for(pids, "the process")
    assert victim != child.pid
    killed_at = kill_in_the_middle(calls, victim, MANY // 10)
    assert "killed by SIGKILL" in child.expect("It is started again in 0 s")
    later = wait_for(
        lambda: [c for c in calls.all() if c.what == "begun" and c.at > killed_at + 0.05]
    )
    assert later[0].at - killed_at < LEASE_SECONDS / 2
    assert_done_once(calls, killed_at)
    child.terminate()
    child.succeed()
    assert not list((calls.path.parent / "state").glob("*.progress"))
    assert not Delivery.objects.filter(state=State.START).exists()
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


@pytest.mark.exhaustive
def test_host_mates_take_over_what_a_process_without_a_supervisor_had(
    spawn: Spawn, calls: Calls
) -> None:
    send_many([Outgoing("orders", n) for n in range(MANY)])
    words = (CODE, calls.path, "work", "--threads", "2", "--no-supervisor")
    children = [spawn(*words), spawn(*words)]
    wait_for(lambda: len(pids()) == 2, "the processes")
    killed_at = kill_in_the_middle(calls, children[0].pid, MANY // 10)
    children[1].expect("has died")
    assert time.time() - killed_at < LEASE_SECONDS / 2
    assert_done_once(calls, killed_at)
    children[1].terminate()
    children[1].succeed()
    assert audit("default") == []


@pytest.mark.exhaustive
def test_each_group_of_a_process_is_taken_up(spawn: Spawn, calls: Calls) -> None:
    send_many([Outgoing("orders", n) for n in range(MANY)])
    child = spawn(CODE, calls.path, "work,other", "--processes", "2", "--threads", "4")
    wait_for(lambda: len(pids()) == 2, "the processes")
    killed_at = kill_in_the_middle(calls, min(pids()), MANY // 10)
    assert_done_once(calls, killed_at)
    assert_done_once(calls, killed_at, "other")
    child.terminate()
    child.succeed()
    assert not Consumer.objects.exists()
    assert audit("default") == []


def test_a_supervisor_that_is_killed_takes_no_message_along(spawn: Spawn, calls: Calls) -> None:
    """Its process finishes what runs, and ends; whoever has started it starts another one."""
    send_many([Outgoing("orders", n) for n in range(MANY)])
    child: Child = spawn(CODE, calls.path, "work", "--threads", "2")
    (orphan,) = wait_for(pids, "the process")
    wait_for(lambda: sum(calls.ended().values()) >= MANY // 10, "calls")
    child.kill()
    wait_for(lambda: not exists(orphan), "its end")
    assert max(calls.ended().values()) == 1
    assert not Consumer.objects.exists()

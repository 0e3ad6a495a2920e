"""Several processes under one parent: ``ems_consume --processes``. Real processes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from streams import Outgoing, send, send_many
from streams.models import Consumer, Delivery, State
from streams.observe.audit.walk import audit
from tests.hostapp.models import Handled
from tests.processes import Child, Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.slow,
]

CODE = """
import os, sys, time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

def note(what, message):
    Handled.objects.create(group=what, topic="orders", partition=0, offset=message.offset,
                           value=os.getpid())

@consumer("orders", group="mail")
def handle(message):
    note("begun", message)
    while message.body == "slow" and not Handled.objects.filter(group="go").exists():
        time.sleep(0.02)
    note("ended", message)

from streams.process import processes
processes.FIRST_PAUSE_SECONDS = 0.1
call_command("ems_consume", "--start", "earliest", "--batch", "1", *sys.argv[1:])
"""


def noted(what: str) -> int:
    return Handled.objects.filter(group=what).count()


def pids() -> set[int]:
    """Return the processes that are registered as clients."""
    return {
        int(name.split("@")[1]) for name in Consumer.objects.values_list("client_id", flat=True)
    }


def exists(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def started(spawn: Spawn, count: int, *arguments: str) -> Child:
    child = spawn(CODE, "--processes", str(count), *arguments)
    wait_for(lambda: len(pids()) == count, "the processes")
    return child


def test_sigterm_to_the_parent_drains_all(spawn: Spawn, ems_settings: Callable[..., None]) -> None:
    ems_settings(POLL_SECONDS=0.05)
    child = started(spawn, 3, "--threads", "1")
    assert child.pid not in pids()
    send_many([Outgoing("orders", "slow") for _ in range(5)])
    wait_for(lambda: noted("begun") == 3, "a call in each process")
    child.terminate()
    for _ in range(3):
        child.expect("Stopping: finishing what runs.")
    Handled.objects.create(group="go", topic="", partition=0, offset=0)
    text = child.succeed()
    assert "Stopping 3 processes" in text
    assert noted("begun") == noted("ended") == 3  # claimed and not begun: given back
    assert not Consumer.objects.exists()
    assert not Delivery.objects.filter(state=State.START).exists()
    for number in (1, 2, 3):
        assert re.search(rf"INFO +process-{number}: Stopped\.", text)
    assert not any(audit("default"))


def test_a_signal_that_all_processes_get_is_one_signal(
    spawn: Spawn, ems_settings: Callable[..., None]
) -> None:
    """As systemd sends it to all, and a terminal at Ctrl-C: nobody takes it for a second one."""
    ems_settings(POLL_SECONDS=0.05)
    child = started(spawn, 2, "--threads", "1")
    send_many([Outgoing("orders", "slow") for _ in range(2)])
    wait_for(lambda: noted("begun") == 2, "a call in each process")
    os.killpg(child.pid, signal.SIGINT)
    child.expect("Stopping 2 processes")
    Handled.objects.create(group="go", topic="", partition=0, offset=0)
    child.succeed()
    assert noted("ended") == 2


def test_a_second_signal_ends_all_at_once(spawn: Spawn, ems_settings: Callable[..., None]) -> None:
    ems_settings(POLL_SECONDS=0.05, DRAIN_SECONDS=600)
    child = started(spawn, 2, "--threads", "1")
    send_many([Outgoing("orders", "slow") for _ in range(2)])
    wait_for(lambda: noted("begun") == 2, "a call in each process")
    child.terminate()
    child.expect("Stopping 2 processes")
    child.terminate()
    assert child.wait() == 1
    assert noted("ended") == 0
    assert not Consumer.objects.exists()


def test_a_killed_process_is_started_again(spawn: Spawn, ems_settings: Callable[..., None]) -> None:
    ems_settings(POLL_SECONDS=0.05)
    child = started(spawn, 2)
    before = pids()
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    assert "killed by SIGKILL" in child.expect("is started again")
    wait_for(lambda: len(pids() - before) == 1, "the new process")
    send("orders", 1)
    wait_for(lambda: noted("ended") == 1)
    child.terminate()
    child.succeed()


def test_who_loses_its_parent_drains_and_ends(
    spawn: Spawn, ems_settings: Callable[..., None]
) -> None:
    ems_settings(POLL_SECONDS=0.05)
    child = started(spawn, 3, "--threads", "1")
    orphans = pids()
    send_many([Outgoing("orders", "slow") for _ in range(3)])
    wait_for(lambda: noted("begun") == 3, "a call in each process")
    child.kill()
    Handled.objects.create(group="go", topic="", partition=0, offset=0)
    wait_for(lambda: not any(map(exists, orphans)), "the end of all")
    assert noted("ended") == 3
    assert not Consumer.objects.exists()
    assert not Delivery.objects.filter(state=State.START).exists()


def test_what_cannot_run_is_not_started_again(spawn: Spawn) -> None:
    child = spawn(CODE, "--processes", "2", "--group", "nobody")
    assert child.wait() == 1
    assert "No registered consumer matches" in child.text()
    assert "has failed for good" in child.text()
    assert "started again" not in child.text()


def test_drain_ends_when_all_processes_have_nothing_left(spawn: Spawn) -> None:
    send_many([Outgoing("orders", n) for n in range(50)])
    spawn(CODE, "--processes", "2", "--drain").succeed()
    assert noted("ended") == 50
    assert not Consumer.objects.exists()


def test_reloading_and_processes_exclude_each_other(spawn: Spawn) -> None:
    child = spawn(CODE, "--processes", "2", "--reload")
    assert child.wait() == 1
    assert "--reload runs one process" in child.text()


BROADCAST = """
import os, sys
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

@consumer("orders", group="cache", mode="broadcast")
def handle(message):
    Handled.objects.create(group="cache", topic="orders", partition=0, offset=message.offset)

call_command("ems_consume", "--processes", "2")
"""


def test_each_process_is_a_broadcast_client_of_its_own(
    spawn: Spawn, ems_settings: Callable[..., None]
) -> None:
    ems_settings(POLL_SECONDS=0.05)
    child = spawn(BROADCAST)
    names = {child.expect("broadcast to the client").split("client ")[1].split(",")[0]}
    names.add(child.expect("broadcast to the client").split("client ")[1].split(",")[0])
    assert names == {"default", "default-2"}
    wait_for(lambda: len(pids()) == 2, "the processes")
    send("orders", 1)
    wait_for(lambda: noted("cache") == 2)
    child.terminate()
    child.succeed()


DYING = """
import os, sys
from streams.process.processes import Processes

def work(number, parent, again):
    if sys.argv[1] == "die":
        os.kill(os.getpid(), 9)
    return 0

sys.exit(Processes(1, work, drain=True, recover=lambda: print("recovered", flush=True)).run())
"""


@pytest.mark.parametrize(("ends", "recovered"), [("die", 1), ("well", 0)])
def test_when_a_process_has_died_its_claims_are_ended_also_if_none_is_started_again(
    spawn: Spawn, ends: str, recovered: int
) -> None:
    child = spawn(DYING, ends)
    assert child.wait() == recovered
    assert child.text().count("recovered") == recovered

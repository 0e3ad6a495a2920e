"""What ``ems_consume`` shows a process manager: a file, and the socket of systemd."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from streams.models import Consumer
from streams.process.shared.life_signs import HUNG_SECONDS, Beats, ForManager
from tests.processes import Spawn, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

CODE = """
import sys
from django.core.management import call_command
from streams import consumer
from streams.process.shared import life_signs

@consumer("orders", group="mail")
def handle(message): pass

life_signs.HUNG_SECONDS = 2.0
life_signs.BEAT_SECONDS = 0.1
call_command("ems_consume", "--threads", "1", *sys.argv[1:])
"""
AWAY = """
from django.db import connections
given = connections["default"].settings_dict
given["PORT"] = "1"
"""
# As a probe would say it; four seconds are many beats.
OLD_SECONDS = 4.0


class Systemd:
    """The socket on which systemd listens to a service of Type=notify."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(60)

    def next_other_than(self, line: str) -> str:
        while (said := self._socket.recv(4096).decode()) == line:
            pass
        return said

    def expect(self, line: str) -> None:
        while self._socket.recv(4096).decode() != line:
            pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    listening = Systemd(tmp_path / "notify")
    yield listening
    listening.close()


@pytest.fixture
def beat(tmp_path: Path) -> Path:
    return tmp_path / "beat"


def age(file: Path) -> float:
    return time.time() - file.stat().st_mtime


def says(file: Path, word: str) -> bool:
    return file.exists() and file.read_text() == f"{word}\n"


@pytest.mark.parametrize("supervised", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_systemd_hears_that_it_consumes_turns_and_stops(
    spawn: Spawn, systemd: Systemd, beat: Path, supervised: bool
) -> None:
    options = ["--processes", "2"] if supervised else []
    environment = {"NOTIFY_SOCKET": str(systemd.path)}
    child = spawn(CODE, "--heartbeat-file", beat, *options, env=environment)
    assert systemd.next_other_than("WATCHDOG=1") == "READY=1"
    wait_for(lambda: says(beat, "consuming"), "the file")
    assert Consumer.objects.count() == (2 if supervised else 1)
    systemd.expect("WATCHDOG=1")
    child.terminate()
    assert systemd.next_other_than("WATCHDOG=1") == "STOPPING=1"
    child.succeed()
    assert says(beat, "stopping")


@pytest.mark.exhaustive
@pytest.mark.parametrize("frozen", ["parent", "process"])
def test_the_file_grows_old_while_one_of_the_processes_hangs(
    spawn: Spawn, beat: Path, frozen: str
) -> None:
    child = spawn(CODE, "--heartbeat-file", beat, "--processes", "2")
    wait_for(lambda: says(beat, "consuming"), "the file")
    client = Consumer.objects.values_list("client_id", flat=True)[0]
    pid = child.pid if frozen == "parent" else int(client.split("@")[1])
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: age(beat) > OLD_SECONDS, "a file that nobody touches")
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: age(beat) < 1.0, "a beat after it")


@pytest.mark.mysql
@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [(), ("--processes", "1")])
def test_the_file_is_touched_while_the_database_is_away(
    spawn: Spawn, beat: Path, options: tuple[str, ...]
) -> None:
    child = spawn(AWAY + CODE, "--heartbeat-file", beat, *options)
    child.expect("is unavailable")
    for _beat in range(3):
        before = beat.stat().st_mtime_ns
        wait_for(lambda before=before: beat.stat().st_mtime_ns > before, "a beat")  # type: ignore[misc]
    assert says(beat, "starting")


def test_a_process_that_has_not_turned_hangs_until_it_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beats, now = Beats(2), time.monotonic()
    for number in (1, 2):
        beats.beat(number)
        beats.ready(number)
    monkeypatch.setattr(time, "monotonic", lambda: now + HUNG_SECONDS + 1)
    beats.beat(2)
    assert (beats.hangs(1), beats.hangs(2)) == (True, False)
    beats.beat(1)
    assert not beats.hangs(1)


def test_the_parent_is_ready_when_each_process_is() -> None:
    beats = Beats(2)
    beats.ready(2)
    assert not beats.are_ready
    beats.ready(1)
    assert beats.are_ready


def test_a_name_of_a_socket_that_is_no_file_is_understood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"ems-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        ForManager().ready()
        assert listening.recv(100) == b"READY=1"


def test_a_manager_that_has_gone_and_a_file_that_is_gone_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "folder" / "beat"
    file.parent.mkdir()
    signs = ForManager(file)
    file.unlink()
    file.parent.rmdir()
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    signs.beat()
    signs.ready()
    signs.stopping()
    assert [one.getMessage()[:26] for one in caplog.records] == ["The heartbeat file cannot "]


@pytest.mark.parametrize("options", [[], ["--processes", "2"]])
def test_a_file_that_cannot_be_written_is_an_error_at_the_start(
    tmp_path: Path, options: list[str]
) -> None:
    with pytest.raises(CommandError, match="heartbeat file cannot be written"):
        call_command("ems_consume", "--heartbeat-file", tmp_path / "no" / "beat", *options)

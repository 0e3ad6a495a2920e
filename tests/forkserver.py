"""Forks the children of tests from a process in which Django is set up already.

Most of what a short child costs is the start of Python and the imports. The server pays for them
once. A child that it forks is a process as any other: it has its own session, environment, output
and settings, and ends as an interpreter ends. Linux only, since the server waits by pidfd.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 1 << 20  # of a request

# What a child differs in from the server. The rest of the environment is that of the server.
CHANGING = {"EMS_TEST_EMS", "PYTEST_CURRENT_TEST"}

# What nearly every child imports, but no module that registers consumers.
IMPORTED = (
    "django.core.management.commands.check",
    "django.db.backends.utils",
    "streams.management.commands.ems_consume",
)

SERVE = "from tests.forkserver import serve\nexec(serve())\n"


class ForkServer:
    """The process whose forks are the children with one environment."""

    def __init__(self, before: str, env: dict[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", before + SERVE],
                cwd=ROOT,
                env=env,
                stdin=theirs.fileno(),
                start_new_session=True,
            )

    def fork(self, code: str, arguments: list[str], env: dict[str, str]) -> Forked:
        """Run ``code`` in a child with this ``sys.argv[1:]`` and this whole environment."""
        ours, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reading, writing = os.pipe()
        request = json.dumps({"code": code, "arguments": arguments, "env": env})
        with told:
            fds = [writing, told.fileno()]
            socket.send_fds(self._requests, [request.encode()], fds)
        os.close(writing)
        return Forked(ours, reading)


class Forked:
    """Has what is used of :class:`subprocess.Popen`."""

    def __init__(self, told: socket.socket, output: int) -> None:
        self.stdout = os.fdopen(output, encoding="utf-8")
        self.returncode: int | None = None
        self._told = told
        self._lock = threading.Lock()
        self.pid = self._hear(None)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            if self.returncode is None:
                self.returncode = self._hear(timeout)
                self._told.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the server is about to tell
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _hear(self, timeout: float | None) -> int:
        self._told.settimeout(timeout)
        try:
            said = self._told.recv(64)
        except (BlockingIOError, TimeoutError):
            raise subprocess.TimeoutExpired("a forked child", timeout or 0) from None
        if not said:
            raise RuntimeError("the fork server has ended")
        return int(said)


_servers: dict[frozenset[tuple[str, str]], ForkServer | None] = {}


def for_children(before: str, env: dict[str, str]) -> ForkServer | None:
    """Return the server for children with this environment; None if one is to be started anew.

    A server begins with ``before``. There is one from the second child with an environment on. It
    is started by the main thread only, since it ends with the thread that has started it.
    """
    if sys.platform != "linux":
        return None
    key = frozenset((name, value) for name, value in env.items() if name not in CHANGING)
    if key not in _servers:
        _servers[key] = None
    elif not _servers[key] and threading.current_thread() is threading.main_thread():
        _servers[key] = ForkServer(before, env)
    return _servers[key]


def serve() -> CodeType:
    """Fork a child for each request on standard input; return in a child, with what it runs."""
    import django

    django.setup()
    for name in IMPORTED:
        import_module(name)
    assert threading.active_count() == 1, "a thread is not there after a fork"
    gc.freeze()
    requests = socket.socket(fileno=0)
    selector = selectors.DefaultSelector()
    selector.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not requests:
                _tell_end(selector, key)
                continue
            request, fds, *_ = socket.recv_fds(requests, MOST_BYTES, 2)
            if not request:
                os._exit(0)  # the tests have ended
            output, told = fds
            if pid := os.fork():
                os.close(output)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, told))
                continue
            for other in selector.get_map().values():
                if other.fileobj is not requests:
                    os.close(other.data[1])
                    os.close(other.fd)
            selector.close()
            requests.detach()
            return _become(json.loads(request), output, told)


def _tell_end(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, told = key.data
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    selector.unregister(key.fileobj)
    os.close(key.fd)
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(told, str(status).encode())
    os.close(told)


def _become(request: dict[str, Any], output: int, told: int) -> CodeType:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["-c", *request["arguments"]]
    _change_settings()
    os.write(told, str(os.getpid()).encode())
    os.close(told)
    return compile(request["code"], "<string>", "exec")


def _change_settings() -> None:
    """Let the settings be as if they were read in this environment."""
    from django.conf import settings
    from django.core.signals import setting_changed

    from tests.settings import ems

    settings.EMS = ems()
    setting_changed.send(sender=settings.__class__, setting="EMS", value=settings.EMS, enter=True)

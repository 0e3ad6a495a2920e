"""Starts web servers with the API on the test database, and ends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streams.http.client import Client
from tests.processes import Child, Spawn

UVICORN = """\
import uvicorn
uvicorn.run("tests.http.serving:asgi", port=int(sys.argv[1]), log_level="info")
"""
GUNICORN = """\
from gunicorn.app.wsgiapp import run
sys.argv = ["gunicorn", "--bind", f"127.0.0.1:{sys.argv[1]}", *sys.argv[2:]]
sys.exit(run("%(prog)s [OPTIONS] [APP_MODULE]"))
"""
# The process that forks has pulled, and another thread of it holds each lock at that moment.
PRELOADED = (
    """\
from streams.http.pulling import holding, poller
from streams.http.pulling.waiting import waiting
poller.ensure("default")
poller._starting.acquire(), holding._lock.acquire(), waiting("default")._lock.acquire()
"""
    + GUNICORN
)
WSGI = "tests.http.serving:wsgi"
KINDS = {
    "uvicorn": (UVICORN, (), "Uvicorn running on"),
    "gunicorn sync": (GUNICORN, ("--workers", "3", WSGI), "Listening at"),
    "gunicorn preloaded": (PRELOADED, ("--preload", WSGI), "Booting worker"),
    "gunicorn gthread": (
        GUNICORN,
        ("--worker-class", "gthread", "--threads", "8", WSGI),
        "Listening at",
    ),
}


@dataclass
class Web:
    """Is a web server, which may be killed and started again on its port."""

    spawn: Spawn
    kind: str
    port: int
    token: str
    child: Child | None = None
    clients: list[Client] = field(default_factory=list)

    def start(self) -> Web:
        code, options, says = KINDS[self.kind]
        self.child = self.spawn("import sys\n" + code, self.port, *options)
        self.child.expect(says)
        return self

    @property
    def process(self) -> Child:
        assert self.child is not None
        return self.child

    def kill(self) -> None:
        """Kill all processes of the server, at whatever instruction they are."""
        self.process.close()

    def client(self, **options: float) -> Client:
        self.clients.append(Client(f"http://127.0.0.1:{self.port}/ems", self.token, **options))
        return self.clients[-1]

    def close(self) -> None:
        for client in self.clients:
            client.close()


StartWeb = Callable[..., Web]

"""Serves the admin, in which a user can see what the demo has done."""

from __future__ import annotations

import secrets
import socket
import time
from pathlib import Path

from django.contrib.auth import get_user_model
from rich.console import Console

from emsproject.demo.interruption import Interruption
from emsproject.demo.processes import running

HOST = "127.0.0.1"
FAVOURITE_PORT = 8000
USER = "admin"
LOOK_SECONDS = 0.1


def serve(folder: Path, console: Console, interruption: Interruption) -> None:
    """Serve the admin until a signal comes; raises Interrupted then."""
    password = secrets.token_urlsafe(12)
    get_user_model().objects.create_superuser(USER, password=password)
    port = _free_port()
    # --insecure serves static files without DEBUG; the server is for this machine only.
    words = ["runserver", "--insecure", "--noreload", f"{HOST}:{port}"]
    with running({"admin": words}, folder, interruption) as (server,):
        while not _answers(port):
            interruption.check()
            server.check()
            time.sleep(LOOK_SECONDS)
        console.print(f"\nThe admin is at [bold]http://{HOST}:{port}/admin/[/]")
        console.print(f"Log in as [bold]{USER}[/] with the password [bold]{password}[/]")
        console.print("Ctrl-C ends it, and removes the demo's database.")
        while True:
            interruption.check()
            server.check()
            time.sleep(LOOK_SECONDS)


def _free_port() -> int:
    for port in (FAVOURITE_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port is free")


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0

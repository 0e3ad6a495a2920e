"""Serves the admin, in which a user sees what the demo has done, while flights go on departing."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from django.contrib.auth import get_user_model
from django.urls import reverse
from rich.console import Console

from emsproject.demo.departures import DepartureCancelled, depart, timetable
from emsproject.demo.interruption import Interruption
from emsproject.demo.models import Flight
from emsproject.demo.processes import manage, running
from monitoring.sample.take import sample
from streams.conf import database
from streams.models import ConsumerGroup

HOST = "127.0.0.1"
FAVOURITE_PORT = 8000
USER = "admin"
LOOK_SECONDS = 0.1
DEPARTURE_SECONDS = 1.0


def serve(
    folder: Path, console: Console, interruption: Interruption, *, by_spark: bool = False
) -> None:
    """Serve the admin until a signal comes; raises Interrupted then.

    ``by_spark``: there are figures of Spark, so their pages are named, too.
    Meanwhile a flight departs every second, and one process consumes for all groups: the pages
    show a system that is at work.
    """
    password = secrets.token_urlsafe(12)
    get_user_model().objects.create_superuser(USER, password=password)
    port = _free_port()
    # --insecure serves static files without DEBUG; the server is for this machine only.
    admin = manage("runserver", "--insecure", "--noreload", f"{HOST}:{port}")
    groups = manage("ems_consume", "--no-supervisor")
    with running({"admin": admin, "groups": groups}, folder, interruption) as children:

        def look() -> None:
            interruption.check()
            for child in children:
                child.check()
            time.sleep(LOOK_SECONDS)

        while not _answers(port):
            look()
        sample(database())
        overview = reverse("admin:ems_monitoring_overview_changelist")
        console.print(
            f"\nThe Overview is at [bold]http://{HOST}:{port}{overview}[/]", soft_wrap=True
        )
        for title, path in _pages_of_spark() if by_spark else ():
            console.print(f"{title}: http://{HOST}:{port}{path}", soft_wrap=True)
        console.print(f"Log in as [bold]{USER}[/] with the password [bold]{password}[/]")
        console.print("A flight departs every second while you look.")
        console.print("Ctrl-C ends it, and removes the demo's database.")
        due = time.monotonic()
        for flight in _departures():
            while time.monotonic() < due:
                look()
            due = time.monotonic() + DEPARTURE_SECONDS
            with suppress(DepartureCancelled):
                depart(flight)


def _pages_of_spark() -> Iterator[tuple[str, str]]:
    """Yield the title and the path of each page that shows what Spark has written."""
    group = ConsumerGroup.objects.using(database()).earliest("pk")
    name = "admin:ems_monitoring_overview_{}".format
    yield "The topics, ranked by Spark", reverse(name("topics"))
    yield f"Who in {group} handled what", reverse(name("consumption"), args=[group.pk])
    yield "The history of the backlogs", reverse(name("backlog"))
    yield "The verdict of the audit", reverse(name("audit"))


def _departures() -> Iterator[Flight]:
    """Yield the flights of the timetable, again and again."""
    while True:
        yield from timetable()


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

"""Plays the demo: one producer, three consumer processes, and the wait for the last of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from emsproject.demo.audit import Audit, audit
from emsproject.demo.departures import TOPIC, DepartureCancelled, depart
from emsproject.demo.interruption import Interruption
from emsproject.demo.models import Flight
from emsproject.demo.processes import Child, manage, running
from emsproject.demo.screen import Display, display, report
from emsproject.demo.tally import Tally
from streams.consume.registry import autodiscover, registrations

LOOK_SECONDS = 0.2
# Seconds for the consumers to finish after the last send, reached only when something is wrong.
TIMEOUT_SECONDS = 300.0


class Play:
    """One run over the given flights."""

    def __init__(
        self,
        flights: Sequence[Flight],
        folder: Path,
        console: Console,
        interruption: Interruption,
    ) -> None:
        autodiscover()
        groups = tuple(registration.group for registration in registrations(topics=[TOPIC]))
        self._flights = flights
        self._folder = folder
        self._console = console
        self._interruption = interruption
        self._tally = Tally(groups)
        self._children: list[Child] = []
        self._wrong: list[str] = []

    def run(self) -> Audit:
        """Send, consume, print the table; return what the audit found."""
        tally = self._tally
        departures = sum(flight.departed is not None for flight in self._flights)
        commands = {
            group: manage(
                "ems_consume",
                "--no-supervisor",
                "--start",
                "earliest",
                "--topic",
                TOPIC,
                "--group",
                group,
            )
            for group in tally.groups
        }
        with (
            running(commands, self._folder, self._interruption) as self._children,
            display(self._console, tally, total=departures) as screen,
        ):
            started = time.monotonic()
            self._send_all(screen)
            send_seconds = time.monotonic() - started
            self._wait_for_the_groups(screen)
        for child in self._children:
            if child.status != 0:
                self._wrong.append(f"{child.name} ended with status {child.status}")
        found = audit(tally.groups, departures=tally.sent)
        found.wrong += self._wrong
        report(self._console, tally, found, send_seconds=send_seconds)
        return found

    def _send_all(self, screen: Display) -> None:
        look_at = 0.0
        for flight in self._flights:
            self._interruption.check()
            try:
                depart(flight)
                self._tally.sent += 1
            except DepartureCancelled:
                self._tally.rolled_back += 1
            if time.monotonic() >= look_at:
                self._look(screen)
                look_at = time.monotonic() + LOOK_SECONDS

    def _wait_for_the_groups(self, screen: Display) -> None:
        limit = time.monotonic() + TIMEOUT_SECONDS
        while not self._tally.all_idle():
            if time.monotonic() > limit:
                self._wrong.append(f"not finished {TIMEOUT_SECONDS:.0f} s after the last send")
                break
            self._look(screen)
            time.sleep(LOOK_SECONDS)
        self._look(screen)

    def _look(self, screen: Display) -> None:
        self._interruption.check()
        for child in self._children:
            child.check()
        self._tally.look()
        screen.show(self._tally)

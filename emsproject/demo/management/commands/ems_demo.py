"""Defines ems_demo, which shows EMS at work in a minute."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console

from emsproject.demo import stage
from emsproject.demo.departures import timetable
from emsproject.demo.encore import Encore
from emsproject.demo.interruption import Interrupted, Interruption
from emsproject.demo.play import Play
from emsproject.demo.processes import ChildEnded
from emsproject.demo.rollup import roll_up
from emsproject.demo.screen import introduce
from emsproject.demo.serving import serve

INTERRUPTED = 130
OVERVIEW = "To see all this in the Overview of the admin: make demo ARGS=--serve"


class Command(BaseCommand):
    help = "Send real flights in transactions, consume them in three groups, and audit the result."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--flights", type=int, help="only the first FLIGHTS of the timetable")
        end = parser.add_mutually_exclusive_group()
        end.add_argument(
            "--exit", action="store_true", help="exit after the audit, also on a terminal"
        )
        end.add_argument(
            "--serve", action="store_true", help="serve the Overview, also without a terminal"
        )
        parser.add_argument("--folder", type=Path, help="the demo passes this to itself")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["flights"] is not None and options["flights"] < 1:
            raise CommandError("--flights takes a number from 1.")
        folder: Path | None = options["folder"]
        if folder is None:
            stage.enter()
        if folder != settings.STATE_DIR:
            raise CommandError("--folder is not for you: leave it out.")
        interruption = Interruption()
        interruption.install()
        console = Console(highlight=False)
        interactive = sys.stdin.isatty() and console.is_terminal and not options["exit"]
        serves = interactive or options["serve"]
        try:
            with stage.folder_of_its_own(folder):
                by_spark = self._play(folder, options["flights"], console, interruption)
                if serves:
                    self._serve(folder, console, interruption, by_spark)
                else:
                    console.print(OVERVIEW, soft_wrap=True)
        except Interrupted:
            self.stderr.write("Interrupted: all processes of the demo have ended.")
            sys.exit(INTERRUPTED)
        except ChildEnded as error:
            raise CommandError(str(error)) from error

    def _play(
        self, folder: Path, limit: int | None, console: Console, interruption: Interruption
    ) -> bool:
        """Return whether Spark has written figures."""
        flights = list(timetable(limit))
        introduce(console, len(flights))
        call_command("migrate", verbosity=0)
        if not Play(flights, folder, console, interruption).run().clean:
            raise CommandError("The audit has found something wrong: see above.")
        if wrong := Encore(flights, folder, console, interruption).run():
            raise CommandError("\n".join(["Something is wrong with the encore:", *wrong]))
        return roll_up(folder, console, interruption)

    def _serve(
        self, folder: Path, console: Console, interruption: Interruption, by_spark: bool
    ) -> None:
        try:
            serve(folder, console, interruption, by_spark=by_spark)
        except Interrupted:  # the way to end it
            console.print()

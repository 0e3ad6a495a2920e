"""Defines ems_consume, which runs the consumers of the project until a signal ends it."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from streams.conf import MAX_BATCH
from streams.consume.limits import Overrides
from streams.consume.registry import Registration, autodiscover, by_alias, registrations
from streams.database.transactions import committing
from streams.errors import NaiveDatetime, StreamsError
from streams.management.base import known_alias
from streams.management.checking import CheckedUnconnected
from streams.management.console import JSON, TEXT, console
from streams.management.reloading import run_reloading
from streams.metrics import show_consumer
from streams.metrics.address import CONSUMER, address
from streams.models.config import problem
from streams.operate.target import Target
from streams.process.broadcast.file import DEFAULT_NAME
from streams.process.deaths import Deaths
from streams.process.fleet import Fleet
from streams.process.processes import CONFIGURATION_STATUS, Processes
from streams.process.shared.life_signs import Beats, ForManager, ForParent, LifeSigns
from streams.process.shared.signals import Signals
from streams.rules.names import MAX_NAME, validated_name

logger = logging.getLogger("streams.supervisor")

# Of the registered consumers, those that an error names.
SHOWN = 20


def client_name(text: str) -> str:
    try:
        return validated_name(text, "name", MAX_NAME)
    except StreamsError as error:
        raise ArgumentTypeError(str(error)) from error


def start(text: str) -> str | datetime:
    try:
        target = Target.parse(text)
    except NaiveDatetime as error:
        raise ArgumentTypeError(str(error)) from error
    except StreamsError:
        target = Target()
    if begin := target.end or target.time:
        return begin
    raise ArgumentTypeError("say earliest, latest or a time such as 2026-11-20T10:00Z")


def count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MAX_BATCH:
        raise ArgumentTypeError(f"must be 1 … {MAX_BATCH}")
    return number


def claim_seconds(text: str) -> float:
    if wrong := problem("consumerClaimSeconds", float(text)):
        raise ArgumentTypeError(wrong)
    return float(text)


def none_matches(registered: Iterable[Registration]) -> str:
    """Return the error of a process that has nothing to consume, with what it could consume."""
    names = sorted(f"{one.group} on {one.topic}" for one in registered)
    if not names:
        return "No consumer is registered: see consumers.py of your apps."
    more = [f"and {len(names[SHOWN:])} more"] if names[SHOWN:] else []
    text = "No registered consumer matches. Registered are: %s."
    return text % ", ".join([*names[:SHOWN], *more])


def client_of(number: int, name: str) -> str:
    """Return the name of the process ``number`` as a client of broadcast groups.

    The first one keeps ``name``, and with it the positions of a single process.
    """
    return name if number == 1 else f"{name}-{number}"


def of_one(number: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the process ``number`` of several: a name and a port of its own."""
    mine = {**options, "name": client_of(number, options["name"])}
    if options["metrics"]:
        host, port = options["metrics"]
        mine["metrics"] = host, port + number - 1
    return mine


class Command(CheckedUnconnected):
    help = "Consume messages with the project's consumers until stopped by SIGTERM."
    _of_a_shell = False

    def run_from_argv(self, argv: list[str]) -> None:
        # A program that calls the command may have threads, and goes on after it: it is not forked.
        self._of_a_shell = True
        super().run_from_argv(argv)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--group", action="append", default=[], help="only this group (repeatable)"
        )
        parser.add_argument(
            "--topic", action="append", default=[], help="only this topic (repeatable)"
        )
        parser.add_argument(
            "--threads", type=count, help="worker threads of a process, for all its groups"
        )
        parser.add_argument(
            "--processes",
            type=count,
            help="fork this many processes, and start those again that end (1)",
        )
        parser.add_argument(
            "--no-supervisor",
            action="store_true",
            help="consume in this process, and let others start it again when it ends",
        )
        parser.add_argument("--batch", type=count, help="messages of one call, or claim")
        parser.add_argument(
            "--claim-seconds",
            type=claim_seconds,
            help="how long the calls of one claim may take; 0: one batch a claim",
        )
        parser.add_argument(
            "--start",
            type=start,
            help="where new groups start: earliest, latest or a time (2026-11-20T10:00Z)",
        )
        parser.add_argument(
            "--name",
            type=client_name,
            default=DEFAULT_NAME,
            help=f"name of this process as a client of broadcast groups ({DEFAULT_NAME})",
        )
        parser.add_argument(
            "--drain", action="store_true", help="exit when nothing is left to claim"
        )
        parser.add_argument("--reload", action="store_true", help="restart when code changes")
        parser.add_argument(
            "--log",
            choices=(TEXT, JSON),
            default=TEXT,
            help="how to write the log, where LOGGING has no handler for it",
        )
        parser.add_argument(
            "--metrics",
            type=address,
            nargs="?",
            const=address(CONSUMER),
            metavar="[HOST:]PORT",
            help=f"show the metrics of this process; without a host, to this one only ({CONSUMER})",
        )
        parser.add_argument(
            "--heartbeat-file",
            type=Path,
            metavar="PATH",
            help="touch this file every second while the process and its processes turn",
        )
        parser.add_argument("--database", help="only the topics on this alias; by default all")

    def execute(self, *args: Any, **options: Any) -> Any:
        options["processes"] = options["processes"] or int(self._is_supervised(options))
        if options["reload"] or options["processes"]:
            # The checks load consumers.py, and may open connections. So only a process that is
            # reloaded, or forked, may run them.
            options["checked"] = options["skip_checks"]
            options["skip_checks"] = True
        return super().execute(*args, **options)

    def _is_supervised(self, options: dict[str, Any]) -> bool:
        """Tell whether the only process is forked, so that somebody sees its death."""
        alone = options["no_supervisor"] or options["reload"] or options["drain"]
        return hasattr(os, "fork") and self._of_a_shell and not alone

    def handle(self, *args: Any, **options: Any) -> None:
        if options["processes"]:
            self._refuse_processes(**options)
        if options["reload"]:
            run_reloading(self._talk, self._say, **options)
        else:
            self._talk(**options)

    def _talk(self, **options: Any) -> None:
        verbosity, colored = options["verbosity"], None
        if options["no_color"] or options["force_color"]:
            colored = options["force_color"]
        stream = self.stdout
        with console(stream, options["log"], verbosity=verbosity, colored=colored) as shown:
            if not shown and not logger.isEnabledFor(logging.INFO):
                self._say("LOGGING shows only warnings of EMS: see the logger “streams”.")
            if options["processes"]:
                self._fork(**options)
            else:
                self._consume(Signals(), self._signs(options), **options)

    def _refuse_processes(self, **options: Any) -> None:
        if options["reload"]:
            raise CommandError("--reload runs one process: leave out --processes.")
        if not hasattr(os, "fork"):
            raise CommandError("--processes needs a system that can fork.")
        try:
            validated_name(client_of(options["processes"], options["name"]), "name", MAX_NAME)
        except StreamsError as error:
            raise CommandError(str(error)) from error

    def _signs(self, options: dict[str, Any]) -> LifeSigns:
        try:
            return ForManager(options["heartbeat_file"])
        except StreamsError as error:
            raise CommandError(str(error)) from error

    def _fork(self, **options: Any) -> None:
        beats = Beats(options["processes"])

        def work(number: int, parent: int, again: bool) -> int:
            mine = of_one(number, options)
            # The checks have passed, and take a second or more: the messages wait meanwhile.
            mine["checked"] |= again
            try:
                self._consume(Signals(parent), ForParent(beats, number), **mine)
            except CommandError as error:
                self.stderr.write(f"{type(error).__name__}: {error}")
                return CONFIGURATION_STATUS
            except BaseException:  # noqa: BLE001 - the process ends with it
                traceback.print_exc()
                return 1
            return 0

        def recover() -> None:
            autodiscover()
            chosen = self.chosen(options)
            for using in by_alias(chosen, options["database"]):
                with committing(using):
                    Deaths(using).recover()

        count, drain = options["processes"], options["drain"]
        signs = self._signs(options)
        processes = Processes(count, work, drain=drain, recover=recover, beats=beats, signs=signs)
        if status := processes.run():
            sys.exit(status)

    def chosen(self, options: dict[str, Any]) -> Iterable[Registration]:
        """Return the registered consumers that the options name."""
        return registrations(options["topic"], options["group"])

    def _consume(self, signals: Signals, signs: LifeSigns, **options: Any) -> None:
        if not options.get("checked", True):
            self.check(**self.get_check_kwargs(options))
        autodiscover()
        groups = by_alias(self.chosen(options), options["database"])
        if not groups:
            raise CommandError(none_matches(self.chosen({"topic": (), "group": ()})))
        for using in groups:
            known_alias(using)
        try:
            fleet = Fleet(
                groups,
                overrides=Overrides(
                    options["threads"],
                    options["batch"],
                    options["claim_seconds"],
                    options["start"],
                ),
                drain=options["drain"],
                client=options["name"],
                signals=signals,
                signs=signs,
            )
            if options["metrics"]:
                show_consumer(options["metrics"], fleet)
            status = fleet.run()
        except StreamsError as error:
            raise CommandError(str(error)) from error
        if status or fleet.left_behind:
            # An ordinary exit would wait for ever for a thread whose handler hangs.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

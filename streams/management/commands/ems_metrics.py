"""Defines ems_metrics, which shows the metrics of the tables where no web process does."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from streams.errors import StreamsError
from streams.management.base import known_alias
from streams.management.checking import CheckedUnconnected
from streams.metrics import need_client
from streams.metrics.address import TABLES, address
from streams.process.shared.signals import Signals

LOOK_SECONDS = 60.0


class Command(CheckedUnconnected):
    help = "Show the metrics of the tables to Prometheus until stopped by SIGTERM."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--port",
            type=address,
            default=address(TABLES),
            metavar="[HOST:]PORT",
            help=f"where to listen; without a host, on this one only ({TABLES})",
        )
        parser.add_argument("--database", help="only this database alias")

    def handle(self, *args: Any, **options: Any) -> None:
        using = options["database"]
        if using:
            known_alias(using)
        signals = Signals()
        signals.install()
        try:
            need_client()
            from streams.metrics.collector import EmsCollector
            from streams.metrics.exposition import serve

            server = serve(options["port"], EmsCollector(using))
        except StreamsError as error:
            raise CommandError(str(error)) from error
        host, port = server.server_address[:2]
        self.stdout.write(f"Metrics are on http://{host!s}:{port}/metrics")
        self.stdout.flush()
        while not signals.wait(LOOK_SECONDS):
            pass
        server.shutdown()

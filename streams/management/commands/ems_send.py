from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _

from streams import send
from streams.errors import StreamsError
from streams.management.base import StreamsCommand


class Command(StreamsCommand):
    help = "Send one message: for trying things out, and for shell scripts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("topic")
        parser.add_argument(
            "body", nargs="?", help=_("JSON; or “-” to read it from standard input")
        )
        parser.add_argument("--text", action="store_true", help=_("the body is text, not JSON"))
        parser.add_argument("--key")
        parser.add_argument("--tag", default="")
        parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
        parser.add_argument("--delay", type=float, help=_("seconds"))

    def handle(self, *args: Any, **options: Any) -> None:
        body = sys.stdin.read() if options["body"] == "-" else options["body"]
        if body is not None and not options["text"]:
            try:
                body = json.loads(body)
            except ValueError as error:
                raise CommandError(
                    _("The body is not JSON (%s); for text pass --text.") % error
                ) from error
        headers = dict(header.partition("=")[::2] for header in options["header"])
        try:
            result = send(
                options["topic"],
                body,
                key=options["key"],
                tag=options["tag"],
                headers=headers or None,
                delay=options["delay"],
                using=options["database"],
            )
        except StreamsError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(_("sent message %d") % result.message_id)

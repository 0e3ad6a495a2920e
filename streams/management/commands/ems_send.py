"""Defines ems_send, which sends one message from a shell."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from streams import send
from streams.management.base import StreamsCommand, duration


class Command(StreamsCommand):
    help = "Send one message: for trying things out, and for shell scripts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("topic")
        parser.add_argument("body", nargs="?", help="JSON; “-” or a pipe: from standard input")
        parser.add_argument("--text", action="store_true", help="the body is text, not JSON")
        parser.add_argument("--key")
        parser.add_argument("--tag", default="")
        parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
        parser.add_argument("--delay", type=duration, help="such as 90 (seconds), 5m or 2h")
        parser.add_argument("--partition", type=int, help="its number")
        parser.add_argument("--dedup-key", help="send unless a message with this key was sent")
        parser.add_argument(
            "--dedup-window", type=duration, help="how long a key counts, such as 10m"
        )

    def run(self, **options: Any) -> None:
        header = options["header"]
        if not all("=" in text for text in header):
            raise CommandError("--header takes NAME=VALUE.")
        result = send(
            options["topic"],
            self._body(**options),
            key=options["key"],
            tag=options["tag"],
            headers=dict(text.split("=", 1) for text in header) or None,
            delay=options["delay"],
            partition=options["partition"],
            dedup_key=options["dedup_key"],
            dedup_window=options["dedup_window"],
            using=self.using,
        )
        text = "a duplicate of message %d: not sent" if result.duplicate else "sent message %d"
        self.tell(
            text % result.message_id,
            message_id=result.message_id,
            topic=result.topic,
            partition=result.partition,
            duplicate=result.duplicate,
        )

    def _body(self, *, body: str | None, text: bool, **options: Any) -> Any:
        if body == "-":
            body = self._read()
        elif body is None and self.in_a_shell and sys.stdin and not sys.stdin.isatty():
            body = self._read() or None  # nothing is piped in: no body, as without a pipe
        if body is None or text:
            return body
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise CommandError(f"The body is not JSON ({error}); for text pass --text.") from error

    def _read(self) -> str:
        try:
            body = sys.stdin.read()
            body.encode()  # some locales read bytes that are not UTF-8 without an error
        except UnicodeError as error:
            raise CommandError(f"The input is not UTF-8 ({error}).") from error
        return body

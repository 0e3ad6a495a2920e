"""Defines ems_personal, which finds and erases what is stored of one person."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from streams.management.base import StreamsCommand, add_dry_run, add_yes, number
from streams.operate.erasure import DataSubject, Erasure, erase, find

NAMES = {
    "messages": "messages",
    "unfinished": "of them not handled by all groups",
    "dead_letters": "dead letters",
    "edits": "earlier states of dead letters",
    "prepared": "prepared messages that are over",
    "undecided": "prepared messages that may still be sent (left)",
    "others": "rows of other apps",
}


class Command(StreamsCommand):
    help = "Personal data: what is stored under a key, or with a value in its body."
    verbs = {
        "find": "count what is stored, and change nothing",
        "erase": "erase the bodies, headers and errors; offsets and keys stay",
    }

    def add_find_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--key", help="all messages with this key")
        parser.add_argument("--path", default="", help="in JSON bodies: customer.id")
        parser.add_argument("--value", default="", help="what is at the path")
        parser.add_argument("--topic", help="only in this topic; by default in all")

    def add_erase_arguments(self, parser: ArgumentParser) -> None:
        self.add_find_arguments(parser)
        parser.add_argument("--reason", required=True, help="why, for the log")
        parser.add_argument(
            "--force", action="store_true", help="also what groups have not handled: they get null"
        )
        add_dry_run(parser)
        add_yes(parser)

    def do_find(
        self, *, key: str | None, path: str, value: str, topic: str | None, **options: Any
    ) -> None:
        self._tell(find(DataSubject(key, path, value), self.using, topic), done=False)

    def do_erase(
        self,
        *,
        key: str | None,
        path: str,
        value: str,
        topic: str | None,
        reason: str,
        force: bool,
        dry_run: bool,
        yes: bool,
        **options: Any,
    ) -> None:
        subject = DataSubject(key, path, value)
        found = find(subject, self.using, topic)
        if dry_run or not (yes or self.as_json):
            self._tell(found, done=False)
        if dry_run:
            return
        if found.unfinished and not force:
            text = "%s messages are not handled by all groups yet: wait, or say --force."
            raise CommandError(text % number(found.unfinished))
        self.confirm("Erase them?", yes=yes)
        self._tell(erase(subject, self.using, self.who, reason, topic), done=True)

    def _tell(self, found: Erasure, *, done: bool) -> None:
        if self.as_json:
            self.write_json({"erased": done, **asdict(found)})
            return
        self.stdout.write("erased:" if done else "found:")
        for name, text in NAMES.items():
            self.stdout.write(f"  {number(getattr(found, name))} {text}")
        if found.places:
            self.stdout.write(f"  {', '.join(found.places)}")

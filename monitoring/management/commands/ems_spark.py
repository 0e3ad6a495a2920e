"""Defines ems_spark, which runs a Spark job on the databases of EMS."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import Error

from monitoring import java, jobs, report
from streams.management.base import StreamsCommand
from streams.sharding import alias_of, aliases, is_sharded

# A job that a person starts may take longer than one that beat starts.
SECONDS = 24 * 3600


class Command(StreamsCommand):
    help = "Run a Spark job on the streams, or show what the jobs have rolled up."
    verbs = {
        "report": "Show topics, groups and errors from the roll-up tables; needs no Spark.",
        "rollup": "Roll up what beat does every five minutes: traffic, consumption, backlog.",
        "traffic": "Roll up messages, bytes, keys of each topic and minute.",
        "consumption": "Roll up what groups have done, how long it took, how it failed.",
        "backlog": "Add up the samples of backlogs to hours and days, and count the hot keys.",
        "serve": "Stay, and do in one session what is due: each minute, and at night.",
        "trace": "Show the whole way of a message (--message ID) or of a key (--key KEY).",
        "lake": "Write the log of the topics that are set to it to the lake; --every N goes on.",
        "archive": "Write closed days of the topics that are set to it to the archive.",
        "replay": "Send archived messages again: TOPIC SINCE UNTIL [--to TOPIC].",
        "nightly": "Do what beat starts at night: archive and reconcile, if they are due.",
        "reconcile": "Compare every message with every group, over the whole history.",
    }

    def create_parser(self, *args: Any, **kwargs: Any) -> CommandParser:
        """Create a parser that leaves arguments it does not know to the job, which checks them."""
        parser = super().create_parser(*args, **kwargs)
        parse = parser.parse_known_args

        def parse_args(args: Any = None, namespace: Any = None) -> Any:
            options, words = parse(args, namespace)
            options.words = words
            return options

        parser.parse_args = parse_args  # type: ignore[method-assign]
        return parser

    def _add_common(self, parser: ArgumentParser) -> None:
        super()._add_common(parser)
        parser.allow_abbrev = False  # an argument of the job must not match the beginning of ours
        parser.add_argument(
            "--seconds", type=int, default=SECONDS, help="end the job if it takes longer"
        )

    def run(self, **options: Any) -> None:
        verb, words = options["verb"], options["words"]
        if verb == "report":
            if words:
                raise CommandError(f"unknown: {' '.join(words)}")
            self._report(options["database"])
            return
        if lacking := java.missing():
            raise CommandError(lacking)
        # A signal that stops this command also stops the job: it leaves the with block of the job.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        stays = verb == "serve"
        status = jobs.run(
            verb,
            words,
            self._alias_of_job(options["database"], verb, words),
            seconds=0 if stays else options["seconds"],
            say=self._say,
            drains=stays,
        )
        if status:
            # The job has printed what was wrong.
            sys.exit(status if status > 0 else 1)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    def _alias_of_job(self, given: str | None, verb: str, words: Sequence[str]) -> str | None:
        """Return the alias to work on; None: all that have topics.

        A job that names a topic works where that one is.
        """
        if given or not is_sharded():
            return self.using
        parser = ArgumentParser(add_help=False, allow_abbrev=False)
        if verb == "replay":
            parser.add_argument("topic", nargs="?")
            parser.add_argument("--to")
            parser.add_argument("--name")
        else:
            parser.add_argument("--topic")
        named = vars(parser.parse_known_args(words)[0])
        topic, to = named["topic"], named.get("to")
        if topic is None:
            return None
        if to and alias_of(to) != alias_of(topic):
            raise CommandError(
                f"{topic} is on {alias_of(topic)} and {to} on {alias_of(to)}: name one there."
            )
        return alias_of(topic)

    def _report(self, given: str | None) -> None:
        chosen = (self.using,) if given or not is_sharded() else aliases()
        found = {}
        for using in chosen:
            try:
                found[using] = list(report.sections(using))
            except Error as error:
                if len(chosen) == 1:
                    raise
                text = "%(alias)s: the database says: %(error)s"
                self.stderr.write(text % {"alias": using, "error": error})
        if self.as_json:
            objects = {
                using: {section.name: section.objects for section in sections}
                for using, sections in found.items()
            }
            self.write_json(objects if len(chosen) > 1 else objects[self.using])
        else:
            self._show(found, named=len(chosen) > 1)
        if len(found) < len(chosen):
            sys.exit(1)

    def _show(self, found: Mapping[str, Sequence[report.Section]], *, named: bool) -> None:
        titled = [(using, section) for using, sections in found.items() for section in sections]
        for number, (using, section) in enumerate(titled):
            title = f"{using}: {section.title}" if named else str(section.title)
            self.stdout.write(("\n" if number else "") + title)
            if section.rows:
                self.show(section.columns, section.rows)
            else:
                self.stdout.write("nothing")

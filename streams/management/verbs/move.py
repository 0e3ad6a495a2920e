"""Defines the verb move of ems_topics."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from streams.management.base import StreamsCommand, add_dry_run, known_alias
from streams.operate.topic_move import TopicMove
from streams.plural import plural


class MoveVerb(StreamsCommand):
    """The verb that moves a topic to another database."""

    def add_move_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", help="name of the topic")
        parser.add_argument("--to", metavar="ALIAS", help="the new database")
        parser.add_argument(
            "--with-retries", action="store_true", help="take waiting retries along"
        )
        parser.add_argument(
            "--give-up", action="store_true", help="open a topic again whose move was killed"
        )
        add_dry_run(parser)

    def do_move(
        self,
        *,
        topic: str,
        to: str | None,
        with_retries: bool,
        give_up: bool,
        dry_run: bool,
        **options: Any,
    ) -> None:
        if (to is None) != give_up or (give_up and (dry_run or with_retries)):
            raise CommandError("Say either --to ALIAS or --give-up.")
        if to is None:
            TopicMove(topic, self.using, self.using).give_up_killed()
            self.tell(f"given up: {topic}", moved=False, topic=topic, source=self.using)
            return
        if known_alias(to) == self.using:
            raise CommandError(f"{topic} is on {to} by EMS['SHARDS']: say --database, from where.")
        move = TopicMove(topic, self.using, to, who=self.who, with_retries=with_retries)
        obstacles = [] if move.is_over else move.obstacles()
        unfinished = [] if move.is_over else move.unfinished()
        if not dry_run:
            try:
                move.run(self.progress)
            finally:
                self.progress("")
        letters, tails = move.letters(), move.broadcast_groups()
        texts = [f"would move: {topic}" if dry_run else f"moved: {topic}"]
        texts += [*obstacles, *unfinished] if dry_run else []
        if letters:
            stay = plural(letters, "dead letter stays", "dead letters stay")
            texts.append(f"{stay} on {self.using}.")
        if tails:
            texts.append(
                f"Each client of {', '.join(tails)} must have read all before it starts with the"
                " new routes."
            )
        if not dry_run:
            texts.append(
                f"Its producers are refused now. Put it on {to} in EMS['SHARDS'], say"
                " “ems_topics routes --accept” with that setting, and restart every process."
            )
        self.tell(
            "\n".join(texts),
            moved=not dry_run,
            topic=topic,
            source=self.using,
            target=to,
            dead_letters=letters,
            broadcast_groups=tails,
            obstacles=[*obstacles, *unfinished] if dry_run else [],
        )

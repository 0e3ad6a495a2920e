"""Defines the verb rehearse of ems_groups."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from streams.consume.outcome.dead_letter import ids_named, newest
from streams.log.places import LogPlace
from streams.management.base import StreamsCommand, letters_named, number, positive
from streams.models import ConsumerGroup, DeadMessage
from streams.operate.acts.act import arguments
from streams.operate.acts.replay import ReplayToGroup
from streams.operate.rehearsal import (
    FAILS,
    MOST,
    PASSES,
    UNCLEAR,
    Rehearsal,
    rehearsable,
    rehearse,
)
from streams.operate.replay import named_spans
from streams.operate.undone import databases

LIMIT = 100


class RehearseVerb(StreamsCommand):
    """The verb that calls the handler of a group, and undoes what it writes."""

    def add_rehearse_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", help="name of the group")
        parser.add_argument("--topic", help="its topic, if it is on several")
        for one in arguments(ReplayToGroup):
            how: Any = {"type": one.kind, "metavar": one.metavar, "help": str(one.help)}
            parser.add_argument(f"--{one.name}", **how)
        text = "these dead letters: ids, or places such as orders/2@1200"
        parser.add_argument("--dead", type=letters_named, nargs="+", metavar="LETTER", help=text)
        text = "the newest N dead letters that wait"
        parser.add_argument("--newest", type=positive, metavar="N", help=text)
        text = f"at most this many ({LIMIT}), at most {MOST}"
        parser.add_argument("--limit", type=positive, default=LIMIT, metavar="N", help=text)

    def do_rehearse(
        self,
        *,
        group: str,
        topic: str | None,
        dead: list[int | LogPlace] | None,
        newest: int | None,
        limit: int,
        **options: Any,
    ) -> None:
        if limit > MOST:
            raise CommandError(f"At most {MOST} messages are rehearsed at once.")
        row = self.group(group, topic)
        registration = rehearsable(row)
        part = [options[name] for name in ("from", "to", "message", "partition")]
        spanned = any(value is not None for value in part)
        if (dead is not None) + (newest is not None) + spanned > 1:
            raise CommandError("Give a part of the log, --dead or --newest: one of them.")
        letters = self._letters(row, dead, newest)
        first, end, message, partition = part
        found = (
            named_spans(row, first, end, message, self.using, partition) if letters is None else []
        )
        # What happens for good is said before it happens.
        self.stderr.write(
            f"{registration.name} runs now. Undone is what it writes to these databases:"
            f" {', '.join(databases())}."
            " What it does elsewhere happens."
        )
        self.stderr.flush()

        def tell(messages: int) -> None:
            self.progress(number(messages))

        result = rehearse(
            row,
            self.using,
            spans=found,
            letters=letters or (),
            by=self.who,
            limit=limit,
            tell=tell,
        )
        self.progress("")
        self._tell_result(row, result)
        self.status = 0 if result.all_pass else 1

    def _letters(
        self, group: ConsumerGroup, names: list[int | LogPlace] | None, count: int | None
    ) -> Sequence[int] | None:
        if count is not None:
            return newest(group, min(count, MOST), self.using)
        if names is None:
            return None
        rows = DeadMessage.objects.using(self.using).filter(group=group.pk)
        ids = ids_named(names, self.using)
        known = sorted(rows.filter(pk__in=ids).values_list("pk", flat=True))
        for name in names:
            if isinstance(name, int) and name not in known:
                raise CommandError(f"There is no dead letter {name} of {group}.")
        return known

    def _tell_result(self, group: ConsumerGroup, result: Rehearsal) -> None:
        counts = {state: result.count(state) for state in (PASSES, FAILS, UNCLEAR)}
        if self.as_json:
            values = {"group": group.name, "topic": group.topic.name, "handler": result.handler}
            more = {"left_out": result.left_out, "stopped": result.stopped or None}
            each = [asdict(one) for one in result.messages]
            self.write_json({**values, **counts, **more, "messages": each})
            return
        self.show(
            ("message", "dead_letter", "state", "seconds", "error"),
            (
                (one.place, one.dead_letter, one.state, f"{one.seconds:.3f}", one.error)
                for one in result.messages
            ),
        )
        text = ", ".join(f"{state}: {number(count)}" for state, count in counts.items())
        if result.left_out:
            text += f"; left out: {number(result.left_out)}"
        self.stdout.write(f"{text}; all is undone. {result.stopped}".rstrip())

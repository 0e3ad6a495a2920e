"""Defines the verb reset of ems_groups."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from streams.management.base import StreamsCommand, add_dry_run, add_yes
from streams.models import ConsumerGroup
from streams.operate.reset import Move, Reset, towards
from streams.operate.target import Target


class ResetVerb(StreamsCommand):
    """Resets one group, or says what a reset would do."""

    def add_reset_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", help=_("name of the group"))
        parser.add_argument("--topic", help=_("its topic, if it is on several"))
        parser.add_argument("--partition", type=int, metavar="N", help=_("only this partition"))
        where = parser.add_mutually_exclusive_group(required=True)
        where.add_argument(
            "--to",
            metavar="WHERE",
            help=_(
                "earliest, latest, an offset, orders/2@1200 (that partition alone),"
                " a time (2026-11-20T10:00Z), +N or -N messages"
            ),
        )
        where.add_argument(
            "--undo", action="store_true", help=_("back to where it was before the last reset")
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help=_("although it has live consumers: they lose the leases of what they hold there"),
        )
        add_dry_run(parser)
        add_yes(parser)

    def do_reset(
        self,
        *,
        group: str,
        topic: str | None,
        partition: int | None,
        to: str | None,
        undo: bool,
        force: bool,
        dry_run: bool,
        yes: bool,
        **options: Any,
    ) -> None:
        row = self.group(group, topic)
        goal = None
        if to is not None:
            target = Target.parse(to)
            goal, partition = towards(target), target.only(row, partition, self.using)
        reset = Reset(row, goal, self.using, number=partition, force=force)
        live = row.clients.using(self.using).live().count()
        asks = not (dry_run or yes) and (force or not live)  # else it is refused anyway
        if dry_run or (asks and not self.as_json):
            self._show_reset(row, reset.preview(), live, done=False, force=force)
        if dry_run:
            return
        if asks:
            self.confirm(_("Reset %s?") % row, yes=yes)
        self._show_reset(row, reset.run(), live, done=True, force=force)

    def _show_reset(
        self, group: ConsumerGroup, moves: list[Move], live: int, *, done: bool, force: bool
    ) -> None:
        if self.as_json:
            described = [_described(move) for move in moves]
            self.write_json(
                {"group": group.name, "topic": group.topic.name, "consumers": live}
                | {"reset": done, "partitions": described}
            )
            return
        self.stdout.write((_("reset %s:") if done else _("would reset %s:")) % group)
        for move in moves:
            self.stdout.write(f"  {move}")
        if not done and live and not force:
            text = ngettext(
                "It has %d live consumer: stop it first, or use --force.",
                "It has %d live consumers: stop them first, or use --force.",
                live,
            )
            self.stdout.write(text % live)


def _described(move: Move) -> dict[str, Any]:
    return {
        "partition": move.partition.number,
        "position": move.position,
        "target": move.target,
        "again": move.again,
        "skipped": move.skipped,
        "fenced": len(move.fenced),
        "retries": move.retries,
        "given_back": move.given_back,
        "restored": move.restored,
    }

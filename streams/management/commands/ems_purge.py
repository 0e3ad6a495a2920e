"""Defines ems_purge, which deletes what retention does not keep, by plan or by force."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from streams.management.base import StreamsCommand, add_dry_run, counted, number
from streams.models import ConsumerGroup
from streams.operate.topics import topic_of
from streams.retain.abandoned_groups import abandoned_of
from streams.retain.purge import Purge, Purged
from streams.retain.purge_floor import Hold
from streams.steps.nightly_purge import note_purge


class Command(StreamsCommand):
    help = (
        "Delete the messages that retention does not keep and no group needs, and other old rows."
        " It may be stopped and repeated."
    )

    everywhere = frozenset({""})

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--topic", help="only the messages of this topic")
        parser.add_argument(
            "--force",
            action="store_true",
            help="as far as age and count say, also what groups have not finished",
        )
        add_dry_run(parser)

    def run(self, **options: Any) -> None:
        dry_run: bool = options["dry_run"]
        work = Purge(self.using, force=options["force"], say=self._show_rows)
        name: str | None = options["topic"]
        one = None if name is None else topic_of(name, self.using)
        try:
            outcomes = work.preview(one) if dry_run else work.run(one)
            expired = {} if dry_run or one else work.delete_old_rows()
        finally:
            self.progress("")
        if not (dry_run or one):
            note_purge(self.using)
        found = [outcome for outcome in outcomes if _says_something(outcome)]
        idle = abandoned_of((outcome.floor for outcome in outcomes), self.using)
        names = dict(ConsumerGroup.objects.using(self.using).values_list("pk", "name"))
        if self.as_json:
            self.write_json(
                {
                    "dry_run": dry_run,
                    "partitions": [_values(outcome, names) for outcome in outcomes],
                    "expired": expired,
                    "abandoned": [str(one) for one in idle],
                }
            )
            return
        for outcome in found:
            self._tell_partition(outcome, names, dry_run)
        for name, rows in expired.items():
            if rows:
                self.stdout.write(f"{counted({name: rows})} deleted")
        if not found and not any(expired.values()):
            self.stdout.write("Nothing to purge.")
        for group in idle:
            self.stdout.write(f"Abandoned? {group}.")
            self.stdout.write("  → Run its consumer, ems_groups delete, or --force.")

    def _tell_partition(self, outcome: Purged, names: dict[int, str], dry_run: bool) -> None:
        now = outcome.floor
        count = now.messages if dry_run else outcome.deleted
        messages = f"{number(count)} {'message' if count == 1 else 'messages'}"
        if dry_run:
            text = f"would delete {messages}, up to offset {now.offset}"
        else:
            text = f"{messages} deleted; it begins at {now.offset}"
        self.stdout.write(f"{now.partition}: {text}")
        if outcome.skipped.rows:
            self.stdout.write(f"  forced: {outcome.skipped}")
        for hold in outcome.past:
            self.stdout.write(f"  would skip: {hold.who(names)} {hold}")
        for hold in now.holds:
            self.stdout.write(f"  held back: {hold.who(names)} {hold}")

    def _show_rows(self, name: str, rows: int) -> None:
        self.progress(f"{name}: {number(rows)} rows deleted")


def _says_something(outcome: Purged) -> bool:
    now = outcome.floor
    return bool(outcome.deleted or now.messages or now.holds or outcome.skipped.rows)


def _values(outcome: Purged, names: dict[int, str]) -> dict[str, Any]:
    now = outcome.floor
    return {
        "partition": str(now.partition),
        "wanted": now.wanted,
        "first_offset": now.offset,
        "messages": now.messages,
        "deleted": outcome.deleted,
        "skipped": vars(outcome.skipped),
        "held_by": [_hold(hold, names) for hold in now.holds],
        "past": [_hold(hold, names) for hold in outcome.past],
    }


def _hold(hold: Hold, names: dict[int, str]) -> dict[str, Any]:
    return {"group": names.get(hold.group or 0), "what": hold.what, "offset": hold.offset}

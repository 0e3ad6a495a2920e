"""Defines ems_groups: the consumer groups, and what is done with them."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from streams.consume.blocked import Blockade, blockades
from streams.log.condition import Condition, Standing
from streams.log.standings import standings
from streams.management.acts import ActVerbs
from streams.management.base import add_sort, add_watch
from streams.management.verbs.change import ChangeVerb
from streams.management.verbs.rehearse import RehearseVerb
from streams.management.verbs.rows import RowVerbs
from streams.models import ConsumerGroup
from streams.nouns.group import BlockedGroup

COLUMNS = (
    *("group", "topic", "mode", "state", "trouble", "consumers"),
    *("behind", "clear_seconds", "open", "retries", "dead", "age_seconds"),
)
# Of groups with a rate; of the message that has blocked an ordered group the longest. A table
# without any leaves them out.
OF_RATED = ("rate",)
OF_BLOCKED = ("blocked_by", "attempt", "next_attempt", "error")
LAG = "lag"  # how operators call the column behind


class Command(ActVerbs, RehearseVerb, RowVerbs, ChangeVerb):
    noun = ConsumerGroup
    help = "The consumer groups: how far behind they are; pause, resume, reset and delete them."
    verbs = {
        "list": "all groups with their lag",
        "consumers": "the processes that serve a group",
        "deliveries": "the newest deliveries: what was claimed, and how it ended",
        "retries": "what waits for its next attempt, the next due first",
        "set": "override retries, timeout, batch or rate of the code",
        "pause": "claim nothing more; calls that run are finished",
        "resume": "go on claiming",
        "reset": "go on from another place in the log",
        "undo": "go back to where it was before its last reset",
        "retry": "begin the next attempt at the messages that block an ordered group",
        "skip": "make a dead letter of the message that blocks a partition",
        "give-up": "end a call that takes ten times as long as usual",
        "order-by-key": "let a failed message of an ordered group hold back only its key",
        "replay": "deliver a part of the log, or one message, again",
        "cancel-replay": "end a replay before it has given out all",
        "replays": "how far replays are",
        "rehearse": "would these messages pass now? Call the handler, and undo it",
        "delete": "delete a group with its position, retries and dead letters",
    }
    everywhere = frozenset({"list", "consumers", "deliveries", "retries"})

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--topic", help="only on this topic")
        parser.add_argument("--state", choices=Condition.values, help="only in this state")
        add_sort(parser, (LAG, *COLUMNS))
        add_watch(parser)

    def add_set_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", help="name of the group")
        parser.add_argument("--topic", help="its topic, if it is on several")
        self.add_changes(parser, ConsumerGroup)

    def add_row_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", help="name of the group")
        parser.add_argument("--topic", help="its topic, if it is on several")

    def rows_named(self, options: Mapping[str, Any]) -> list[ConsumerGroup]:
        return self.groups(options["group"], options["topic"])

    def row_named(self, options: Mapping[str, Any]) -> ConsumerGroup:
        return self.group(options["group"], options["topic"])

    def described(self, row: ConsumerGroup) -> dict[str, Any]:
        return {"group": row.name, "topic": row.topic.name}

    def do_list(
        self, *, topic: str | None, state: str | None, sort: str | None, **options: Any
    ) -> None:
        groups = self.groups(topic=topic)
        blocked = blockades(groups, self.using, most=1)
        found = standings(groups, self.using)
        # The lists of several databases are one table.
        is_whole = blocked or options.get("all_databases")
        has_rates = any(one.rate_in_force for one in groups) or options.get("all_databases")
        self.show_nouns(
            (
                _blocked(one, blocked.get(one.lag.group.pk))
                for one in sorted(found, key=lambda one: one.order)
                if state in (None, one.condition.value)
            ),
            COLUMNS + (OF_RATED if has_rates else ()) + (OF_BLOCKED if is_whole else ()),
            sort="behind" if sort == LAG else sort,
        )

    def do_set(self, *, group: str, topic: str | None, **options: Any) -> None:
        self.apply_changes(self.group(group, topic), **options)


def _blocked(standing: Standing, blockade: Blockade | None) -> BlockedGroup:
    worst = blockade.worst[0] if blockade and blockade.worst else None
    return BlockedGroup.of(
        standing,
        blocked_by=worst and worst.place,
        attempt=worst and worst.attempt,
        next_attempt=worst and worst.due_at,
        error=worst and worst.error,
    )

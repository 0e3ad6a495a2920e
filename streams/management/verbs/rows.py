"""Defines the verbs of ems_groups that list its rows: consumers, deliveries, retries, replays."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.db.models import Max

from streams.consume.blocked import blockades
from streams.database.clock import database_now
from streams.log.calls import calls
from streams.log.foreign import own_rows
from streams.log.places import LogPlace
from streams.management.base import StreamsCommand, add_limit, add_sort, add_watch, number
from streams.models import Consumer, Delivery, RetryMessage, State
from streams.nouns.at_place import with_names
from streams.nouns.client import clients
from streams.nouns.delivery import RunningDelivery
from streams.nouns.replay import ReplayPart
from streams.operate.replay import replays

# The most deliveries that a list of one group's reads.
SEARCHED = 100_000
CLIENTS = ("client", "group", "topic", "live", "open", "started_at", "lease_until")
DELIVERIES = (
    *("id", "group", "place", "kind", "attempt", "state"),
    *("running_seconds", "usual_seconds", "slow"),  # of what is claimed now
    *("failed", "claimed_at", "finished_at", "client", "thread", "error"),
)


class RowVerbs(StreamsCommand):
    """The verbs that list the processes of a group, what they were given, and what waits."""

    def add_consumers_arguments(self, parser: ArgumentParser) -> None:
        self._add_group(parser)
        add_sort(parser, CLIENTS)
        add_watch(parser)

    def add_deliveries_arguments(self, parser: ArgumentParser) -> None:
        self._add_group(parser)
        parser.add_argument("--open", action="store_true", help="only what is claimed now")
        add_limit(parser, 20)
        add_watch(parser)

    def add_retries_arguments(self, parser: ArgumentParser) -> None:
        self._add_group(parser)
        add_limit(parser, 20)
        add_watch(parser)

    def add_replays_arguments(self, parser: ArgumentParser) -> None:
        self._add_group(parser)
        add_watch(parser)

    def _add_group(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", nargs="?", help="only of this group")
        parser.add_argument("--topic", help="only on this topic")

    def do_replays(self, *, group: str | None, topic: str | None, **options: Any) -> None:
        found = replays(self.groups(group, topic), self.using)
        self.show_nouns((ReplayPart.of(one) for one in found), ReplayPart.columns())

    def do_consumers(
        self, *, group: str | None, topic: str | None, sort: str | None, **options: Any
    ) -> None:
        rows = Consumer.objects.using(self.using).filter(group__in=self.groups(group, topic))
        rows = rows.select_related("group__topic").order_by("client_id", "id")
        self.show_nouns(clients(rows, self.using), CLIENTS, sort)

    def do_deliveries(
        self,
        *,
        group: str | None,
        topic: str | None,
        open: bool,  # noqa: A002 - as the option is named
        limit: int,
        **options: Any,
    ) -> None:
        rows = own_rows(Delivery.objects.using(self.using).all(), self.using)
        if group or topic:
            rows = rows.filter(group__in=self.groups(group, topic))
        if open:
            # As many as there are threads. Sorted here: for a LIMIT the server reads all by id.
            found = sorted(rows.open().order_by(), key=lambda row: -row.pk)[:limit]
        else:
            # No index has the deliveries of a group in the order of time.
            newest = rows.model.objects.using(self.using).aggregate(pk=Max("pk"))["pk"] or 0
            found = list(rows.filter(pk__gt=newest - SEARCHED).order_by("-pk")[:limit])
            if newest > SEARCHED and (group or topic):
                self.stderr.write(f"searched the newest {number(SEARCHED)} deliveries")
        held = [row for row in found if row.state == State.START and row.token] if open else []
        running = {call.pk: call for call in calls(held, database_now(self.using), self.using)}
        self.show_nouns(
            (
                RunningDelivery.of(
                    row,
                    running_seconds=call and call.running,
                    usual_seconds=call and call.usual,
                    slow=call and call.is_slow,
                )
                for row in with_names(found, self.using)
                for call in [running.get(row.pk)]
            ),
            DELIVERIES,
        )

    def do_retries(
        self, *, group: str | None, topic: str | None, limit: int, **options: Any
    ) -> None:
        groups = self.groups(group, topic)
        found: list[RetryMessage] = []
        for one in groups:  # in the order of the index: waiting ones, the next due first
            rows = RetryMessage.objects.using(self.using).filter(group=one)
            parts = [rows.exclude(due_at=None), rows.filter(due_at=None)] if one.by_key else [rows]
            for part in parts:
                found += part.order_by("delivery_id", "due_at", "id")[:limit]
        found.sort(key=_next_first)
        blocked: list[tuple[Any, ...]] = [
            # Of an ordered group there is no row: its cursor waits.
            (None, one.group, one.place, one.attempt, one.due_at, one.state, one.error)
            for blockade in blockades(groups, self.using, most=limit).values()
            for one in blockade.worst
        ]
        waiting = (
            (
                *(row.pk, row.group.name, str(LogPlace.of(row)), row.attempt, row.due_at),
                *(_state(row), row.last_error),
            )
            for row in with_names(found[:limit], self.using)
        )
        columns = ("id", "group", "place", "attempt", "due_at", "state", "error")
        self.show(columns, [*blocked, *waiting][:limit])


def _next_first(row: RetryMessage) -> tuple[bool, bool, float, int]:
    """Sort waiting ones before held ones, the next due first, and those that are parked last."""
    due = row.due_at.timestamp() if row.due_at else 0.0
    return row.delivery_id is not None, row.due_at is None, due, row.pk


def _state(row: RetryMessage) -> str:
    if row.delivery_id is not None:
        return "held"
    return "parked" if row.due_at is None else "waiting"

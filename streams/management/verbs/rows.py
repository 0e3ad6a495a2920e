"""Defines the verbs of ems_groups that list its rows: consumers, deliveries, retries, replays."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models import Max

from streams.consume.blocked import blockades
from streams.database.clock import database_now
from streams.log.calls import Call, calls
from streams.log.foreign import own_rows
from streams.management.base import StreamsCommand, add_limit, add_sort, add_watch, number
from streams.models import Consumer, ConsumerGroup, Delivery, Partition, RetryMessage, State
from streams.operate.replay import replays

# The most deliveries that a list of one group's reads.
SEARCHED = 100_000
# Of what is claimed now; "slow": ten times as long as is usual.
RUNNING = ("running", "usual", "slow")
CONSUMERS = ("client_id", "group", "topic", "state", "open", "started_at", "lease_until")


class RowVerbs(StreamsCommand):
    """The verbs that list the processes of a group, what they were given, and what waits."""

    def add_consumers_arguments(self, parser: ArgumentParser) -> None:
        self._add_group(parser)

        add_sort(parser, CONSUMERS)
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
        self.show(
            ("group", "topic", "replay", "partition", "from", "to", "given_out", "open", "state"),
            (
                (
                    *(one.cursor.group.name, one.cursor.group.topic.name, one.number),
                    *(one.span.partition.number, one.span.first, one.span.end),
                    *(one.given_out, one.open, one.state),
                )
                for one in replays(self.groups(group, topic), self.using)
            ),
        )

    def do_consumers(
        self, *, group: str | None, topic: str | None, sort: str | None, **options: Any
    ) -> None:
        groups = self._by_id(group, topic)
        rows = Consumer.objects.using(self.using).filter(group__in=groups)
        live = set(rows.live().values_list("pk", flat=True))
        held: dict[tuple[str, int], int] = {}
        for delivery in Delivery.objects.using(self.using).open().filter(group__in=groups):
            place = delivery.client_id, delivery.group_id
            held[place] = held.get(place, 0) + delivery.last_offset + 1 - delivery.progress
        self.show(
            CONSUMERS,
            (
                (
                    row.client_id,
                    groups[row.group_id].name,
                    groups[row.group_id].topic.name,
                    "live" if row.pk in live else "lapsed",
                    held.get((row.client_id, row.group_id), 0),
                    row.started_at,
                    row.lease_until,
                )
                for row in rows.order_by("client_id", "id")
            ),
            sort=sort,
        )

    def do_deliveries(
        self,
        *,
        group: str | None,
        topic: str | None,
        open: bool,  # noqa: A002 - as the option is named
        limit: int,
        **options: Any,
    ) -> None:
        groups = self._by_id(group, topic)
        rows = own_rows(Delivery.objects.using(self.using).all(), self.using)
        if group or topic:
            rows = rows.filter(group__in=groups)
        if open:
            # As many as there are threads. Sorted here: for a LIMIT the server reads all by id.
            found = sorted(rows.open().order_by(), key=lambda row: -row.pk)[:limit]
        else:
            # No index has the deliveries of a group in the order of time.
            newest = rows.model.objects.using(self.using).aggregate(pk=Max("pk"))["pk"] or 0
            found = list(rows.filter(pk__gt=newest - SEARCHED).order_by("-pk")[:limit])
            if newest > SEARCHED and (group or topic):
                self.stderr.write(f"searched the newest {number(SEARCHED)} deliveries")
        places = self._places(found)
        columns = ("claimed_at", "finished_at", "client_id", "thread", "error")
        held = [row for row in found if row.state == State.START and row.token] if open else []
        running = {call.pk: call for call in calls(held, database_now(self.using), self.using)}
        self.show(
            ("id", "group", "place", "kind", "attempt", "state", *RUNNING, "failed", *columns),
            (
                (
                    row.pk,
                    _name(groups, row.group_id),
                    _place(places, row.partition_id, row.first_offset, row.last_offset),
                    row.kind,
                    row.attempt,
                    row.state,
                    *_running(running.get(row.pk)),
                    row.failed,
                    *(getattr(row, name) for name in columns),
                )
                for row in found
            ),
        )

    def do_retries(
        self, *, group: str | None, topic: str | None, limit: int, **options: Any
    ) -> None:
        groups = self._by_id(group, topic)
        found: list[RetryMessage] = []
        for pk in groups:  # in the order of the index: waiting ones, the next due first
            rows = RetryMessage.objects.using(self.using).filter(group=pk)
            found += rows.order_by("delivery_id", "due_at", "id")[:limit]
        found.sort(key=lambda row: (row.delivery_id is not None, row.due_at, row.pk))
        del found[limit:]
        places = self._places(found)
        blocked: list[tuple[Any, ...]] = [
            # Of an ordered group there is no row: its cursor waits.
            (None, one.group, one.place, one.attempt, one.due_at, one.state, one.error)
            for blockade in blockades(groups.values(), self.using, most=limit).values()
            for one in blockade.worst
        ]
        waiting = (
            (
                row.pk,
                _name(groups, row.group_id),
                _place(places, row.partition_id, row.offset, row.offset),
                row.attempt,
                row.due_at,
                "waiting" if row.delivery_id is None else "held",
                row.last_error,
            )
            for row in found
        )
        columns = ("id", "group", "place", "attempt", "due_at", "state", "error")
        self.show(columns, [*blocked, *waiting][:limit])

    def _by_id(self, group: str | None, topic: str | None) -> dict[int, ConsumerGroup]:
        return {row.pk: row for row in self.groups(group, topic)}

    def _places(self, rows: Iterable[Delivery | RetryMessage]) -> dict[int, str]:
        """Return the names of their partitions, as far as they still exist."""
        partitions = Partition.objects.using(self.using).select_related("topic")
        found = partitions.filter(pk__in={row.partition_id for row in rows})
        return {partition.pk: str(partition) for partition in found}


def _running(call: Call | None) -> tuple[timedelta | None, timedelta | None, bool | None]:
    return (call.running, call.usual, call.is_slow) if call else (None, None, None)


def _name(groups: dict[int, ConsumerGroup], pk: int) -> str | None:
    return groups[pk].name if pk in groups else None


def _place(places: dict[int, str], partition: int, first: int, last: int) -> str:
    name = places.get(partition, f"#{partition}")
    return f"{name}@{first}-{last}" if last > first else f"{name}@{first}"

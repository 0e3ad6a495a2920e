"""Finds the groups that clients pull for, and makes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db import Error

from streams.conf import FRESH_SECONDS, longest_name
from streams.consume.limits import Limits, limits
from streams.consume.rate import Rate
from streams.consume.registry import Order, Registration, find, registration_of
from streams.consume.subscription import start_missing, subscribe
from streams.database.remembered import Forgettable, Fresh
from streams.database.retrying import retrying
from streams.database.transactions import in_test_case
from streams.deliver.claim import Claimer
from streams.deliver.cursor_locks import CursorLocks
from streams.deliver.turns import Turns
from streams.errors import GroupMismatch, InvalidValue, StartNeeded, UnknownGroup
from streams.log.holdings import holdings
from streams.log.topics import resolve
from streams.models import ConsumerGroup, Mode, Partition
from streams.rules.names import MAX_NAME, validated_name

# Seconds for which a request waits for a database that is away, while it looks for its group.
PATIENCE = 3.0
# What deliveries have as their thread: as they are claimed, and once a repeated request got them.
THREAD, REPEATED = "http", "http-repeated"


@dataclass
class PulledGroup:
    """A group as a process knows it; ``limits`` is None while nothing may be handed out."""

    group: ConsumerGroup
    registration: Registration
    limits: Limits | None
    using: str
    fresh_until: float
    locks: CursorLocks = field(default_factory=CursorLocks)  # of all threads of the process
    held_until: float = 0.0  # of the monotonic clock: its rate lets nothing be handed out before
    _idle: list[Turns] = field(default_factory=list)

    @contextmanager
    def turns(self, client: str, token: str, rate: Rate | None) -> Iterator[Turns]:
        """Give the block a Claimer of its own, for deliveries of ``client`` with ``token``."""
        try:
            turns = self._idle.pop()
        except IndexError:
            turns = Turns(Claimer(self.group, client, THREAD, self.using, locks=self.locks))
        turns.claimer.client_id, turns.claimer.group = client, self.group
        turns.claimer.token = token
        # What is handed out begins at once.
        turns.claimer.starts.rate, turns.claimer.starts.ahead = rate, 0.0
        try:
            yield turns
        finally:
            self._idle.append(turns)


Known = tuple[ConsumerGroup, Partition]

_known: Forgettable[tuple[str, str, str], PulledGroup] = Forgettable()
_by_id: Fresh[tuple[str, int], tuple[ConsumerGroup, dict[int, Partition]]] = Fresh()
# By alias: a database that is away, or hangs, must not stop what is read of the others. In a fork
# nobody would release a lock that is held.
_reading: Forgettable[str, threading.Lock] = Forgettable()
# By alias: when, on the monotonic clock, a group could not be read, and why.
_failed: Forgettable[str, tuple[float, Error]] = Forgettable()


def fresh(topic: str, name: str, using: str) -> PulledGroup | None:
    """Return the group if this process has read it in the last FRESH_SECONDS; asks no database."""
    known = _known.get((using, topic, name))
    return known if known and time.monotonic() < known.fresh_until else None


def pulled(topic: str, name: str, using: str) -> PulledGroup:
    """Return the group, at most FRESH_SECONDS old.

    Raises UnknownGroup, and GroupMismatch for a broadcast group, which has no deliveries, and for
    one with a rate for each key. A failure of the database is that of all who wait for the same
    answer.
    """
    key = using, topic, name
    asked = time.monotonic()
    if known := fresh(topic, name, using):
        return known
    # Only one thread reads a group that has become old: hundreds may ask for it at once.
    with _reading.setdefault(using, threading.Lock()):
        if known := fresh(topic, name, using):
            return known
        known = _known.get(key)
        failed_at, error = _failed.get(using, (0.0, Error()))
        if failed_at > asked:
            raise type(error)(*error.args) from error
        try:
            group = retrying(lambda: _find(topic, name, using), using, patience=PATIENCE)
        except Error as error:
            _failed[using] = time.monotonic(), error
            raise
        if group is None:
            _known.pop(key, None)
            raise _unknown(topic, name)
        if group.mode == Mode.BROADCAST:
            raise GroupMismatch(
                f"{group} is a broadcast group, which nobody can pull for: read the log."
            )
        if group.has_rate_of_keys:
            raise GroupMismatch(
                f"{group} has a rate for each key, which only its consumers know: nobody can pull"
                " for it, unless an operator sets its rate to “unlimited”."
            )
        readable = not group.paused and group.topic.readable
        found = limits(group, find(topic, name), using) if readable else None
        same = known is not None and known.group.pk == group.pk
        until = time.monotonic() + FRESH_SECONDS
        made = PulledGroup(group, registration_of(topic, name), found, using, until)
        if known is not None and same:
            made._idle, made.locks = known._idle, known.locks
            made.held_until = known.held_until
        if not in_test_case(using):
            _known[key] = made
        return made


def deleted(group: PulledGroup) -> UnknownGroup:
    """Forget a group that has been deleted; return the error that says so."""
    topic, name = group.group.topic.name, group.group.name
    _known.pop((group.using, topic, name), None)
    return _unknown(topic, name)


def _unknown(topic: str, name: str) -> UnknownGroup:
    text = "There is no group %(group)r on %(topic)r."
    return UnknownGroup(text % {"group": name, "topic": topic})


def by_id(group_id: int, partition_id: int, using: str) -> Known | None:
    """Return the group, at most FRESH_SECONDS old, and the partition; None if they are gone.

    The group may also be of another namespace.
    """
    known = _by_id.fresh((using, group_id))
    if known is None or partition_id not in known[1]:
        known = _read_with_partitions(group_id, using)
    if known is None or partition_id not in known[1]:
        return None
    group, partitions = known
    return group, partitions[partition_id]


def _read_with_partitions(
    group_id: int, using: str
) -> tuple[ConsumerGroup, dict[int, Partition]] | None:
    until = time.monotonic() + FRESH_SECONDS
    groups = ConsumerGroup.objects.using(using).select_related("topic").filter(pk=group_id)
    group = retrying(groups.first, using)
    if group is None:
        return None
    rows = Partition.objects.using(using).filter(topic=group.topic_id)
    partitions = {row.pk: row for row in retrying(list, using, rows)}
    return _by_id.keep((using, group_id), (group, partitions), until, using)


def ensure_group(
    topic: str,
    name: str,
    using: str,
    *,
    start: str | datetime | None = None,
    ordered: Order = False,
    overrides: Mapping[str, int | None] | None = None,
) -> tuple[ConsumerGroup, bool]:
    """Return the group, and whether it is new; a new one has ``overrides``, columns of its row.

    A group that is there stays as it is. Raises GroupMismatch if it is of another kind,
    StartNeeded, InvalidValue, InvalidName and LogDamaged.
    """
    try:
        start = start.astimezone(UTC) if isinstance(start, datetime) else start
    except OverflowError as error:  # of another zone
        raise InvalidValue("“start” is in no year from 1 to 9999 in UTC.") from error
    validated_name(name, "group", longest_name(MAX_NAME))
    registration = registration_of(topic, name, ordered=ordered)
    there = retrying(_find, using, topic, name, using)
    try:
        group = there or subscribe(registration, using, start, overrides or {})
    except StartNeeded as error:
        held = start_missing(registration, holdings(resolve(topic, using).id, using))
        raise StartNeeded(f"{held} {_start_hint()}") from error
    if group.mode == Mode.BROADCAST or group.order != ordered:
        raise GroupMismatch(f"{group} is {group.kind}, which is fixed when a group is created.")
    _known.pop((using, topic, name), None)
    return group, there is None


def _find(topic: str, name: str, using: str) -> ConsumerGroup | None:
    groups = ConsumerGroup.objects.using(using).select_related("topic")
    return groups.filter(topic__name=topic, name=name).first()


def _start_hint() -> str:
    return (
        "Say where it starts, by “start”: “latest” leaves them out, “earliest” hands them all out,"
        " a time begins there."
    )

"""Limits how many tasks of one kind, or with one key, run at the same time.

A slot is taken before the task begins, and freed after its end. Nobody has to guess how long a task
takes: the slot of a process that died is free once its delivery has ended.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.db import connections
from django.utils.inspect import get_func_args

from streams.contrib.tasks import sql
from streams.contrib.tasks.names import GROUP, topic_of
from streams.contrib.tasks.record import Record
from streams.database.retrying import retrying
from streams.database.sql.dialect import execute, fetch
from streams.log.topics import resolve
from streams.models import ConsumerGroup, Delivery

# How long a task waits before it looks for a slot again, in seconds: between the two.
WAIT = (1.0, 5.0)


def wait() -> timedelta:
    return timedelta(seconds=random.uniform(*WAIT))  # noqa: S311 - it spreads the looks


def key_of(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the hash of what the limit of a task is for: the task, or one value of an argument."""
    key = getattr(task, "limit_key", None)
    about: Any = None
    if callable(key):
        about = key(*args, **kwargs)
    elif key is not None:
        names = get_func_args(task.func)[int(task.takes_context) :]
        about = {**dict(zip(names, args, strict=False)), **kwargs}.get(key)
    return sha256(json.dumps([task.module_path, about], default=str).encode()).digest()


@dataclass
class HeldSlot:
    """The slot that a task needs, of the ``limit`` slots of its key."""

    record: Record
    key_hash: bytes
    limit: int
    token: int
    held: bool = False

    def take(self) -> bool:
        """Take a free slot, or that of a task that nobody runs; return False if there is none."""
        self.held = self._take_free() or (self._complete() and self._take_free())
        self.held = self.held or self._take_over()
        return self.held

    def free(self) -> None:
        if self.held:
            values = [self.key_hash, self.token]
            retrying(execute, self._using, self._using, sql.FREE_SLOT, values)
            self.held = False

    @property
    def _using(self) -> str:
        return self.record.using

    @property
    def _vendor(self) -> str:
        return connections[self._using].vendor

    @property
    def _mine(self) -> list[int]:
        """Return the columns by which others tell who holds the slot."""
        message = self.record.message
        topic = resolve(topic_of(self.record.envelope.queue), self._using).id
        return [self.token, topic, message.partition, message.offset]

    def _take_free(self) -> bool:
        values = [*self._mine, self.key_hash, self.limit]
        return bool(
            retrying(execute, self._using, self._using, sql.TAKE_SLOT[self._vendor], values)
        )

    def _complete(self) -> bool:
        """Make the slots that are missing; return False if there are all."""
        there = {number for _pk, number, *_place in self._slots()}
        missing = set(range(self.limit)) - there
        for number in sorted(missing):
            values = [self.key_hash, number]
            statement = sql.INSERT_SLOT[self._vendor]
            retrying(execute, self._using, self._using, statement, values)
        return bool(missing)

    def _slots(self) -> list[Any]:
        return retrying(fetch, self._using, self._using, sql.SLOTS, [self.key_hash])

    def _take_over(self) -> bool:
        for pk, number, token, *place in self._slots():
            if number >= self.limit or (token and self._is_held(place)):
                continue
            values = [*self._mine, pk, token]
            if retrying(execute, self._using, self._using, sql.TAKE_OVER_SLOT, values):
                return True
        return False

    def _is_held(self, place: list[int]) -> bool:
        """Tell whether somebody may run the task that has taken the slot."""
        topic, partition, offset = place
        if place == self._mine[1:]:
            return False  # an earlier attempt at this very task
        group = ConsumerGroup._base_manager.using(self._using).filter(topic=topic, name=GROUP)
        held = (
            Delivery.objects.using(self._using)
            .open()
            .filter(
                group__in=group,
                partition__topic=topic,
                partition__number=partition,
                first_offset__lte=offset,
                last_offset__gte=offset,
            )
        )
        return retrying(held.exists, self._using)

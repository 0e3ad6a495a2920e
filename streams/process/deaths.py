"""Notices that a consumer process of this host has died, and ends its claims at once.

Without it, or where it cannot, they end with the lease of the process, and the sweep retries them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from django.db import OperationalError
from django.db.models import F, QuerySet

from streams.consume.outcome import notices
from streams.database.retrying import held_by_others, retrying
from streams.database.transactions import own_transaction, short_lock_waits
from streams.deliver.recovery import Recovered, recover
from streams.deliver.slot import Noted
from streams.errors import LeaseLost
from streams.logs import event
from streams.models import Consumer, Cursor, Delivery
from streams.process.shared.progress_file import (
    SUFFIX,
    Left,
    NotOurs,
    folder,
    left_in,
    locked,
    stem,
)
from streams.steps.sweep import LOCK_WAIT_SECONDS

logger = logging.getLogger("streams.supervisor")

# Seconds between two looks for the files of processes that have died.
LOOK_SECONDS = 1.0
# A file of no use is deleted after so many seconds: all leases have ended long before.
OLD_SECONDS = 86_400.0


class Deaths:
    """The deaths of processes that have consumed from one database on this host."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._look_at = 0.0
        self._unread: set[Path] = set()  # said once

    def noticed(self) -> bool:
        """Tell, once in LOOK_SECONDS, whether a process has died. No statement is made."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        with suppress(OSError):
            for path in self._files():
                with locked(path) as fd:
                    if fd is not None:
                        return True
        return False

    def recover(self) -> int:
        """End the claims of all processes that have died; return how many processes that were.

        A file stays until all claims of its process have ended. What cannot be done now is tried
        again at the next look.
        """
        done = 0
        with suppress(OSError):
            for path in self._files():
                with locked(path) as fd:
                    if fd is None:
                        continue
                    try:
                        left = left_in(fd, self._using)
                    except NotOurs as why:
                        self._leave(path, why)
                        continue
                    if self._end(left):
                        path.unlink()
                        done += 1
        return done

    def _files(self) -> Iterator[Path]:
        for path in sorted(folder().glob(f"{stem(self._using)}*")):
            if path.suffix == SUFFIX and path not in self._unread:
                yield path
            elif time.time() - path.stat().st_mtime > OLD_SECONDS:
                with locked(path) as fd:
                    if fd is not None:
                        path.unlink()

    def _leave(self, path: Path, why: NotOurs) -> None:
        self._unread.add(path)
        logger.warning(
            "%s is not used: %s",
            *(path, why),
            extra=event("progress.unread", database=self._using),
        )

    def _end(self, left: Left) -> bool:
        """End the claims of a process; return False if one of them could not be ended yet."""
        if not left.client_id:  # it has died before its first claim
            return True
        mine = Consumer.objects.using(self._using).filter(client_id=left.client_id)
        groups = retrying(list, self._using, mine.values_list("group", flat=True))
        found: list[Recovered] = []
        named = {noted.delivery for noted in left.slots}
        claims = _claims(left)
        with short_lock_waits(self._using, LOCK_WAIT_SECONDS):
            ended = [
                *(self._recover(one.delivery, one.token, one, found) for one in left.slots),
                *(
                    self._recover(pk, token, claims.get(token), found)
                    for pk, token in self._not_named(left, named)
                ),
            ]
            # A claim whose commit was in flight at the death may have come meanwhile.
            over = all(ended) and self._none_in_flight(left, groups)
            if not over or self._not_named(left, named):
                return False
        retrying(mine.delete, self._using)
        logger.warning(
            "The process %s has died: its calls that had ended are settled, %d messages were in"
            " calls, and %d are given back.",
            left.client_id,
            *(sum(one.repeated for one in found), sum(one.released for one in found)),
            extra=event("process.recovered", client=left.client_id, database=self._using),
        )
        return True

    def _not_named(self, left: Left, named: Collection[int]) -> list[tuple[int, str]]:
        """Return what the process holds that no slot names, as delivery and token.

        It is a claim of which no call had begun, or a part of a claim that a slot names.
        """
        if not left.whole:
            return []
        held = Delivery.objects.using(self._using).held().filter(client_id=left.client_id)
        fresh = held.filter(progress=F("first_offset"), started_at=None).exclude(pk__in=named)
        return retrying(list, self._using, fresh.values_list("pk", "token"))

    def _none_in_flight(self, left: Left, groups: Sequence[int]) -> bool:
        """Wait until each claim is committed or rolled back; return False if that takes too long.

        A claim of new messages holds its cursor until then, and no read sees it before. A retry
        does not, but has spent no attempt before its start.
        """
        if not left.whole:
            return True
        cursors = Cursor.objects.using(self._using)
        # A sweep has deleted the rows of the client: it may have claimed for any group.
        of_groups = cursors.filter(group__in=groups) if groups else cursors
        every = retrying(list, self._using, of_groups.values_list("pk", flat=True))
        try:
            free = self._lock(of_groups.select_for_update(skip_locked=True))
            # One at a time: nobody who claims from another one waits for this wait.
            for pk in set(every).difference(free):
                self._lock(cursors.filter(pk=pk).select_for_update())
        except OperationalError as error:
            if not held_by_others(error, self._using):
                raise
            return False
        return True

    def _lock(self, cursors: QuerySet[Cursor]) -> list[int]:
        """Lock the cursors for a moment; return the ids of those that were locked."""

        def lock() -> list[int]:
            with own_transaction(self._using):
                return list(cursors.values_list("pk", flat=True))

        return retrying(lock, self._using, patience=LOCK_WAIT_SECONDS)

    def _recover(
        self, delivery_id: int, token: str, noted: Noted | None, found: list[Recovered]
    ) -> bool:
        try:
            one = recover(delivery_id, token, noted, self._using)
        except LeaseLost:
            return False
        except OperationalError as error:
            if not held_by_others(error, self._using):
                raise
            return False
        if one is not None:
            found.append(one)
            _tell(one)
        return True


def _claims(left: Left) -> dict[str, Noted]:
    """Return by its token what is known of each claim that may have been split into parts.

    An earlier look may have split a claim around what its call did not get.
    """
    found: dict[str, Noted] = {}
    for one in left.slots:
        if one.begun is not None or one.running:
            known = found.get(one.token, one)
            begun = (one.called if one.begun is None else one.begun) | (known.begun or frozenset())
            found[one.token] = replace(one, begun=begun, done=one.done | known.done)
    return found


def _tell(one: Recovered) -> None:
    delivery = one.delivery
    if one.closed:
        place = delivery.group.topic.name, delivery.group.name
        notices.settled(delivery, one.closed.settlement, one.closed.gone, *place)
    if one.died:
        notices.expired(delivery, one.died)

"""Tells what of a range that is about to be claimed waits for its key, in a group by key."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import NamedTuple

from streams.database.sql import keys as sql
from streams.database.sql.dialect import execute, fetch
from streams.log.held_keys import TOO_MANY, GroupPartition, held, room
from streams.log.keys import keys_of
from streams.models import ConsumerGroup, Cursor
from streams.rules.key import key_hash

# For how long a partition waits, when no more may be parked, before it looks again.
FULL_WAIT = timedelta(seconds=1)


class Claimable(NamedTuple):
    """The end of what may be claimed, and what of it waits, as Delivery.parked has it."""

    end: int
    parked: str | None = None


def held_back(group: ConsumerGroup, cursor: Cursor, end: int, using: str) -> Claimable:
    """Return what of the offsets from the next one of ``cursor`` to ``end`` - 1 waits for its key.

    The caller has locked the cursor, so no key becomes held meanwhile by what it gives out, and
    each statement of this reads what is committed by now. If no more may be parked, the claim ends
    before the first one that cannot; if that is the next one, the cursor waits.
    """
    place, start = GroupPartition(group.pk, cursor.partition_id), cursor.next_offset
    keys = keys_of(cursor.partition_id, start, end, using)
    hashes = {at: key_hash(key) for at, key in keys.items() if key is not None}
    found = held(place, set(hashes.values()), using)
    if not found and not fetch(using, sql.ANY_HELD, place):
        execute(using, sql.NONE_HELD, [cursor.pk])
        return Claimable(end)
    waiting = [at for at, key in hashes.items() if key in found]
    if waiting and len(waiting) > (left := room(group, using)):
        end = waiting[left]
        if end == start:
            attempt, alone = cursor.attempt, cursor.alone
            cursor.return_to(start, attempt, FULL_WAIT, alone=alone, error=TOO_MANY)
        waiting = waiting[:left]
    parked: dict[str, list[int]] = {}
    for at in waiting:
        parked.setdefault(str(hashes[at]), []).append(at)
    if unseen := sorted(set(range(start, end)) - keys.keys()):
        parked[""] = unseen  # the key of each may be held
    return Claimable(end, json.dumps(parked) if parked else None)

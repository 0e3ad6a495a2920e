"""The statements of the sequencer: from the inbox into the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streams.database.sql.dialect import for_each_vendor, numbers

# The partitions that have something due in their inbox; the first statement gives the ids for the
# second. Index: ems_msg_inbox, one jump a partition (a loose index scan, which needs the MIN).
# due_at <= now finds immediate messages (1970) and delayed ones that have become due. As EXISTS
# for each partition it would step over all that is prepared or due later: the servers give a
# correlated subquery no range.
PARTITIONS = "SELECT `id`, `topic_id` FROM `ems_partition`"

_PARTITIONS_WITH_INBOX = for_each_vendor(
    "SELECT `partition_id`, MIN(`due_at`) FROM `ems_msg` {inbox} WHERE `partition_id` IN (%s)"
    " AND `offset` IS NULL AND `due_at` <= {now} GROUP BY `partition_id`"
)


def partitions_with_inbox(vendor: str, ids: Iterable[int]) -> str:
    return _PARTITIONS_WITH_INBOX[vendor].replace("%s", numbers(ids))


# The lock under which offsets are given out: one sequencer a partition. SKIP LOCKED: who does not
# get it has nothing to wait for. The second value makes time never fall as offsets rise.
LOCK_PARTITION = for_each_vendor(
    "SELECT `next_offset`, {greatest}({now}, COALESCE(`last_sequenced_at`, {immediate}))"
    " FROM `ems_partition` WHERE `id` = %s {skip_locked}"
)

# One plain read, so one snapshot: if it holds an effect, it holds the cause, which has the lower
# id. A locking read, or SKIP LOCKED, could see the effect and not the cause. Index: ems_msg_inbox
# alone, in order of id because due_at is one constant.
IMMEDIATE_INBOX = for_each_vendor(
    "SELECT `id` FROM `ems_msg` {inbox} WHERE `partition_id` = %s AND `offset` IS NULL"
    " AND `due_at` = {immediate} ORDER BY `id` LIMIT %s"
)

# Delayed messages that have become due. Locked, since a cancel may hold one in an open
# transaction: that one is left for a later pass instead of stopping the partition.
DUE_INBOX = for_each_vendor(
    "SELECT `id` FROM `ems_msg` {inbox} WHERE `partition_id` = %s AND `offset` IS NULL"
    " AND `due_at` > {immediate} AND `due_at` <= {now} ORDER BY `due_at`, `id` LIMIT %s"
    " {skip_locked}"
)

_ASSIGN = for_each_vendor(
    "UPDATE `ems_msg` {primary} SET `offset` = CASE `id` %s END, `sequenced_at` = %%s"
    " WHERE `id` IN (%s) AND `offset` IS NULL"
)

ADVANCE_PARTITION = (
    "UPDATE `ems_partition` SET `next_offset` = %s, `last_sequenced_at` = %s WHERE `id` = %s"
)


def assign_offsets(vendor: str, ids: Sequence[int], first: int) -> str:
    """Give ids[0] the offset first, ids[1] the next one, and so on; parameter: sequenced_at.

    Only rows that still have none: fewer matches than ids mean that a message was cancelled in
    between, and the pass must be repeated, or it would leave a hole. The numbers stand in the
    text because they are many and integers: as parameters they cost more than the statement.
    """
    cases = " ".join(f"WHEN {id_:d} THEN {offset:d}" for offset, id_ in enumerate(ids, first))
    return _ASSIGN[vendor] % (cases, numbers(ids))

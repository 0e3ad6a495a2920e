"""Sends the staged rows of a write or of a batch: all of them, once, in one transaction.

The ledger row of the transaction says that it is done. So a driver that was killed between its
tasks and this transaction has sent nothing, and one that was killed after it has sent everything:
when Spark repeats the batch, the ledger row is there, and nothing is sent again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from sparkjobs.config import MYSQL, Config
from sparkjobs.database import (
    FOR_UPDATE,
    LOCK_SECONDS,
    NOW,
    Connection,
    connected,
    delete,
    execute,
    fetch,
    transaction,
    vendor_of,
)
from sparkjobs.errors import BadRow, OutcomeUnknown, WriteRefused
from sparkjobs.ledger import take_newest
from sparkjobs.lock import WAIT_SECONDS
from sparkjobs.sink import dedup
from sparkjobs.sink.dedup import Slot
from sparkjobs.sink.staging import TABLE, Staged, forget
from sparkjobs.sink.topics import TargetTopic, setting, writable

# Rows of one INSERT. MariaDB lets other producers wait for the end of an INSERT … SELECT.
MOVED_ROWS = 1000
# A deadlock, and a wait for a lock that took too long: MySQL rolls back, and it may be repeated.
TRANSIENT = {1205, 1213}
TRIES = 5

# The number in the ledger of a write that has none. The nightly purge knows it, too: see
# monitoring/old_staged.py.
UNNUMBERED = -1

# A row of the table: its id, its partition, its dedup slot if it has a key.
Kept = tuple[int, int, Slot | None]


def commit(
    config: Config, name: str, batch: int | None, parts: Sequence[Staged], window: timedelta | None
) -> int:
    """Send what the attempts ``parts`` have staged, in their order; return how many messages.

    ``name`` and ``batch`` are the entry in the ledger; without ``batch`` it is kept until the
    outcome is known. Raises WriteRefused if a topic was changed meanwhile, if staged rows are gone,
    or if a later batch was sent: nothing is sent then. Raises OutcomeUnknown if the connection was
    lost at the end and the database cannot be asked.
    """
    number = UNNUMBERED if batch is None else batch
    with connected(config) as connection:
        if (
            config.vendor == MYSQL
        ):  # as in lock.py: a host that has vanished must not keep its locks
            execute(connection, "SET SESSION wait_timeout = %s", [WAIT_SECONDS])
        slots = sorted(set(_slots(connection, parts)))
        for left in reversed(range(TRIES)):
            is_whole = False
            try:
                dedup.prepare(connection, slots)
                with transaction(connection):
                    sent = 0
                    if take_newest(connection, name, number):
                        sent = _send(connection, f"spark@{name}"[:190], parts, slots, window)
                    is_whole = True
                break
            except Exception as error:
                if _transient(connection, error) and left > 0:
                    continue
                if is_whole and _is_sent(config, name, number, error):
                    break
                raise
        _tidy(connection, name, is_numbered=batch is not None)
    return sent


def _is_sent(config: Config, name: str, number: int, error: Exception) -> bool:
    """Tell whether the transaction is done whose COMMIT has raised ``error``.

    Its entry in the ledger is locked as long as the server has not decided, so this waits. Raises
    OutcomeUnknown.
    """
    try:
        with connected(config) as connection:
            if config.vendor == MYSQL:
                longest = WAIT_SECONDS + LOCK_SECONDS
                execute(connection, "SET SESSION innodb_lock_wait_timeout = %s", [longest])
            statement = "SELECT 1 FROM `ems_monitoring_ledger` WHERE `name` = %s AND `batch` = %s "
            lock = FOR_UPDATE[config.vendor]
            return bool(fetch(connection, statement + lock, [name, number]))
    except Exception:  # noqa: BLE001 - whatever the driver raises
        raise OutcomeUnknown(
            f"{name}: the connection was lost at the end of the transaction, and the database"
            " cannot be asked: all messages are sent, or none. A stream may go on, and a write with"
            " txnAppId may be repeated: they send nothing twice"
        ) from error


def _tidy(connection: Connection, name: str, is_numbered: bool) -> None:
    """Delete the staged rows. Failures are only logged: the messages are already sent."""
    try:
        forget(connection, name)
        if not is_numbered:
            execute(connection, "DELETE FROM `ems_monitoring_ledger` WHERE `name` = %s", [name])
    except Exception as error:  # noqa: BLE001 - whatever the driver raises
        print(
            f"ems: {name} is sent; its staged rows stay until the nightly purge: {error}",
            file=sys.stderr,
            flush=True,
        )


def _send(
    connection: Connection,
    producer: str,
    parts: Sequence[Staged],
    slots: Sequence[Slot],
    window: timedelta | None,
) -> int:
    topics = {topic for part in parts for topic in part.topics}
    if not slots:
        sent = sum(_move(connection, producer, part, part.rows) for part in parts)
        _check_unchanged(connection, topics)
        return sent
    holders = dedup.hold(connection, slots)
    claimed = {slot for slot, holder in holders.items() if holder.taken}
    ((newest,),) = fetch(connection, "SELECT COALESCE(MAX(`id`), 0) FROM `ems_msg`")
    sent = 0
    kept: list[Kept] = []
    for part in parts:
        rows = list(_rows(connection, part))
        if len(rows) != part.rows:
            raise _gone(part, len(rows))
        duplicates = []
        for row in rows:
            if row[2] in claimed:
                duplicates.append(row[0])
                continue
            kept.append(row)
            if row[2] is not None:
                claimed.add(row[2])
        delete(connection, TABLE, duplicates)
        sent += _move(connection, producer, part, part.rows - len(duplicates))
    # The ids rise in the order of the rows, and no earlier message has one of them.
    ids = fetch(
        connection,
        "SELECT `id` FROM `ems_msg` WHERE `id` > %s AND `producer` = %s ORDER BY `id`",
        [newest, producer],
    )
    numbers = {id_: n for topic in topics for n, id_ in enumerate(topic.partitions)}
    taken = [
        (holders[slot], id_, numbers[partition])
        for (id_,), (_row, partition, slot) in zip(ids, kept, strict=True)
        if slot is not None
    ]
    seconds = timedelta(seconds=setting(connection, "dedupWindowSeconds"))
    dedup.take(connection, taken, window or seconds)
    _check_unchanged(connection, topics)
    return sent


def _move(connection: Connection, producer: str, part: Staged, expected: int) -> int:
    """Insert the rows of an attempt into the inbox; return how many. Raises WriteRefused."""
    now = NOW[vendor_of(connection)]
    sent = last = 0
    while True:
        ((end,),) = fetch(
            connection,
            f"SELECT MAX(`id`) FROM (SELECT `id` FROM `{TABLE}` WHERE `mark` = %s AND `id` > %s"  # noqa: S608
            " ORDER BY `id` LIMIT %s) s",
            [part.mark, last, MOVED_ROWS],
        )
        if end is None:
            break
        sent += execute(
            connection,
            "INSERT INTO `ems_msg` (`partition_id`, `due_at`, `key`, `tag`, `headers`, `body`,"  # noqa: S608
            " `body_type`, `size`, `producer`, `created_at`)"
            f" SELECT s.`partition_id`, CASE WHEN s.`due_at` > {now} THEN s.`due_at`"
            " ELSE '1970-01-01 00:00:00' END, s.`key`, s.`tag`, s.`headers`, s.`body`,"
            f" s.`body_type`, s.`size`, %s, {now} FROM `{TABLE}` s"
            " WHERE s.`mark` = %s AND s.`id` > %s AND s.`id` <= %s ORDER BY s.`id`",
            [producer, part.mark, last, end],
        )
        last = end
    if sent != expected:
        raise _gone(part, sent)
    return sent


def _gone(part: Staged, found: int) -> WriteRefused:
    return WriteRefused(
        f"{part.rows} rows were staged and {found} are there: another process has taken this write"
        " over, or it took longer than staged rows are kept"
    )


def _slots(connection: Connection, parts: Iterable[Staged]) -> Iterator[Slot]:
    for part in parts:
        for topic_id, key_hash in fetch(
            connection,
            f"SELECT DISTINCT `topic_id`, `dedup_hash` FROM `{TABLE}`"  # noqa: S608
            " WHERE `mark` = %s AND `dedup_hash` IS NOT NULL",
            [part.mark],
        ):
            yield Slot(topic_id, bytes(key_hash))


def _rows(connection: Connection, part: Staged) -> Iterator[Kept]:
    for id_, partition, topic_id, key_hash in fetch(
        connection,
        f"SELECT `id`, `partition_id`, `topic_id`, `dedup_hash` FROM `{TABLE}`"  # noqa: S608
        " WHERE `mark` = %s ORDER BY `id`",
        [part.mark],
    ):
        yield id_, partition, None if key_hash is None else Slot(topic_id, bytes(key_hash))


def _check_unchanged(connection: Connection, topics: Iterable[TargetTopic]) -> None:
    """Check after the INSERT that the topics are what the tasks have seen; raises WriteRefused.

    The rows wait for the last task, maybe for hours. With the number of partitions, the place of a
    key changes; and a message of a topic that was deleted would be lost: the deletion of a topic
    relies on this (streams/operate/topic_deletion.py).
    """
    for topic in topics:
        try:
            now = writable(connection, topic.name)
        except BadRow as error:
            raise WriteRefused(str(error)) from error
        if now != topic:
            raise WriteRefused(f"the topic {topic.name!r} was changed during the write: repeat it")


def _transient(connection: Connection, error: Exception) -> bool:
    return vendor_of(connection) == MYSQL and bool(error.args) and error.args[0] in TRANSIENT

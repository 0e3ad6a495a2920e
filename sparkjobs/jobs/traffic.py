"""Roll up the traffic: messages, bytes, keys and delayed ones of each partition and minute.

A window is a range of offsets in each partition. Its end is read under a short lock of the
partition, so that later messages have a later time. It begins at the first offset of the minute in
which the last window has ended, and counts that minute once more, as a whole.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkjobs.config import Config
from sparkjobs.database import FOR_UPDATE, Connection, connected, execute, fetch, transaction
from sparkjobs.database import vendor_of as vendor
from sparkjobs.errors import MessagesPurged
from sparkjobs.instants import instant, minute_of, now, stored
from sparkjobs.lock import alone
from sparkjobs.rollup.figures import MESSAGES_OF_TRAFFIC, traffic
from sparkjobs.rollup.messages import Messages
from sparkjobs.rollup.runs import Overtaken, last_done
from sparkjobs.rollup.tables import TRAFFIC, Row
from sparkjobs.rollup.windows import ROLL_UP, Say, Window, roll_up
from sparkjobs.session import session
from sparkjobs.source.request import FAIL
from sparkjobs.source.splits import SourceLog, offset_at

JOB = "traffic"
# The most messages of one window, which a run that is killed has to count again.
WINDOW_MESSAGES = 2_000_000
# How often a window is planned: a purge may run between the plan and the read.
PLANS = 3
MINUTE = timedelta(minutes=1)

# Partition id → its rows, in the order of their offsets.
Laid = dict[int, list[dict[str, Any]]]


@dataclass(frozen=True)
class CountedRange:
    """The offsets ``first`` … ``end`` - 1 of a partition that a window counts.

    ``done`` is where the last window has ended. ``first`` may be before it, at the beginning of
    the minute that was not complete. ``is_rest`` says that the beginning of that minute has been
    purged, and ``is_cut`` that more minutes come after ``end``.
    """

    partition_id: int
    first: int
    end: int
    done: int
    is_new: bool = False
    is_cut: bool = False
    is_rest: bool = False

    @property
    def missed(self) -> int:
        """Return how many messages were purged uncounted; 0 for a partition that is new here."""
        return 0 if self.is_new else max(0, self.first - self.done)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what it would count")


def run(config: Config, options: Namespace) -> int:
    config = config.everywhere()  # the figures name topics and groups by their ids
    with connected(config) as connection:
        if options.dry_run:
            stretches, more = plan(connection)
            count = sum(stretch.end - stretch.first for stretch in stretches)
            then = ", and then there are more" if more else ""
            print(f"{JOB}: {count:,} messages of {len(stretches):,} partitions{then}")
            return 0
        with alone(config, ROLL_UP):
            roll_up_traffic(session(JOB), config, connection, print)
    return 0


def roll_up_traffic(
    spark: SparkSession,
    config: Config,
    connection: Connection,
    say: Say,
    messages: Messages | None = None,
) -> None:
    source = messages or Messages(spark, config)
    roll_up(JOB, connection, lambda: window(source, connection), say)


def window(messages: Messages, connection: Connection) -> Window:
    """Compute the next window."""
    since, until = last_done(connection, JOB, "until"), now(connection)
    stretches, more = plan(connection)
    for attempt in range(PLANS):
        try:
            rows = _count(messages, stretches)
            break
        except (PySparkException, MessagesPurged) as error:
            messages.forget()  # they may not be read to their end
            if "Purged" not in f"{type(error).__name__}: {error}" or attempt == PLANS - 1:
                raise
            stretches, more = plan(connection)
    by_partition = _laid_end_to_end(rows, stretches)
    _leave_out_counted_keys(connection, stretches, by_partition)
    laid = [row for of_partition in by_partition.values() for row in of_partition]
    read = sum(row["messages"] for row in laid)
    return Window(
        about=f"{read:,} messages of {len(stretches):,} partitions, {len(laid):,} rows",
        figures=[(TRAFFIC, laid)],
        values={
            "since": since,
            # Until then all is counted: a window that others follow has left out some.
            "until": since if more else until,
            "read": read,
            "missed": sum(stretch.missed for stretch in stretches),
        },
        move=lambda connection: _move(connection, stretches, by_partition),
        more=more,
    )


def plan(connection: Connection) -> tuple[list[CountedRange], bool]:
    """Return what the next window counts of partitions with new messages, and if there is more."""
    most = WINDOW_MESSAGES
    rows = fetch(
        connection,
        "SELECT p.`id`, p.`first_offset`, p.`next_offset`, d.`open_offset`, d.`next_offset`"
        " FROM `ems_partition` p"
        " LEFT JOIN `ems_monitoring_position` d ON d.`partition_id` = p.`id` ORDER BY p.`id`",
    )
    stretches: list[CountedRange] = []
    for partition_id, floor, seen, open_offset, ended in rows:
        done = ended or 0
        if seen <= done:
            continue
        if most <= 0:
            return stretches, True
        end = _end(connection, partition_id)
        # If the beginning of a minute was purged, its rest gets a separate row.
        again = open_offset is not None and open_offset >= floor
        first = open_offset if again else max(floor, done)
        cut = _end_of_minute(connection, partition_id, max(first, done) + most, end)
        stretches.append(
            CountedRange(
                partition_id,
                first,
                cut,
                done,
                is_new=ended is None,
                is_cut=cut < end,
                is_rest=not again and open_offset is not None,
            )
        )
        most -= cut - first
    return stretches, any(stretch.is_cut for stretch in stretches)


def _end_of_minute(connection: Connection, partition_id: int, offset: int, end: int) -> int:
    """Return the end of the minute of the last message before ``offset``; at most ``end``.

    A minute is never cut, since the different keys of two parts of it do not add up.
    """
    if offset >= end:
        return end
    rows = fetch(
        connection,
        "SELECT `sequenced_at` FROM `ems_msg` WHERE `partition_id` = %s AND `offset` >= %s"
        " AND `offset` < %s ORDER BY `offset` LIMIT 1",
        [partition_id, offset - 1, end],
    )
    last = instant(rows[0][0]) if rows else None
    if last is None:
        return end
    return offset_at(
        connection, SourceLog(partition_id, "", 0, offset, end), minute_of(last) + MINUTE
    )


def _end(connection: Connection, partition_id: int) -> int:
    """Return the end of the log, under a lock that keeps the sequencer out."""
    statement = "SELECT `next_offset` FROM `ems_partition` WHERE `id` = %s "
    with transaction(connection):
        rows = fetch(connection, statement + FOR_UPDATE[vendor(connection)], [partition_id])
    return int(rows[0][0])


def _count(messages: Messages, stretches: Iterable[CountedRange]) -> list[Row]:
    spans = {stretch.partition_id: [(stretch.first, stretch.end)] for stretch in stretches}
    if not spans:
        return []
    log = messages.exactly(spans, MESSAGES_OF_TRAFFIC, FAIL)
    found: list[Row] = traffic(log).toArrow().to_pylist()
    return found


def _laid_end_to_end(rows: Iterable[Row], stretches: Iterable[CountedRange]) -> Laid:
    """Return the rows of each partition, each ending where the next begins, also at a hole."""
    laid: Laid = {stretch.partition_id: [] for stretch in stretches}
    for row in sorted(rows, key=lambda row: (row["partition_id"], row["first_offset"])):
        laid[row["partition_id"]].append(dict(row))
    for stretch in stretches:
        of_partition = laid[stretch.partition_id]
        ends = [row["first_offset"] for row in of_partition[1:]] + [stretch.end]
        for row, end in zip(of_partition, ends, strict=False):
            row["end_offset"] = end
        if of_partition:
            of_partition[0]["first_offset"] = stretch.first
    return laid


def _leave_out_counted_keys(
    connection: Connection, stretches: Iterable[CountedRange], rows: Laid
) -> None:
    """Let the keys of the rest of a minute be those that it has more than the part before it.

    Which keys that part had is not known any more: so the keys of a minute are never too many.
    """
    for stretch in stretches:
        if stretch.is_rest and (of_partition := rows[stretch.partition_id]):
            row = of_partition[0]
            ((before,),) = fetch(
                connection,
                "SELECT SUM(`keys`) FROM `ems_monitoring_traffic`"
                " WHERE `partition_id` = %s AND `minute` = %s AND `first_offset` < %s",
                [stretch.partition_id, stored(row["minute"]), row["first_offset"]],
            )
            row["keys"] = max(0, row["keys"] - int(before or 0))


def _move(
    connection: Connection,
    stretches: Iterable[CountedRange],
    rows: Laid,
) -> None:
    """Record where the next window begins; raises Overtaken if another run has moved it."""
    for stretch in stretches:
        of_partition = rows[stretch.partition_id]
        open_offset = of_partition[-1]["first_offset"] if of_partition else stretch.end
        if stretch.is_cut:
            open_offset = stretch.end  # its last minute is whole
        if stretch.is_new:
            execute(
                connection,
                "INSERT INTO `ems_monitoring_position`"
                " (`open_offset`, `next_offset`, `partition_id`) VALUES (%s, %s, %s)",
                [open_offset, stretch.end, stretch.partition_id],
            )
        elif not execute(
            connection,
            "UPDATE `ems_monitoring_position` SET `open_offset` = %s, `next_offset` = %s"
            " WHERE `partition_id` = %s AND `next_offset` = %s",
            [open_offset, stretch.end, stretch.partition_id, stretch.done],
        ):
            raise Overtaken

"""Records which files are the lake, and how far each partition is in it.

Readers read exactly the files that the manifest names. So files that a killed process has left, and
those that a compaction has replaced, are never read, and a change of many files is seen at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sparkjobs.archive.manifest import DayPart, folder
from sparkjobs.config import Config
from sparkjobs.database import (
    FOR_UPDATE,
    NOW,
    Connection,
    delete,
    execute,
    fetch,
    insert,
    transaction,
    vendor_of,
)
from sparkjobs.instants import now, stored

ROWS = 500


@dataclass(frozen=True)
class LakeProgress:
    """How far a partition is: offsets ``first`` … ``end`` - 1 are or were in the lake.

    The lake goes on at ``next``: what is archived is not written to the lake any more.
    """

    partition_id: int
    archived: int
    first: int | None = None
    end: int = 0

    @property
    def next(self) -> int:
        return max(self.archived, self.end)


@dataclass(frozen=True)
class ManifestFile:
    """One file of a day of a topic; ``version`` is that of its columns."""

    topic: str
    day: date
    path: str
    messages: int
    bytes: int
    size: int
    version: int
    id: int = 0


def root(config: Config) -> str:
    """Return the folder or URL of the lake; raises BadConfig if there is none for the archive."""
    # Spark leaves out folders that begin with "_" where it reads the archive.
    return f"{folder(config)}/_lake"


def positions(connection: Connection) -> dict[int, LakeProgress]:
    """Return how far the partitions of all topics are that are set to be archived."""
    rows = fetch(
        connection,
        "SELECT p.`id`, p.`archived_offset`, l.`first_offset`, l.`next_offset`"
        " FROM `ems_partition` p JOIN `ems_topic` t ON t.`id` = p.`topic_id`"
        " LEFT JOIN `ems_monitoring_lake_position` l ON l.`partition_id` = p.`id`"
        " WHERE t.`archive` = %s",
        [True],
    )
    return {row[0]: LakeProgress(row[0], row[1], row[2], row[3] or 0) for row in rows}


def add(
    connection: Connection,
    config: Config,
    known: Mapping[int, LakeProgress],
    ranges: Mapping[int, tuple[int, int]],
    files: Sequence[ManifestFile],
) -> bool:
    """Make files a part of the lake, in one transaction; return False if they may not be.

    They may not if a partition is not where ``known`` says: another process has moved it, or the
    archive has taken over. ``ranges``: by partition the first offset in the files, and the end.
    """
    with transaction(connection):
        if any(known[id_] != at for id_, at in _locked(connection, ranges).items()):
            return False
        for id_, range_ in ranges.items():
            _move(connection, known[id_], *range_)
        _insert(connection, config, files)
    return True


def replace(
    connection: Connection, config: Config, old: Sequence[ManifestFile], new: Sequence[ManifestFile]
) -> bool:
    """Put ``new`` in the place of ``old``, at once; return False if ``old`` is not all there."""
    with transaction(connection):
        retired = sum(
            execute(
                connection,
                f"UPDATE `ems_monitoring_lake` SET `retired_at` = {NOW[vendor_of(connection)]}"  # noqa: S608
                " WHERE `id` = %s AND `retired_at` IS NULL",
                [file.id],
            )
            for file in old
        )
        if retired != len(old):
            connection.rollback()
            return False
        _insert(connection, config, new)
    return True


def retire_day(connection: Connection, config: Config, topic: str, day: date) -> None:
    """Take the files of a day out of the lake, inside the transaction that archives the day."""
    execute(
        connection,
        f"UPDATE `ems_monitoring_lake` SET `retired_at` = {NOW[vendor_of(connection)]}"  # noqa: S608
        " WHERE `topic` = %s AND `day` = %s AND `retired_at` IS NULL",
        [config.prefix + topic, day.isoformat()],
    )


def of_day(connection: Connection, config: Config, topic: str, day: date) -> list[ManifestFile]:
    """Return the files of one day of a topic, those with the fewest bytes first."""
    rows = fetch(
        connection,
        "SELECT `path`, `messages`, `bytes`, `size`, `version`, `id` FROM `ems_monitoring_lake`"
        " WHERE `topic` = %s AND `day` = %s AND `retired_at` IS NULL ORDER BY `size`, `id`",
        [config.prefix + topic, day.isoformat()],
    )
    return [ManifestFile(topic, day, *row) for row in rows]


def covers(connection: Connection, parts: Iterable[DayPart]) -> bool:
    """Tell whether all offsets of these parts have come into the lake."""
    found = positions(connection)
    return all(
        (position := found.get(part.partition_id)) is not None
        and position.first is not None
        and position.first <= part.first
        and part.end <= position.end
        for part in parts
    )


def retired_before(connection: Connection, instant: datetime) -> list[ManifestFile]:
    """Return the files that left the lake before ``instant``, of all namespaces.

    Their topics have the prefixes of their namespaces.
    """
    rows = fetch(
        connection,
        "SELECT `topic`, `day`, `path`, `messages`, `bytes`, `size`, `version`, `id`"
        " FROM `ems_monitoring_lake` WHERE `retired_at` < %s ORDER BY `id`",
        [stored(instant)],
    )
    return [ManifestFile(topic, as_day(day), *rest) for topic, day, *rest in rows]


def has_files(connection: Connection, stored_topic: str, day: date) -> bool:
    """Tell whether a day of a topic, named with its prefix, has files in the manifest."""
    statement = "SELECT 1 FROM `ems_monitoring_lake` WHERE `topic` = %s AND `day` = %s LIMIT 1"
    return bool(fetch(connection, statement, [stored_topic, day.isoformat()]))


def forget(connection: Connection, files: Sequence[ManifestFile]) -> None:
    """Delete the rows of files that are deleted."""
    delete(connection, "ems_monitoring_lake", [file.id for file in files])


def as_day(value: date | str) -> date:
    """Return a day that a database gave."""
    return date.fromisoformat(value) if isinstance(value, str) else value


def _locked(connection: Connection, ids: Iterable[int]) -> dict[int, LakeProgress]:
    """Return how far these partitions are; nobody moves them until the transaction ends."""
    found: dict[int, LakeProgress] = {}
    chosen = sorted(ids)
    for start in range(0, len(chosen), ROWS):
        part = chosen[start : start + ROWS]
        places = ", ".join(["%s"] * len(part))
        lock = FOR_UPDATE[vendor_of(connection)]
        # Whoever moves one has locked its partition.
        rows = fetch(
            connection,
            "SELECT `id`, `archived_offset` FROM `ems_partition`"  # noqa: S608 - places
            f" WHERE `id` IN ({places}) ORDER BY `id` {lock}",
            part,
        )
        places_of = fetch(
            connection,
            "SELECT `partition_id`, `first_offset`, `next_offset`"  # noqa: S608 - places
            f" FROM `ems_monitoring_lake_position` WHERE `partition_id` IN ({places})",
            part,
        )
        lakes = {id_: (first, end) for id_, first, end in places_of}
        found |= {
            id_: LakeProgress(id_, archived, *lakes.get(id_, (None, 0))) for id_, archived in rows
        }
    return found


def _move(connection: Connection, known: LakeProgress, first: int, end: int) -> None:
    if known.first is None:
        insert(
            connection,
            "ems_monitoring_lake_position",
            ("partition_id", "first_offset", "next_offset"),
            [(known.partition_id, first, end)],
        )
        return
    # What lies between is not in the lake: what the lake holds without a gap begins anew.
    begins = first if first > known.end else known.first
    execute(
        connection,
        "UPDATE `ems_monitoring_lake_position` SET `first_offset` = %s, `next_offset` = %s"
        " WHERE `partition_id` = %s",
        [begins, end, known.partition_id],
    )


def _insert(connection: Connection, config: Config, files: Sequence[ManifestFile]) -> None:
    columns = ("topic", "day", "path", "messages", "bytes", "size", "version", "added_at")
    added = stored(now(connection))
    rows = [
        (
            *(config.prefix + file.topic, file.day.isoformat(), file.path),
            *(file.messages, file.bytes, file.size, file.version, added),
        )
        for file in files
    ]
    for start in range(0, len(rows), ROWS):
        insert(connection, "ems_monitoring_lake", columns, rows[start : start + ROWS])

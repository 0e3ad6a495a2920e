"""Reads the lake: archived days, and the files of the days that are not archived yet.

    from sparkjobs.lake.reading import lake

    messages = lake(spark, Config.load(), topics=["flights"], since=date(2026, 11, 1))

The list of files is that of one moment, so each message is in it once. Load it again to see newer
messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from pyspark.sql import DataFrame, SparkSession

from sparkjobs import storage
from sparkjobs.archive.manifest import folder, is_own
from sparkjobs.config import Config
from sparkjobs.database import connected, fetch
from sparkjobs.errors import ArchiveDiffers
from sparkjobs.lake.manifest import as_day, root
from sparkjobs.source.schemas import MESSAGES

EVER, NEVER = date.min, date.max


def lake(
    spark: SparkSession,
    config: Config,
    topics: Iterable[str] | None = None,
    since: date = EVER,
    until: date = NEVER,
) -> DataFrame:
    """Return the messages of these topics (None: all), of the days ``since`` … ``until`` in UTC.

    Both days are included. Raises ArchiveDiffers if a newer version of EMS has written a file.
    """
    chosen = None if topics is None else set(topics)
    archived: set[str] = set()
    live: list[str] = []
    with connected(config) as connection:
        # One statement sees one moment: a day is here or there.
        rows = fetch(
            connection,
            "SELECT `topic`, `day`, '' AS `path`, 0 AS `version`, SUM(`messages`)"
            " FROM `ems_monitoring_archive` WHERE `day` >= %s AND `day` <= %s"
            " GROUP BY `topic`, `day`"
            " UNION ALL SELECT `topic`, `day`, `path`, `version`, `messages`"
            " FROM `ems_monitoring_lake`"
            " WHERE `day` >= %s AND `day` <= %s AND `retired_at` IS NULL",
            [since.isoformat(), until.isoformat()] * 2,
        )
    for stored, day, path, version, messages in rows:
        topic = stored.removeprefix(config.prefix)
        if not is_own(config, stored) or (chosen is not None and topic not in chosen):
            continue
        if version > storage.SCHEMA_VERSION:
            raise ArchiveDiffers(f"{path}: version {version} of the columns is not known here")
        if path:
            live.append(path)
        elif messages:  # a day without messages has no folder
            archived.add(storage.place(as_day(day), topic))
    whole = storage.read(spark, folder(config), sorted(archived)).select(*MESSAGES.names)
    return whole.unionByName(storage.read(spark, root(config), live).select(*MESSAGES.names))

"""Holds the raw statements of the alarms: the ORM has no LIMIT in a part of a statement.

After an outage there may be millions of recent failures. Each statement reads at most as many of
the newest as its parameter says.
"""

from __future__ import annotations

from streams.database.sql.dialect import (
    LATER,
    MYSQL,
    NOW,
    SQLITE,
    USE_LETTERS,
    USE_OPEN,
)

USE_DIED = {MYSQL: "FORCE INDEX (ems_dead_died)", SQLITE: "INDEXED BY ems_dead_died"}

# Counts dead letters since a time by group and class. Index: ems_dead_died, a range. Parameters:
# since, at most.
_NEW_DEAD_LETTERS = (
    "SELECT `group_id`, `error_class`, COUNT(*) FROM (SELECT `group_id`, `error_class`"
    " FROM `ems_dead_msg` {died} WHERE `died_at` > {since} ORDER BY `died_at` DESC LIMIT %s)"
    " AS `newest` GROUP BY `group_id`, `error_class`"
)

# Reads the newest letter of a group that nobody has redriven, if it died since a time. Index:
# ems_dead_waiting, one entry. Parameters: group, since.
_NEWEST_LETTER = (
    "SELECT `group_id`, `error_class`, 1 FROM (SELECT `group_id`, `error_class`, `died_at`"
    " FROM `ems_dead_msg` {letters} WHERE `group_id` = %s AND `redriven_at` IS NULL"
    " ORDER BY `id` DESC LIMIT 1) AS `newest` WHERE `died_at` > {since}"
)

# Counts expired deliveries by group, with the id of the newest. Index: ems_log_open, three ranges
# of those that failed, by their deadline. A call that is too long has passed its deadline. Of one
# that ended with its process the deadline is to come: soon or late, as the timeout of its group is
# short or long. From both ends, the failures of one group do not hide the calls of another. Only
# the sweep ends a delivery without its token. Parameters: since, then at most three times, since.
_RANGES = {
    "past": "`deadline` > {since} AND `deadline` <= {now} ORDER BY `deadline` DESC",
    "soon": "`deadline` > {now} ORDER BY `deadline`",
    "late": "`deadline` > {now} ORDER BY `deadline` DESC",
}
_FAILED = " UNION ".join(
    "SELECT * FROM (SELECT `group_id`, `id`, `token`, `finished_at` FROM `ems_topic_group_log`"  # noqa: S608
    f" {{open}} WHERE `state` = 'RETRY' AND {range_} LIMIT %s) AS `{name}`"
    for name, range_ in _RANGES.items()
)
_EXPIRED = (
    f"SELECT `group_id`, COUNT(*), MAX(`id`) FROM ({_FAILED}) AS `failed`"  # noqa: S608
    " WHERE `token` = '' AND `finished_at` > {since} GROUP BY `group_id`"
)

NEW_DEAD_LETTERS, NEWEST_LETTER, EXPIRED = (
    {
        vendor: template.format(
            since=LATER[vendor],
            now=NOW[vendor],
            died=USE_DIED[vendor],
            letters=USE_LETTERS[vendor],
            open=USE_OPEN[vendor],
        )
        for vendor in (MYSQL, SQLITE)
    }
    for template in (_NEW_DEAD_LETTERS, _NEWEST_LETTER, _EXPIRED)
)

"""Holds the raw statements of the alarms: the ORM has no LIMIT in a part of a statement.

After an outage there may be millions of recent failures. Each statement reads at most as many of
the newest as its parameter says.
"""

from __future__ import annotations

from streams.database.sql.dialect import LATER, MYSQL, SQLITE, USE_OPEN

USE_DIED = {MYSQL: "FORCE INDEX (ems_dead_died)", SQLITE: "INDEXED BY ems_dead_died"}

# Counts dead letters since a time by group and class. Index: ems_dead_died, a range. Parameters:
# since, at most.
_NEW_DEAD_LETTERS = (
    "SELECT `group_id`, `error_class`, COUNT(*) FROM (SELECT `group_id`, `error_class`"
    " FROM `ems_dead_msg` {died} WHERE `died_at` > {since} ORDER BY `died_at` DESC LIMIT %s)"
    " AS `newest` GROUP BY `group_id`, `error_class`"
)

# Counts expired deliveries by group, with the id of the newest. Index: ems_log_open, a range of
# those that failed, by their deadline: the deadline of a delivery that expires is near, or still to
# come. Only the sweep ends a delivery without its token. Parameters: since, at most, since.
_EXPIRED = (
    "SELECT `group_id`, COUNT(*), MAX(`id`) FROM (SELECT `group_id`, `id`, `token`, `finished_at`"
    " FROM `ems_topic_group_log` {open} WHERE `state` = 'RETRY' AND `deadline` > {since}"
    " ORDER BY `deadline` DESC LIMIT %s) AS `newest`"
    " WHERE `token` = '' AND `finished_at` > {since} GROUP BY `group_id`"
)

NEW_DEAD_LETTERS, EXPIRED = (
    {
        vendor: template.format(since=LATER[vendor], died=USE_DIED[vendor], open=USE_OPEN[vendor])
        for vendor in (MYSQL, SQLITE)
    }
    for template in (_NEW_DEAD_LETTERS, _EXPIRED)
)

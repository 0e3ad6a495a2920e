"""Holds the raw statements of a task's run: the ORM takes longer for them than the server does.

All name one row: by its unique key ems_task_result, and then by its primary key.
"""

from __future__ import annotations

from streams.database.sql.dialect import MYSQL, NOW, SQLITE

_COLUMNS = (
    "`result_id`, `message_id`, `partition`, `offset`, `backend`, `queue`, `path`, `priority`,"
    " `batch_id`, `arguments`, `run_after`, `status`, `enqueued_at`, `started_at`,"
    " `last_attempted_at`, `attempts`, `attempts_before`, `token`, `worker_ids`,"
    " `errors`, `metadata`, `copies`"
)

# Records the first start of a task. Unique key: ems_task_result; if the row is there nothing is
# written, and it is read. Without IGNORE, by which a server leaves out, or cuts off, what a column
# does not take: a message that somebody else has sent may have any values.
INSERT_RUN = (
    f"INSERT INTO `ems_task` ({_COLUMNS})"  # noqa: S608
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 'RUNNING', %s, %s, %s, 1, 0, %s, %s,"
    " '[]', %s, 0)"
)

# Reads what the next attempt goes on from. Unique key: ems_task_result.
READ_RUN = (
    "SELECT `id`, `status`, `token`, `attempts`, `attempts_before`, `worker_ids`, `errors`,"
    " `metadata`, `started_at`, `cancelled_at` FROM `ems_task` WHERE `result_id` = %s"
)

# Records the start of a further attempt, unless another one has begun since the row was read, or
# the task was cancelled while it waited. The attempts of a round are all told that it was cancelled
# while it ran. Primary key.
START_RUN = (
    "UPDATE `ems_task` SET `status` = 'RUNNING', `token` = %s, `attempts` = %s,"
    " `attempts_before` = %s, `worker_ids` = %s, `started_at` = %s, `last_attempted_at` = %s,"
    " `finished_at` = NULL, `cancelled_at` = CASE WHEN %s THEN NULL ELSE `cancelled_at` END,"
    " `partition` = %s, `offset` = %s WHERE `id` = %s AND `token` = %s AND `status` = %s"
)

# Records the end of an attempt. Only who holds the token may: after a lost lease another process
# runs the task. It runs, or waits for an attempt that it does not get. Primary key.
END_RUN = (
    "UPDATE `ems_task` SET `status` = %s, `finished_at` = %s, `errors` = %s, `return_value` = %s,"
    " `metadata` = %s, `attempts` = %s, `worker_ids` = %s"
    " WHERE `id` = %s AND `token` = %s AND `status` = %s"
)

# Tells whether the end was written before by this holder, whose reply was lost. Primary key.
ENDED_RUN = "SELECT 1 FROM `ems_task` WHERE `id` = %s AND `token` = %s AND `status` = %s"

# Records what a running task says of itself. Primary key.
SAVE_METADATA = (
    "UPDATE `ems_task` SET `metadata` = %s WHERE `id` = %s AND `token` = %s"
    " AND `status` = 'RUNNING'"
)

# Asks whether somebody has cancelled a running task. Primary key.
IS_CANCELLED = "SELECT `cancelled_at` IS NOT NULL FROM `ems_task` WHERE `id` = %s"

# Takes the first free slot of a key, one of those that its limit allows. Whoever else takes one of
# this key is waited for. Unique key: ems_task_slot_place (key_hash, number).
_TAKEN = (
    "UPDATE `ems_task_slot` SET `token` = %s, `topic` = %s, `partition` = %s, `offset` = %s,"
    " `taken_at` = {now} WHERE "
)
_FREE = "`key_hash` = %s AND `number` < %s AND `token` = 0 ORDER BY `number` LIMIT 1"
_FIRST_FREE = f"`id` = (SELECT `id` FROM `ems_task_slot` WHERE {_FREE})"  # noqa: S608
TAKE_SLOT = {
    MYSQL: _TAKEN.format(now=NOW[MYSQL]) + _FREE,
    SQLITE: _TAKEN.format(now=NOW[SQLITE]) + _FIRST_FREE,
}

# Reads the slots of a key. Unique key: ems_task_slot_place.
SLOTS = (
    "SELECT `id`, `number`, `token`, `topic`, `partition`, `offset` FROM `ems_task_slot`"
    " WHERE `key_hash` = %s ORDER BY `number`"
)

# Makes a free slot, unless another process has. Unique key: ems_task_slot_place.
INSERT_SLOT = {
    vendor: (
        f"INSERT {ignore} INTO `ems_task_slot` (`key_hash`, `number`, `token`, `topic`,"  # noqa: S608
        " `partition`, `offset`) VALUES (%s, %s, 0, 0, 0, 0)"
    )
    for vendor, ignore in ((MYSQL, "IGNORE"), (SQLITE, "OR IGNORE"))
}

# Takes the slot of a task that nobody runs, unless another process has. Primary key.
TAKE_OVER_SLOT = (
    "UPDATE `ems_task_slot` SET `token` = %s, `topic` = %s, `partition` = %s, `offset` = %s"
    " WHERE `id` = %s AND `token` = %s"
)

# Frees the slot of a key that this token holds. Unique key: ems_task_slot_place.
FREE_SLOT = "UPDATE `ems_task_slot` SET `token` = 0 WHERE `key_hash` = %s AND `token` = %s"

# Lets a task that was given out anew be ready, while it waits for a slot, unless it was cancelled
# since the row was read. Primary key.
BEGIN_ROUND = (
    "UPDATE `ems_task` SET `status` = 'READY', `attempts_before` = `attempts`,"
    " `finished_at` = NULL, `cancelled_at` = NULL"
    " WHERE `id` = %s AND `token` = %s AND `status` = %s"
)

"""Mutants of broadcast groups: how clients with a position of their own lose messages."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

FILE = "streams/process/broadcast/file.py"
READER = "streams/process/broadcast/reader.py"
OF_FILE = "tests/runtime/broadcast/test_file.py"
OF_READER = "tests/runtime/broadcast/test_reader.py"

BROADCAST = [
    Mutant(
        "latest-not-written-down",
        READER,
        "        self._look()\n        self._positions.save()\n",
        "        self._look()\n",
        f"{OF_READER}::test_latest_is_remembered_even_if_nothing_came",
    ),
    Mutant(
        "new-partition-from-its-end",
        READER,
        "setdefault(row.number, Position(0))",
        "setdefault(row.number, self._start(row))",
        f"{OF_READER}"
        "::test_a_partition_that_was_added_while_the_client_was_away_is_read_from_its_beginning",
    ),
    # After a restore the same offset and the same id are given out again, to another message.
    Mutant(
        "restore-seen-by-the-id-alone",
        READER,
        "found != (position.message_id, position.sequenced_at)",
        "found[0] != position.message_id",
        f"{OF_READER}::test_a_restored_database_is_noticed_when_it_has_outgrown_the_position",
    ),
    Mutant(
        "late-replica-taken-for-a-restore",
        READER,
        "            row = self._log.on_primary(row)  # a replica may be behind\n",
        "            pass\n",
        f"{OF_READER}::test_a_replica_that_is_late_is_not_taken_for_a_restored_database",
        "mysql",
    ),
    Mutant(
        "purge-passed-over-in-silence",
        "streams/process/broadcast/handling.py",
        "            stretch.last_offset = min(absent) - 1\n",
        "            absent = set()\n",
        f"{OF_READER}::test_a_purge_between_the_look_and_the_read_is_noticed",
    ),
    Mutant(
        "position-not-forced-to-the-disk",
        "streams/state_files.py",
        "            os.fsync(file.fileno())\n",
        "",
        f"{OF_FILE}::test_the_new_positions_are_on_the_disk_before_they_have_the_name",
    ),
    Mutant(
        "name-held-by-a-forked-child",
        FILE,
        "os.register_at_fork(after_in_child=_forget_locks)\n",
        "",
        f"{OF_FILE}::test_a_child_that_is_forked_does_not_hold_the_name",
    ),
]

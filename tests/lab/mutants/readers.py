"""Lists the mutants of known streams: what a purge waits for, and what a row may say."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

KNOWN = "sparkjobs/source/known.py"
FLOOR = "streams/retain/purge_floor.py"
CALLS = "tests/spark/test_known.py"
ROWS = "tests/streams/test_readers.py"

READERS = [
    Mutant(
        "stream-not-waited-for",
        FLOOR,
        "    for reader in protecting(topic, using):\n",
        "    for reader in protecting(topic, using).none():\n",
        f"{ROWS}::test_a_purge_never_passes_a_stream_that_protects",
    ),
    # A forgotten query would fill the disk.
    Mutant(
        "stream-waited-for-for-ever",
        FLOOR,
        "    return readers.filter(seen_at__gt=UtcNow(-protect_time(using)))\n",
        "    return readers\n",
        f"{ROWS}::test_a_stream_that_is_forgotten_holds_nothing_after_its_time",
    ),
    Mutant(
        "new-partition-counts-as-read",
        "streams/models/reader.py",
        "self.positions.get(str(partition), 0)",
        "self.positions.get(str(partition), 2**62)",
        f"{ROWS}::test_a_partition_that_a_stream_has_not_come_to_yet_is_kept_whole",
    ),
    Mutant(
        "force-passes-stream",
        "streams/retain/forced_purge.py",
        "            self._target = min(self._target, reader.position(locked.pk))\n",
        "            continue\n",
        f"{ROWS}::test_a_forced_purge_stops_at_it_too_and_skips_no_group_beyond",
    ),
    # What is planned may be read again after a kill.
    Mutant(
        "row-ahead-of-checkpoint",
        KNOWN,
        "            self._note(id_, places)\n        return",
        "            self._note(id_, end)\n        return",
        f"{CALLS}::test_a_row_has_what_is_committed_and_nothing_before_the_first_batch_is_planned",
    ),
    Mutant(
        "restart-gets-a-new-row",
        KNOWN,
        "ID: id_ or self.new",
        "ID: self.new",
        f"{CALLS}::test_a_restart_goes_on_in_its_row_and_other_checkpoints_have_their_own",
    ),
    Mutant(
        "row-of-no-checkpoint",
        KNOWN,
        "        if id_ and (self.noted or id_ != self.new):\n",
        "        if id_:\n",
        f"{CALLS}::test_a_row_has_what_is_committed_and_nothing_before_the_first_batch_is_planned",
    ),
    Mutant(
        "protection-lost-in-silence",
        KNOWN,
        "            if self.request.protect:\n",
        "            if self.request.protect is None:\n",
        f"{CALLS}::test_a_stream_that_protects_and_cannot_say_where_it_is_ends",
    ),
]

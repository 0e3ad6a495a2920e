"""Lists the mutants of topics that move to another database."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

COPY = "streams/operate/topic_copy.py"
MOVE = "streams/operate/topic_move.py"
MOVES = "tests/guarantees/test_moves.py"

MOVED = [
    # Two messages would have one offset: of a process that had the new routes too early.
    Mutant(
        "move-onto-a-log-with-messages",
        COPY,
        "        if obstacles := list(self.obstacles()):\n",
        "        if False:\n",
        f"{MOVES}::test_a_message_that_is_sent_there_at_the_last_moment_stays_and_so_does_the_topic",
    ),
    # What is committed late would come into a log that nobody reads any more.
    Mutant(
        "move-under-an-open-send",
        MOVE,
        "sum(self._count_inbox(partition) for partition in self._lock_partitions())",
        "0 * len(self._lock_partitions())",
        f"{MOVES}::test_a_transaction_that_has_sent_and_is_open_keeps_the_topic_here",
        "mysql",
    ),
    # The topic would be open on both databases.
    Mutant(
        "move-given-up-may-still-land",
        MOVE,
        "not self._bar(move)",
        "self._has_landed(move)",
        f"{MOVES}::test_a_run_that_was_frozen_writes_nothing_once_the_move_was_given_up",
    ),
    # A second run would write the topic again, over what the first one has opened.
    Mutant(
        "move-begun-anew-after-another-has-ended",
        MOVE,
        "            if ended := self._ended():\n",
        "            if False:\n",
        f"{MOVES}::test_a_move_that_another_run_has_ended_meanwhile_is_not_begun_anew",
    ),
    # A cancel() of an old message would take back a new one.
    Mutant(
        "move-lets-ids-begin-again",
        COPY,
        "        self._keep_ids_apart(partitions)\n",
        "",
        f"{MOVES}::test_an_id_of_the_old_database_names_no_message_of_the_new_one",
    ),
    # What comes once the locks are lost would be left behind.
    Mutant(
        "move-committed-without-its-locks",
        MOVE,
        "nothing is committed there.\n                self._lock()\n",
        "nothing is committed there.\n",
        f"{MOVES}::test_a_group_that_comes_while_the_locks_are_lost_goes_along",
        "mysql",
    ),
    # A retry that is claimed, and fails again, would stay in the log that nobody reads.
    Mutant(
        "move-counts-only-waiting-retries",
        MOVE,
        "moved_retries.left(",
        "moved_retries.waiting(",
        f"{MOVES}::test_a_retry_that_is_claimed_at_the_last_moment_keeps_the_topic_here",
    ),
    # A group that was made there too early would ask for offsets that are in the other log.
    Mutant(
        "move-forgets-cursors-that-are-there",
        COPY,
        "            here.update(**place, previous_offset=None, reset_at=None)\n",
        "",
        f"{MOVES}::test_a_topic_that_was_made_too_early_and_is_empty_is_taken_over",
    ),
    Mutant(
        "positions-of-the-old-database-are-lost",
        "streams/process/broadcast/running_group.py",
        "connections[home_of(using)]",
        "connections[using]",
        f"{MOVES}::test_a_broadcast_client_goes_on_where_it_was",
    ),
]

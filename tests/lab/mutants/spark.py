"""Lists the mutants of the Spark sink."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

ARCHIVE = "tests/spark/test_archive.py"
COMMIT = "sparkjobs/sink/commit.py"
REPLICA = "tests/spark/test_replica.py"
SELECTION = "tests/spark/test_selection.py"
SINK = "tests/spark/test_sink.py"

SPARK = [
    # Spark repeats a batch whose commit it could not note.
    Mutant(
        "batch-sent-again",
        "sparkjobs/ledger.py",
        "    return is_new\n",
        "    return True\n",
        f"{SINK}::test_a_batch_that_is_repeated_after_its_commit_sends_nothing",
    ),
    Mutant(
        "old-batch-skipped",
        "sparkjobs/ledger.py",
        "    if newest > batch:\n",
        "    if is_new and newest > batch:\n",
        f"{SINK}::test_a_checkpoint_that_is_older_than_what_was_sent_is_refused",
    ),
    Mutant(
        "short-read-passes",
        "sparkjobs/source/shortage.py",
        "    if rows - found > holes.count + purged:\n",
        "    if part.rows < found:\n",
        "tests/spark/test_shortage.py::test_a_read_that_was_cut_short_is_never_taken_for_holes_or"
        "_purged_messages",
    ),
    Mutant(
        "replica-not-waited-for",
        "sparkjobs/source/reading.py",
        "        if config.replica:\n            wait(connection, split.ranges)\n",
        "",
        f"{REPLICA}::test_a_replica_that_is_behind_is_waited_for",
        db="mysql",
    ),
    Mutant(
        "replica-judges-what-is-missing",
        "sparkjobs/source/reading.py",
        "        if not self.config.replica:\n",
        "        if self.config:\n",
        f"{REPLICA}::test_what_the_replica_lacks_and_the_primary_has_is_never_skipped",
        db="mysql",
    ),
    # Both may have a topic of this name on the same day, as after a move.
    Mutant(
        "archives-of-two-databases-meet",
        "sparkjobs/archive/manifest.py",
        'if config.shard else ""',
        'if config.shard == "*" else ""',
        "tests/spark/test_databases.py::test_the_archive_and_the_lake_of_a_shard_are_in_a_folder"
        "_of_its_own",
    ),
    Mutant(
        "a-name-is-that-of-all-replays",
        "sparkjobs/jobs/replay.py",
        'f"replay {called}{topic} {since} {until} to {target}"',
        """f"replay {called or f'{topic} {since} {until} to {target}'}\"""",
        f"{ARCHIVE}::test_a_name_is_that_of_one_replay_and_another_topic_is_sent_by_its_own",
    ),
    Mutant(
        "a-long-entry-of-a-replay-is-cut",
        "sparkjobs/jobs/replay.py",
        'return f"{entry[: MAX_ENTRY - len(digest) - 1]} {digest}"',
        "return entry[:MAX_ENTRY]",
        f"{ARCHIVE}::test_replays_to_targets_of_one_long_beginning_are_two",
    ),
    Mutant(
        "order-ends-at-a-bucket",
        "sparkjobs/audit/groups.py",
        'F.coalesce(F.lag("claim").over(w), "claim_before")',
        'F.lag("claim").over(w)',
        "tests/spark/test_reconcile.py::test_breaks_of_order_are_found_in_buckets_of_ids",
    ),
    Mutant(
        "staged-rows-not-counted",
        COMMIT,
        "    if sent != expected:\n",
        "    if sent > expected:\n",
        f"{SINK}::test_what_was_staged_and_is_gone_refuses_the_write",
    ),
    # Rows of an attempt that failed, or that was slower than its twin.
    Mutant(
        "every-attempt-is-sent",
        "sparkjobs/sink/staging.py",
        "prefix_of(name) + uuid.uuid4().hex[:16]",
        "prefix_of(name) + '0' * 16",
        f"{SINK}::test_only_what_the_counted_attempts_have_staged_is_sent_and_in_their_order",
    ),
    Mutant(
        "topic-changed-between-task-and-commit",
        COMMIT,
        "        if now != topic:\n",
        "        if now.id != topic.id:\n",
        f"{SINK}::test_a_topic_that_is_changed_during_the_write_refuses_it",
    ),
    # What users of Kafka's source say.
    Mutant(
        "assign-takes-whole-topics",
        "sparkjobs/source/selection.py",
        "            return (topic, number) in self.assigned\n",
        "            return topic in dict(self.assigned)\n",
        f"{SELECTION}::test_the_names_of_kafka_choose_topics_and_partitions",
    ),
    Mutant(
        "other-name-wins-silently",
        "sparkjobs/source/kafka.py",
        "        if other.lower() in given:\n",
        "        if name in given:\n",
        f"{SELECTION}::test_an_option_that_cannot_be_used_is_refused",
    ),
    Mutant(
        "few-messages-wait-for-ever",
        "sparkjobs/source/limits.py",
        "        if rows < self._rows and self._clock() - self._newest < self._delay:\n",
        "        if rows < self._rows and self._newest > 0 - self._delay:\n",
        f"{SELECTION}::test_a_stream_waits_for_enough_messages_and_not_for_ever",
    ),
    Mutant(
        "time-of-one-partition-for-all",
        "sparkjobs/source/request.py",
        "self.selection.starting_times.get(topic, {}).get(number, self.since)",
        "self.selection.starting_times.get(topic, {}).get(0, self.newest_since)",
        f"{SELECTION}::test_times_may_be_of_single_partitions",
    ),
    Mutant(
        "insert-sets-an-offset",
        "sparkjobs/sink/staging.py",
        "            if batch.column(name).null_count < batch.num_rows:\n",
        "            if batch.column(name).null_count > batch.num_rows:\n",
        f"{SINK}::test_what_the_log_gives_cannot_be_set",
    ),
]

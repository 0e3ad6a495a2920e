"""Lists the mutants: bugs that a stream over a database has had, here or elsewhere."""

from __future__ import annotations

from tests.lab.mutants.alarms import ALARMS
from tests.lab.mutants.arrivals import WHEN_SENT
from tests.lab.mutants.bodies import BODIES
from tests.lab.mutants.broadcast import BROADCAST
from tests.lab.mutants.celery import CELERY
from tests.lab.mutants.deaths import DEATHS
from tests.lab.mutants.deployed import DEPLOYED
from tests.lab.mutants.dying import DYING
from tests.lab.mutants.handlers import HANDLERS
from tests.lab.mutants.held_keys import HELD_KEYS
from tests.lab.mutants.http import HTTP
from tests.lab.mutants.http_operate import HTTP_OPERATE
from tests.lab.mutants.lake import LAKE
from tests.lab.mutants.lanes import OF_LANES
from tests.lab.mutants.marks import MARKS
from tests.lab.mutants.moves import MOVED
from tests.lab.mutants.mutant import Mutant
from tests.lab.mutants.pulls import PULLS
from tests.lab.mutants.races import RACES
from tests.lab.mutants.rates import STARTS_AT_A_RATE
from tests.lab.mutants.readers import READERS
from tests.lab.mutants.relays import RELAYS
from tests.lab.mutants.resident import RESIDENT
from tests.lab.mutants.rollups import ROLL_UPS
from tests.lab.mutants.shelf import SHELF
from tests.lab.mutants.spark import SPARK
from tests.lab.mutants.tasks import TASKS
from tests.lab.mutants.two_phase import TWO_PHASE
from tests.lab.mutants.typed import TYPED
from tests.lab.mutants.versions import VERSIONS

SQL = "streams/database/sql/dialect.py"
SETTLEMENTS = "tests/guarantees/test_mutants_settle.py"
CLOCK = "tests/guarantees/test_mutants_clock.py"
LEASING = "tests/guarantees/test_leases.py"
ACKNOWLEDGING = "tests/guarantees/test_acknowledging.py"
LOCKS = "tests/concurrency/test_locks.py"
ORDER = "tests/guarantees/test_order.py"
SEQUENCING = "tests/guarantees/test_sequencing.py"
REHEARSALS = "tests/guarantees/test_rehearsals.py"
CORE = "tests/streams/test_core.py"
KEPT_ENDS = "tests/guarantees/test_kept_ends.py"
TOPICS = "tests/streams/test_topics.py"

SEND = [
    Mutant(
        "topics-of-several-databases-sent-to-one",
        "streams/produce/send.py",
        "            if (other := alias_of(message.topic)) != alias:\n",
        "            if (other := alias_of(message.topic)) != alias and False:\n",
        "tests/streams/test_shards.py"
        "::test_topics_of_several_databases_are_refused_before_anything_is_written",
    ),
    Mutant(
        "a-process-that-is-off-sends",
        "streams/produce/send.py",
        "    conf.make_sure_enabled()\n",
        "",
        "tests/streams/test_enabled.py::test_what_sends_raises_before_anything_is_written",
    ),
    # What the first EMS did: a counter beside the transaction. Who commits late is never read.
    Mutant(
        "offset-given-at-insert",
        "streams/produce/send.py",
        "            message_id = insert_alone()\n",
        """\
            message_id = insert_alone()
        from django.db.models import F
        from streams.models import Partition
        from streams.database.elsewhere import elsewhere

        def take():
            mine = Partition.objects.using(alias).filter(pk=partition_id)
            mine.update(next_offset=F("next_offset") + 1)
            return mine.get().next_offset - 1

        values = [elsewhere(alias, take), message_id]
        cursor.execute("UPDATE ems_msg SET `offset` = %s WHERE id = %s", values)
""",
        "tests/guarantees/test_sending.py"
        "::test_a_transaction_open_while_thousands_of_later_ones_are_done_is_delivered",
        "mysql",
    ),
    Mutant(
        "topic-cached-before-commit",
        "streams/log/topics.py",
        "return info  # created by the caller's transaction, uncommitted",
        "return _remember(using, info)",
        f"{TOPICS}::test_a_topic_of_the_callers_own_transaction_is_used_but_not_remembered",
        "mysql",
    ),
    Mutant(
        "cache-outlives-a-flush",
        "streams/database/emptied.py",
        "NAMED.search(sql):\n        forget()\n",
        "NAMED.search(sql):\n        pass\n",
        "tests/guarantees/test_flushed_tables.py::test_a_topic_of_before_a_flush_is_not_sent_to",
    ),
    Mutant(
        "remembered-in-a-test-case",
        "streams/database/remembered.py",
        "        if not in_test_case(using):\n",
        "        if True:\n",
        "tests/streams/test_remembered.py::test_in_a_test_case_nothing_is_remembered",
    ),
    Mutant(
        "remembered-in-a-fork",
        "streams/database/remembered.py",
        "os.register_at_fork(after_in_child=_forget_in_fork)\n",
        "",
        "tests/streams/test_remembered.py::test_a_forked_process_forgets_all_but_what_survives_forks",
    ),
    Mutant(
        "chaos-never-dies-after-a-statement",
        "streams/chaos/plan.py",
        "        if one.in_handler or one.commits:\n",
        "        if False:\n",
        "tests/chaos/test_planted_bugs.py::test_a_mail_after_the_commit_is_lost",
    ),
    Mutant(
        "offsets-given-again-after-commits-are-lost",
        "streams/log/sequencer.py",
        "        raise Rewound\n",
        "        pass\n",
        "tests/guarantees/test_rewound_logs.py::test_no_offset_is_given_twice",
    ),
    Mutant(
        "what-was-kept-on-the-disk-is-not-asked-for",
        "streams/log/rewinds.py",
        "    kept_ends.of(using).recall((partition_id,))\n",
        "",
        f"{KEPT_ENDS}::test_no_offset_is_given_twice_though_nobody_was_running",
    ),
    Mutant(
        "a-topic-that-was-created-again-taken-for-the-old-one",
        "streams/log/kept_ends.py",
        "(LogId(topic_id, created_at.isoformat(), number), f",
        '(LogId(topic_id, "", number), f',
        f"{KEPT_ENDS}::test_a_topic_that_was_deleted_and_created_again_begins_at_0",
    ),
    Mutant(
        "tests-of-a-project-leave-how-far-the-logs-had-come",
        "streams/log/kept_ends.py",
        "        if in_test_process():",
        "        if False:",
        f"{KEPT_ENDS}::test_tests_of_a_project_neither_find_nor_leave_how_far_the_logs_had_come",
    ),
    Mutant(
        "a-write-takes-away-what-others-know",
        "streams/log/kept_ends.py",
        "        merged = {log: before[log] for log in absent}\n",
        "        merged, before = {log: before[log] for log in absent}, {}\n",
        f"{KEPT_ENDS}::test_of_two_that_write_at_once_none_overwrites_what_the_other_knows",
    ),
    Mutant(
        "two-write-at-once",
        "streams/state_files.py",
        "        except BlockingIOError:\n",
        "        except BlockingIOError:\n            return True\n",
        f"{KEPT_ENDS}::test_while_another_process_writes_it_is_left_for_the_next_time",
    ),
    Mutant(
        "nothing-is-kept-at-the-end-of-a-process",
        "streams/process/supervisor.py",
        "                kept_ends.of(self._using).keep(kept_ends.PATIENCE_SECONDS)\n",
        "                pass\n",
        f"{KEPT_ENDS}::test_a_process_that_ends_in_good_order_keeps_all_that_it_has_seen",
    ),
    Mutant(
        "nobody-waits-after-a-failover",
        "streams/log/sequencer.py",
        "        raise Unsettled\n",
        "        pass\n",
        "tests/guarantees/test_rewound_logs.py"
        "::test_after_a_failover_offsets_are_given_when_those_who_know_more_have_looked",
    ),
    Mutant(
        "claimed-offsets-are-not-remembered",
        "streams/deliver/claim.py",
        "            note({place.pk: End(place.next_offset, place.epoch)}, self.using)\n",
        "            pass\n",
        "tests/guarantees/test_rewound_logs.py::test_what_a_worker_has_claimed_is_remembered",
    ),
    Mutant(
        "a-claim-enters-what-is-left-out",
        "streams/deliver/claim.py",
        "        if epoch and last > start:\n",
        "        if False:\n",
        "tests/guarantees/test_rewound_logs.py"
        "::test_a_group_that_is_behind_handles_all_that_is_kept_first",
    ),
    Mutant(
        "a-claim-passes-what-was-left-out-once",
        "streams/log/rewinds.py",
        "    if left.start > start:\n",
        "    if False:\n",
        "tests/guarantees/test_rewound_logs.py"
        "::test_a_claim_passes_no_messages_after_another_jump_of_the_same_epoch",
    ),
    Mutant(
        "what-is-left-out-is-believed-without-its-row",
        "streams/log/rewinds.py",
        "        if found and found[-1].epoch == epoch and not in_test_case(using):\n",
        "        if not in_test_case(using):\n",
        "tests/guarantees/test_rewound_logs.py"
        "::test_what_is_left_out_is_not_read_from_a_replica_without_it",
    ),
    Mutant(
        "cancel-by-id-alone",
        "streams/produce/cancel.py",
        "if not found or not _is_at(found[0], topic, number):",
        "if not found:",
        "tests/guarantees/test_cancel.py"
        "::test_an_id_that_names_another_message_by_now_takes_nothing_back",
    ),
    Mutant(
        "nan-in-json",
        "streams/body.py",
        "allow_nan=False",
        "allow_nan=True",
        "tests/streams/test_errors.py::test_a_bad_message_is_refused_and_nothing_written",
    ),
    # The caller's transaction is its owner's: after a deadlock all of it is rolled back, and a
    # part that is repeated would be committed without the rest.
    Mutant(
        "callers-transaction-repeated",
        "streams/database/retrying.py",
        "if owned or not transient(error)",
        "if not transient(error)",
        "tests/guarantees/test_atomic_handlers.py"
        "::test_a_deadlock_at_the_acknowledgement_rolls_back_and_repeats_the_message",
    ),
    Mutant(
        "lost-reply-is-an-ordinary-error",
        "streams/produce/send.py",
        "return SendOutcomeUnknown()",
        "return error",
        "tests/streams/test_producer.py"
        "::TestALostReply::test_says_that_nobody_knows_and_sends_nothing_twice",
        "mysql",
    ),
    # On a server that lives eight hours east.
    Mutant(
        "session-time-in-statements",
        SQL,
        'MYSQL: "UTC_TIMESTAMP(6)",',
        'MYSQL: "NOW(6)",',
        f"{CLOCK}::test_a_delayed_message_is_not_early_and_a_live_delivery_not_expired",
        "mariadb",
    ),
    Mutant(
        "session-time-in-the-orm",
        "streams/models/fields.py",
        'return "UTC_TIMESTAMP(6)", ()',
        'return "NOW(6)", ()',
        f"{CLOCK}::test_a_delayed_message_is_not_early_and_a_live_delivery_not_expired",
        "mariadb",
    ),
    Mutant(
        "session-time-in-deadlines",
        SQL,
        'MYSQL: "UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND"',
        'MYSQL: "NOW(6) + INTERVAL %s MICROSECOND"',
        f"{CLOCK}::test_every_time_that_is_written_is_utc",
        "mariadb",
    ),
    Mutant(
        "session-time-in-leases",
        "streams/models/fields.py",
        'return "(UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND)"',
        'return "(NOW(6) + INTERVAL %s MICROSECOND)"',
        f"{CLOCK}::test_every_time_that_is_written_is_utc",
        "mariadb",
    ),
]

SEQUENCE = [
    # A cause whose row is locked would be passed over, its effect not.
    Mutant(
        "inbox-read-skips-locked",
        "streams/database/sql/sequence.py",
        'AND `due_at` = {immediate} ORDER BY `id` LIMIT %s"',
        'AND `due_at` = {immediate} ORDER BY `id` LIMIT %s {skip_locked}"',
        f"{SEQUENCING}::test_an_effect_never_overtakes_a_cause_whose_row_is_locked",
        "mysql",
    ),
    Mutant(
        "inbox-read-waits-for-locks",
        "streams/database/sql/sequence.py",
        'AND `due_at` = {immediate} ORDER BY `id` LIMIT %s"',
        'AND `due_at` = {immediate} ORDER BY `id` LIMIT %s FOR UPDATE"',
        f"{LOCKS}::test_a_sender_with_an_open_transaction_holds_nobody_up",
        "mysql",
    ),
    Mutant(
        "due-read-waits-for-locks",
        "streams/database/sql/sequence.py",
        "WHERE `id` IN (%s) AND `offset` IS NULL {skip_locked}",
        "WHERE `id` IN (%s) AND `offset` IS NULL FOR UPDATE",
        f"{SEQUENCING}::test_a_delayed_message_that_somebody_holds_does_not_stop_the_partition",
        "mysql",
    ),
    Mutant(
        "no-look-behind-a-pass-of-locked-ones",
        "streams/log/sequencer.py",
        "if len(locked) < len(found) == DUE_PER_PASS:",
        "if False:",
        "tests/guarantees/test_cancel.py"
        "::test_as_many_cancels_as_a_pass_has_messages_keep_no_other_waiting",
        "mysql",
    ),
    Mutant(
        "partition-not-locked",
        "streams/database/sql/sequence.py",
        " FROM `ems_partition` WHERE `id` = %s {skip_locked}",
        " FROM `ems_partition` WHERE `id` = %s",
        f"{LOCKS}::test_a_second_sequencer_does_not_wait_for_the_first",
        "mysql",
    ),
    # After a step of the clock, the audit would take what has committed late for a disorder.
    Mutant(
        "two-passes-of-one-instant",
        "streams/database/sql/sequence.py",
        'replace(":next_instant", _NEXT_INSTANT[vendor])',
        'replace(":next_instant", "`last_sequenced_at`")',
        f"{SEQUENCING}::test_each_pass_has_a_later_sequenced_at_also_when_the_clock_steps_back",
    ),
    Mutant(
        "audit-takes-any-disorder-for-a-late-commit",
        "streams/observe/audit/walk.py",
        "after <= before:",
        "after < before:",
        "tests/streams/test_audit.py"
        "::test_two_messages_of_a_pass_against_the_order_of_sending_are_found",
    ),
    Mutant(
        "offset-given-twice",
        "streams/database/sql/sequence.py",
        'WHERE `id` IN (%s) AND `offset` IS NULL"',
        'WHERE `id` IN (%s)"',
        f"{SEQUENCING}::test_messages_that_have_an_offset_never_get_another",
    ),
    Mutant(
        "cancelled-leaves-a-hole",
        "streams/log/sequencer.py",
        "!= len(chunk)",
        "> len(chunk)",
        f"{SEQUENCING}::test_a_message_that_leaves_between_read_and_update_leaves_no_hole",
        "mysql",
    ),
    Mutant(
        "keys-said-to-be-indexed-from-the-beginning",
        "streams/log/sequencer.py",
        "            keys_from = next_offset\n",
        "            keys_from = 0\n",
        "tests/streams/test_search.py::test_what_the_index_does_not_cover_is_read",
    ),
    Mutant(
        "search-ends-where-its-bound-is",
        "streams/log/search.py",
        "        end = max(left) + 1 if left else part.reached\n",
        "        end = max(left) + 1 if left else part.low\n",
        "tests/streams/test_search.py::test_a_search_without_an_index_is_bounded_and_goes_on",
    ),
    Mutant(
        "index-is-said-to-reach-where-it-does-not",
        "streams/operate/key_index.py",
        "filter(pk=row.pk, keys_from=end)",
        "filter(pk=row.pk)",
        "tests/streams/test_search.py"
        "::test_entries_that_do_not_reach_as_far_as_was_read_are_rolled_back",
    ),
    Mutant(
        "size-of-the-newest-messages",
        "monitoring/live/sizes.py",
        "log.end - 1 - n * (log.kept - 1) // max(1, count - 1) for",
        "log.end - 1 - n for",
        "tests/monitoring/test_sizes.py"
        "::test_bodies_that_grow_over_time_are_estimated_from_the_whole_log",
    ),
    Mutant(
        "redrive-at-a-rate-has-no-limit",
        "streams/operate/redrives.py",
        "    return ids[-1], len(ids)\n",
        "    return upto, len(ids)\n",
        "tests/commands/test_dead.py::test_a_rate_takes_a_limit_the_oldest_first",
    ),
    Mutant(
        "endpoint-put-in-the-place-of-another",
        "streams/admin/pages/endpoint.py",
        "super().has_add_permission(request) and request.user.has_perms(DECIDES)",
        "super().has_add_permission(request)",
        "tests/admin/test_prepared.py"
        "::test_who_adds_or_deletes_an_endpoint_needs_the_rights_to_decide",
    ),
    Mutant(
        "redrive-larger-than-its-number",
        "streams/steps/redrives.py",
        "        most = min(most, plan.left)\n",
        "        pass\n",
        "tests/streams/test_redrives.py"
        "::test_letters_that_wait_again_make_a_redrive_no_larger_than_its_number",
    ),
    Mutant(
        "place-in-the-log-of-another-topic",
        "streams/operate/target.py",
        "partition.topic_id == group.topic_id",
        "bool(group.topic_id)",
        "tests/streams/test_targets.py::test_a_place_is_of_one_partition_of_the_groups_topic",
    ),
    Mutant(
        "time-falls-as-offsets-rise",
        "streams/database/sql/sequence.py",
        "{greatest}({now}, COALESCE(:next_instant, {immediate}))",
        "{now}",
        f"{SEQUENCING}::test_each_pass_has_a_later_sequenced_at_also_when_the_clock_steps_back",
    ),
    Mutant(
        "read-committed-not-set",
        "streams/database/transactions.py",
        'cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")',
        "pass",
        f"{LOCKS}::test_a_transaction_of_ems_sees_what_was_committed_since_it_began",
        "mysql",
    ),
]

CLAIM = [
    Mutant(
        "cursor-not-locked",
        "streams/database/sql/claim.py",
        'for_each_vendor(_CURSOR + " {skip_locked}")',
        "for_each_vendor(_CURSOR)",
        f"{LOCKS}::test_what_one_claims_from_several_cursors_no_other_claims",
        "mysql",
    ),
    Mutant(
        "only-cursor-not-locked",
        "streams/database/sql/claim.py",
        'for_each_vendor(_CURSOR + " {lock}")',
        "for_each_vendor(_CURSOR)",
        f"{LOCKS}::test_a_claim_waits_its_turn_when_every_cursor_is_held",
        "mysql",
    ),
    Mutant(
        "cursor-moved-before-its-delivery",
        "streams/deliver/claim.py",
        "        execute(self.using, sql.MOVE_CURSOR, [end, cursor_id])\n",
        """\
        execute(self.using, sql.MOVE_CURSOR, [end, cursor_id])
        connections[self.using].connection.commit()
""",
        f"{ACKNOWLEDGING}::test_a_claim_that_fails_half_way_moves_nothing",
    ),
]

SETTLE = [
    Mutant(
        "settled-without-the-token",
        "streams/database/sql/settle.py",
        "WHERE `id` = %s AND `token` = %s AND",
        "WHERE `id` = %s AND %s IS NOT NULL AND",
        f"{ACKNOWLEDGING}::TestAStaleToken::test_changes_nothing",
    ),
    Mutant(
        "settled-after-its-end",
        "streams/database/sql/settle.py",
        "AND `state` = 'START' AND `progress` = %s",
        "AND `progress` = %s",
        f"{SETTLEMENTS}::test_what_an_ordered_group_has_given_back_cannot_be_settled",
    ),
    Mutant(
        "settled-from-an-old-progress",
        "streams/database/sql/settle.py",
        "AND `state` = 'START' AND `progress` = %s",
        "AND `state` = 'START' AND %s IS NOT NULL",
        f"{ACKNOWLEDGING}::test_two_writers_of_one_token_cannot_both_move_progress",
    ),
    Mutant(
        "progress-past-a-failure-first",
        "streams/consume/outcome/settle.py",
        """\
        with own_transaction(delivery.using):
            cursor = lock_cursor(delivery) if in_turn else None
            if update():
""",
        """\
        if update():
            with own_transaction(delivery.using):
                cursor = lock_cursor(delivery) if in_turn else None
""",
        f"{ACKNOWLEDGING}::test_progress_never_passes_a_failure_that_is_not_written",
    ),
    Mutant(
        "errors-of-a-claim-forgotten",
        "streams/consume/outcome/settle.py",
        "    delivery.errors = errors or delivery.errors\n",
        "    delivery.errors = None\n",
        "tests/streams/test_trace.py"
        "::test_an_atomic_call_that_is_rolled_back_leaves_no_error_of_another_call",
    ),
    Mutant(
        "atomic-settled-apart",
        "streams/deliver/handling.py",
        "                    self.settle(after, failures)\n",
        "                    pass\n            self.settle(after, failures)\n",
        f"{LEASING}::test_what_a_slow_atomic_handler_wrote_is_rolled_back",
        "mysql",
    ),
    Mutant(
        "given-back-and-swept",
        "streams/models/delivery.py",
        "return self.held().filter(Q(deadline__lt=UtcNow())",
        "return self.open().filter(Q(deadline__lt=UtcNow())",
        f"{ACKNOWLEDGING}::test_no_sweep_spends_an_attempt_of_what_was_given_back",
    ),
    Mutant(
        "given-back-in-two-transactions",
        "streams/consume/outcome/settle.py",
        "    _write_range(delivery, first)\n",
        "    connections[delivery.using].connection.commit()\n    _write_range(delivery, first)\n",
        "tests/guarantees/test_crashes.py"
        "::test_a_consumer_may_be_killed_while_a_range_changes_hands",
    ),
    Mutant(
        "keys-indexed-after-the-commit",
        "streams/log/sequencer.py",
        "        if indexes_keys:\n            execute(",
        "        if indexes_keys:\n            connections[using].connection.commit()\n"
        "            execute(",
        "tests/guarantees/test_crashes.py::test_a_sequencer_may_be_killed_while_it_indexes_keys",
    ),
    Mutant(
        "given-back-and-claimed-twice",
        "streams/database/sql/claim.py",
        'DELETE_GIVEN_BACK = "DELETE FROM `ems_topic_group_log` WHERE `id` = %s"',
        'DELETE_GIVEN_BACK = "DELETE FROM `ems_topic_group_log` WHERE `id` = -%s"',
        f"{ACKNOWLEDGING}::test_a_range_that_was_given_back_is_one_claim_again_with_its_attempt_unspent",
    ),
    Mutant(
        "released-with-its-attempt-spent",
        "streams/consume/outcome/settle.py",
        "_own_retry(delivery).update(delivery=None, due_at=UtcNow(), again=False)",
        "_own_retry(delivery).update(delivery=None, due_at=UtcNow(), again=False, "
        "attempt=F('attempt') + 1)",
        f"{ACKNOWLEDGING}::test_a_released_retry_keeps_its_attempt_and_what_is_known_of_it",
    ),
    Mutant(
        "retry-asked-for-meanwhile-forgotten",
        "streams/database/sql/settle.py",
        "`ems_retry_msg`.`again`, 1)",
        "`ems_retry_msg`.`again`, 0)",
        "tests/guarantees/test_retrying.py"
        "::test_a_held_row_is_marked_to_be_seen_again_and_otherwise_left_alone",
    ),
    Mutant(
        "lagging-replica-believed",
        "streams/log/bodies.py",
        "return found if len(found) == end - start else",
        "return found if True else",
        f"{ACKNOWLEDGING}::test_a_short_first_read_is_read_again_on_the_primary",
    ),
]

LEASES = [
    Mutant(
        "token-kept-by-the-sweep",
        "streams/consume/outcome/expire.py",
        'state=State.RETRY, token="", finished_at',
        "state=State.RETRY, finished_at",
        f"{SETTLEMENTS}::test_the_sweep_takes_the_token_along",
    ),
    Mutant(
        "hung-call-extended",
        "streams/consume/calling.py",
        "return self._timeout - self._elapsed()",
        "return self._timeout",
        f"{LEASING}::test_a_hung_call_is_not_extended_and_its_message_goes_to_another",
    ),
    Mutant(
        "ended-transaction-acknowledged",
        "streams/deliver/handling.py",
        "connection.savepoint_commit(savepoint)",
        "pass",
        "tests/guarantees/test_ended_transactions.py"
        "::test_a_transaction_that_ended_inside_the_handler_fails_the_attempt",
    ),
    Mutant(
        "settled-in-an-old-snapshot",
        "streams/database/transactions.py",
        "SET SESSION innodb_snapshot_isolation = OFF",
        "SET SESSION innodb_snapshot_isolation = ON",
        "tests/guarantees/test_snapshot_isolation.py::test_an_atomic_call_outlasts_a_heartbeat",
        "mariadb",
    ),
    Mutant(
        "suspect-after-one-death",
        "streams/consume/outcome/expire.py",
        "again = known and _died_before(delivery, offset) is not None",
        "again = known",
        "tests/guarantees/test_suspects.py::test_one_death_makes_no_suspect_of_what_ran_by_itself",
    ),
    Mutant(
        "drain-waits-for-the-hung",
        "streams/process/supervisor.py",
        "return worker.hangs or worker in self._unanswered",
        "return False",
        "tests/guarantees/test_stopping.py::test_a_hung_handler_costs_its_neighbours_no_drain",
    ),
    Mutant(
        "drained-though-another-database-has-more",
        "streams/process/shared/activity.py",
        "return all(self._empty.get(one) == self._steps for one in self._databases)",
        "return True",
        "tests/runtime/test_fleet.py"
        "::test_a_drain_ends_only_when_no_worker_was_busy_from_the_first_look_to_the_last",
    ),
    Mutant(
        "all-databases-wait-for-one",
        "streams/process/fleet.py",
        "            self._beginning.append(thread)\n            thread.start()",
        "            thread.run()",
        "tests/guarantees/test_fleets.py::test_a_shard_that_is_away_stops_only_its_own_workers",
        "mysql",
    ),
    Mutant(
        "short-silence-for-handlers-of-other-shards",
        "streams/process/shared/connections.py",
        'getattr(_thread, "alias", self._using) != self._using',
        "False",
        "tests/runtime/test_fleet.py"
        "::test_a_connection_to_another_shard_is_as_in_any_thread_of_the_project",
        "mysql",
    ),
    Mutant(
        "only-the-heartbeat-watched",
        "streams/process/supervisor.py",
        "= [*self._keepers, *self._workers]",
        "= [*self._keepers]",
        "tests/guarantees/test_frozen_connections.py"
        "::test_a_worker_whose_connection_is_frozen_ends_its_process",
        "mysql",
    ),
    Mutant(
        "slow-group-takes-the-last-thread",
        "streams/process/pool.py",
        "1 if share.busy and len(self._order) > 1 else 0",
        "0",
        "tests/runtime/test_pool.py::test_the_last_free_thread_is_left_for_a_group_that_has_none",
    ),
    Mutant(
        "group-takes-more-than-its-threads",
        "streams/process/pool.py",
        "if share.busy >= share.feed.threads:",
        "if False:",
        "tests/runtime/test_pool.py::test_a_group_never_has_more_than_its_threads",
    ),
    Mutant(
        "first-group-served-first",
        "streams/process/pool.py",
        """\
            self._order.remove(share)
            self._order.append(share)
""",
        "",
        "tests/runtime/test_pool.py"
        "::test_groups_that_are_far_behind_are_served_in_turn_and_one_that_is_woken_comes_next",
    ),
    Mutant(
        "orphans-go-on",
        "streams/process/shared/signals.py",
        "2 if END in said else 1",
        "2 if END in said else len(said)",
        "tests/runtime/test_signals.py::test_the_death_of_the_parent_is_a_request_to_stop",
    ),
    Mutant(
        "signal-to-all-counts-twice",
        "streams/process/shared/signals.py",
        "max(self._signals, self._requests) > self._told",
        "self._signals + self._requests > self._told",
        "tests/runtime/test_signals.py"
        "::test_the_request_of_the_parent_and_the_first_signal_are_one",
    ),
    Mutant(
        "workers-keep-what-the-keepers-lack",
        "streams/process/worker.py",
        "if self._shortage.of_keepers:",
        "if False:",
        "tests/guarantees/test_peaks.py"
        "::test_a_worker_gives_its_connection_to_a_keeper_that_has_none",
    ),
    Mutant(
        "killer-runs-beside-others",
        "streams/process/turn.py",
        "beside=self._alone if alone else self._feed.gate.together",
        "beside=self._feed.gate.together",
        "tests/guarantees/test_mutants_alone.py"
        "::test_what_killed_its_process_waits_until_nothing_runs_beside_it",
    ),
    Mutant(
        "sweep-waits-for-the-frozen",
        "streams/consume/outcome/expire.py",
        "expired.select_for_update(skip_locked=True)",
        "expired.select_for_update()",
        f"{LEASING}"
        "::test_a_frozen_process_that_holds_a_row_does_not_keep_the_sweep_from_the_others",
        "mysql",
    ),
    Mutant(
        "sweep-stops-at-a-lock",
        "streams/steps/sweep.py",
        "        if not held_by_others(error, using):\n",
        "        if True:\n",
        f"{LEASING}::test_a_locked_retry_keeps_neither_the_sweep_nor_the_leases_from_ending",
        "mysql",
    ),
    Mutant(
        "redrive-at-the-end-of-its-retry-lost",
        "streams/consume/outcome/settle.py",
        '_own_retry(delivery).select_for_update().values_list("again", flat=True)',
        '_own_retry(delivery).filter(again=True).values_list("again", flat=True)',
        "tests/concurrency/test_locks.py"
        "::test_a_redrive_waits_for_the_end_of_the_retry_that_it_repeats",
        "mysql",
    ),
    Mutant(
        "a-restart-said-as-an-outage",
        "streams/steps/sweep.py",
        " and was_outage:\n",
        ":\n",
        f"{LEASING}::test_an_outage_is_said_and_a_consumer_that_is_started_again_is_none",
    ),
    Mutant(
        "index-tells-who-may-see-nothing",
        "streams/admin/index.py",
        " and not response.is_rendered and _is_for(request):\n",
        " and not response.is_rendered:\n",
        "tests/admin/test_index.py"
        "::test_who_may_see_nothing_of_ems_gets_nothing_and_nothing_is_asked",
    ),
    Mutant(
        "index-keeps-for-all-what-one-may-see",
        "streams/admin/index.py",
        '    for seen in look(("box", rights), names,',
        '    for seen in look("box", names,',
        "tests/admin/test_index.py"
        "::test_what_a_database_has_said_is_kept_for_who_has_the_same_rights_and_nobody_else",
    ),
    Mutant(
        "no-grace-after-an-outage",
        "streams/steps/sweep.py",
        "                _grace(using, was_outage=was_outage)\n",
        "                pass\n",
        f"{LEASING}::test_after_an_outage_everyone_gets_one_lease_to_come_back",
    ),
    Mutant(
        "grace-waits-for-a-locked-row",
        "streams/steps/sweep.py",
        "rows.select_for_update(skip_locked=True)",
        "rows.select_for_update()",
        f"{LEASING}::test_the_grace_after_an_outage_does_not_wait_for_a_locked_row",
        "mysql",
    ),
    Mutant(
        "dead-client-keeps-its-id",
        "streams/process/shared/client.py",
        'client_id = f"',
        'client_id = self.client_id or f"',
        f"{LEASING}::test_a_missed_renewal_means_a_new_id_and_all_that_is_held_is_dropped",
    ),
]

ORDERED = [
    Mutant(
        "two-at-once-in-a-partition",
        "streams/deliver/claim.py",
        "        if self.group.ordered:\n            execute(self.using, sql.HOLD_CURSOR",
        "        if False:\n            execute(self.using, sql.HOLD_CURSOR",
        f"{ORDER}::test_while_a_delivery_is_open_nobody_else_claims_from_its_partition",
    ),
    Mutant(
        "overtaking-what-failed",
        "streams/deliver/calls.py",
        "return checkpoint or bool(self._failures and self.ordered)",
        "return checkpoint",
        f"{ORDER}::test_what_comes_after_a_failed_message_waits_for_it",
    ),
    Mutant(
        "ladder-ignored-in-order",
        "streams/models/cursor.py",
        "blocked_until=UtcNow(delay) if delay else None",
        "blocked_until=None",
        f"{ORDER}::test_a_retry_says_itself_how_long_all_wait",
    ),
    Mutant(
        "expired-in-order-waits-as-a-retry",
        "streams/consume/outcome/expire.py",
        "            elif cursor:\n",
        "            elif None:\n",
        f"{ORDER}::test_a_dead_consumers_partition_is_taken_over_at_the_message_it_was_at",
    ),
]

BLOCKED = [
    Mutant(
        "skip-without-the-lock",
        "streams/operate/acts/unblock.py",
        "Cursor.objects.using(using).select_for_update().filter(pk__in=list(place)).first()",
        "Cursor.objects.using(using).filter(pk__in=list(place)).first()",
        "tests/concurrency/test_unblock.py::test_of_two_skips_at_once_one_makes_the_letter",
        "mysql",
    ),
    Mutant(
        "skip-of-what-runs",
        "streams/operate/acts/unblock.py",
        "    if cursor.open_delivery is not None:\n",
        "    if False:\n",
        "tests/concurrency/test_unblock.py"
        "::test_a_message_that_a_consumer_claims_at_that_moment_is_not_skipped",
        "mysql",
    ),
    Mutant(
        "skip-repeated-after-a-lost-reply",
        "streams/operate/acts/unblock.py",
        "            if tried:\n                done",
        "            if None:\n                done",
        "tests/guarantees/test_unblock.py"
        "::test_a_skip_whose_commit_was_not_confirmed_is_done_once_and_said_to_be_done",
        "mysql",
    ),
    Mutant(
        "blocked-since-the-last-failure",
        "streams/models/cursor.py",
        'Coalesce("blocked_at", UtcNow())',
        "UtcNow()",
        "tests/streams/test_blocked.py::test_it_is_blocked_since_its_first_failure",
    ),
    Mutant(
        "skip-beyond-the-end-of-the-log",
        "streams/models/cursor.py",
        "return has_failed and self.next_offset < self.partition.next_offset",
        "return has_failed",
        "tests/streams/test_blocked.py::test_what_failed_before_the_end_of_the_log_blocks_nothing",
    ),
]

MORE = [
    Mutant(
        "key-hash-of-this-process",
        "streams/rules/partition.py",
        "zlib.crc32(key.encode()) % count",
        "hash(key) % count",
        "tests/streams/test_partitions.py::test_the_hash_never_changes",
    ),
    Mutant(
        "dedup-row-inserted-in-the-transaction",
        "streams/produce/dedup.py",
        "        elsewhere(using, insert)\n",
        "        insert()\n",
        "tests/guarantees/test_dedup.py::test_callers_without_a_row_do_not_deadlock_either",
        "mysql",
    ),
    Mutant(
        "window-without-end",
        "streams/produce/dedup.py",
        "Holder(pk, message_id if valid else None, partition)",
        "Holder(pk, message_id, partition)",
        "tests/guarantees/test_dedup.py::test_a_key_is_free_again_after_its_window",
    ),
    Mutant(
        "cancelled-message-keeps-its-key",
        "streams/produce/cancel.py",
        "                execute(alias, sql.FREE_DEDUP[vendor], [key, given])\n",
        "                pass\n",
        "tests/guarantees/test_cancel.py::test_a_cancelled_message_frees_its_dedup_key",
    ),
    Mutant(
        "cancel-of-what-is-sequenced",
        "streams/database/sql/send.py",
        "CANCELLABLE = f\"`offset` IS NULL AND `due_at` > '{IMMEDIATE}'\"",
        "CANCELLABLE = f\"`due_at` > '{IMMEDIATE}'\"",
        "tests/guarantees/test_cancel.py::test_a_delayed_message_is_taken_back",
    ),
    Mutant(
        "edited-copy-not-read",
        "streams/deliver/reading.py",
        "        rows = rows or stored_messages(*place, delivery.using, at_most=share)\n",
        "        rows = stored_messages(*place, delivery.using, at_most=share) or rows\n",
        "tests/streams/test_letter_edit.py"
        "::test_the_group_gets_the_edited_copy_at_its_offset_and_no_other_group_does",
    ),
    Mutant(
        "edited-copy-lost-when-it-dies-again",
        "streams/consume/outcome/settle.py",
        "    if edited and letters",
        "    if False and letters",
        "tests/streams/test_letter_edit.py::test_what_it_was_is_kept_with_who_and_when",
    ),
    Mutant(
        "edited-letter-replaced-by-another",
        "streams/consume/outcome/dead_letter.py",
        "if redriven is None and offset not in taken\n",
        "if redriven is None\n",
        "tests/streams/test_redrives.py"
        "::test_no_letter_takes_the_place_of_an_edited_one_that_is_a_retry",
    ),
    Mutant(
        "redrive-of-two-processes-at-once",
        "streams/steps/redrives.py",
        "plan = rows.select_for_update(skip_locked=True).annotate",
        "plan = rows.annotate",
        "tests/streams/test_redrives.py::test_one_that_another_process_steps_is_left_to_it",
        "mysql",
    ),
    Mutant(
        "other-tags-handed-over",
        "streams/deliver/reading.py",
        "        else:\n            wanted.append(",
        "        if True:\n            wanted.append(",
        "tests/streams/test_tags.py::test_only_messages_with_a_wanted_tag_are_handed_over",
    ),
    Mutant(
        "held-past-what-is-due",
        "streams/deliver/poller.py",
        "        if look.due.next_in is not None:\n",
        "        if False:\n",
        "tests/runtime/test_poller.py::test_it_is_held_until_the_next_thing_is_due",
    ),
]

PURGE = [
    Mutant(
        "failed-purge-counts",
        "streams/steps/nightly_purge.py",
        "    lease = timedelta(seconds=seconds + SLICE_GRACE)\n",
        "    lease = timedelta(seconds=seconds + SLICE_GRACE)\n    note_purge(using)\n",
        "tests/streams/test_nightly.py::test_a_purge_that_fails_or_dies_is_not_done",
    ),
    Mutant(
        "woken-without-a-rest",
        "streams/process/keeper.py",
        "                rest = min(delay, time.monotonic() - started)\n",
        "                rest = 0.0\n",
        "tests/runtime/test_keeper.py::test_whoever_is_woken_all_the_time_rests_half_of_it",
    ),
    Mutant(
        "handled-messages-kept",
        "streams/deliver/reading.py",
        "        if messages:\n            yield messages\n",
        "        if messages:\n"
        "            vars(registration).setdefault('kept', []).append(messages)\n"
        "            yield messages\n",
        "tests/guarantees/test_memory.py::test_a_message_that_is_handled_is_let_go",
    ),
    # The error of a call keeps the frames that have made it.
    Mutant(
        "failed-messages-kept",
        "streams/deliver/calls.py",
        "failed = caller.failures(messages)",
        "failed = (lambda messages: caller.failures(messages))(messages)",
        "tests/guarantees/test_memory.py::test_a_message_that_is_handled_is_let_go",
    ),
    Mutant(
        "claims-of-broken-batches",
        "streams/deliver/pace.py",
        "max(call, most - most % call)",
        "max(call, most)",
        "tests/guarantees/test_large_claims.py"
        "::test_a_claim_of_many_batches_gives_each_call_one_batch",
    ),
    Mutant(
        "settled-before-its-call",
        "streams/deliver/calls.py",
        "if self._settles_now():\n                    self._settle_until(self._ended)",
        "if self._settles_now():\n                    self._settle_until(stretch.last_offset + 1)",
        "tests/guarantees/test_large_claims.py::test_nothing_is_settled_before_its_call_has_ended",
    ),
    Mutant(
        "pace-of-what-failed",
        "streams/process/turn.py",
        "outcome.done + outcome.passed, outcome.failed, took",
        "len(delivery.offsets), 0, took",
        "tests/guarantees/test_large_claims.py"
        "::test_after_a_claim_in_which_all_failed_the_next_is_one_batch",
    ),
    Mutant(
        "slow-claims-kept",
        "streams/deliver/handling.py",
        "        if self.gives_way:\n",
        "        if False:\n",
        "tests/guarantees/test_large_claims.py"
        "::test_a_handler_that_turns_slow_gives_the_rest_to_others",
    ),
    Mutant(
        "all-bodies-of-a-claim-at-once",
        "streams/deliver/reading.py",
        "share = READ_BYTES // len(delivery.offsets)",
        "share = READ_BYTES",
        "tests/guarantees/test_memory.py::test_a_claim_of_many_batches_is_not_read_at_once",
    ),
    Mutant(
        "handlers-begun-by-one-statement",
        "streams/database/transactions.py",
        "            del connection._start_transaction_under_autocommit\n",
        "            pass\n",
        "tests/runtime/test_database.py::test_a_transaction_of_a_handler_is_begun_as_django_does",
        "mysql",
    ),
    Mutant(
        "headers-beside-the-bound",
        "streams/database/sql/read.py",
        " + COALESCE(LENGTH(`headers`), 0)",
        "",
        "tests/guarantees/test_memory.py::test_headers_count_like_bodies",
    ),
    Mutant(
        "group-deleted-position-first",
        "streams/operate/group_deletion.py",
        "    ended = group.deliveries.using(group._state.db).filter(group=group.pk).ended()\n",
        "    group.cursors.using(group._state.db).all().delete()\n"
        "    ended = group.deliveries.using(group._state.db).filter(group=group.pk).ended()\n",
        "tests/commands/test_topics_groups.py::test_a_deletion_that_was_broken_off_can_be_repeated",
    ),
    Mutant(
        "sweep-of-all-namespaces",
        "streams/steps/sweep.py",
        "    expired = own_rows(Delivery.objects.using(using).expired(), using)\n",
        "    expired = Delivery.objects.using(using).expired()\n",
        "tests/guarantees/test_namespaces.py::test_a_namespace_ends_and_buries_only_its_own",
    ),
    Mutant(
        "names-of-all-namespaces",
        "streams/models/namespaces.py",
        '        return super().get_queryset().filter(own("name"))\n',
        "        return super().get_queryset()\n",
        "tests/guarantees/test_namespaces.py::test_the_same_topic_in_two_namespaces_is_two_topics",
    ),
    Mutant(
        "default-without-a-reader",
        "streams/retain/purge_floor.py",
        "    return not rule.is_default or groups.exists()\n",
        "    return True\n",
        "tests/streams/test_message_retention.py"
        "::test_the_default_waits_for_the_first_group_of_a_topic",
    ),
    Mutant(
        "purge-past-a-delivery",
        "streams/retain/purge_floor.py",
        "            if delivery is not None:\n",
        "            if False:\n",
        "tests/guarantees/test_purge.py::test_what_is_settled_of_an_open_delivery_can_go",
    ),
    Mutant(
        "purge-past-a-retry",
        "streams/retain/purge_floor.py",
        "            if retry is not None:\n",
        "            if False:\n",
        "tests/guarantees/test_purge.py::test_an_open_delivery_and_a_retry_are_never_overtaken",
    ),
    Mutant(
        "forced-purge-off-the-record",
        "streams/retain/forced_purge.py",
        "cursor.next_offset = min(self._target, end)\n",
        "cursor.next_offset = self._target\n",
        "tests/guarantees/test_purge.py::test_a_forced_purge_sets_an_ordered_group_free",
    ),
    Mutant(
        "purge-without-the-lock",
        "streams/retain/purge.py",
        "            locked = rows.select_for_update().get()\n",
        "            locked = rows.get()\n",
        "tests/concurrency/test_purge.py::test_a_group_that_is_set_back_meanwhile_is_not_robbed",
        "mysql",
    ),
    Mutant(
        "purge-beyond-the-floor",
        "streams/retain/purge.py",
        "end = min(start + batches.BATCH, first)",
        "end = start + batches.BATCH",
        "tests/guarantees/test_purge.py::test_messages_are_kept_as_long_as_the_topic_says",
    ),
    Mutant(
        "purge-ends-at-a-gap",
        "streams/retain/purge.py",
        "            has_holes, start = count < end - start, end\n",
        "            has_holes, start = False, end if count else first\n",
        "tests/guarantees/test_purge.py::test_a_gap_in_the_log_is_passed_at_once",
    ),
    Mutant(
        "log-purged-unannounced",
        "streams/retain/old_rows.py",
        "            self._move_to(edge)\n",
        "            self._cursor.log_offset = edge\n",
        "tests/streams/test_expiry.py"
        "::test_deliveries_of_finished_messages_are_deleted_when_they_are_old_enough",
    ),
    Mutant(
        "growth-without-the-lock",
        "streams/operate/topics.py",
        "if not Topic.objects.using(using).select_for_update().filter(pk=topic.pk):",
        "if not Topic.objects.using(using).filter(pk=topic.pk):",
        "tests/guarantees/test_topic_lifecycle.py"
        "::test_a_topic_that_grows_while_a_group_comes_gives_it_a_cursor",
        "mysql",
    ),
    Mutant(
        "frozen-send-to-a-deleted-topic",
        "streams/produce/access.py",
        "        withdrawn = retrying(_withdraw, alias, ids, alias)\n",
        "        withdrawn = False\n",
        "tests/guarantees/test_topic_lifecycle.py"
        "::test_a_send_that_is_frozen_while_its_topic_is_deleted_raises",
        "mysql",
    ),
]

SEAMS = [
    Mutant(
        "policy-that-fails-gives-up",
        "streams/consume/outcome/backoff.py",
        "        return default_policy().delay_after(attempt, error)\n",
        "        return None\n",
        "tests/streams/test_retry_policies.py"
        "::test_a_policy_that_fails_leaves_it_to_the_ladder_and_loses_nothing",
    ),
    Mutant(
        "policy-of-the-admin-ignored",
        "streams/consume/limits.py",
        "    if group.retry_policy:\n",
        "    if False:\n",
        "tests/streams/test_retry_policies.py"
        "::test_the_text_of_the_group_is_stronger_than_the_decorator",
    ),
    Mutant(
        "told-inside-the-transaction",
        "streams/deliver/handling.py",
        "        if not self._atomic:\n            self._tell_all()\n",
        "        self._tell_all()\n",
        "tests/streams/test_signals.py::test_what_a_batch_says_has_failed_is_told_one_by_one",
    ),
    Mutant(
        "told-though-rolled-back",
        "streams/deliver/handling.py",
        "            self._untold.clear()\n",
        "",
        "tests/streams/test_signals.py::test_what_was_rolled_back_is_not_told",
    ),
    # "topic/0@17" would then be a topic, or a place in one.
    Mutant(
        "any-name",
        "streams/log/topics.py",
        '    validated_name(name, "topic", conf.longest_name(MAX_NAME))\n',
        "",
        "tests/streams/test_names.py::test_a_topic_with_other_characters_is_refused",
    ),
    # What handlers elsewhere mean by "return False".
    Mutant(
        "false-is-a-success",
        "streams/consume/calling.py",
        "if registration.batch is None and returned is not None:",
        "if False:",
        "tests/streams/test_middleware.py"
        "::test_a_handler_of_one_message_that_returns_something_fails",
    ),
    # Its ORM would write outside the transaction of atomic=True.
    Mutant(
        "async-handler-on-another-connection",
        "streams/consume/event_loop.py",
        "    return async_to_sync(_limited)(coroutine, timeout, spent)\n",
        "    return asyncio.run(_limited(coroutine, timeout, spent))\n",
        "tests/streams/test_async_handlers.py"
        "::test_the_orm_of_an_atomic_async_handler_is_in_its_transaction",
    ),
    Mutant(
        "any-partition-taken",
        "streams/rules/partition.py",
        " or not 0 <= number < count:\n",
        ":\n",
        "tests/streams/test_partitioner.py"
        "::test_a_wrong_answer_is_an_invalid_message_and_nothing_is_written",
    ),
    # A new group that reads the history of its topic: thousands of old mails in seconds.
    Mutant(
        "history-read-unasked",
        "streams/consume/subscription.py",
        "(held := holdings(topic_id, using)).messages:",
        "(held := holdings(topic_id, using)).messages < 0:",
        "tests/guarantees/test_starts.py"
        "::test_a_new_group_of_a_topic_that_holds_messages_needs_a_start",
    ),
    Mutant(
        "latest-before-the-inbox",
        "streams/consume/subscription.py",
        "                _empty_inbox(partition_id, registration, using)\n",
        "                pass\n",
        "tests/guarantees/test_starts.py"
        "::test_latest_leaves_out_what_is_committed_though_the_pass_before_found_it_held",
    ),
    Mutant(
        "group-not-looked-for-under-the-lock",
        "streams/consume/subscription.py",
        "        if found := _find(topic_id, registration, using):\n            return found\n",
        "",
        "tests/guarantees/test_starts.py"
        "::test_a_process_without_a_start_joins_the_group_that_another_one_creates_meanwhile",
    ),
    Mutant(
        "one-bad-partition-stops-all",
        "streams/log/sequencer.py",
        "    except DAMAGES as error:",
        "    except ZeroDivisionError as error:",
        "tests/guarantees/test_damaged_partitions.py::test_the_other_partitions_are_sequenced",
    ),
    Mutant(
        "rehearsal-creates-topics-for-good",
        "streams/operate/undone.py",
        "            block._from_testcase = True\n",
        "",
        f"{REHEARSALS}::test_a_topic_that_is_missing_and_a_dedup_key_remain_nowhere",
        "mysql",
    ),
    Mutant(
        "rehearsal-commits",
        "streams/operate/undone.py",
        "            stack.callback(transaction.set_rollback, True, alias)\n",
        "",
        f"{REHEARSALS}::test_each_message_is_judged_and_nothing_remains",
    ),
    Mutant(
        "rehearsal-lets-a-commit-pass",
        "streams/operate/undone.py",
        '            commits = commits or (verb in COMMITS and second != "TEMPORARY")\n',
        "",
        f"{REHEARSALS}::test_a_statement_that_commits_is_refused_before_it_runs",
        "mysql",
    ),
    Mutant(
        "rehearsal-on-the-connection-of-the-request",
        "streams/operate/rehearsal.py",
        "                stack.enter_context(new_connection(alias))\n",
        "                pass\n",
        f"{REHEARSALS}::test_a_transaction_that_the_caller_has_open_is_not_that_of_the_calls",
        "mysql",
    ),
    Mutant(
        "rehearsal-waits-for-locks",
        "streams/operate/undone.py",
        "            stack.enter_context(short_lock_waits(alias, LOCK_SECONDS))\n",
        "",
        f"{REHEARSALS}::test_a_row_that_others_have_locked_is_given_up_soon",
        "mysql",
    ),
    Mutant(
        "checks-not-registered",
        "streams/apps.py",
        "            checks,  # noqa: F401 - registers the system checks\n",
        "",
        "tests/streams/test_checks.py::test_a_project_that_only_installs_the_app_has_the_checks",
    ),
]

TELEMETRY = [
    # After a send the message is there, so an error of an observer must not look like a failed one.
    Mutant(
        "telemetry-errors-are-raised",
        "streams/telemetry.py",
        "    except Exception as error:\n        now = time.monotonic()\n",
        "    except ZeroDivisionError as error:\n        now = time.monotonic()\n",
        "tests/metrics/test_process.py::test_telemetry_that_fails_changes_no_outcome",
    ),
    Mutant(
        "lost-deliveries-are-observed-as-settled",
        "streams/metrics/process.py",
        "lost = () if alone else result\n",
        "lost = ()\n",
        "tests/metrics/test_process.py"
        "::test_deliveries_that_are_settled_in_any_order_are_observed_once_each",
    ),
    Mutant(
        "groups-of-all-databases-by-their-id-alone",
        "streams/metrics/process.py",
        "key = group._state.db, group.pk\n",
        'key = "", group.pk\n',
        "tests/metrics/test_process.py"
        "::test_groups_on_several_databases_are_counted_under_their_own_names",
    ),
    Mutant(
        "topic-of-a-new-group-is-read-by-the-routers",
        "streams/consume/subscription.py",
        'ConsumerGroup._meta.get_field("topic").set_cached_value(group, topic)\n',
        "pass\n",
        "tests/streams/test_tracing.py"
        "::test_the_span_of_what_settles_a_failure_names_the_topic_of_its_database",
    ),
    Mutant(
        "any-redrive-makes-a-discarded-message-lost",
        "streams/observe/trace.py",
        "was_redriven=bool(since)",
        "was_redriven=bool(dead)",
        "tests/streams/test_trace.py"
        "::test_a_redriven_message_that_died_again_and_was_discarded_is_not_lost",
    ),
    # Followed as it stands, it would audit another database from there, and find nothing.
    Mutant(
        "an-unfinished-audit-names-no-database",
        "streams/management/commands/ems_doctor.py",
        "--resume {then}{on(self.using)}",
        "--resume {then}",
        "tests/commands/test_several_databases.py"
        "::test_commands_that_the_doctor_names_have_the_database",
    ),
    Mutant(
        "a-group-must-be-on-every-database",
        "streams/management/base.py",
        "if len(unknown) == len(aliases()):\n",
        "if unknown:\n",
        "tests/commands/test_several_databases.py"
        "::test_a_group_or_a_topic_is_looked_for_on_all_databases",
    ),
    Mutant(
        "a-name-that-no-database-has-is-an-empty-list",
        "streams/management/base.py",
        "if len(unknown) == len(aliases()):\n",
        "if len(unknown) > len(aliases()):\n",
        "tests/commands/test_several_databases.py"
        "::test_a_group_or_a_topic_is_looked_for_on_all_databases",
    ),
    Mutant(
        "metrics-say-that-the-database-answers",
        "streams/metrics/collector.py",
        'return _in_families(reply.alias, [("ems_up", (), 0)])\n',
        'return _in_families(reply.alias, [("ems_up", (), 1)])\n',
        "tests/metrics/test_collector.py::test_without_the_database_only_ems_up_is_told",
    ),
    Mutant(
        "scrape-waits-for-a-database-that-hangs",
        "streams/database/each.py",
        "one.thread.join(max(0.0, one.began + seconds - time.monotonic()))\n",
        "one.thread.join()\n",
        "tests/metrics/test_collector.py"
        "::test_a_database_that_hangs_holds_no_scrape_and_gets_one_reading_at_a_time",
    ),
    Mutant(
        "steps-begin-after-the-next-sweep-is-due",
        "streams/steps/of_apps.py",
        "        if number and time.monotonic() >= limit:\n",
        "        if False:\n",
        "tests/runtime/test_steps_of_apps.py"
        "::test_sweeps_are_less_than_a_lease_apart_though_everything_takes_its_whole_time",
    ),
    Mutant(
        "rehearsal-traced",
        "streams/operate/rehearsal.py",
        "    with telemetry.silence(), working_on(",
        "    with working_on(",
        "tests/streams/test_tracing.py"
        "::test_a_rehearsal_makes_no_span_and_what_it_sends_has_no_context",
    ),
    Mutant(
        "tracing-without-a-provider",
        "streams/tracing.py",
        "    if wanted is None and not _provider_is_set():\n        return\n",
        "",
        "tests/streams/test_tracing.py"
        "::test_without_a_provider_nothing_is_traced_and_no_header_is_added",
    ),
    Mutant(
        "given-context-replaced",
        "streams/tracing.py",
        "        if not valid or self._is_given(headers):\n",
        "        if not valid:\n",
        "tests/streams/test_tracing.py::test_a_context_that_the_caller_has_given_is_left_as_it_is",
    ),
]

ADMIN = [
    Mutant(
        "a-discard-takes-what-was-not-counted",
        "streams/admin/verbs/bulk.py",
        "matching.filter(died_at__lte=datetime.fromisoformat(plan.at))",
        "matching",
        "tests/admin/test_actions.py"
        "::test_a_letter_that_was_with_its_group_in_the_preview_is_left_alone",
    ),
    Mutant(
        "form-of-no-database-accepted",
        "streams/admin/switch.py",
        "            if asked is None and chosen(request) != home:\n",
        "            if False:\n",
        "tests/admin/test_shards.py::test_two_tabs_never_act_on_the_wrong_database",
    ),
    Mutant(
        "id-alone-of-the-database-opened-last",
        "streams/admin/switch.py",
        "            alias = asked or (home if kwargs else chosen(request))\n",
        "            alias = asked or chosen(request)\n",
        "tests/admin/test_shards.py::test_the_log_of_the_admin_tells_the_databases_apart",
    ),
    Mutant(
        "page-rendered-on-another-database",
        "streams/admin/switch.py",
        "            answer: TemplateResponse = self.now(render)\n",
        "            answer: TemplateResponse = render()\n",
        "tests/admin/test_shards.py"
        "::test_every_page_says_how_the_others_are_and_the_start_page_has_their_alarms",
    ),
    Mutant(
        "preview-of-another-database-accepted",
        "streams/admin/verbs/offer.py",
        '    return f"ems.admin.{database()}.{verb}"',
        '    return f"ems.admin.{verb}"',
        "tests/admin/test_shards.py"
        "::test_forms_and_many_rows_act_there_and_what_was_offered_is_of_one_database",
    ),
    Mutant(
        "test-message-sent-twice",
        "streams/admin/verbs/produce.py",
        '        dedup_key=f"admin-{once}",\n',
        "",
        "tests/admin/test_produce.py::test_a_form_that_is_posted_twice_sends_one_message",
    ),
]

MUTANTS = [
    *(*ORDERED, *BLOCKED, *MORE, *SEND, *SEQUENCE, *CLAIM),
    *(*SETTLE, *LEASES, *BROADCAST, *PURGE, *SEAMS, *TELEMETRY, *ALARMS, *ROLL_UPS),
    *(*RESIDENT, *TWO_PHASE, *HTTP, *HTTP_OPERATE, *ADMIN, *SPARK, *LAKE, *PULLS, *WHEN_SENT),
    *(*MOVED, *RACES, *DEATHS, *DEPLOYED, *DYING, *HANDLERS, *BODIES, *MARKS, *READERS, *TYPED),
    *(*RELAYS, *HELD_KEYS, *OF_LANES, *CELERY, *STARTS_AT_A_RATE, *TASKS, *SHELF, *VERSIONS),
]

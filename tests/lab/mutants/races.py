"""Lists the mutants of locks and conditions that matter only while somebody else writes."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

CLAIM = "streams/deliver/claim.py"
DEAD = "streams/consume/outcome/dead_letter.py"
EXPIRE = "streams/consume/outcome/expire.py"
SETTLE = "streams/consume/outcome/settle.py"
CLIENT = "streams/process/shared/client.py"
REVOKE = "streams/operate/revoke.py"
REWINDS = "streams/log/rewinds.py"
TOGETHER = "streams/produce/together.py"
CLAIMERS = "tests/concurrency/test_claimers.py"
RESETS = "tests/concurrency/test_resets.py"
LEASING = "tests/guarantees/test_leases.py"
MAINTENANCE = "tests/streams/test_maintenance.py"
REWOUND = "tests/guarantees/test_rewound_logs.py"
TOGETHERS = "tests/concurrency/test_together.py"
ROLLED_BACK = "tests/contract/test_rolled_back_acts.py"
SETTLEMENTS = "tests/guarantees/test_mutants_settle.py"
SPLIT = "tests/guarantees/test_split_reads.py"

RACES = [
    # Its offsets would be nobody's until the deadline.
    Mutant(
        "claim-in-doubt-not-waited-for",
        CLAIM,
        '(group=self.group).order_by("replay").select_for_update())',
        '(group=self.group).order_by("replay"))',
        f"{CLAIMERS}::test_a_claim_whose_commit_is_still_under_way_is_waited_for",
        "mysql",
    ),
    Mutant(
        "retry-in-doubt-not-waited-for",
        CLAIM,
        "list(rows.select_for_update())",
        "list(rows)",
        f"{CLAIMERS}::test_a_claim_whose_commit_is_still_under_way_is_waited_for",
        "mariadb",
    ),
    # Its holder would go on while the cursor gives out the same messages again.
    Mutant(
        "given-back-claimed-beside-a-reset",
        CLAIM,
        'cursors.filter(partition=partition_id).select_for_update().values_list("pk")',
        'cursors.filter(partition=partition_id).values_list("pk")',
        f"{RESETS}::test_a_claim_of_what_was_given_back_is_taken_by_the_reset_too",
        "mysql",
    ),
    Mutant(
        "swept-from-an-old-progress",
        EXPIRE,
        '["progress", "last_offset", *',
        '["last_offset", *',
        f"{LEASING}::test_what_is_settled_while_the_sweep_comes_to_it_is_not_repeated",
    ),
    # The claim has waited out an outage, and its client has another id by now.
    Mutant(
        "called-without-a-lease-after-an-outage",
        CLIENT,
        "return self.alive and self.client_id == claimed_as",
        "return self.alive",
        f"{LEASING}::test_what_is_claimed_under_an_id_whose_lease_has_ended_is_given_back",
    ),
    Mutant(
        "called-without-a-lease-after-its-start",
        "streams/deliver/handling.py",
        "if self._extended == now and self._stopped():",
        "if False:",
        f"{LEASING}::test_what_is_claimed_under_an_id_whose_lease_has_ended_is_given_back",
    ),
    Mutant(
        "lease-longer-than-a-sweep-waits",
        CLIENT,
        "group_id=group, lease_until=UtcNow(LEASE))",
        "group_id=group, lease_until=UtcNow(LEASE * 4 / 3))",
        f"{LEASING}::test_a_process_takes_no_lease_for_longer_than_a_dead_one_is_waited_for",
    ),
    Mutant(
        "lease-believed-in-for-too-long",
        CLIENT,
        "self.client_id = client_id\n        self._lease_ends = asked + LEASE_SECONDS",
        "self.client_id = client_id\n        self._lease_ends = asked + LEASE_SECONDS + 5",
        f"{LEASING}::test_a_process_takes_no_lease_for_longer_than_a_dead_one_is_waited_for",
    ),
    # The messages from where it was set to would never be delivered.
    Mutant(
        "jump-past-a-group-that-was-set-back",
        REWINDS,
        "filter(pk=cursor.pk, next_offset=cursor.next_offset)",
        "filter(pk=cursor.pk)",
        f"{REWOUND}::test_a_group_that_was_set_back_meanwhile_loses_nothing_by_the_jump",
        "mysql",
    ),
    Mutant(
        "jump-without-a-loss",
        REWINDS,
        "row.next_offset >= known.offset:",
        "row.next_offset > known.offset:",
        f"{REWOUND}::test_a_log_that_has_come_as_far_as_is_known_does_not_jump",
    ),
    # What was done would be handled again.
    Mutant(
        "given-back-from-an-old-progress",
        SETTLE,
        '        "progress": delivery.progress,\n',
        "",
        f"{SETTLEMENTS}::test_what_was_settled_at_the_same_moment_is_not_given_back",
    ),
    Mutant(
        "given-back-by-two",
        SETTLE,
        "delivery.held().filter(last_offset=last).update(",
        "delivery.held().update(",
        f"{SETTLEMENTS}::test_what_two_give_back_at_the_same_moment_is_given_back_once",
    ),
    Mutant(
        "swept-though-renewed-meanwhile",
        EXPIRE,
        "rows.held() if given_up else rows.expired()",
        "rows.held()",
        f"{LEASING}::test_what_is_renewed_while_the_sweep_comes_to_it_is_left_alone",
    ),
    Mutant(
        "buried-though-claimed-meanwhile",
        DEAD,
        "filter(pk=retry.pk, delivery=None, attempt=retry.attempt)",
        "filter(pk=retry.pk, attempt=retry.attempt)",
        f"{MAINTENANCE}::test_a_retry_that_somebody_takes_while_the_step_comes_to_it_is_not_buried",
    ),
    Mutant(
        "buried-with-an-old-attempt",
        DEAD,
        "filter(pk=retry.pk, delivery=None, attempt=retry.attempt)",
        "filter(pk=retry.pk, delivery=None)",
        f"{MAINTENANCE}::test_a_retry_that_somebody_takes_while_the_step_comes_to_it_is_not_buried",
    ),
    # The range would stay open beside the cursor that gives out the same offsets.
    Mutant(
        "given-back-beside-a-reset",
        SETTLE,
        'list(cursors.select_for_update().values_list("pk"))',
        'list(cursors.values_list("pk"))',
        f"{RESETS}::test_what_is_given_back_while_a_reset_begins_is_taken_too",
        "mysql",
    ),
    Mutant(
        "a-part-given-back-beside-a-reset",
        SETTLE,
        'list(place.select_for_update(skip_locked=skips).values_list("pk"))',
        'list(place.values_list("pk"))',
        f"{RESETS}::test_what_is_given_back_while_a_reset_begins_is_taken_too",
        "mysql",
    ),
    Mutant(
        "reset-takes-what-is-settled",
        REVOKE,
        'rows.filter(pk__in=keys).order_by("pk").select_for_update()',
        'rows.filter(pk__in=keys).order_by("pk")',
        f"{RESETS}::test_what_is_settled_while_the_reset_waits_for_it_is_not_taken",
        "mysql",
    ),
    Mutant(
        "reset-takes-what-has-ended",
        REVOKE,
        "for row in locked if row.state == State.START for part in split(row)]",
        "for row in locked for part in split(row)]",
        f"{RESETS}::test_what_is_settled_while_the_reset_waits_for_it_is_not_taken",
        "mariadb",
    ),
    Mutant(
        "undo-repeats-what-is-settled",
        REVOKE,
        "(rows.select_for_update() if lock else rows).first()",
        "rows.first()",
        f"{RESETS}"
        "::test_what_an_ordered_group_settles_while_the_reset_waits_is_not_repeated_by_its_undo",
        "mysql",
    ),
    Mutant(
        "together-a-lost-reply-is-sent-again",
        TOGETHER,
        "each.unknown = unknown",
        "each.unknown = False",
        f"{TOGETHERS}::test_a_reply_that_is_lost_is_unknown_to_all_of_the_statement",
    ),
    Mutant(
        "together-an-interrupt-counts-as-not-sent",
        TOGETHER,
        "unknown = True  # also",
        "unknown = False  # also",
        f"{TOGETHERS}::test_who_is_interrupted_while_it_inserts_leaves_nobody_waiting",
    ),
    Mutant(
        "skip-of-a-key-that-was-rolled-back-is-told-as-done",
        "streams/operate/acts/held_keys.py",
        "return letters.filter(died_at__in=written).exists()",
        "return True",
        f"{ROLLED_BACK}::test_a_message_that_a_consumer_claims_meanwhile_is_not_told_of_as_skipped",
    ),
    Mutant(
        "skip-of-a-key-by-somebody-else-is-told-again",
        "streams/operate/acts/held_keys.py",
        "return letters.filter(died_at__in=written).exists()",
        "return letters.exists()",
        f"{ROLLED_BACK}::test_a_skip_beside_that_of_somebody_else_is_told_once",
    ),
    Mutant(
        "end-of-a-replay-is-told-as-cancelled",
        "streams/operate/replay.py",
        '- F("previous_offset")))["n"]',
        '- F("previous_offset")))["n"] or 0',
        f"{ROLLED_BACK}::test_a_replay_that_comes_to_its_end_meanwhile_is_not_told_of_as_cancelled",
    ),
    Mutant(
        "step-of-ids-asked-after-the-insert",
        "streams/produce/insert.py",
        "step = 1 if len(chunk) == 1 else _step(connection, cursor)\n"
        "        cursor.execute(statement, parameters)",
        "cursor.execute(statement, parameters)\n"
        "        step = 1 if len(chunk) == 1 else _step(connection, cursor)",
        f"{TOGETHERS}"
        "::test_no_message_of_several_is_inserted_twice_if_the_step_of_ids_is_not_known",
        "mysql",
    ),
    Mutant(
        "a-message-that-is-sent-said-to-have-failed",
        "streams/produce/access.py",
        "        if committed:\n",
        "        if False:\n",
        "tests/guarantees/test_topic_lifecycle.py"
        "::test_a_frozen_send_whose_connection_is_lost_afterwards_is_not_said_to_have_failed",
        "mysql",
    ),
    Mutant(
        "together-waits-for-itself",
        TOGETHER,
        "_of_thread.leads = True",
        "pass",
        f"{TOGETHERS}::test_a_wrapper_of_the_statement_may_send",
    ),
    Mutant(
        "together-in-a-transaction",
        TOGETHER,
        "return not connection.in_atomic_block and connection.get_autocommit()",
        "return True",
        f"{TOGETHERS}::test_in_a_transaction_it_is_the_callers_own",
    ),
    Mutant(
        "together-one-bad-message-fails-all",
        TOGETHER,
        "if unknown or len(together) == 1:",
        "if True:",
        f"{TOGETHERS}::test_an_error_of_a_statement_of_several_is_that_of_the_message_that_has_it",
    ),
    # A plain read may come from a replica that is a commit behind.
    Mutant(
        "a-retry-read-after-its-claim",
        CLAIM,
        "        return delivery, rows[-1]",
        "        return delivery, self._retries().get(delivery=delivery.pk)",
        f"{SPLIT}::test_a_failed_message_gets_its_second_attempt",
        "mysql",
    ),
    Mutant(
        "a-new-topic-read-on-a-replica",
        "streams/log/topics.py",
        "            with own_transaction(using):\n                info = _read(name, using)\n",
        "            if True:\n                info = _read(name, using)\n",
        f"{SPLIT}::test_the_first_send_to_a_topic_finds_it",
        "mysql",
    ),
    Mutant(
        "an-edited-letter-read-on-a-replica",
        "streams/log/bodies.py",
        "    with own_transaction(using):  # another read",
        "    if True:  # another read",
        f"{SPLIT}::test_the_copy_of_an_edited_letter_is_the_edited_one",
        "mysql",
    ),
    Mutant(
        "keys-that-a-replica-does-not-have-yet",
        "streams/consume/outcome/parking.py",
        "    if len(keys) < stop - first:",
        "    if False:",
        f"{SPLIT}::test_a_failed_message_holds_its_key",
        "mysql",
    ),
    Mutant(
        "purge-by-the-rule-of-its-beginning",
        "streams/retain/purge.py",
        "        partition = retrying(rows.filter(pk=listed.pk).get, self.using)\n",
        "        partition = listed\n",
        "tests/guarantees/test_purge.py::test_a_rule_that_is_changed_while_a_purge_runs_is_in_force_for_what_comes_next",
    ),
    Mutant(
        "purge-of-what-no-group-reads-any-more",
        "streams/retain/purge_floor.py",
        "kept.wanted if is_read else kept.due",
        "kept.wanted",
        "tests/guarantees/test_purge.py::test_a_last_group_that_is_deleted_meanwhile_leaves_what_nobody_could_read_yet",
    ),
    Mutant(
        "expired-as-it-was-read",
        "streams/consume/outcome/expire.py",
        '*([] if dead else ["settled"])',
        "",
        "tests/guarantees/test_any_order.py::test_what_is_settled_while_it_is_given_up_does_not_come_back",
    ),
    Mutant(
        "topic-deleted-though-opened-again",
        "streams/operate/topic_deletion.py",
        "            if reopened := [*self._open()]:\n",
        "            if reopened := []:\n",
        "tests/guarantees/test_topic_lifecycle.py::test_a_topic_that_is_opened_again_while_it_is_deleted_stays",
    ),
    Mutant(
        "retries-deleted-of-a-group-that-has-a-consumer",
        "streams/operate/group_deletion.py",
        "            say(deleted)\n            check()\n",
        "            say(deleted)\n",
        "tests/commands/test_topics_groups.py::test_a_consumer_that_comes_while_its_group_is_deleted_keeps_it",
    ),
    Mutant(
        "forced-deletion-stopped-by-a-consumer",
        "streams/operate/topic_deletion.py",
        "partial(say, name), force=self.force)",
        "partial(say, name))",
        "tests/guarantees/test_topic_lifecycle.py::test_a_forced_deletion_goes_on_beside_a_consumer_that_registers_again",
    ),
    Mutant(
        "forced-deletion-stopped-by-a-consumer-at-its-end",
        "streams/operate/group_deletion.py",
        "        if not force:\n            refuse_while_live(group)\n",
        "        refuse_while_live(group)\n",
        "tests/guarantees/test_topic_lifecycle.py::test_a_forced_deletion_goes_on_beside_a_consumer_that_registers_again",
    ),
    Mutant(
        "retries-deleted-before-the-calls-that-write-them",
        "streams/operate/group_deletion.py",
        '        list(deliveries.select_for_update().values_list("pk"))\n',
        "",
        "tests/guarantees/test_topic_lifecycle.py::test_a_forced_deletion_leaves_no_retry_of_a_call_that_ends_beside_it",
        "mysql",
    ),
    Mutant(
        "deletion-ended-by-a-lost-connection",
        "streams/operate/group_deletion.py",
        "            retrying(refuse_while_live, using, group)\n",
        "            refuse_while_live(group)\n",
        "tests/guarantees/test_topic_lifecycle.py::test_a_connection_that_is_lost_between_two_batches_ends_no_deletion",
    ),
    Mutant(
        "topic-deleted-twice",
        "streams/operate/topic_deletion.py",
        "            if not Topic.objects.using(self.using).filter(pk=self.topic.pk).exists():\n",
        "            if False:\n",
        "tests/guarantees/test_topic_lifecycle.py::test_a_deletion_whose_last_reply_is_lost_has_succeeded",
    ),
    Mutant(
        "partition-deleted-by-another-deletion",
        "streams/operate/topic_deletion.py",
        "        with suppress(Partition.DoesNotExist):",
        "        with suppress():",
        "tests/guarantees/test_topic_lifecycle.py::test_of_two_deletions_at_once_the_slower_one_succeeds_too",
    ),
    Mutant(
        "others-with-a-cursor-waited-for-by-who-shares",
        SETTLE,
        "select_for_update(skip_locked=skip_locked).values_list",
        "select_for_update().values_list",
        "tests/guarantees/test_sharing.py::test_who_has_another_cursor_of_a_replay_by_key_is_not_waited_for",
        "mysql",
    ),
    Mutant(
        "shared-without-the-lock-of-others",
        SETTLE,
        "if skip_locked and len(locked) < rows.count():",
        "if False:",
        "tests/guarantees/test_sharing.py::test_who_has_another_cursor_of_a_replay_by_key_is_not_waited_for",
        "mysql",
    ),
    Mutant(
        "purge-that-asks-a-router-for-the-topic",
        "streams/retain/purge.py",
        "purge_floor(locked, topic, wanted, self.using)",
        "purge_floor(locked, locked.topic, wanted, self.using)",
        "tests/guarantees/test_routers.py::test_a_purge_follows_the_rule_of_the_topic_where_it_is",
    ),
    Mutant(
        "deletion-that-asks-a-router-for-the-topic",
        "streams/operate/topic_deletion.py",
        'Partition.objects.using(self.using).select_related("topic")\n',
        "Partition.objects.using(self.using)\n",
        "tests/guarantees/test_routers.py::test_a_topic_is_deleted_where_it_is",
    ),
    Mutant(
        "body-that-a-router-is-asked-for",
        "streams/models/with_body.py",
        "using or self._state.db, names",
        "using, names",
        "tests/guarantees/test_routers.py::test_a_body_that_was_deferred_is_read_where_its_row_is",
    ),
    Mutant(
        "a-channel-deleted-where-a-router-says",
        "monitoring/management/commands/ems_alarms.py",
        "row.delete(using=self.home)",
        "row.delete()",
        "tests/monitoring/test_alarm_shards.py::test_a_command_changes_the_one_database_whatever_topic_or_database_it_names",
    ),
    Mutant(
        "channels-of-a-rule-where-a-router-says",
        "monitoring/alarms/rules.py",
        "AlarmRule.channels.through._default_manager.using(using)",
        "AlarmRule.channels.through._default_manager.all()",
        "tests/monitoring/test_alarm_shards.py::test_a_command_changes_the_one_database_whatever_topic_or_database_it_names",
    ),
    Mutant(
        "names-looked-for-where-a-router-says",
        "streams/management/base.py",
        "            with working_on(using):\n                row",
        "            if True:\n                row",
        "tests/monitoring/test_alarm_shards.py::test_a_command_changes_the_one_database_whatever_topic_or_database_it_names",
    ),
    Mutant(
        "an-endpoint-deleted-where-a-router-says",
        "streams/management/commands/ems_prepared.py",
        ".delete(using=self.home)",
        ".delete()",
        "tests/commands/test_prepared.py::test_endpoints_are_those_of_the_one_database",
    ),
    Mutant(
        "a-right-where-a-router-says",
        "streams/operate/tokens.py",
        "                    right._state.db = using\n",
        "",
        "tests/guarantees/test_routers.py::test_a_token_is_issued_and_listed_where_it_is",
    ),
    Mutant(
        "move-given-up-elsewhere",
        "streams/operate/topic_move.py",
        "            move.delete(using=self.source)\n",
        "            move.delete()\n",
        "tests/guarantees/test_routers.py::test_a_move_is_given_up_where_it_was_begun",
    ),
    Mutant(
        "obstacle-that-a-router-is-asked-for",
        "streams/operate/topic_copy.py",
        "{topic}/{partition.number} has come",
        "{partition} has come",
        "tests/guarantees/test_routers.py::test_what_is_in_the_way_of_a_move_has_its_name_where_it_is",
    ),
    Mutant(
        "rights-that-a-router-is-asked-for",
        "streams/http/access.py",
        ".prefetch_related(rights_there)",
        '.prefetch_related("rights")',
        "tests/http/test_tokens.py::test_its_rights_are_read_where_it_is",
    ),
    Mutant(
        "receipt-without-what-is-settled",
        "streams/database/sql/pull.py",
        '    "settled",\n',
        "",
        "tests/http/test_pulling.py::test_a_receipt_is_looked_up_with_all_that_ends_its_delivery",
    ),
    Mutant(
        "channels-that-a-router-is-asked-for",
        "monitoring/alarms/rules.py",
        ".prefetch_related(channels)",
        '.prefetch_related("channels")',
        "tests/monitoring/test_alarm_shards.py::test_an_alarm_of_a_shard_is_told_by_the_rules_and_channels_of_the_one_database",
    ),
    Mutant(
        "forwarded-twice-in-one-round",
        "streams/two_phase/forward.py",
        "if row.next_at and row.next_at > row.locked_at:",
        "if False:",
        "tests/streams/test_two_phase.py::test_what_another_process_has_tried_since_it_was_listed_spends_no_try",
    ),
    Mutant(
        "fresh-from-the-reply-on",
        "streams/log/topics.py",
        "info, info.until, using)",
        "info, time.monotonic() + conf.FRESH_SECONDS, using)",
        "tests/streams/test_topics.py::test_a_topic_is_no_longer_fresh_once_its_reply_has_taken_that_long",
    ),
    Mutant(
        "a-long-last-call-leaves-those-before-it",
        "streams/deliver/handling.py",
        "return self.gives_way or (not self.lost and self._leaves_ended())",
        "return self.gives_way",
        "tests/guarantees/test_sharing.py::test_of_a_host_that_is_gone_what_ended_before_a_long_call_is_not_repeated",
    ),
]

"""Lists the mutants of Celery on EMS, and of deliveries that are settled in any order."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

ORDER = "streams/consume/outcome/any_order.py"
SQL = "streams/database/sql/settle.py"
EXPIRE = "streams/consume/outcome/expire.py"
RECOVERY = "streams/deliver/recovery.py"
SETTLE = "streams/consume/outcome/settle.py"
REVOKE = "streams/operate/revoke.py"
ENGINE = "streams/celery/engine.py"
CHANNEL = "streams/celery/channel.py"
PURGING = "streams/celery/purging.py"
ENVELOPE = "streams/celery/envelope.py"
TRANSPORT = "streams/celery/transport.py"
TESTS = "tests/guarantees/test_any_order.py"
BROKER = "tests/celery_/test_broker.py"
PUBLISHED = "tests/celery_/test_channel.py"
FAULTS = "tests/celery_/test_broker_faults.py"
WAKE_UPS = "tests/celery_/test_wake_ups.py"
HANDS = "tests/celery_/test_hands.py"
HANDS_OF = "streams/celery/hands.py"
CONTROL = "streams/celery/control.py"
LEASE = "tests/celery_/test_lease.py"
DEATH_LOCK = "streams/process/shared/death_lock.py"

CELERY = [
    Mutant(
        "any-order-traced-by-progress-alone",
        "streams/observe/trace.py",
        "    if not delivery.is_settled(offset):\n",
        "    if offset >= delivery.progress:\n",
        "tests/streams/test_trace.py"
        "::test_what_is_settled_in_any_order_is_done_while_others_of_its_claim_are_handled",
    ),
    Mutant(
        "any-order-counted-by-progress-alone",
        "streams/models/delivery.py",
        ' - F("progress") - _SettledAbove()',
        ' - F("progress")',
        "tests/streams/test_lag.py::test_what_is_settled_in_any_order_is_not_open",
    ),
    Mutant(
        "any-order-without-the-bits-before",
        SQL,
        " AND COALESCE(`settled`, 0) = %s",
        " AND %s >= 0",
        f"{TESTS}::test_who_has_lost_the_delivery_changes_nothing",
    ),
    Mutant(
        "any-order-without-the-token",
        SQL,
        'of_each("`token` = %s AND `last_offset`',
        'of_each("`token` <> %s AND `last_offset`',
        f"{TESTS}::test_one_statement_settles_many_deliveries_and_says_which_are_lost",
    ),
    Mutant(
        "any-order-ends-with-its-last-offset",
        ORDER,
        "return self.progress > self.delivery.last_offset",
        "return bool(self.settled >> (self.delivery.last_offset - self.delivery.first_offset))",
        f"{TESTS}::test_killed_at_any_statement_nothing_is_lost"
        "_and_only_what_was_in_hand_is_repeated",
    ),
    Mutant(
        "a-lost-reply-taken-for-a-lost-lease",
        ORDER,
        "if there.get(one.delivery.pk) != [one.delivery.token, one.settled]",
        "if True",
        f"{TESTS}::test_a_try_whose_reply_was_lost_is_not_lost",
    ),
    Mutant(
        "an-expiry-of-all-that-was-claimed",
        EXPIRE,
        "    if delivery.settled:\n",
        "    if False:\n",
        f"{TESTS}::test_when_it_expires_only_what_is_not_settled_comes_back",
    ),
    Mutant(
        "a-release-of-all-that-was-claimed",
        SETTLE,
        "    if delivery.settled and not delivery.group.ordered:\n",
        "    if False:\n",
        f"{TESTS}::test_a_release_gives_each_stretch_back_whole_and_spends_no_attempt",
    ),
    Mutant(
        "a-reset-of-what-is-settled",
        REVOKE,
        "if row.state == State.START for part in split(row)]",
        "if row.state == State.START for part in [row]]",
        f"{TESTS}::test_a_reset_leaves_settled_what_it_does_not_give_out_again",
    ),
    Mutant(
        "a-death-that-forgets-what-had-ended",
        RECOVERY,
        "    if done and settle_any_order([ends], delivery.using):\n",
        "    if False:\n",
        f"{TESTS}::test_after_a_death_what_had_ended_and_was_not_written_is_settled",
    ),
    Mutant(
        "a-death-that-spends-the-attempts-of-all",
        RECOVERY,
        "        if part.first_offset not in begun:\n",
        "        if False:\n",
        f"{TESTS}::test_after_a_death_what_had_not_begun_comes_back_at_once_with_no_attempt_spent",
    ),
    Mutant(
        "a-task-outside-the-transaction",
        CHANNEL,
        "self._put(queue, message, using=using, apart=apart)",
        "self._put(queue, message, using='other', apart=apart)",
        f"{BROKER}::test_a_message_shows_what_people_look_for",
    ),
    Mutant(
        "an-eta-that-the-worker-waits-for",
        ENVELOPE,
        'deliver_at=_eta(given.get("eta")),',
        "deliver_at=None,",
        f"{BROKER}::test_what_has_an_eta_waits_in_the_inbox",
    ),
    Mutant(
        "an-acknowledgement-in-the-next-turn-of-the-loop",
        TRANSPORT,
        "        _acknowledge_at_once(loop)\n",
        "",
        f"{FAULTS}::test_a_task_whose_result_was_read_is_not_repeated",
    ),
    Mutant(
        "room-of-which-nobody-is-told",
        CHANNEL,
        "        if intake.buffer:",
        "        if False:",
        f"{FAULTS}::test_no_task_stays_in_the_worker_when_there_is_no_other_to_fetch",
    ),
    Mutant(
        "a-failed-look-whose-claim-nobody-has",
        ENGINE,
        "        self._unsure = True\n        while",
        "        while",
        f"{BROKER}::test_a_claim_that_failed_before_its_messages_were_read_is_made_again",
    ),
    Mutant(
        "a-task-of-the-pool-that-is-not-noted",
        TRANSPORT,
        "        handovers.listen()\n",
        "",
        f"{FAULTS}::test_a_task_that_kills_its_worker_is_dead_after_its_retries",
    ),
    Mutant(
        "a-claim-of-what-was-heard-before-the-commands",
        ENGINE,
        "        news, pauses = self.control.read(due), [math.inf]\n",
        "        news, pauses = False, [math.inf]\n",
        f"{WAKE_UPS}::test_a_command_that_was_sent_before_a_task_is_read_before_it_is_claimed",
    ),
    Mutant(
        "a-failed-claim-of-what-was-heard-that-nobody-has",
        ENGINE,
        "            self._unsure = True\n",
        "",
        f"{WAKE_UPS}::test_what_a_failed_step_has_claimed_is_claimed_again",
    ),
    Mutant(
        "a-look-at-all-that-is-put-off-by-wake-ups",
        ENGINE,
        "look_at = min(look_at, now + self._claim_sent(topics))",
        "look_at = now + min(LOOK_SECONDS, self._claim_sent(topics))",
        f"{WAKE_UPS}::test_a_whole_look_comes_in_its_time_however_often_something_is_heard",
    ),
    Mutant(
        "what-others-were-about-to-claim-is-not-looked-at-again",
        ENGINE,
        "                self._again.add(supply.registration.topic)\n",
        "                pass\n",
        f"{WAKE_UPS}::test_what_another_process_is_about_to_claim_is_left_to_it_for_a_moment",
        "mysql",
    ),
    Mutant(
        "what-others-have-moved-is-left-in-the-log",
        ENGINE,
        "        if due.groups:\n            return 0.0\n",
        "",
        f"{WAKE_UPS}::test_what_another_process_has_moved_into_the_log_is_claimed",
    ),
    Mutant(
        "what-was-fetched-ahead-waits-for-a-long-task",
        ENGINE,
        "            self._give_back_ahead(intake)\n",
        "",
        f"{WAKE_UPS}::test_what_was_fetched_ahead_of_a_task_that_takes_long_goes_to_an_idle_worker",
    ),
    Mutant(
        "what-was-given-back-is-fetched-again",
        ENGINE,
        "ahead = 0 if self.stands else min(",
        "ahead = min(",
        f"{WAKE_UPS}::test_what_was_fetched_ahead_of_a_task_that_takes_long_goes_to_an_idle_worker",
    ),
    Mutant(
        "what-was-fetched-ahead-is-given-back-at-once",
        ENGINE,
        "self.room() <= 0 and time.monotonic() - self.moved_at > STANDS_SECONDS",
        "self.room() <= 0",
        f"{WAKE_UPS}::test_what_was_fetched_ahead_is_kept_while_tasks_end",
    ),
    Mutant(
        "what-an-earlier-call-has-written-is-lost",
        ORDER,
        "            if not _take_over_written(ends, there):",
        "            if True:",
        f"{HANDS}::test_a_write_that_was_given_up_is_made_again_whole",
        "mysql",
    ),
    Mutant(
        "bits-of-another-holder-are-gone-on-from",
        ORDER,
        "        ours = token == one.delivery.token and not written & ~one.settled\n",
        "        ours = token == one.delivery.token\n",
        f"{TESTS}::test_who_has_lost_the_delivery_changes_nothing",
    ),
    Mutant(
        "a-split-that-was-given-up-is-lost",
        HANDS_OF,
        "tried=tried",
        "tried=False",
        f"{HANDS}::test_a_write_that_was_given_up_is_made_again_whole",
        "mysql",
    ),
    Mutant(
        "what-ends-of-a-delivery-that-may-be-split-is-written-to-its-row",
        HANDS_OF,
        "for hand in ended if not hand.splitting)",
        "for hand in ended)",
        f"{HANDS}::test_a_write_that_was_given_up_is_made_again_whole",
        "mysql",
    ),
    Mutant(
        "a-control-topic-that-is-deleted-is-not-made-again",
        CONTROL,
        "            self._partition = 0\n        return int(end or 0)",
        "            pass\n        return int(end or 0)",
        f"{WAKE_UPS}::test_a_control_topic_that_is_deleted_under_a_worker_is_made_again",
    ),
    Mutant(
        "the-split-of-a-part-takes-the-other-parts",
        ORDER,
        "                first_offset__gte=delivery.first_offset,\n",
        "",
        f"{HANDS}::test_the_split_of_a_part_takes_nothing_of_the_other_parts",
        "mysql",
    ),
    Mutant(
        "parts-of-a-split-without-a-reply-are-strays",
        HANDS_OF,
        "if any(hand.has(stray.token, stray.first_offset) for hand in splitting):",
        "if False:",
        f"{HANDS}::test_a_write_that_was_given_up_is_made_again_whole",
        "mysql",
    ),
    Mutant(
        "a-message-of-celery-that-cannot-be-read-keeps-its-claim",
        ENGINE,
        "            except Exception as error:  # noqa: BLE001 - anybody",
        "            except ZeroDivisionError as error:  # noqa: BLE001 - anybody",
        f"{HANDS}::test_a_message_that_cannot_be_read_is_a_dead_letter_and_the_others_of_its_claim_run",
        "mysql",
    ),
    Mutant(
        "a-group-that-was-opened-counts-as-joined",
        ENGINE,
        "            self._join(supply)\n        return supplies",
        "            supply.group or self._join(supply)\n        return supplies",
        f"{LEASE}::test_a_registration_that_failed_is_made_before_the_next_claim",
    ),
    Mutant(
        "messages-are-handed-over-without-a-lease",
        TRANSPORT,
        "while engine.alive and intake.buffer",
        "while intake.buffer",
        f"{LEASE}::test_nothing_is_handed_over_while_the_lease_is_in_doubt",
    ),
    Mutant(
        "a-deleted-group-ends-the-lease-of-all",
        ENGINE,
        "if client.renew() or (client.leave_deleted() and client.renew()):",
        "if client.renew():",
        f"{LEASE}::test_a_queue_that_was_deleted_takes_no_lease_from_the_others",
    ),
    Mutant(
        "a-task-without-a-lease-after-an-outage",
        ENGINE,
        "if not self.client.keeps(taken.delivery.client_id):",
        "if False:",
        f"{LEASE}::test_what_is_claimed_under_an_id_whose_lease_has_ended_is_given_back",
    ),
    Mutant(
        "a-group-joined-later-without-its-lock",
        DEATH_LOCK,
        "noted = id_, server, [*self._client.groups]",
        "noted = id_, server, []",
        f"{LEASE}::test_a_queue_that_is_consumed_later_is_covered_by_the_lock_too",
        db="mysql",
    ),
    Mutant(
        "a-message-for-whoever-waits-no-more",
        ENGINE,
        "            answer.add_done_callback(came)",
        "            pass",
        f"{LEASE}::test_a_message_that_comes_too_late_for_whoever_waited_is_given_back",
    ),
    Mutant(
        "the-slot-of-the-whole-after-a-split",
        HANDS_OF,
        "if delivery.pk == whole.delivery.pk:",
        "if False:",
        f"{LEASE}::test_after_a_split_the_file_says_of_each_part_what_has_ended",
    ),
    Mutant(
        "a-binding-with-a-header-more",
        CONTROL,
        "Binding(*(headers[name] for name in Binding._fields))",
        "Binding(**headers)",
        f"{BROKER}::test_what_is_bound_under_tracing_is_known_to_others",
    ),
    Mutant(
        "a-retry-in-the-transaction-of-its-task",
        CHANNEL,
        "        if apart:\n            elsewhere(self.naming.using, put)",
        "        if False:\n            elsewhere(self.naming.using, put)",
        f"{PUBLISHED}::test_a_retry_stands_though_the_transaction_of_its_task_is_rolled_back",
        "mysql",
    ),
    Mutant(
        "a-chain-that-replaces-a-task-in-its-transaction",
        CHANNEL,
        "return replaced or id_of(message)",
        "return id_of(message)",
        f"{PUBLISHED}::test_what_replaces_a_task_stands_though_its_transaction_is_rolled_back",
        "mysql",
    ),
    Mutant(
        "a-queue-that-is-not-durable-of-one-process",
        CHANNEL,
        'if options.get("auto_delete") or options.get("exclusive"):',
        'if options.get("auto_delete") or not options.get("durable", True):',
        f"{PUBLISHED}::test_a_queue_that_is_not_durable_is_one_of_tasks",
    ),
    Mutant(
        "a-fanout-that-misses-a-queue-that-is-not-durable",
        CHANNEL,
        'if kind == "fanout" and queue in self._brief:',
        "if False:",
        f"{PUBLISHED}::test_what_is_for_a_fanout_exchange_reaches_a_queue_that_is_not_durable",
    ),
    Mutant(
        "only-what-is-bound-here",
        CHANNEL,
        "        self._note(exchange, self.bindings.look())\n",
        "",
        f"{PUBLISHED}::test_each_queue_of_an_exchange_gets_its_copy_whoever_has_bound_it",
    ),
    Mutant(
        "a-learned-exchange-that-is-not-durable",
        CHANNEL,
        "one.type, durable=True)",
        "one.type)",
        f"{PUBLISHED}::test_each_queue_of_an_exchange_gets_its_copy_whoever_has_bound_it",
    ),
    Mutant(
        "a-binding-that-nothing-removes",
        CONTROL,
        'row.update(headers={**headers, REMOVED: "yes"})',
        "row.update(headers=headers)",
        f"{PUBLISHED}::test_a_queue_that_is_bound_no_more_gets_no_copy_from_any_process",
    ),
    Mutant(
        "a-process-that-keeps-what-was-removed",
        CHANNEL,
        "                super().queue_unbind(one.queue, exchange, one.key)\n",
        "",
        f"{PUBLISHED}::test_a_queue_that_is_bound_no_more_gets_no_copy_from_any_process",
    ),
    Mutant(
        "a-removal-that-is-rolled-back",
        CONTROL,
        "        if can_commit_apart(using):\n            elsewhere(using, work)",
        "        if False:\n            elsewhere(using, work)",
        f"{PUBLISHED}::test_a_queue_is_bound_no_more_though_the_transaction_is_rolled_back",
        "mysql",
    ),
    Mutant(
        "a-deletion-of-what-is-not-empty",
        CHANNEL,
        "if if_empty and self._waiting(queue):",
        "if False:",
        f"{PUBLISHED}::test_a_queue_that_is_not_empty_is_not_deleted_if_only_an_empty_one_is_to_be",
    ),
    Mutant(
        "an-exchange-for-ever-as-it-was-learned",
        CHANNEL,
        '.get("learned"):',
        '.get("unlearned"):',
        f"{PUBLISHED}::test_an_exchange_that_others_have_said_may_be_declared_in_another_way",
    ),
    Mutant(
        "a-message-for-a-later-queue-as-a-reply",
        CHANNEL,
        "if may_be_reply and not exchange",
        "if not exchange",
        f"{PUBLISHED}::test_what_is_no_reply_waits_for_a_queue_that_nobody_has_declared",
    ),
    Mutant(
        "a-task-without-headers-as-a-reply",
        ENVELOPE,
        '{"task", "id"} <= body.value.keys()',
        "False",
        f"{PUBLISHED}"
        "::test_what_is_sent_after_the_declaration_of_its_queue_was_rolled_back_is_kept",
    ),
    Mutant(
        "a-retry-that-another-database-refuses",
        CHANNEL,
        "using = self.naming.using if continues else self",
        "using = self",
        f"{PUBLISHED}::test_a_retry_in_a_transaction_on_another_database_stands",
    ),
    Mutant(
        "a-retry-for-processes-in-the-transaction-of-its-task",
        CHANNEL,
        "        if apart:\n            elsewhere(using, say)\n        elif",
        "        if",
        f"{PUBLISHED}"
        "::test_a_retry_for_a_fanout_exchange_stands_though_its_transaction_is_rolled_back",
        "mysql",
    ),
    Mutant(
        "another-connection-without-the-context",
        "streams/database/elsewhere.py",
        "target=copy_context().run, args=(run,),",
        "target=run,",
        "tests/streams/test_tracing.py"
        "::test_a_send_on_another_connection_belongs_to_the_span_of_its_caller",
    ),
    Mutant(
        "a-cold-shutdown-that-counts-no-attempt",
        HANDS_OF,
        "                if error is None and hand.begun & hand.bit(offset):\n",
        "                if False:\n",
        f"{PUBLISHED}::test_what_is_given_back_at_the_end_has_spent_an_attempt_if_it_had_begun",
    ),
    Mutant(
        "a-broker-on-two-databases",
        "streams/celery/naming.py",
        "if not host and (pattern := naming._on_another_shard()):",
        "if False:",
        f"{BROKER}::test_a_broker_whose_topics_are_on_another_database_must_be_named",
    ),
    Mutant(
        "a-purge-that-leaves-what-is-not-sequenced",
        PURGING,
        "while (pause := sequence(using, ids, until=until).goes_on_in) is not None:",
        "while (pause := None) is not None:",
        f"{BROKER}::test_a_purge_skips_what_has_an_eta_and_what_no_worker_has_seen",
    ),
    Mutant(
        "a-purge-that-leaves-what-has-an-eta",
        PURGING,
        "number += sum(delete_all(delayed, using, CANCELLABLE))",
        "number += delayed.count()",
        f"{BROKER}::test_a_purge_skips_what_has_an_eta_and_what_no_worker_has_seen",
    ),
    Mutant(
        "a-purge-that-leaves-what-was-given-back",
        PURGING,
        "parts = [part for one in locked for part in split(one)]",
        "parts: list[Delivery] = []",
        f"{BROKER}::test_a_purge_skips_what_was_given_back_and_leaves_what_is_in_hand",
    ),
    Mutant(
        "a-lease-that-ends-while-much-is-given-back",
        HANDS_OF,
        "                if time.monotonic() >= until:\n                    break\n",
        "",
        f"{HANDS}::test_a_thread_that_has_much_to_give_back_can_renew_the_lease_meanwhile",
        "mysql",
    ),
    Mutant(
        "a-purge-of-one-step",
        PURGING,
        "while skipped := retrying(",
        "if skipped := retrying(",
        f"{BROKER}::test_a_purge_skips_what_was_given_back_and_leaves_what_is_in_hand",
    ),
]

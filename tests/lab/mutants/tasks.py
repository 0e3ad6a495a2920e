"""Lists the mutants of Django's tasks on topics."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

HERE = "streams/contrib/tasks"
TESTS = "tests/tasks_"

TASKS = [
    Mutant(
        "an-end-without-the-token",
        f"{HERE}/sql.py",
        ' WHERE `id` = %s AND `token` = %s AND `status` = %s"\n)\n\n# Tells',
        ' WHERE `id` = %s AND %s IS NOT NULL AND %s IS NOT NULL"\n)\n\n# Tells',
        f"{TESTS}/test_kills.py::test_an_attempt_that_has_lost_its_lease_does_not_write_its_end",
    ),
    Mutant(
        "a-task-that-has-ended-runs-again",
        f"{HERE}/work.py",
        "        if not record.was_cancelled_waiting and record.is_first_of_round:\n",
        "        if True:\n",
        f"{TESTS}/test_cancel.py::test_a_task_that_waits_is_cancelled",
    ),
    Mutant(
        "a-cancelled-round-runs",
        f"{HERE}/work.py",
        "if not record.was_cancelled_waiting and record.is_first_of_round:",
        "if record.attempts and record.is_first_of_round:",
        f"{TESTS}/test_cancel.py::test_a_redriven_task_that_waits_for_a_slot_is_cancelled",
    ),
    Mutant(
        "a-replay-runs-what-was-cancelled",
        f"{HERE}/cancelling.py",
        ', attempts_before=F("attempts")',
        "",
        f"{TESTS}/test_cancel.py::test_a_replay_does_not_run_what_was_cancelled_while_it_waited",
    ),
    Mutant(
        "a-start-over-a-cancellation",
        f"{HERE}/sql.py",
        "`offset` = %s WHERE `id` = %s AND `token` = %s AND `status` = %s",
        "`offset` = %s WHERE `id` = %s AND `token` = %s AND %s IS NOT NULL",
        f"{TESTS}/test_cancel.py::test_a_task_that_is_cancelled_just_before_it_begins_does_not_run",
        db="mysql",
    ),
    Mutant(
        "a-wait-over-a-cancellation",
        f"{HERE}/sql.py",
        '`cancelled_at` = NULL"\n    " WHERE `id` = %s AND `token` = %s AND `status` = %s',
        '`cancelled_at` = NULL"\n    " WHERE `id` = %s AND `token` = %s AND %s IS NOT NULL',
        f"{TESTS}/test_cancel.py"
        "::test_a_task_that_is_cancelled_just_before_it_waits_for_a_slot_does_not_run",
        db="mysql",
    ),
    Mutant(
        "an-attempt-that-is-not-told",
        f"{HERE}/sql.py",
        "CASE WHEN %s THEN NULL",
        "CASE WHEN %s >= 0 THEN NULL",
        f"{TESTS}/test_kills.py::test_the_attempt_after_one_that_was_cancelled_is_told_too",
    ),
    Mutant(
        "a-replay-that-is-told",
        f"{HERE}/record.py",
        "            anew,\n",
        "            False,\n",
        f"{TESTS}/test_kills.py::test_the_attempt_after_one_that_was_cancelled_is_told_too",
    ),
    Mutant(
        "a-death-spends-no-attempt",
        f"{HERE}/work.py",
        "if not record.is_first_of_round and self._is_spent(record.attempts):",
        "if False:",
        f"{TESTS}/test_kills.py"
        "::test_a_task_that_kills_its_process_has_failed_and_its_neighbours_run",
    ),
    Mutant(
        "a-waiting-task-without-attempts-never-ends",
        f"{HERE}/work.py",
        "        self._end_failed(before)\n        raise TaskFailed(record.last_error)",
        "        self._end_failed()\n        raise TaskFailed(record.last_error)",
        f"{TESTS}/test_backend.py::test_a_task_that_waits_has_failed_once_it_may_have_fewer_attempts",
    ),
    Mutant(
        "a-waiting-task-that-is-gone-never-ends",
        f"{HERE}/work.py",
        "self._fail(self._unknown, before=before)",
        "self._fail(self._unknown)",
        f"{TESTS}/test_backend.py::test_a_task_that_waits_has_failed_once_it_is_gone",
    ),
    Mutant(
        "a-round-is-over-before-it-begins",
        f"{HERE}/record.py",
        " or (self.status in ENDED and self._is_of_earlier_round())",
        "",
        f"{TESTS}/test_kills.py::test_a_round_whose_first_attempt_dies_before_the_task_begins_runs_it",
    ),
    Mutant(
        "an-end-of-no-delivery",
        f"{HERE}/record.py",
        "pk__gt=self.found_token >> RANDOM_BITS,",
        "pk__gt=0,",
        f"{TESTS}/test_kills.py::test_a_task_that_has_ended_in_a_round_is_not_run_again_in_it",
    ),
    Mutant(
        "a-redriven-task-has-no-attempts",
        f"{HERE}/record.py",
        "self.attempts_before, self.started_at, self.cancelled = self.attempts, None, False",
        "self.started_at, self.cancelled = None, False",
        f"{TESTS}/test_backend.py::test_a_redriven_task_has_all_its_attempts_again",
    ),
    Mutant(
        "a-key-that-is-never-freed",
        f"{HERE}/work.py",
        "        if self._envelope.unique == until:\n",
        "        if False:\n",
        f"{TESTS}/test_unique.py::test_a_task_that_has_ended_may_be_enqueued_again",
    ),
    Mutant(
        "a-slot-that-is-not-freed",
        f"{HERE}/work.py",
        "                slot.free()\n",
        "                pass\n",
        f"{TESTS}/test_limits.py::test_a_slot_is_free_after_a_success_and_after_a_failure",
    ),
    Mutant(
        "the-slot-of-the-living-taken-over",
        f"{HERE}/slots.py",
        "if number >= self.limit or (token and self._is_held(place)):",
        "if number >= self.limit:",
        f"{TESTS}/test_limits.py::test_a_task_waits_while_all_slots_are_taken",
    ),
    Mutant(
        "the-slot-of-the-dead-never-free",
        f"{HERE}/slots.py",
        "        return retrying(held.exists, self._using)\n",
        "        return True\n",
        f"{TESTS}/test_limits.py"
        "::test_the_slot_of_a_process_that_died_is_free_once_its_delivery_has_ended",
    ),
    Mutant(
        "priorities-by-turns",
        f"{HERE}/queues.py",
        "            ranked(topic_of(queue), GROUP, rank_of)\n",
        "",
        f"{TESTS}/test_priority.py::test_tasks_run_by_their_priority",
    ),
    Mutant(
        "a-batch-ends-with-its-first-task",
        f"{HERE}/batches.py",
        "if ended < row.total:",
        "if not ended:",
        f"{TESTS}/test_batches.py::test_a_batch_ends_when_its_last_task_has_ended",
    ),
    Mutant(
        "a-batch-whose-end-is-on-another-database",
        f"{HERE}/batches.py",
        "on = {alias_of(topic_of(task.queue_name)) for task in tasks}",
        "on = {alias_of(topic_of(task.queue_name)) for task, _args, _kwargs in calls}",
        f"{TESTS}/test_batches.py"
        "::test_a_batch_whose_end_is_on_another_database_is_refused[on_success]",
    ),
    Mutant(
        "an-erased-task-waits-for-ever",
        f"{HERE}/erasing.py",
        "[*retrying(list, using, ready), *_counted(using, topic, messages)]",
        "_counted(using, topic, messages)",
        f"{TESTS}/test_erasing.py::test_a_task_that_waits_for_its_next_attempt_has_failed",
    ),
    Mutant(
        "an-erasure-forgets-the-batch",
        "streams/operate/erasure.py",
        "    _erase_others(topic, mine, using)\n    _overwrite",
        "    _overwrite",
        f"{TESTS}/test_erasing.py::test_a_task_that_has_not_begun_has_failed_for_its_batch",
    ),
    Mutant(
        "an-erased-task-runs-for-ever",
        f"{HERE}/work.py",
        "        erasing.fail(alias_of(message.topic), message.topic, message.message_id)\n",
        "",
        f"{TESTS}/test_erasing.py::test_an_erased_task_has_failed_before_it_is_a_dead_letter",
    ),
    Mutant(
        "a-tick-is-sent-again",
        f"{HERE}/schedules.py",
        "        if not rows.filter(last_tick_at__lt=tick).update(last_tick_at=tick):\n",
        "        if False:\n",
        f"{TESTS}/test_schedules.py::test_of_the_missed_ticks_the_newest_one_is_enqueued",
    ),
    Mutant(
        "a-tick-at-once",
        f"{HERE}/schedules.py",
        "task = self.task().using(run_after=shown(tick))",
        "task = self.task()",
        f"{TESTS}/test_schedules.py::test_a_tick_is_sent_before_its_time_and_runs_at_it",
    ),
    Mutant(
        "a-timeout-of-a-task-without-effect",
        "streams/process/shared/in_flight.py",
        "calls.given_up or calls.overdue or ",
        "calls.given_up or ",
        f"{TESTS}/test_timing.py"
        "::test_the_process_of_a_task_that_takes_longer_than_its_timeout_ends",
    ),
    Mutant(
        "a-rate-of-no-queue",
        f"{HERE}/queues.py",
        '                rate=backend.known.for_queue("rate", queue),\n',
        "",
        f"{TESTS}/test_timing.py::test_a_rate_is_that_of_the_group_of_its_queue",
    ),
    Mutant(
        "a-schedule-runs-again-for-one-preview",
        f"{HERE}/acts.py",
        'rows.update(runs=F("runs") + 1)',
        "rows.exists()",
        f"{TESTS}/test_operating.py::test_a_schedule_runs_now_once_for_each_preview",
    ),
    Mutant(
        "a-task-runs-without-a-slot",
        f"{HERE}/slots.py",
        "        return self.held\n",
        "        return True\n",
        f"{TESTS}/test_limits.py"
        "::test_as_many_run_at_once_as_the_limit_says_and_the_next_one_waits",
    ),
    Mutant(
        "arguments-that-no-column-takes",
        f"{HERE}/backend.py",
        'check_storable(content, "The arguments are")',
        "pass",
        f"{TESTS}/test_arguments.py"
        "::test_arguments_that_a_column_cannot_hold_are_refused_before_anything_is_written",
    ),
    Mutant(
        "metadata-that-no-column-takes",
        f"{HERE}/backend.py",
        'check_storable(result.metadata, "The metadata is")',
        "pass",
        f"{TESTS}/test_arguments.py::test_metadata_that_a_column_cannot_hold_is_refused",
    ),
    Mutant(
        "an-edit-that-no-column-takes",
        f"{HERE}/acts.py",
        'check_storable(arguments, "The arguments are")',
        "pass",
        f"{TESTS}/test_arguments.py::test_edited_arguments_that_a_column_cannot_hold_are_refused",
    ),
    Mutant(
        "a-refused-row-is-tried-for-ever",
        f"{HERE}/record.py",
        " or error_number(error) in NOT_JSON",
        "",
        f"{TESTS}/test_arguments.py"
        "::test_a_task_whose_arguments_the_server_does_not_take_has_failed",
        db="mysql",
    ),
    Mutant(
        "a-refused-row-that-is-left-out",
        f"{HERE}/sql.py",
        '    f"INSERT INTO `ems_task` ({_COLUMNS})"',
        '    f"INSERT IGNORE INTO `ems_task` ({_COLUMNS})"',
        f"{TESTS}/test_arguments.py::test_a_task_without_any_row_is_a_dead_letter",
        db="mysql",
    ),
    Mutant(
        "a-refused-row-with-its-arguments",
        f"{HERE}/work.py",
        "replace(record.envelope, args=[], kwargs={}, metadata={})",
        "replace(record.envelope)",
        f"{TESTS}/test_arguments.py"
        "::test_a_task_whose_arguments_the_server_does_not_take_has_failed",
        db="mysql",
    ),
    Mutant(
        "a-lost-reply-is-a-second-copy",
        f"{HERE}/once.py",
        "        if result.duplicate:\n",
        "        if False:\n",
        f"{TESTS}/test_lost_replies.py"
        "::test_a_task_is_enqueued_once_if_the_reply_to_the_commit_is_lost",
        db="mysql",
    ),
    Mutant(
        "a-further-try-without-consent",
        f"{HERE}/once.py",
        "            if self._tried:  #",
        "            if False:  #",
        f"{TESTS}/test_lost_replies.py"
        "::test_what_another_operator_does_between_two_tries_is_told_apart",
        db="mysql",
    ),
    Mutant(
        "the-key-of-an-act-is-freed",
        f"{HERE}/backend.py",
        'headers.pop("unique", None)',
        "pass",
        f"{TESTS}/test_lost_replies.py"
        "::test_a_unique_task_that_has_ended_before_the_next_try_is_not_enqueued_again",
        db="mysql",
    ),
    Mutant(
        "a-pause-asked-after-it",
        f"{HERE}/acts.py",
        "changed = retrying(rows.exists, using)\n"
        "        retrying(lambda: rows.update(paused=paused), using)\n",
        "changed = bool(retrying(lambda: rows.update(paused=paused), using))\n",
        f"{TESTS}/test_lost_replies.py::test_a_pause_whose_reply_is_lost_is_said_to_be_done",
        db="mysql",
    ),
    Mutant(
        "the-key-of-what-others-have-buried",
        f"{HERE}/buried.py",
        "        free(one.message_id, using)\n",
        "        pass\n",
        f"{TESTS}/test_unique.py"
        "::test_a_task_whose_dead_letter_others_have_written_may_be_enqueued_again",
    ),
    Mutant(
        "a-window-ends-with-a-dead-letter",
        f"{HERE}/buried.py",
        "if one.unique in (UNTIL_START, UNTIL_FINISH):",
        "if one.unique:",
        f"{TESTS}/test_unique.py"
        "::test_a_window_goes_on_after_a_dead_letter_that_others_have_written",
    ),
    Mutant(
        "a-row-deleted-though-it-runs-again",
        f"{HERE}/prune.py",
        'rows.order_by("finished_at"), using, ENDED)',
        'rows.order_by("finished_at"), using)',
        f"{TESTS}/test_operating.py::test_the_command_does_not_delete_a_task_that_runs_again",
    ),
    Mutant(
        "a-key-of-a-limit-that-fails-for-ever",
        "streams/contrib/tasks/work.py",
        "        except Exception as error:  # noqa: BLE001 - limit_key may be",
        "        except ArithmeticError as error:  # noqa: BLE001 - limit_key may be",
        "tests/tasks_/test_limits.py"
        "::test_a_task_whose_key_cannot_be_told_fails_as_often_as_it_may",
    ),
]

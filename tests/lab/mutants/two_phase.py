"""Lists the mutants of prepared messages: bugs that TrustMessage has had, or that others have."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

PREPARE = "streams/two_phase/prepare.py"
STATEMENTS = "streams/database/sql/prepared.py"
MATRIX = "tests/guarantees/test_two_phase.py"
PARTS = "tests/streams/test_two_phase.py"

TWO_PHASE = [
    Mutant(
        "commits-without-the-lock",
        STATEMENTS,
        'LOCK = for_each_vendor(_READ_ONE + " {lock}")\n',
        "LOCK = for_each_vendor(_READ_ONE)\n",
        f"{MATRIX}::test_who_comes_second_waits_and_sees_the_decision",
        "mysql",
    ),
    # The guarded update is what is left where a lock is lost.
    Mutant(
        "no-lock-and-no-state-guard",
        STATEMENTS,
        'f" WHERE `id` = %s AND `state` IN ({found})"',
        'f" WHERE `id` = %s"',
        f"{PARTS}::test_a_row_that_was_changed_behind_the_lock_is_not_written",
    ),
    Mutant(
        "decides-by-the-id-alone",
        STATEMENTS,
        '" WHERE `id` = %s AND `biz` = %s AND `biz_key` = %s"',
        '" WHERE `id` = %s AND (`biz` = %s OR 1) AND (`biz_key` = %s OR 1)"',
        f"{MATRIX}::test_a_commit_by_an_id_of_others_finds_its_message_by_the_key",
    ),
    Mutant(
        "locks-the-key-of-what-is-decided",
        STATEMENTS,
        'f"SELECT {{now}}, {_READ} FROM `ems_prepared` {{primary}}"',
        'f"SELECT {{now}}, {_READ} FROM `ems_prepared` FORCE INDEX (ems_prepared_key)"',
        f"{MATRIX}::test_a_prepare_waits_for_no_transaction_that_decides_about_its_key",
        "mysql",
    ),
    Mutant(
        "prepares-what-is-rolled-back-again",
        PREPARE,
        "    if found.state == PreparedState.ROLLED_BACK:\n",
        "    if False:\n",
        f"{PARTS}::test_a_repeated_prepare_changes_nothing",
    ),
    Mutant(
        "another-check-is-the-same-content",
        "streams/two_phase/prepare.py",
        " or not same_check:",
        ":",
        f"{PARTS}::test_the_same_prepare_again_is_the_same_and_other_content_is_a_conflict",
    ),
    Mutant(
        "repeat-of-an-earlier-version-is-other-content",
        "streams/two_phase/content.py",
        "json.dumps([*parts, told])",
        "json.dumps([*parts, told, checker])",
        f"{PARTS}::test_what_an_earlier_version_has_prepared_is_the_same_when_it_is_prepared_again",
    ),
    Mutant(
        "an-endpoint-moved-without-its-secret",
        "streams/admin/pages/endpoint.py",
        "            if not hmac.compare_digest(typed.encode(), was.secret.encode()):\n",
        "            if False:\n",
        "tests/admin/test_prepared.py::test_who_changes_where_ems_asks_must_type_the_secret_again",
    ),
    Mutant(
        "inserts-without-a-look-in-a-transaction",
        PREPARE,
        """        found = _same_key(content, using)
        if found is not None:
            return _again(found, content, using)
        try:
""",
        "        try:\n",
        f"{MATRIX}::test_a_repeated_prepare_in_a_transaction_locks_no_gap",
        "mysql",
    ),
    # TrustMessage: COMMIT falls through into ROLLBACK after a check.
    Mutant(
        "commit-falls-through-into-rollback",
        "streams/two_phase/checking.py",
        "decide = commit if is_commit else roll_back",
        "decide = roll_back",
        f"{PARTS}::test_an_answer_decides",
    ),
    # TrustMessage: a rollback through the topic commits.
    Mutant(
        "rollback-by-topic-commits",
        "streams/two_phase/submission.py",
        "            roll_back(biz, biz_key, by=by, using=on, patience=PATIENCE)\n",
        "            commit(biz, biz_key, by=by, using=on, patience=PATIENCE)\n",
        "tests/streams/test_two_phase_submission.py"
        "::test_a_rollback_through_the_topic_sends_nothing",
    ),
    Mutant(
        "away-stops-prepared-messages-of-all",
        "streams/two_phase/lookup.py",
        "    if not found and away:\n",
        "    if away:\n",
        "tests/streams/test_shards.py"
        "::test_a_database_that_is_away_stops_no_message_of_another_one",
    ),
    # TrustMessage: VERIFY_FAIL one check late.
    Mutant(
        "one-check-too-many",
        "streams/two_phase/claim.py",
        "        row.is_last = row.is_last or row.checks >= limit\n",
        "        row.is_last = row.is_last or row.checks > limit\n",
        f"{PARTS}::test_the_schedule_is_a_minute_more_each_time_and_then_a_person",
    ),
    Mutant(
        "rollback-on-404",
        "streams/two_phase/asking.py",
        "        raise CheckFailed(str(error)) from error\n",
        "        return Decision.ROLLBACK\n",
        f"{MATRIX}::test_an_endpoint_that_lies_is_an_error_and_never_a_rollback",
    ),
    Mutant(
        "an-outage-spends-checks",
        "streams/two_phase/checking.py",
        "            _note(row, answer, using)\n    _give_back([row], using)\n",
        "            _note(row, answer, using)\n",
        f"{MATRIX}::test_an_endpoint_that_is_down_spends_no_checks_and_is_paused",
    ),
    Mutant(
        "one-message-pauses-an-endpoint",
        "streams/two_phase/checking.py",
        "in_a_row += answer.failure is Unreachable or row.last_answer != ERROR",
        "in_a_row += 1",
        f"{MATRIX}::test_one_message_that_is_never_answered_pauses_no_endpoint",
    ),
    Mutant(
        "an-endpoint-that-is-down-is-asked-about-the-oldest",
        "streams/two_phase/checking.py",
        "            random.shuffle(rows)\n"
        "            rows.sort(key=lambda row: row.last_answer == ERROR)\n",
        "            pass\n",
        f"{MATRIX}::test_messages_that_are_never_answered_keep_no_other_waiting",
    ),
    Mutant(
        "a-round-asks-who-was-due-at-its-begin",
        "streams/two_phase/checking.py",
        "        names = retrying(due_checkers, self._using, self._using)\n",
        "        names = self.names = vars(self).get('names') or due_checkers(self._using)\n",
        f"{PARTS}::test_a_checker_that_becomes_due_in_a_round_waits_for_no_backlog",
    ),
    Mutant(
        "what-is-just-due-is-for-a-person",
        "streams/two_phase/claim.py",
        '        rows = list(old.filter(next_at__lt=UtcNow(-OVERDUE)).defer("body"))\n',
        '        rows = list(old.defer("body"))\n',
        f"{PARTS}::test_nobody_gets_a_message_that_is_just_due",
    ),
    Mutant(
        "checks-claimed-without-skip-locked",
        STATEMENTS,
        'f" ORDER BY `next_at` LIMIT %s {SKIP_LOCKED[vendor]}"',
        'f" ORDER BY `next_at` LIMIT %s"',
        f"{MATRIX}::test_two_checkers_get_different_messages",
        "mysql",
    ),
    Mutant(
        "prepared-in-the-callers-transaction",
        PREPARE,
        "    if not in_transaction(using):\n",
        "    if True:\n",
        f"{MATRIX}::test_prepare_is_committed_though_the_transaction_of_its_caller_is_rolled_back",
        "mysql",
    ),
    Mutant(
        "a-dispute-begins-again",
        "streams/two_phase/dispute.py",
        " or row.message_id is not None:\n",
        ":\n",
        f"{PARTS}::test_a_person_ends_a_dispute_for_good",
    ),
    Mutant(
        "sends-anyway-twice",
        "streams/two_phase/operator.py",
        "            pk=pk, state=PreparedState.ROLLED_BACK, message_id=None\n",
        "            pk=pk, state=PreparedState.ROLLED_BACK\n",
        f"{PARTS}::test_sending_anyway_sends_what_was_rolled_back_once",
    ),
]

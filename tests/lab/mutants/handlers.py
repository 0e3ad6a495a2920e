"""Lists the mutants of slow handlers, of rude ones, and of calls that are given up."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

CLAIMERS = "tests/concurrency/test_claimers.py"
EXPIRE = "streams/consume/outcome/expire.py"
GATE = "streams/process/shared/gate.py"
GATES = "tests/runtime/test_gate.py"
GIVE_UP = "tests/guarantees/test_give_up.py"
HANDLING = "streams/deliver/handling.py"
PACE = "streams/deliver/pace.py"
SESSION = "streams/consume/session.py"
SETTLE_SQL = "streams/database/sql/settle.py"
RUDE = "tests/guarantees/test_rude_handlers.py"
SHARING = "tests/guarantees/test_sharing.py"

HANDLERS = [
    Mutant(
        "unknown-handlers-claim-a-batch",
        PACE,
        "call = 1 if self.single else batch",
        "call = batch",
        "tests/runtime/test_pace.py::test_where_a_call_gets_one_message_a_claim_may_be_one",
    ),
    Mutant(
        "each-thread-learns-alone",
        "streams/process/turn.py",
        "pace=feed.pace,",
        "pace=type(feed.pace)(single=feed.pace.single),",
        "tests/guarantees/test_large_claims.py::test_what_one_thread_has_learned_the_others_know",
    ),
    Mutant(
        "threads-wait-in-the-server",
        "streams/process/turn.py",
        "locks=feed.locks",
        "locks=type(feed.locks)()",
        f"{CLAIMERS}::test_threads_of_a_process_do_not_wait_for_each_other_in_the_server",
        "mysql",
    ),
    Mutant(
        "cursors-of-the-process-asked-for",
        "streams/deliver/claim.py",
        "if mine and (taken",
        "if (taken",
        f"{CLAIMERS}::test_a_thread_asks_for_no_cursor_that_another_one_of_its_process_has",
        "mysql",
    ),
    Mutant(
        "last-come-first-served",
        "streams/deliver/cursor_locks.py",
        "waiting.popleft()",
        "waiting.pop()",
        "tests/runtime/test_cursor_locks.py"
        "::test_threads_are_served_in_the_order_in_which_they_come",
    ),
    Mutant(
        "cursor-waited-for-in-the-process-for-ever",
        "streams/deliver/cursor_locks.py",
        "turn.acquire(timeout=PATIENCE_SECONDS)",
        "turn.acquire(timeout=60)",
        "tests/runtime/test_cursor_locks.py::test_who_waits_for_long_goes_on_without_its_turn",
    ),
    Mutant(
        "turn-at-the-last-moment-lost",
        "streams/deliver/cursor_locks.py",
        "            if turn not in waiting:\n                return True",
        "            if turn not in waiting:\n                return False",
        "tests/runtime/test_cursor_locks.py::test_a_turn_that_comes_at_the_last_moment_is_taken",
    ),
    Mutant(
        "nearly-done-shared",
        HANDLING,
        "late = ran > SHARED_SECONDS and not self._is_nearly_done(rest, ran)",
        "late = ran > SHARED_SECONDS",
        f"{SHARING}::test_what_is_nearly_done_is_not_given_back",
    ),
    Mutant(
        "behind-a-long-call-kept",
        HANDLING,
        "return not in_call and rest * ran",
        "return rest * ran",
        f"{SHARING}::test_what_is_nearly_done_is_not_given_back",
    ),
    Mutant(
        "gate-passed-while-one-is-alone",
        GATE,
        "        if self._closed:\n            with self._condition:\n                self._inside",
        "        if False:\n            with self._condition:\n                self._inside",
        f"{GATES}::test_nobody_goes_in_beside_the_one_who_is_alone",
    ),
    Mutant(
        "gate-looked-at-before-it-is-entered",
        GATE,
        "        self._inside.add(caller)\n        if self._closed:\n",
        "        closed = self._closed\n        self._inside.add(caller)\n        if closed:\n",
        f"{GATES}::test_who_goes_in_as_another_one_becomes_alone_waits",
    ),
    Mutant(
        "gate-left-without-a-word",
        GATE,
        "        self._inside.discard(caller)\n        if self._closed:\n",
        "        self._inside.discard(caller)\n        if False:\n",
        f"{GATES}::test_who_wants_to_be_alone_waits_for_all_others_to_leave",
    ),
    # Two would handle the same message.
    Mutant(
        "calls-begun-beyond-the-end",
        HANDLING,
        "if messages[0].offset > self.delivery.last_offset:",
        "if False:",
        f"{SHARING}::test_a_call_that_was_given_back_does_not_begin_here",
    ),
    Mutant(
        "settled-beyond-the-end",
        HANDLING,
        "until = min(progress, self.delivery.last_offset + 1)",
        "until = progress",
        f"{SHARING}::test_a_call_that_ends_while_the_rest_is_given_back_is_settled_up_to_there",
        "mysql",
    ),
    Mutant(
        "settled-while-the-rest-is-given-back",
        HANDLING,
        "        with self._ending:\n            until",
        "        if True:\n            until",
        f"{SHARING}::test_a_call_that_ends_while_the_rest_is_given_back_is_settled_up_to_there",
        "mysql",
    ),
    Mutant(
        "settled-whatever-the-end-is",
        SETTLE_SQL,
        '" AND `last_offset` = %s"',
        '" AND %s >= 0"',
        f"{SHARING}::test_a_settlement_that_does_not_know_of_the_end_is_refused",
    ),
    Mutant(
        "swept-to-an-old-end",
        EXPIRE,
        '["progress", "last_offset", *',
        '["progress", *',
        f"{SHARING}::test_a_sweep_takes_no_offset_that_was_given_back_since_it_looked",
    ),
    Mutant(
        "ordered-groups-share",
        HANDLING,
        "or self.ordered or self.lost",
        "or self.lost",
        f"{SHARING}::test_an_ordered_group_keeps_what_waits_behind_a_call",
    ),
    Mutant(
        "end-of-an-atomic-claim-taken-back",
        HANDLING,
        "            if self.ordered:  # the failed",
        "            if True:  # the failed",
        f"{SHARING}::test_what_waits_behind_an_atomic_call_is_given_back_once",
        "mysql",
    ),
    Mutant(
        "given-up-beside-an-order",
        HANDLING,
        "return slow or now",
        "return now",
        f"{GIVE_UP}::test_an_ordered_group_goes_back_to_it",
    ),
    Mutant(
        "given-up-with-what-had-ended",
        HANDLING,
        "                self._settle_ended()\n",
        "",
        f"{GIVE_UP}::test_calls_that_ended_before_it_have_the_outcome_that_they_had",
    ),
    Mutant(
        "a-policy-asked-under-a-lock",
        HANDLING,
        "        if self.ordered:  # it shares no failures",
        "        if True:  # it shares no failures",
        f"{GIVE_UP}::test_the_retry_policy_is_asked_once_by_the_thread_of_the_call"
        "_and_under_no_lock",
        "mysql",
    ),
    Mutant(
        "settled-twice-for-its-holder",
        HANDLING,
        "if one.offset >= self.delivery.progress",
        "if one",
        f"{GIVE_UP}::test_who_comes_to_settle_a_moment_later_settles_the_rest",
    ),
    Mutant(
        "a-look-that-waits-for-a-row",
        "streams/consume/outcome/settle.py",
        'return bool(delivery.held().select_for_update(skip_locked=True).values_list("pk"))',
        'return bool(delivery.held().select_for_update().values_list("pk"))',
        f"{GIVE_UP}::test_a_row_that_others_have_locked_is_left_to_a_later_look",
        "mysql",
    ),
    Mutant(
        "given-up-and-kept",
        HANDLING,
        "            self.given_up = was_given_up(self.delivery)\n",
        "",
        f"{GIVE_UP}::test_the_process_of_a_call_that_was_given_up_ends",
    ),
    Mutant(
        "every-lost-lease-ends-the-process",
        EXPIRE,
        "return rows.filter(state=State.RETRY, error=describe(CallGivenUp())).exists()",
        "return rows.exists()",
        f"{GIVE_UP}::test_a_lease_that_is_lost_otherwise_ends_no_process",
    ),
    Mutant(
        "given-up-and-suspected",
        EXPIRE,
        "again and isinstance(reason, ProcessDied) and (dead or not _client_is_live(delivery))",
        "again",
        f"{GIVE_UP}::test_a_call_that_is_given_up_after_a_death_is_no_suspect",
    ),
    # The next statement of EMS would fail, and end the process.
    Mutant(
        "rude-session-kept",
        "streams/consume/calling.py",
        "            self._session.mend()\n",
        "",
        f"{RUDE}::test_what_a_handler_leaves_fails_its_call_alone[read-only]",
        "mysql",
    ),
    Mutant(
        "rude-atomic-session-kept",
        HANDLING,
        "if connection_lost(error) or self._caller.changed:",
        "if connection_lost(error):",
        f"{RUDE}::test_an_atomic_handler_that_leaves_something_is_rolled_back[database-True]",
        "mysql",
    ),
    Mutant(
        "session-looked-at-after-every-call",
        SESSION,
        '(not harmless or ";" in sql) and sql != _OWN',
        "True",
        f"{RUDE}::test_a_handler_that_leaves_nothing_costs_no_statement",
        "mysql",
    ),
    Mutant(
        "spoilt-past-django-ends-the-process",
        HANDLING,
        "if self._atomic or not spoilt(error):",
        "if True:",
        f"{RUDE}::test_what_is_done_past_django_does_not_end_the_process",
        "mysql",
    ),
]

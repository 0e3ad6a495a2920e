"""Lists the mutants of what follows from a death, and of how it is noticed."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

EXPIRE = "streams/consume/outcome/expire.py"
GONE = "streams/steps/gone_clients.py"
LOCK = "streams/process/shared/death_lock.py"
LAST = "tests/guarantees/test_last_attempts.py"
AFTER = "tests/guarantees/test_after_a_death.py"
LOCKS = "tests/guarantees/test_death_lock.py"

DYING = [
    # What the first kill did: 36 of 40 messages, whose handler had never been called.
    Mutant(
        "buried-though-not-called",
        EXPIRE,
        " and delivery.started_at is None\n    by_itself",
        " and False\n    by_itself",
        f"{LAST}::test_a_death_before_the_call_spends_nothing",
    ),
    Mutant(
        "start-of-one-of-several-calls",
        "streams/consume/outcome/settle.py",
        "later(vendor, -running) if ends else None",
        "later(vendor, -running)",
        f"{LAST}::test_a_limit_that_is_lowered_under_a_claim_buries_nothing_uncalled",
    ),
    Mutant(
        "more-held-than-is-called",
        "streams/deliver/handling.py",
        "            hold(self.delivery, opened.messages)\n",
        "",
        f"{LAST}::test_nor_is_what_did_not_fit_into_the_call",
    ),
    Mutant(
        "uncalled-attempt-was-the-last",
        "streams/deliver/opening.py",
        "    if ended_uncalled(delivery, delivery.first_offset, delivery.using):\n",
        "    if False:\n",
        f"{LAST}::test_whoever_does_not_know_the_limit_buries_nothing_uncalled",
    ),
    Mutant(
        "second-death-at-once",
        EXPIRE,
        "delay if again or (_has_lease",
        "delay if (_has_lease",
        f"{AFTER}::test_from_the_second_death_in_a_row_on_it_waits_by_the_ladder",
    ),
    Mutant(
        "overdue-call-repeated-at-once",
        EXPIRE,
        "delay if again or (_has_lease(delivery) and not dead)",
        "delay if again",
        f"{AFTER}::test_an_overdue_call_of_a_process_that_lives_is_not_repeated_at_once",
    ),
    Mutant(
        "suspects-of-two-groups-together",
        "streams/process/turn.py",
        "with self._runtime.suspects.alone(), self._feed.gate.alone():",
        "with self._feed.gate.alone():",
        f"{AFTER}::test_suspects_of_two_groups_run_one_after_the_other",
    ),
    Mutant(
        "dead-as-soon-as-the-lock-is-free",
        GONE,
        "if now - since >= FREE_SECONDS]",
        "if now - since >= 0.0]",
        f"{LOCKS}::test_whoever_takes_it_again_within_the_second_lives",
        "mysql",
    ),
    Mutant(
        "judged-right-after-a-failover",
        GONE,
        "is_known = now - self._since >= LEASE_SECONDS",
        "is_known = True",
        f"{LOCKS}::test_on_a_server_that_is_new_to_it_nobody_judges_for_a_lease",
        "mysql",
    ),
    Mutant(
        "judged-by-who-has-lost-its-own-lock",
        GONE,
        " or own not in held",
        "",
        f"{LOCKS}::test_whoever_has_lost_its_own_lock_does_not_judge",
        "mysql",
    ),
    Mutant(
        "all-dead-at-once",
        GONE,
        " or len(free) > len(held)",
        "",
        f"{LOCKS}::test_when_most_locks_are_free_at_once_the_leases_decide",
        "mysql",
    ),
    Mutant(
        "dead-though-renewed-meanwhile",
        "streams/database/sql/locks.py",
        " AND `lease_until` <= %s",
        " AND %s IS NOT NULL",
        f"{LOCKS}::test_whoever_renews_its_lease_meanwhile_lives",
        "mysql",
    ),
    Mutant(
        "noted-before-it-is-held",
        LOCK,
        "        if not taken:",
        "        if False:",
        f"{LOCKS}::test_while_the_server_holds_on_to_the_last_session_nothing_is_noted",
        "mysql",
    ),
    Mutant(
        "lock-of-another-session-kept",
        LOCK,
        "!= [(self._session, self._session)]:",
        "!= [(self._session, self._session)] and False:",
        f"{LOCKS}::test_a_lock_that_is_lost_behind_a_proxy_is_not_noted_any_more",
        "mysql",
    ),
    Mutant(
        "end-of-the-connection-unseen",
        LOCK,
        "return bool(poll.poll(0)) and",
        "return False and",
        f"{LOCKS}::test_a_connection_that_was_killed_is_noticed_without_a_statement",
        "mysql",
    ),
    Mutant(
        "deregistered-before-the-last-beat",
        "streams/process/supervisor.py",
        "            self._heartbeat.join(LEAVE_SECONDS)\n",
        "",
        "tests/runtime/test_database.py::test_a_beat_that_runs_at_the_end_registers_nobody_again",
    ),
    Mutant(
        "connections-of-the-project-before-leave-is-taken",
        "streams/process/supervisor.py",
        "        if not self.left_behind and not (self._leaving and self._leaving.is_alive()):\n",
        "        if not self.left_behind:\n",
        "tests/runtime/test_database.py"
        "::test_who_takes_leave_late_does_so_on_the_connections_of_consumers",
    ),
]

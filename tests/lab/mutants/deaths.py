"""Lists the mutants of what follows from the death of a process: see decision 12."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

SLOT = "streams/deliver/slot.py"
CALLS = "streams/deliver/calls.py"
RECOVERY = "streams/deliver/recovery.py"
EXPIRE = "streams/consume/outcome/expire.py"
LOOK = "streams/process/deaths.py"
FILE = "streams/process/shared/progress_file.py"
DYING = "tests/guarantees/test_deaths.py"

DEATHS = [
    Mutant(
        "whose-client-is-forgotten-has-no-groups",
        LOOK,
        "cursors.filter(group__in=groups) if groups else cursors",
        "cursors.filter(group__in=groups)",
        f"{DYING}::test_so_is_one_that_nobody_looked_at_before_its_client_was_forgotten",
        "mysql",
    ),
    Mutant(
        "a-failure-not-noted",
        CALLS,
        "slot.end(ended, failed)",
        "slot.end(ended)",
        f"{DYING}::test_failures_that_were_not_settled_yet_are_not_lost"
        "_and_what_came_after_is_not_repeated",
    ),
    Mutant(
        "a-call-that-begins-not-noted",
        CALLS,
        "            slot.begin(messages[0].offset, messages[-1].offset + 1)\n",
        "",
        f"{DYING}::test_what_was_done_is_settled_what_ran_has_spent_an_attempt_the_rest_goes_back",
    ),
    # With 4 and 6 done and 5 absent, 5 would be lost.
    Mutant(
        "an-absent-body-noted-as-done",
        SLOT,
        "absent = _bits(out.missing | out.unread | out.early.keys(), self._first)",
        "absent = 0",
        f"{DYING}::test_a_body_that_was_absent_is_read_again_with_its_attempt_unspent",
    ),
    Mutant(
        "both-copies-in-one-place",
        SLOT,
        "at = self._at + (number & 1) * self._size",
        "at = self._at",
        f"{DYING}::TestATornSlot::test_says_what_it_said_before",
    ),
    Mutant(
        "a-torn-copy-believed",
        SLOT,
        "if crc32(front, crc32(text)) == expected:",
        "if True:",
        f"{DYING}::TestATornSlot::test_says_what_it_said_before",
    ),
    Mutant(
        "the-rest-left-with-the-call-that-ran",
        RECOVERY,
        "if running.stop < end and not delivery.group.strict:",
        "if False:",
        f"{DYING}::test_what_was_done_is_settled_what_ran_has_spent_an_attempt_the_rest_goes_back",
    ),
    Mutant(
        "an-atomic-commit-in-flight-repeated",
        RECOVERY,
        "range(max(noted.running.start, ended), min(noted.running.stop, end))",
        "noted.running",
        f"{DYING}::test_an_atomic_call_whose_commit_is_done_is_done_though_nobody_has_noted_it",
    ),
    Mutant(
        "a-settlement-in-flight-not-waited-for",
        RECOVERY,
        'if not list(rows.select_for_update().values_list("pk")):',
        'if not list(rows.values_list("pk")):',
        f"{DYING}::test_a_settlement_that_is_still_in_flight_is_waited_for",
        "mysql",
    ),
    Mutant(
        "recovered-without-the-token",
        RECOVERY,
        "held().filter(pk=delivery_id, token=token)",
        "filter(pk=delivery_id)",
        f"{DYING}::test_a_token_that_is_not_in_force_any_more_changes_nothing",
    ),
    Mutant(
        "a-dead-process-waited-for-until-its-lease-ends",
        EXPIRE,
        "delivery.held() if dead else (rows.held()",
        "(rows.held()",
        f"{DYING}::test_what_was_done_is_settled_what_ran_has_spent_an_attempt_the_rest_goes_back",
    ),
    # The sweep, which knows of no call that had ended, would take the rest.
    Mutant(
        "the-file-deleted-while-a-claim-is-left",
        LOOK,
        "if not over or self._not_named(left, named):",
        "if False:",
        f"{DYING}::test_a_claim_that_stays_locked_is_left_to_the_next_look",
        "mysql",
    ),
    Mutant(
        "a-part-without-what-is-noted-of-its-claim",
        LOOK,
        "claims.get(token)",
        "None",
        f"{DYING}::test_a_process_may_die_before_it_has_noted_the_parts_of_its_claim",
    ),
    Mutant(
        "what-is-noted-of-a-claim-taken-for-that-of-its-part",
        RECOVERY,
        "noted.done.intersection(delivery.offsets)",
        "noted.done",
        f"{DYING}::test_a_process_may_die_before_it_has_noted_the_parts_of_its_claim",
    ),
    Mutant(
        "a-claim-that-was-not-noted-forgotten",
        LOOK,
        "        if not left.whole:\n            return []\n",
        "        return []\n",
        f"{DYING}::test_a_claim_of_which_no_call_had_begun_goes_back_whole",
    ),
    Mutant(
        "parts-of-a-call-with-a-gap-given-back",
        LOOK,
        "if one.begun is not None or one.running:",
        "if one.begun is not None:",
        f"{DYING}::test_a_reader_that_stops_within_a_call_with_a_gap_leaves_all_of_it_as_begun",
    ),
    Mutant(
        "a-claim-whose-commit-is-in-flight-forgotten",
        LOOK,
        "all(ended) and self._none_in_flight(left, groups)",
        "all(ended)",
        f"{DYING}::test_a_claim_whose_commit_arrives_after_the_death_is_given_back",
        "mysql",
    ),
    Mutant(
        "not-begun-because-its-slot-is-damaged",
        FILE,
        "            whole = False\n",
        "            pass\n",
        f"{DYING}::TestATornSlot::test_of_which_nothing_is_left_changes_nothing",
    ),
    Mutant(
        "a-copy-believed",
        FILE,
        'if about["inode"] != os.fstat(fd).st_ino:',
        "if False:",
        f"{DYING}::TestAFileThatIsNotUsed::test_since_it_is_a_copy",
    ),
    Mutant(
        "a-file-from-before-the-restart-believed",
        FILE,
        'if about["boot"] != _boot():',
        "if False:",
        f"{DYING}::TestAFileThatIsNotUsed::test_since_the_host_was_restarted",
    ),
    Mutant(
        "a-forked-child-keeps-the-lock",
        FILE,
        "os.register_at_fork(after_in_child=_leave_in_child)\n",
        "",
        f"{DYING}::test_a_child_of_a_handler_does_not_hide_the_death_of_its_process",
    ),
    Mutant(
        "the-memory-keeps-the-lock-in-a-forked-child",
        FILE,
        "            self._memory.close()  # it has a descriptor of its own\n",
        "",
        f"{DYING}::test_a_child_of_a_handler_does_not_hide_the_death_of_its_process",
    ),
    Mutant(
        "a-new-client-id-not-in-the-file",
        "streams/process/shared/client.py",
        "        self._note(client_id)\n        self.client_id = client_id\n",
        "        if not self.client_id:\n            self._note(client_id)\n"
        "        self.client_id = client_id\n",
        f"{DYING}::test_after_a_late_lease_the_file_names_the_new_client",
    ),
    Mutant(
        "a-file-with-holes",
        FILE,
        "            os.posix_fallocate(self._fd, 0, size)\n",
        "            pass\n",
        f"{DYING}::test_without_a_file_there_is_one_warning_and_the_end_of_the_lease_decides",
    ),
]

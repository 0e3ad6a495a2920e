"""Lists the mutants of groups ordered by key: what holds a key, and what lets it go."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

HELD = "streams/log/held_keys.py"
PARKING = "streams/consume/outcome/parking.py"
SETTLE = "streams/consume/outcome/settle.py"
EXPIRE = "streams/consume/outcome/expire.py"
LETTERS = "streams/consume/outcome/dead_letter.py"
CLAIM = "streams/deliver/held_back.py"
CLOSING = "streams/deliver/closing.py"
RECOVERY = "streams/deliver/recovery.py"
REVOKE = "streams/operate/revoke.py"
PURGE = "streams/retain/forced_purge.py"
SQL = "streams/database/sql/keys.py"
RETRIES = "streams/database/sql/settle.py"
KEPT = "tests/guarantees/test_held_keys.py"
ORDER = "tests/guarantees/test_order_of_keys.py"
OUTAGES = "tests/guarantees/test_outages.py"
RACES = "tests/concurrency/test_held_keys.py"

HELD_KEYS = [
    Mutant(
        "a-success-behind-a-failure-of-its-key-counts",
        PARKING,
        "(offset in parks or hashed in held)",
        "(offset in parks)",
        f"{KEPT}::test_in_a_batch_the_later_messages_of_a_failed_key_are_parked"
        "_though_they_succeed",
    ),
    # Nobody settles the claim then: its partition waits for the deadline.
    Mutant(
        "a-claim-dropped-as-the-room-is-read",
        CLOSING,
        "retrying(room, delivery.using, delivery.group, delivery.using)",
        "room(delivery.group, delivery.using)",
        f"{OUTAGES}::test_a_failure_that_holds_its_key_is_written_once_whatever_is_lost",
        "mysql",
    ),
    Mutant(
        "a-claim-dropped-as-its-keys-are-read",
        "streams/log/keys.py",
        "retrying(fetch, using, using, statement, [partition_id, start, end])",
        "fetch(using, statement, [partition_id, start, end])",
        f"{OUTAGES}::test_a_failure_that_holds_its_key_is_written_once_whatever_is_lost",
        "mysql",
    ),
    Mutant(
        "what-was-held-back-is-passed-as-done",
        PARKING,
        "(offset in parks or hashed in held)",
        "(hashed in held)",
        f"{KEPT}::test_later_claims_park_what_comes_for_a_held_key",
    ),
    Mutant(
        "all-that-waits-is-due",
        HELD,
        "parked=not leads)",
        "parked=False)",
        f"{KEPT}::test_a_failed_message_holds_back_those_of_its_key_alone",
    ),
    Mutant(
        "a-parked-row-woken-by-a-schedule",
        RETRIES,
        'merged("due_at", LEAST[vendor] + "({old}, {new})")',
        'merged("due_at", "COALESCE({new}, {old})")',
        f"{KEPT}::test_a_retry_that_is_asked_for_again_stays_parked",
    ),
    Mutant(
        "nobody-is-let-go-after-a-success",
        SETTLE,
        "end_head(*key, delivery.using, holds=holds)",
        "pass",
        f"{KEPT}::test_a_parked_message_that_fails_holds_those_behind_it",
    ),
    Mutant(
        "nobody-is-let-go-after-a-dead-letter",
        LETTERS,
        "end_head(place, hashed, locked, using, holds=holds)",
        "pass",
        f"{RACES}::test_a_dead_letter_beside_a_parking_claim_lets_the_next_one_go",
        "mysql",
    ),
    Mutant(
        "a-key-let-go-without-its-lock",
        HELD,
        "    return _read(place, hashes, using, lock=True)",
        "    return _read(place, hashes, using, lock=False)",
        f"{RACES}::test_a_key_is_not_freed_while_something_is_parked_behind_it",
        "mysql",
    ),
    Mutant(
        "the-newest-of-a-key-let-go-first",
        SQL,
        '" ORDER BY `offset` LIMIT 1 {LOCK[vendor]}"',
        '" ORDER BY `offset` DESC LIMIT 1 {LOCK[vendor]}"',
        f"{KEPT}::test_a_failed_message_holds_back_those_of_its_key_alone",
    ),
    Mutant(
        "nobody-says-that-a-key-is-held",
        HELD,
        "        execute(using, sql.SOME_HELD, place)\n",
        "",
        f"{KEPT}::test_later_claims_park_what_comes_for_a_held_key",
    ),
    Mutant(
        "the-mark-taken-back-while-another-key-is-held",
        CLAIM,
        "    if not found and not fetch(using, sql.ANY_HELD, place):",
        "    if not found:",
        f"{KEPT}::test_a_claim_without_a_held_key_does_not_forget_the_others",
    ),
    Mutant(
        "a-key-that-was-not-seen-taken-for-free",
        CLAIM,
        "    if unseen := sorted(set(range(start, end)) - keys.keys()):",
        "    if unseen := []:",
        f"{KEPT}::test_a_message_whose_key_was_not_seen_at_the_claim_is_not_handed_over",
    ),
    Mutant(
        "an-absent-message-holds-nobody",
        CLOSING,
        "        blocking = [one for one in failures if isinstance(one.error, BodyUnread)]\n",
        "        blocking = []\n",
        f"{KEPT}::test_an_absent_message_stops_its_partition_since_its_key_is_unknown",
    ),
    Mutant(
        "more-parked-than-may-be",
        CLAIM,
        "    if waiting and len(waiting) > (left := room(group, using)):",
        "    if waiting and len(waiting) > (left := 10**6):",
        f"{KEPT}::test_beyond_the_most_that_may_be_parked_the_partition_waits_and_says_so",
    ),
    Mutant(
        "a-call-that-died-blocks-its-partition",
        EXPIRE,
        "    ran = delivery.group.by_key and (dead or len(unsettled(delivery)) == 1)",
        "    ran = False",
        f"{KEPT}::test_a_message_that_ends_its_process_holds_its_key_alone",
    ),
    Mutant(
        "a-reset-leaves-a-key-held",
        REVOKE,
        "    repair(GroupPartition(cursor.group_id, cursor.partition_id), gone, using)\n",
        "",
        f"{KEPT}::TestAReset::test_frees_the_keys_of_what_is_handled_again",
    ),
    Mutant(
        "a-forced-purge-leaves-a-key-held",
        PURGE,
        "            repair(self._place(pk), passed, self._using)\n",
        "            pass\n",
        f"{KEPT}::test_a_forced_purge_gives_up_what_is_parked_below_it_and_the_key_goes_on",
    ),
    Mutant(
        "a-letter-redriven-out-of-its-place",
        LETTERS,
        "[Again(letter.offset, 1, key_hash=key)]",
        "[Again(letter.offset, 1)]",
        f"{KEPT}::TestADeadLetterThatHolds::test_is_handled_in_its_order_once_it_is_redriven",
    ),
    Mutant(
        "a-replay-of-a-dead-letter-that-holds-dropped",
        HELD,
        "(head and leads and not (head.dead and replays))",
        "(head and leads)",
        f"{KEPT}::TestADeadLetterThatHolds"
        "::test_is_handled_in_its_order_by_a_replay_and_stays_a_letter",
    ),
    Mutant(
        "a-reset-gives-out-what-an-edited-letter-holds",
        HELD,
        "(head and leads and not (head.dead and replays))",
        "(head and leads and not head.dead)",
        f"{KEPT}::TestADeadLetterThatHolds::test_that_was_edited_holds_its_key_through_a_reset",
    ),
    Mutant(
        "a-key-of-a-dead-letter-that-is-replayed-says-dead",
        HELD,
        "            execute(using, sql.DEAD_HEAD, [False, head.pk])\n",
        "            pass\n",
        f"{KEPT}::TestADeadLetterThatHolds"
        "::test_holds_its_key_while_a_replay_of_it_fails_and_when_it_dies_again",
    ),
    Mutant(
        "a-sweep-lets-go-what-a-letter-holds",
        HELD,
        "        if not is_there and not _is_dead(place, locked, using):",
        "        if not is_there:",
        f"{KEPT}::TestADeadLetterThatHolds::test_a_repair_of_its_key_changes_nothing",
    ),
    Mutant(
        "a-reset-leaves-the-key-with-the-dead-letter",
        REVOKE,
        "let_go = dead.keys() - _only_in_letters(named, cursor, using)",
        "let_go = dead.keys() - dead.keys()",
        f"{KEPT}::TestADeadLetterThatHolds::test_lets_its_key_go_at_a_reset_to_before_it",
    ),
    Mutant(
        "a-reset-takes-the-key-from-an-edited-letter",
        REVOKE,
        "let_go = dead.keys() - _only_in_letters(named, cursor, using)",
        "let_go = dead.keys() - set()",
        f"{KEPT}::TestADeadLetterThatHolds::test_that_was_edited_holds_its_key_through_a_reset",
    ),
    Mutant(
        "an-undo-forgets-the-dead-letter-that-held",
        "streams/operate/reset.py",
        "wait_in_order(place, rows, dead, using)",
        "wait_in_order(place, rows, (), using)",
        f"{KEPT}::TestADeadLetterThatHolds::test_holds_its_key_again_when_the_reset_is_undone",
    ),
]

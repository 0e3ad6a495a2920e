"""Lists the mutants of the rates of groups."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

RATE = "streams/consume/rate.py"
SQL = "streams/database/sql/rate.py"
STARTS = "streams/deliver/starts.py"
CLAIM = "streams/deliver/claim.py"
POOL = "streams/process/pool.py"
HANDLING = "streams/deliver/handling.py"
RATES = "tests/streams/test_rates.py"

KEY_STARTS = "streams/deliver/key_starts.py"
KEY_RATES = "tests/streams/test_key_rates.py"

STARTS_AT_A_RATE = [
    Mutant(
        "a-start-as-late-as-it-likes",
        STARTS,
        "while self.number and now > self.latest:",
        "while False:",
        f"{RATES}::test_each_slot_lasts_until_its_start_is_too_late",
    ),
    Mutant(
        "a-late-start-takes-all-others-along",
        STARTS,
        "            self.use(1)\n",
        "            self.number = 0\n",
        f"{RATES}::test_each_slot_lasts_until_its_start_is_too_late",
    ),
    Mutant(
        "a-start-later-than-its-burst-allows",
        RATE,
        "return math.floor(a_second + burst) / a_second - 1",
        "return math.floor(a_second + burst + 1) / a_second - 1",
        f"{RATES}::test_no_second_has_more_than_rate_and_burst_however_late_each_start_is",
    ),
    Mutant(
        "a-slot-given-twice",
        SQL,
        'first = f"{GREATEST[vendor]}(`next_slot`, {now} - %(depth)s)"',
        'first = f"({now} - %(depth)s)"',
        f"{RATES}::test_several_claimers_never_have_more_slots_than_there_are",
    ),
    Mutant(
        "buried-with-the-rest-of-its-batch",
        "streams/consume/limits.py",
        "(registration.batch is None or (self.rate and registration.rate_key))",
        "registration.batch is None",
        f"{KEY_RATES}::test_a_last_attempt_that_ends_in_a_batch_buries_nothing_uncalled",
    ),
    Mutant(
        "a-retry-without-a-slot",
        CLAIM,
        "if not self.starts.cut(0, 1):",
        "if False:",
        f"{RATES}::test_a_claim_of_a_retry_that_may_not_begin_changes_nothing",
    ),
    Mutant(
        "a-start-that-does-not-ask",
        HANDLING,
        "return self._starts.begin(len(messages), self._stopped)",
        "return True",
        f"{RATES}::test_what_is_late_just_before_its_call_does_not_begin",
    ),
    Mutant(
        "a-process-that-asks-all-the-time",
        POOL,
        "self._shares[feed].held_until = until",
        "pass",
        f"{RATES}::test_a_process_that_has_to_wait_asks_the_database_nothing",
    ),
    Mutant(
        "all-wait-until-the-same-instant",
        STARTS,
        "spread = random.uniform(0, self.ahead)",
        "spread = 0.0",
        f"{RATES}::test_those_who_wait_do_not_come_at_the_same_time",
    ),
    Mutant(
        "a-clock-that-was-set-back-is-waited-for",
        STARTS,
        "elif rows[0][0] > rate.interval + 2 * self._ahead:",
        "elif False:",
        f"{RATES}::test_after_a_clock_was_set_back_the_rate_goes_on",
    ),
    Mutant(
        "slots-for-what-is-passed-over",
        STARTS,
        "if self.rate is None or self.tagged:",
        "if self.rate is None:",
        f"{RATES}::test_messages_that_are_passed_over_take_no_slots",
    ),
    Mutant(
        "a-batch-larger-than-its-burst",
        "streams/consume/limits.py",
        "rate.at_once if rate and decorated and not by_key else MAX_BATCH,",
        "MAX_BATCH,",
        f"{RATES}::test_a_batch_has_no_more_than_may_begin_at_once",
    ),
    Mutant(
        "what-waits-comes-all-at-once",
        KEY_STARTS,
        "KeyHeldBack(slots.again + place * interval)",
        "KeyHeldBack(slots.again)",
        f"{KEY_RATES}::test_a_batch_gets_what_may_begin",
    ),
    Mutant(
        "what-waits-spends-an-attempt",
        "streams/consume/outcome/failure.py",
        "again = Again(offset, attempt, error.delay, describe(error))",
        "again = Again(offset, attempt + 1, error.delay, describe(error))",
        f"{KEY_RATES}::test_while_a_key_waits_the_others_of_its_claim_go_on",
    ),
    Mutant(
        "what-waits-has-failed",
        "streams/consume/outcome/settle.py",
        "failed = [one.failure for one in settlement.judged if not one.postponed]",
        "failed = list(failures)",
        f"{KEY_RATES}::test_while_a_key_waits_the_others_of_its_claim_go_on",
    ),
    Mutant(
        "what-is-new-comes-before-what-waits",
        KEY_STARTS,
        "if queued > now and not self._retry:",
        "if False:",
        f"{KEY_RATES}::test_what_is_new_comes_after_those_that_wait",
    ),
    Mutant(
        "a-slot-of-a-key-given-twice",
        KEY_STARTS,
        "end = first + number * rate.interval",
        "end = first",
        f"{KEY_RATES}::test_what_has_waited_begins_when_it_may_with_its_attempt_unspent",
    ),
    Mutant(
        "a-bucket-that-was-deleted-begins-with-more",
        "streams/database/sql/rate_keys.py",
        "{CLOCK[vendor]} - {DAY}, 0)",
        "0, 0)",
        f"{KEY_RATES}::test_old_buckets_are_deleted_and_begin_with_no_more_than_they_had",
    ),
]

"""Lists the mutants of the roll-ups."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

LAG = "tests/monitoring/test_rollup_lag.py"
LETTERS = "tests/monitoring/test_rollup_letters.py"
MESSAGES = "tests/spark/test_messages.py"
WINDOWS = "tests/monitoring/test_rollup_windows.py"

ROLL_UPS = [
    Mutant(
        "replays-have-an-age",
        "sparkjobs/rollup/lag.py",
        "            if kind != REPLAY and offset is not None:",
        "            if offset is not None:",
        f"{LAG}::test_a_replay_of_old_messages_has_no_age",
    ),
    Mutant(
        "purged-retry-hides-the-age",
        "sparkjobs/rollup/lag.py",
        """ AND r.`offset` >= p.`first_offset`\"""",
        '"',
        f"{LAG}::test_a_redriven_letter_whose_message_was_purged_does_not_hide_the_age_of_others",
    ),
    Mutant(
        "letter-counted-where-it-was-claimed-first",
        "sparkjobs/rollup/letters.py",
        "id_ > newest[offset][0]",
        "id_ < newest[offset][0]",
        f"{LETTERS}::test_the_last_ended_delivery_that_covers_a_letter_counts_it",
    ),
    Mutant(
        "late-deliveries-are-forgotten",
        "sparkjobs/rollup/remembered.py",
        "is None and one.ended and since <= one.ended < until\n    ]\n    known",
        "is None and one.ended\n    ]\n    known",
        f"{WINDOWS}::test_open_deliveries_are_remembered_until_they_are_counted",
    ),
    Mutant(
        "each-roll-up-reads-for-itself",
        "sparkjobs/rollup/messages.py",
        "if (found := left(spans, [span for of in taken for span in of.get(id_, ())]))",
        "if (found := left(spans, []))",
        f"{MESSAGES}::test_what_was_read_is_not_read_again",
    ),
    Mutant(
        "each-range-is-a-read-of-its-own",
        "sparkjobs/rollup/messages.py",
        """        parts = [part for part in self._parts if part.has_of(asked)]
        taken""",
        """        for id_, spans in asked.items():
            for span in spans:
                self._kept({id_: [span]}, SKIP)
        parts = [part for part in self._parts if part.has_of(asked)]
        taken""",
        f"{MESSAGES}::test_all_ranges_are_one_read",
    ),
    Mutant(
        "long-charts-read-the-minutes",
        "monitoring/figures/rollups.py",
        "    if periods.minutes < HOURLY:\n        return 0\n",
        "    if periods.minutes:\n        return 0\n",
        "tests/monitoring/test_rollup_charts.py"
        "::test_latencies_of_long_ranges_are_there_when_their_minutes_are_deleted",
    ),
    Mutant(
        "rankings-that-rest-on-less",
        "sparkjobs/rollup/tables.py",
        "        if old is not None and old > new[0][table.basis]:\n            continue\n",
        "",
        "tests/monitoring/test_sinks.py"
        "::test_a_ranking_is_replaced_as_a_whole_and_never_by_one_that_rests_on_less",
    ),
]

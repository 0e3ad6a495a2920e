"""Lists the mutants of what operators rely on: signs of life, erasures, plans."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

SIGNS = "streams/process/shared/life_signs.py"
ERASURE = "streams/operate/erasure.py"
SIZING = "streams/sizing/costs.py"
LIVING = "tests/runtime/test_life_signs.py"
ERASING = "tests/streams/test_erasure.py"

DEPLOYED = [
    Mutant(
        "a-hung-process-counts-as-alive",
        SIGNS,
        ">= HUNG_SECONDS",
        ">= float('inf')",
        f"{LIVING}::test_a_process_that_has_not_turned_hangs_until_it_turns",
    ),
    Mutant(
        "ready-when-one-process-is",
        SIGNS,
        "return all(self._cells",
        "return any(self._cells",
        f"{LIVING}::test_the_parent_is_ready_when_each_process_is",
    ),
    Mutant(
        "a-letter-written-meanwhile-keeps-its-body",
        ERASURE,
        "    _wait_for_outcomes(partition, mine, using)\n",
        "",
        f"{ERASING}::test_a_dead_letter_that_is_being_written_meanwhile_is_erased_too",
        "mysql",
    ),
    Mutant(
        "what-repeats-a-message-that-was-erased-before-is-left",
        ERASURE,
        "if subject.owns(row) or _is_erased(row)",
        "if subject.owns(row)",
        f"{ERASING}::test_an_error_of_a_handler_that_fails_after_the_erasure_is_erased_by_the_next",
    ),
    Mutant(
        "the-inbox-is-left-at-an-erasure",
        ERASURE,
        "rows.filter(offset=None)",
        "rows.filter(offset=-1)",
        f"{ERASING}::test_what_groups_have_not_handled_is_erased_by_force_only",
    ),
    Mutant(
        "the-context-of-a-prepared-message-is-kept",
        ERASURE,
        'ids, using, context=None, last_error="")',
        "ids, using)",
        f"{ERASING}::test_what_was_prepared_is_erased_once_it_is_decided",
    ),
    Mutant(
        "the-error-of-a-letter-is-kept",
        ERASURE,
        ', error="", traceback=""',
        "",
        f"{ERASING}::test_messages_and_dead_letters_of_a_key_are_erased_and_the_log_stays_whole",
    ),
    Mutant(
        "one-group-counted-in-the-factor",
        SIZING,
        "one.send + one.sequence + self.together.groups * one.one",
        "one.send + one.sequence + one.one",
        "tests/streams/test_sizing.py::test_the_factor_is_all_at_once_by_the_sum_of_the_parts",
    ),
]

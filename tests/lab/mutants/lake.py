"""Lists the mutants of the lake, and of the hours and days."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

LEVELS = "tests/monitoring/test_levels.py"

LAKE = [
    Mutant(
        "lake-trusts-its-checkpoint-alone",
        "sparkjobs/lake/batch.py",
        'return frame.where(F.col("offset") >= next_offset)',
        "return frame.where(next_offset.isNotNull())",
        "tests/spark/test_lake.py"
        "::test_without_its_checkpoint_the_lake_is_read_again_and_written_once",
    ),
    Mutant(
        "what-is-archived-waits-for-the-lake",
        "monitoring/figures/lake.py",
        'Greatest(F("next_offset"), F("partition__archived_offset"))',
        'F("next_offset")',
        "tests/monitoring/test_archive_page.py"
        "::test_what_the_archive_has_taken_over_does_not_wait_for_the_lake",
    ),
    Mutant(
        "an-hour-falls-with-its-deleted-minutes",
        "sparkjobs/rollup/levels.py",
        "grows = bool(self.add) and not basis",
        "grows = False",
        f"{LEVELS}::test_hours_and_days_are_the_sums_of_their_minutes",
    ),
]

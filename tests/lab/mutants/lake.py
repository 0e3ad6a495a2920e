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
        "an-hour-falls-with-its-deleted-minutes",
        "sparkjobs/rollup/levels.py",
        "grows = bool(self.add) and not basis",
        "grows = False",
        f"{LEVELS}::test_hours_and_days_are_the_sums_of_their_minutes",
    ),
]

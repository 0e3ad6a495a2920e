"""Lists the mutants of the lake, and of the hours and days."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LAKE = [
    Mutant(
        "lake-trusts-its-checkpoint-alone",
        "sparkjobs/lake/batch.py",
        'return frame.where(F.col("offset") >= next_offset)',
        "return frame.where(next_offset.isNotNull())",
        "tests/spark/test_lake.py"
        "::test_without_its_checkpoint_the_lake_is_read_again_and_written_once",
    ),
]

"""Lists the mutants of the resident Spark service."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

SERVICE = "tests/spark/test_service.py"

RESIDENT = [
    # A quiet time in which something has happened: no roll-up would ever count it.
    Mutant(
        "quiet-though-a-delivery-was-committed-late",
        "sparkjobs/rollup/owed.py",
        "WHERE o.`finished_at` IS NULL AND l.`state` <> 'START')",
        "WHERE FALSE)",
        "tests/spark/test_owed.py::test_whatever_happens_is_owed",
    ),
    Mutant(
        "two-services-at-work",
        "sparkjobs/lock.py",
        "                raise busy from error\n",
        "                error.errno = None\n",
        f"{SERVICE}::test_of_two_one_works_and_the_other_takes_over",
    ),
    Mutant(
        "a-failed-duty-keeps-the-others-from-theirs",
        "sparkjobs/resident/keeper.py",
        "except Exception as error:  # noqa: BLE001 - whatever it is, the other duties go on",
        "except ZeroDivisionError as error:",
        f"{SERVICE}::test_a_duty_that_fails_is_in_its_row_and_stops_neither_the_other_nor_itself",
    ),
    Mutant(
        "a-silent-lock-for-a-week",
        "sparkjobs/lock.py",
        '        execute(connection, "SET SESSION wait_timeout = %s", [WAIT_SECONDS])\n',
        "",
        f"{SERVICE}::test_a_lock_whose_host_has_vanished_is_free_after_a_while",
        "mysql",
    ),
    # Else a busy minute would start two JVMs.
    Mutant(
        "much-work-is-done-by-a-small-jvm",
        "sparkjobs/resident/spark.py",
        "        if not brief:\n",
        "        if not brief and self._spark is None:\n",
        f"{SERVICE}::test_little_work_has_a_jvm_of_its_own_and_much_work_is_not_followed_by_it_at"
        "_once",
    ),
]

"""Lists the mutants of the resident Spark service, and of the night without one."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

SERVICE = "tests/spark/test_service.py"
NIGHTLY = "tests/spark/test_nightly.py"
ARCHIVE = "tests/monitoring/test_archive_page.py"

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
        "what-was-given-back-starts-spark-for-ever",
        "sparkjobs/rollup/owed.py",
        "WHERE `state` = 'START' AND `token` <> '')",
        "WHERE `state` = 'START')",
        "tests/spark/test_owed.py::test_a_backlog_that_nobody_works_on_starts_no_spark",
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
    # Two processes at once: the work of a night would be done twice.
    Mutant(
        "archived-again-after-another-run",
        "sparkjobs/jobs/archive.py",
        "        if is_due:\n            one_window(config.own(JOB), config, step)\n",
        "        one_window(config.own(JOB), config, step)\n",
        f"{NIGHTLY}::test_what_another_run_has_done_meanwhile_is_not_done_twice",
    ),
    Mutant(
        "reconciled-again-after-another-run",
        "sparkjobs/jobs/reconcile.py",
        " if is_due else 0\n",
        "\n",
        f"{NIGHTLY}::test_what_another_run_has_done_meanwhile_is_not_done_twice",
    ),
    Mutant(
        "a-night-beside-the-service",
        "sparkjobs/jobs/nightly.py",
        "    if is_held(config, config.own(NIGHTS)):\n",
        "    if False:\n",
        f"{NIGHTLY}::test_it_leaves_the_night_to_a_service_and_to_another_one",
    ),
    # Else nobody archives what is in a namespace beside that of the service.
    Mutant(
        "a-service-keeps-all-namespaces-from-their-night",
        "sparkjobs/jobs/nightly.py",
        "is_held(config, config.own(NIGHTS))",
        'is_held(config, "serve")',
        f"{NIGHTLY}::test_a_service_of_another_namespace_leaves_this_one_its_night",
    ),
    Mutant(
        "reconciled-by-another-namespace",
        "sparkjobs/resident/due.py",
        '[config.own("reconcile")]',
        '["reconcile"]',
        f"{NIGHTLY}::test_a_reconcile_of_another_namespace_is_none_of_this_one",
    ),
    Mutant(
        "a-look-at-one-namespace-ends-the-alarms-of-all",
        "sparkjobs/jobs/reconcile.py",
        "one_window(config.own(JOB), config, step)",
        "one_window(JOB, config, step)",
        "tests/spark/test_reconcile.py::test_a_look_of_another_namespace_ends_no_alarm_of_this_one",
    ),
    # An alarm that nobody can end.
    Mutant(
        "what-a-log-left-out-is-missing-when-it-is-gone",
        "sparkjobs/jobs/reconcile.py",
        "if partition_id in there and messages != expected:",
        "if messages != expected:",
        "tests/spark/test_reconcile.py"
        "::test_the_archive_of_a_topic_that_was_rewound_and_is_gone_is_whole",
    ),
    # A topic would be held back for ever.
    Mutant(
        "archive-never-due-for-what-waits",
        "sparkjobs/resident/due.py",
        "ORDER BY m.`offset` LIMIT 1) < %s LIMIT 1",
        "ORDER BY m.`offset` LIMIT 1) > %s LIMIT 1",
        f"{SERVICE}::test_the_archive_is_due_while_a_message_of_a_closed_day_is_not_archived",
    ),
    # What the purge relies on.
    Mutant(
        "gap-not-seen",
        "monitoring/figures/archive.py",
        "        if pk == after and end < first:\n",
        "        if pk == after and end > first:\n",
        f"{ARCHIVE}::test_a_gap_is_found_by_offsets_and_shown_with_its_days",
    ),
    Mutant(
        "held-back-never",
        "monitoring/figures/archive.py",
        "    if held:\n",
        "    if held and gaps:\n",
        f"{ARCHIVE}::test_what_is_over_and_not_archived_waits_and_from_the_next_day_on_is_held_back",
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

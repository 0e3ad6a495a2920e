"""Lists the mutants of the roll-ups."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

ALARMS = "tests/monitoring/test_alarm_metrics.py"
BACKLOG = "tests/monitoring/test_backlog_levels.py"
CONSUMPTION = "tests/monitoring/test_consumption_page.py"
DOCTOR = "tests/monitoring/test_doctor.py"
FIGURES = "tests/spark/test_metrics.py"
LAG = "tests/streams/test_lag_by_hand.py"
LETTERS = "tests/monitoring/test_rollup_letters.py"
RANKING = "tests/monitoring/test_ranking.py"
MESSAGES = "tests/spark/test_messages.py"
WAITING = "tests/monitoring/test_rollup_waiting.py"
WINDOWS = "tests/monitoring/test_rollup_windows.py"

ROLL_UPS = [
    Mutant(
        "the-longest-call-is-the-shortest",
        "sparkjobs/rollup/figures.py",
        'f.max(took).alias("longest_seconds")',
        'f.min(took).alias("longest_seconds")',
        f"{FIGURES}::test_consumption_counts_what_was_settled_by_client_and_thread",
    ),
    Mutant(
        "what-waits-for-its-key-is-done",
        "sparkjobs/rollup/figures.py",
        'f.col("missing") + f.col("passed") + _waits()',
        'f.col("missing") + f.col("passed")',
        f"{FIGURES}::test_what_waits_for_its_key_or_for_longer_is_neither_done_nor_failed",
    ),
    Mutant(
        "what-has-failed-waits-for-its-key",
        "sparkjobs/rollup/waiting.py",
        "for at in offsets if at not in failed}",
        "for at in offsets}",
        f"{WAITING}::test_a_dead_letter_that_is_redriven_did_not_wait",
    ),
    Mutant(
        "a-retry-of-before-is-one-of-this-delivery",
        "sparkjobs/rollup/waiting.py",
        "if newer > id_]",
        "if newer]",
        f"{WAITING}::test_a_retry_of_before_a_reset_is_not_one_of_the_delivery",
    ),
    Mutant(
        "what-blocks-an-ordered-group-is-done",
        "sparkjobs/rollup/waiting.py",
        "max(newest[last], blocks.get((last, attempt), 0))",
        "newest[last]",
        f"{WAITING}::test_what_was_postponed_is_not_done_also_if_it_blocks_its_group",
    ),
    Mutant(
        "a-project-has-no-error-that-is-called-postpone",
        "sparkjobs/rollup/figures.py",
        '.where("one.failed > 0")',
        """.where("one.failed > 0 AND one.text NOT LIKE 'Postpone%'")""",
        f"{FIGURES}::test_what_waits_for_its_key_or_for_longer_is_neither_done_nor_failed",
    ),
    Mutant(
        "hours-of-the-last-day-are-left-out",
        "monitoring/live/levels.py",
        "Q(start__gte=last_day, start__lt=last_hour)",
        "Q(start__gte=last_hour, start__lt=last_hour)",
        f"{RANKING}::test_any_time_has_the_sums_of_its_minutes",
    ),
    Mutant(
        "an-hour-with-less-time-is-compared-with-a-whole-one",
        "monitoring/figures/ranking.py",
        "        until = min(until, spark.until)\n",
        "",
        f"{RANKING}::test_the_range_ends_where_spark_has_counted",
    ),
    Mutant(
        "what-nobody-has-counted-is-zero",
        "monitoring/figures/ranking.py",
        "first is not None and first < self.until, first",
        "True, first",
        f"{RANKING}::test_a_time_before_spark_has_counted_is_unknown_and_not_zero",
    ),
    Mutant(
        "a-run-of-the-past-hides-how-far-spark-has-counted",
        "monitoring/live/pipeline.py",
        "further.filter(until__isnull=False).values",
        "runs.filter(state=RunState.DONE).values",
        f"{CONSUMPTION}::test_what_was_counted_is_shown_whatever_runs_without_an_end_came_later",
    ),
    Mutant(
        "failures-that-nobody-has-counted-are-zero",
        "monitoring/figures/ranking.py",
        "if ends is not None and self.until",
        "if ends is None or self.until",
        f"{RANKING}::test_failures_are_unknown_where_nothing_says_how_far_they_are_counted",
    ),
    Mutant(
        "a-job-that-only-computes-the-past-gets-on",
        "monitoring/live/spark_jobs.py",
        " & ~Q(since__isnull=False, until__isnull=True)",
        "",
        f"{DOCTOR}::test_a_run_that_has_computed_the_past_once_more_has_got_no_further",
    ),
    Mutant(
        "midnight-is-counted-in-its-day-and-by-itself",
        "monitoring/figures/consumption.py",
        "_every(HOUR, since, midnight - HOUR)",
        "_every(HOUR, since, midnight)",
        f"{CONSUMPTION}::test_long_ranges_are_read_from_hours_and_days",
    ),
    Mutant(
        "noted-errors-count-for-the-last-one-too",
        "sparkjobs/rollup/figures.py",
        '(f.col("failed") + _lost() - count)',
        '(f.col("failed") + _lost())',
        f"{FIGURES}::test_errors_count_by_the_name_of_their_class",
    ),
    Mutant(
        "what-was-found-once-fires-for-ever",
        "monitoring/alarms/log.py",
        "Q(source=source, seen_at__gte=last) if last else Q(source=source)",
        "Q(source=source)",
        f"{ALARMS}::test_what_reconcile_has_found_fires_until_it_finds_nothing",
    ),
    Mutant(
        "killed-jobs-are-at-work-for-ever",
        "monitoring/live/spark_jobs.py",
        "of_any_namespace(job) & Q(started_at__gt=now - LIMITS[job])",
        "of_any_namespace(job)",
        f"{DOCTOR}::test_a_service_that_was_killed_at_work_is_silent",
    ),
    Mutant(
        "replays-have-an-age",
        "streams/log/lag.py",
        'if claim["kind"] != Kind.REPLAY and claim["oldest"] is not None:',
        'if claim["oldest"] is not None:',
        f"{LAG}::test_the_lag_of_a_random_history_is_what_its_rows_add_up_to",
    ),
    Mutant(
        "purged-retry-hides-the-age",
        "streams/log/lag.py",
        """        offset__gte=OuterRef("partition__first_offset"),
""",
        "",
        f"{LAG}::test_the_lag_of_a_random_history_is_what_its_rows_add_up_to",
    ),
    Mutant(
        "thinned-samples-lower-the-history",
        "sparkjobs/rollup/tables.py",
        """    basis="samples",
""",
        "",
        f"{BACKLOG}::test_samples_that_are_thinned_do_not_lower_what_was_added_up",
    ),
    Mutant(
        "late-samples-are-forgotten",
        "sparkjobs/rollup/backlog.py",
        "since = hour_of(last - LATE)",
        "since = hour_of(last)",
        f"{BACKLOG}::test_the_next_window_begins_where_a_sample_may_have_come_late",
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

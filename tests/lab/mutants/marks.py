"""Lists the mutants of the marks, the flags and the page of the backlogs."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

DEPLOYMENTS = "monitoring/sample/deployments.py"
FLAGS = "monitoring/figures/flags.py"
HISTORY = "monitoring/figures/history.py"
MARKING = "tests/monitoring/test_marks.py"
SHOWING = "tests/monitoring/test_flags.py"
PAGE = "tests/monitoring/test_backlog_page.py"

MARKS = [
    Mutant(
        "restarts-are-one-deployment-for-ever",
        DEPLOYMENTS,
        " or at - mark.at > LONGEST",
        "",
        f"{MARKING}::test_a_loop_of_restarts_is_a_mark_an_hour",
    ),
    Mutant(
        "acts-without-effect-marked",
        "streams/operate/acts/act.py",
        "if texts := done.texts():",
        "if (texts := done.texts()) is not None:",
        f"{MARKING}::test_what_an_operator_does_is_marked_with_who_and_what",
    ),
    Mutant(
        "a-flag-for-each-mark",
        FLAGS,
        "one.at - near[-1][0].at < apart",
        "one.at - near[-1][-1].at < apart / 100",
        f"{SHOWING}::test_no_chart_has_more_flags_than_fit_on_a_phone",
    ),
    Mutant(
        "marks-of-other-groups-shown",
        FLAGS,
        "groups = known & row.groups",
        "groups = set(row.groups)",
        f"{SHOWING}::test_a_group_has_the_flags_of_its_own_in_order_with_who_and_a_link",
    ),
    Mutant(
        "firing-alarms-are-no-flags",
        FLAGS,
        "Q(slot=0) | Q(resolved_at__gte=first)",
        "Q(resolved_at__gte=first)",
        f"{SHOWING}::test_an_alarm_that_still_fires_is_a_flag_and_one_that_never_fired_is_none",
    ),
    Mutant(
        "newest-samples-not-shown-beside-spark",
        HISTORY,
        "    _note(groups, places, _samples(using, grain, until or starts[0]))\n",
        "    if until is None:\n        _note(groups, places, _samples(using, grain, starts[0]))\n",
        f"{PAGE}::test_where_spark_is_late_the_samples_go_on",
    ),
    Mutant(
        "history-shows-the-last-value-of-a-period",
        HISTORY,
        "if value is not None and (old is None or value > old):",
        "if value is not None and (old is None or value < old):",
        f"{PAGE}::test_without_spark_the_samples_are_shown_and_what_spark_adds",
    ),
]

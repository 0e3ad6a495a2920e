"""Lists the mutants of the alarms."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

EVALUATION = "monitoring/alarms/evaluation.py"
CLOCK = "monitoring/alarms/clock.py"
LOG = "monitoring/alarms/log.py"
METRICS = "tests/monitoring/test_alarm_metrics.py"
STATES = "tests/monitoring/test_alarm_states.py"

ALARMS = [
    Mutant(
        "alarms-of-a-shard-told-to-nobody",
        EVALUATION,
        "        copy_from_home(using)\n",
        "",
        "tests/monitoring/test_alarm_shards.py"
        "::test_an_alarm_of_a_shard_is_told_by_the_rules_and_channels_of_the_one_database",
    ),
    # Two evaluators that have both seen the condition begin.
    Mutant(
        "two-rows-for-one-firing",
        "monitoring/models/alarm.py",
        'fields=["rule", "subject", "slot"]',
        'fields=["rule", "subject", "slot", "id"]',
        f"{STATES}::test_two_evaluators_that_have_both_seen_the_condition_make_one_row",
    ),
    Mutant(
        "alarms-changed-without-their-locks",
        EVALUATION,
        "alarms = list(rows.select_for_update())",
        "alarms = list(rows)",
        f"{STATES}::test_an_evaluator_waits_for_the_one_that_changes_the_same_alarms",
        "mysql",
    ),
    Mutant(
        "unknown-resolves",
        EVALUATION,
        "if self.measured[rule.metric] is None or _key(alarm) in self.unknown:",
        "if _key(alarm) in self.unknown:",
        f"{STATES}::test_what_is_unknown_neither_fires_nor_resolves",
    ),
    Mutant(
        "unknown-of-a-subject-resolves",
        EVALUATION,
        "if self.measured[rule.metric] is None or _key(alarm) in self.unknown:",
        "if self.measured[rule.metric] is None:",
        f"{STATES}::test_what_is_unknown_neither_fires_nor_resolves",
    ),
    # A name that leads to a public address when it is checked, and to this host afterwards.
    Mutant(
        "name-resolved-twice",
        "streams/outgoing.py",
        "socket.create_connection((self._address, self.port), self.timeout)",
        "socket.create_connection((_address(self.host, self.port, allow_private=True), self.port))",
        "tests/monitoring/test_alarm_channels.py"
        "::test_a_name_that_changes_its_address_after_the_check_leads_nowhere_else",
    ),
    # The waits for each byte are short, and there are many of them.
    Mutant(
        "dripping-bytes-hold-a-thread",
        "streams/outgoing.py",
        "        self.limit.start()",
        "        pass",
        "tests/monitoring/test_alarm_channels.py"
        "::test_bytes_that_drip_hold_no_thread_for_longer_than_its_seconds",
    ),
    Mutant(
        "stale-notifications-sent",
        "monitoring/alarms/delivering.py",
        "    retrying(_give_up_old, using, using)",
        "    pass",
        "tests/monitoring/test_alarm_channels.py"
        "::test_a_notification_that_waited_longer_than_the_ladder_is_given_up",
    ),
    Mutant(
        "notification-noted-by-whom-has-lost-it",
        "monitoring/models/alarm_notification.py",
        "filter(pk=self.pk, attempts=self.attempts)",
        "filter(pk=self.pk)",
        "tests/monitoring/test_alarm_channels.py"
        "::test_an_attempt_that_took_too_long_does_not_note_over_the_next_one",
    ),
    Mutant(
        "a-flood-of-letters-hides-those-of-other-groups",
        "monitoring/alarms/groups.py",
        "if asked := hidden[:ASKED]:",
        "if asked := []:",
        f"{METRICS}::test_the_letters_of_one_group_hide_no_new_letter_of_another",
    ),
    Mutant(
        "groups-that-were-not-asked-are-quiet",
        "monitoring/alarms/groups.py",
        "for group in hidden[ASKED:]}",
        "for group in []}",
        f"{METRICS}::test_the_letters_of_one_group_hide_no_new_letter_of_another",
    ),
    # Else a hole in a log that writes is told to nobody while an old one is acknowledged.
    Mutant(
        "findings-of-all-logs-are-one-alarm",
        LOG,
        "{kind} in {OFFSETS.sub('', place)}",
        "{kind}",
        f"{METRICS}::test_a_finding_in_another_log_is_told_while_the_first_one_is_acknowledged",
    ),
    Mutant(
        "findings-of-a-thousand-logs-are-a-thousand-alarms",
        LOG,
        "list(found.items())[:SUBJECTS]",
        "list(found.items())",
        f"{METRICS}::test_findings_in_a_thousand_logs_are_few_alarms_that_stay_the_same",
    ),
    Mutant(
        "roll-ups-late-at-night",
        CLOCK,
        "explained if explained and works(using, AT_NIGHT, SILENT) else set()",
        "set()",
        f"{METRICS}::test_roll_ups_are_not_late_while_a_job_of_the_night_works_nor_soon_after_it",
    ),
    Mutant(
        "minutes-counted-again-are-progress",
        CLOCK,
        "filter(state=RunState.DONE, until__isnull=False)",
        "filter(state=RunState.DONE)",
        f"{METRICS}::test_each_job_of_the_roll_ups_is_late_by_itself",
    ),
]

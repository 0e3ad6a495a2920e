"""The plans of the doctor and of the commands: they are used when there is trouble already."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from streams.management.commands import ems_dead
from streams.observe import doctor
from streams.operate.group_deletion import delete_group
from tests.plans.seed import Seed
from tests.plans.statements import LARGE, Statements, Step, explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]

# Sorted and grouped for people: what is open is as much as there are threads, and what covers one
# offset lies in a short range.
SHORT = {"ems_log_open", "ems_log_place"}
# Read whole, by group: they hold dead letters and retries only. A count of all groups names each of
# them, so the ranges of ems_retry_due are as many entries as the whole index. Which of the two a
# server takes depends on its statistics of the day, after the rollbacks of other tests, too.
COUNTED = {"ems_dead_waiting", "ems_retry_place", "ems_retry_due"}
# Asked whether there is any row: its first entry answers.
ASKED = {"ems_prepared_key"}


def is_sound(step: Step) -> bool:
    if step.table not in LARGE:
        return True
    if step.access == "ALL" or (step.access == "index" and step.key not in COUNTED | ASKED):
        return False
    sorts = "filesort" in step.extra or "temporary" in step.extra
    return not sorts or step.key in SHORT


def assert_sound(statements: Statements) -> None:
    assert statements, "nothing ran"
    bad = [str(s) for s in statements if not all(map(is_sound, s.steps))]
    assert not bad, "\n".join(bad)


def test_the_doctor_reads_no_large_table(seeded: Seed) -> None:
    with explained() as statements:
        doctor.examine("default")
    assert_sound(statements)


@pytest.mark.parametrize(
    "words",
    [
        "ems_topics list",
        "ems_groups list",
        "ems_groups consumers",
        "ems_groups deliveries",
        "ems_groups deliveries group-1",
        "ems_groups deliveries group-1 --open",
        "ems_groups retries",
        "ems_groups retries group-1 --topic topic-1",
        "ems_messages list topic-1",
        "ems_messages list topic-1 --key k",
        "ems_messages list topic-1 --tag t --since 2026-01-01T00:00Z --until 2100-01-01T00:00Z",
        "ems_messages show topic-1/0@5",
        "ems_messages trace topic-1/0@5",
        "ems_dead list",
        "ems_dead list --topic topic-1 --error-class ValueError",
        "ems_dead redrive --all --topic topic-1",
        "ems_dead discard --all --yes --group group-1 --error-class ValueError",
        "ems_dead export",
        "ems_dead export --redriven",
    ],
)
def test_a_command_reads_no_large_table(
    seeded: Seed, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ems_dead, "PAGE", 20)  # a small part of what there is
    with explained() as statements:
        call_command(*words.split(), stdout=StringIO(), stderr=StringIO())
    assert_sound(statements)


def test_forgetting_a_group_reads_its_own_rows_only(seeded: Seed) -> None:
    seeded.group.clients.all().delete()
    with explained() as statements:
        delete_group(seeded.group)
    statements.assert_sound()

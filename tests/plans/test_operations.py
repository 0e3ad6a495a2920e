"""The plans of the doctor and of the commands: they are used when there is trouble already."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from streams import doctor
from streams.models import DeadMessage, Message
from tests.plans.seed import Seed
from tests.plans.statements import Statements, explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def ran(*words: str) -> Statements:
    with explained() as statements:
        call_command(*words, stdout=StringIO(), stderr=StringIO())
    return statements


def test_the_doctor_reads_no_large_table(seeded: Seed) -> None:
    with explained() as statements:
        doctor.examine("default")
    # What it asks the server about itself has no indexes.
    ours = Statements(
        s for s in statements if "`ems_" in s.sql and "information_schema" not in s.sql
    )
    ours.assert_sound()


@pytest.mark.parametrize(
    "words",
    [
        "ems_topics list",
        "ems_groups list",
        "ems_messages list topic-1",
        "ems_messages list topic-1 --key k",
        "ems_messages show topic-1/0@5",
        "ems_messages trace topic-1/0@5",
        "ems_dead list",
        "ems_dead list --topic topic-1",
        "ems_dead redrive --all --topic topic-1",
        "ems_dead discard --all --group group-1 --error-class ValueError",
        "ems_dead export",
    ],
)
def test_a_command_reads_no_large_table(seeded: Seed, words: str) -> None:
    statements = ran(*words.split())
    large = Statements(s for s in statements if {t.table for t in s.steps} & LARGE)
    large.assert_sound()


LARGE = {m._meta.db_table for m in (Message, DeadMessage)} | {
    "ems_topic_group_log",
    "ems_retry_msg",
}


def test_forgetting_a_group_reads_its_own_rows_only(seeded: Seed) -> None:
    with explained() as statements:
        seeded.group.clients.all().delete()
        seeded.group.forget()
    statements.assert_sound()

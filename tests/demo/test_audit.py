"""The verdict at the end of the demo is worth something: the audit notices what has gone wrong."""

from __future__ import annotations

import sys

import pytest

from tests.processes import SET_UP, Child, started

pytestmark = [pytest.mark.slow, pytest.mark.any_database]

# Ten flights, handled by all groups; then one thing after the other is damaged and mended.
SCENE = """\
import sys
from django.core.management import call_command
from django.db import transaction
from emsproject.demo.audit import audit
from emsproject.demo.departures import depart, timetable
from emsproject.demo.models import Flight, Handled
from streams.models import Message, Partition
from streams.testing import drain

call_command("migrate", verbosity=0)
for flight in timetable(10):
    depart(flight)
drain()
for damage in sys.argv[1:]:
    with transaction.atomic():
        exec(damage)
        found = audit(["board", "billing", "customs"], departures=10)
        print(found.lost, found.duplicated, found.clean, "after", damage)
        transaction.set_rollback(True)
"""

VERDICTS = {
    "pass": "0 0 True",
    "Handled.objects.filter(group='board')[0].delete()": "1 0 False",
    "h = Handled.objects.all()[0]; h.pk = None; h.save()": "0 1 False",
    "h = Handled.objects.all()[0]; h.flight += 1000; h.save()": "1 0 False",
    "Flight.objects.all()[0].delete()": "0 0 False",
    "Flight.objects.update(departed=None)": "0 0 False",
    "Message.objects.filter(offset=9).update(offset=None)": "1 0 False",
    "Message.objects.filter(offset=9).update(offset=10)": "3 0 False",
    "Partition.objects.update(next_offset=11)": "0 0 False",
}


@pytest.mark.exhaustive
def test_the_audit_notices_each_kind_of_damage(demo_env: dict[str, str]) -> None:
    child = Child(started([sys.executable, "-c", SET_UP + SCENE, *VERDICTS], demo_env))
    try:
        lines = child.succeed().splitlines()
    finally:
        child.close()
    expected = [f"{verdict} after {damage}" for damage, verdict in VERDICTS.items()]
    assert lines[-len(expected) :] == expected

"""Audits the demo: each group must have handled each departure exactly once, and nothing else.

It reads only the database, after the consumers have ended, and counts by itself. The audit of EMS,
which knows nothing of flights, runs as well.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from emsproject.demo.departures import TOPIC
from emsproject.demo.models import Flight, Handled
from streams.conf import database
from streams.models import DeadMessage, Message, Partition
from streams.observe.audit.walk import audit as audit_of_ems

# Partition number, offset, flight. The flight shows a message that has the body of another.
Place = tuple[int, int, int]


@dataclass
class Audit:
    """What was found; it is clean when nothing is lost, duplicated or wrong."""

    lost: int = 0
    duplicated: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.wrong)

    def compare(self, name: str, expected: Iterable[object], found: Iterable[object]) -> None:
        """Note what was not found once, or was not expected."""
        due, times = set(expected), Counter(found)
        lost = sum(1 for thing in due if thing not in times)
        duplicated = sum(times.values()) - len(times)
        unknown = sum(1 for thing in times if thing not in due)
        self.lost += lost
        self.duplicated += duplicated
        if lost or duplicated or unknown:
            self.wrong.append(f"{name}: {lost} lost, {duplicated} duplicated, {unknown} unknown")


def audit(groups: Iterable[str], departures: int) -> Audit:
    """Compare the log with the flights, and each group with the log.

    ``departures`` is the number of transactions that the producer has committed.
    """
    result = Audit()
    flights = list(Flight.objects.values_list("id", "departed"))
    log = _log()
    if len(flights) != departures:
        result.wrong.append(f"{departures} flights were saved, but {len(flights)} are there")
    if cancelled := sum(1 for _id, departed in flights if departed is None):
        result.wrong.append(f"{cancelled} flights are there that were rolled back")
    # A message of a rolled-back flight would be unknown here, or a second one for its id.
    result.compare("log", [id_ for id_, _departed in flights], [flight for _p, _o, flight in log])
    for partition in Partition.objects.filter(topic__name=TOPIC):
        offsets = sorted(offset for number, offset, _flight in log if number == partition.number)
        if offsets != list(range(partition.next_offset)):
            result.wrong.append(f"{partition}: an offset is missing or repeated")
    for group in groups:
        result.compare(group, log, [*_handled(group), *_dead(group)])
    result.wrong += [str(finding) for finding in audit_of_ems(database())]
    return result


def _log() -> list[Place]:
    """Return the messages that have an offset; one without it counts as lost by now."""
    rows = Message.objects.filter(partition__topic__name=TOPIC)
    return [
        (number, offset, _flight(body))
        for number, offset, body in rows.values_list("partition__number", "offset", "body")
        if offset is not None
    ]


def _dead(group: str) -> list[Place]:
    numbers = dict(Partition.objects.values_list("id", "number"))
    letters = DeadMessage.objects.filter(topic__name=TOPIC, group__name=group)
    return [
        (numbers[id_], offset, _flight(body))
        for id_, offset, body in letters.values_list("partition_id", "offset", "body")
    ]


def _handled(group: str) -> list[Place]:
    rows = Handled.objects.filter(group=group)
    return list(rows.values_list("partition", "offset", "flight"))


def _flight(body: bytes | memoryview[int]) -> int:
    return int(json.loads(bytes(body))["flight"])

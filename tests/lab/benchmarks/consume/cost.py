"""Counts, in the server's general log, what consuming sends: statements, and log flushes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.lab.benchmarks.consume.log import FIRST

WRITE = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)
BEGIN = re.compile(r"\s*(START TRANSACTION|BEGIN|SET autocommit ?= ?0)", re.IGNORECASE)
END = re.compile(r"\s*(COMMIT|ROLLBACK|SET autocommit ?= ?1)", re.IGNORECASE)
CLAIM = re.compile(r"\s*INSERT INTO `ems_topic_group_log`")
OFFSET = re.compile(r"\b7\d{8}\b")  # FIRST and above


@dataclass(frozen=True)
class Cost:
    """Holds what so many messages cost; a flush is a commit of a transaction that has written."""

    messages: int
    statements: int
    flushes: int

    def per_100(self, number: int) -> float:
        return round(number / self.messages * 100, 3)


def far_behind(logged: dict[int, list[str]], end: int, behind: int) -> Cost:
    """Return what claims of the first half cost, when ``behind`` messages were to be consumed.

    Counted are the connections that claim, each from its first claim to the last one of that half:
    whole cycles. What EMS does by the clock, such as heartbeats, is not in it.
    """
    middle = end - behind // 2
    messages = statements = flushes = 0
    for texts in logged.values():
        claims = [
            (number, min(offsets), max(offsets))
            for number, text in enumerate(texts)
            if CLAIM.match(text) and (offsets := _offsets(text))
        ]
        claims = [claim for claim in claims if claim[1] < middle]
        if len(claims) < 2:
            continue
        # From behind the first claim up to the last: as many cycles as claims but one.
        window = texts[claims[0][0] + 1 : claims[-1][0] + 1]
        messages += sum(last - first + 1 for _number, first, last in claims[:-1])
        statements += len(window)
        flushes += commits_that_write(window)
    assert messages, "no connection has claimed twice far behind"
    return Cost(messages, statements, flushes)


def commits_that_write(texts: list[str]) -> int:
    """Return how many transactions have written; the first statement may be inside of one."""
    found, is_open, wrote = 0, True, True
    for text in texts:
        if END.match(text):
            found += is_open and wrote and not text.lstrip().upper().startswith("ROLLBACK")
            is_open = wrote = False
        elif BEGIN.match(text):
            is_open, wrote = True, False
        elif WRITE.match(text):
            if is_open:
                wrote = True
            else:
                found += 1
    return found


def _offsets(text: str) -> list[int]:
    return [number for found in OFFSET.findall(text) if (number := int(found)) >= FIRST]

"""The same consuming by nothing but mysqlclient: the statements of one delivery, sent again."""

from __future__ import annotations

import os
import re
from itertools import pairwise

from tests.lab.benchmarks.consume.log import FIRST
from tests.lab.benchmarks.server import connect, execute
from tests.lab.benchmarks.teams import Work


def unit_of_work(logged_statements: dict[int, list[str]]) -> tuple[list[str], int]:
    """One delivery as a worker's connection has it in the log: from one settlement to the next.

    And the number of its messages.

    What differs from delivery to delivery is marked: {start}, {end}, {last}, {delivery}, {token}.
    """
    settles = re.compile(r"^UPDATE `ems_topic_group_log` .*'DONE'")
    busiest = max(logged_statements.values(), key=lambda s: sum(map(bool, map(settles.match, s))))
    ends = [number for number, text in enumerate(busiest) if settles.match(text)]
    # One from the middle, and without a cursor that another process held.
    units = [busiest[a + 1 : b + 1] for a, b in pairwise(ends)]
    unit = min(units[1:-1], key=len)
    text = "\n;\n".join(unit)
    start, end = map(int, re.findall(r"`offset` >= (\d+) AND `offset` < (\d+)", text)[-1])
    assert FIRST <= start < end, text
    (token,) = set(re.findall(r"'([0-9a-f]{32})'", text))
    (delivery,) = set(re.findall(r"`ems_topic_group_log` SET.* WHERE .*?`id` = (\d+)", text))
    text = text.replace("{", "{{").replace("}", "}}")
    text = re.sub(rf"(`id` = ){delivery}\b", r"\g<1>{delivery}", text).replace(token, "{token}")
    marks = {start: "{start}", end: "{end}", end - 1: "{last}"}
    for number, mark in marks.items():
        text = re.sub(rf"\b{number}\b", mark, text)
    return text.split("\n;\n"), end - start


def replayer(unit: list[str], size: int, group: int, end: int) -> Work:
    """Go through the log with the statements of one delivery, of ``size`` messages."""
    from uuid import uuid4

    connection = connect()
    cursor = connection.cursor()
    me = f"raw@{os.getpid()}"
    # The group and the client are this one's; its cursor is found as the statements find it.
    ((sampled,),) = execute(
        connection, f"SELECT id FROM ems_group WHERE name = 'ours' AND id <> {group}"
    )
    ((theirs,), (mine,)) = (
        execute(connection, f"SELECT id FROM ems_cursor WHERE group_id = {of}")[0]
        for of in (sampled, group)
    )
    unit = [_as_group(text, sampled, group, theirs, mine, me) for text in unit]

    def deliver() -> bool:
        values: dict[str, object] = {"token": uuid4().hex}
        for text in unit:
            cursor.execute(text.format(**values))
            rows = cursor.fetchall() if cursor.description else ()
            if "`ems_cursor`" in text and "FOR UPDATE" in text:
                if not rows:  # another process holds it: queue up for it
                    cursor.execute(text.replace("SKIP LOCKED", ""))
                    rows = cursor.fetchall()
                start = rows[0][0]
                if start >= end:
                    cursor.execute("ROLLBACK")
                    cursor.execute("SET autocommit = 1")
                    return False
                stop = min(start + size, end)
                values.update(start=start, end=stop, last=stop - 1)
            elif text.startswith("INSERT INTO `ems_topic_group_log`"):
                values["delivery"] = cursor.lastrowid
        return True

    def work(units: int) -> None:
        while deliver():
            pass

    return work


def _as_group(text: str, sampled: int, group: int, theirs: int, mine: int, me: str) -> str:
    text = re.sub(rf"(`group_id` = ){sampled}\b", rf"\g<1>{group}", text)
    if "`ems_cursor`" in text:
        text = re.sub(rf"(`id` = ){theirs}\b", rf"\g<1>{mine}", text)
    if text.startswith("INSERT INTO `ems_topic_group_log`"):
        text = re.sub(rf"(VALUES \(){sampled}\b", rf"\g<1>{group}", text)
        text = re.sub(r"'[^']*@\d+@[^']*'", f"'{me}'", text, count=1)
    return text

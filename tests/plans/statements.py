"""Records the statements that the code runs, with the plan and the work of each."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

EXPLAINABLE = re.compile(r"^\s*(SELECT|UPDATE|DELETE|INSERT INTO .*\bSELECT\b)", re.DOTALL)
# A table of these grows with the traffic; the others have a row for each topic, group or partition.
LARGE = {
    "ems_msg",
    "ems_topic_group_log",
    "ems_retry_msg",
    "ems_dead_msg",
    "ems_key",
    "ems_prepared",
}


@dataclass(frozen=True)
class Step:
    """Holds one table of a plan."""

    table: str
    access: str  # const, eq_ref, ref, range, index (a whole index) or ALL (a whole table)
    key: str | None
    key_length: int
    extra: str


@dataclass(frozen=True)
class Statement:
    sql: str
    steps: tuple[Step, ...]

    @property
    def indexes(self) -> list[str]:
        """``table.index`` of each step, in the order of the join; ``table.–`` for none."""
        return [f"{step.table}.{step.key or '–'}" for step in self.steps]

    def problems(self) -> list[str]:
        """What does not scale with the size of the tables."""
        found = []
        for step in self.steps:
            if step.table in LARGE and step.access in ("ALL", "index"):
                found.append(f"reads all of {step.table} ({step.access}, {step.key})")
            costly = ("filesort", "temporary", "join buffer")
            found += [f"{word} on {step.table}" for word in costly if word in step.extra]
        return found

    def __str__(self) -> str:
        lines = [self.sql[:400], *(f"    {step}" for step in self.steps)]
        return "\n".join(lines)


class Statements(list[Statement]):
    """Holds the statements that ran, in order."""

    def on(self, table: str, verb: str = "SELECT") -> list[Statement]:
        """Return the statements of this verb whose plan reads ``table``."""
        return [s for s in self if s.sql.startswith(verb) and table in {t.table for t in s.steps}]

    def only(self, *words: str) -> Statement:
        """Return the one statement whose text has all these words, however often it ran."""
        found = {s.sql: s for s in self if all(word in s.sql for word in words)}
        assert len(found) == 1, f"{len(found)} statements with {words}:\n{self}"
        return next(iter(found.values()))

    def assert_sound(self) -> None:
        """Check that no statement reads a whole large table, sorts or makes a temporary one."""
        bad = [f"{s}\n    !!! {'; '.join(s.problems())}" for s in self if s.problems()]
        assert not bad, "\n".join(bad)
        assert self, "nothing ran"

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@contextlib.contextmanager
def explained(alias: str = "default") -> Iterator[Statements]:
    """Explain each statement of the block just before it runs, with its own parameters."""
    connection = connections[alias]
    found = Statements()

    def wrapper(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if EXPLAINABLE.match(sql):
            found.append(Statement(sql, tuple(_plan(connection, sql, parameters))))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(wrapper):
        yield found


def _plan(connection: BaseDatabaseWrapper, sql: str, parameters: Sequence[Any]) -> Iterator[Step]:
    # Beside the wrapper: the driver's own cursor.
    with contextlib.closing(connection.connection.cursor()) as cursor:
        # MySQL 9 explains as a tree unless told otherwise; MariaDB knows no other form by name.
        form = "" if connection.mysql_is_mariadb else "FORMAT=TRADITIONAL "  # type: ignore[attr-defined]
        cursor.execute(f"EXPLAIN {form}{sql}", parameters)
        names = [column[0] for column in cursor.description]
        aliases = dict(re.findall(r"`(ems_\w+)` (?:AS )?`?([a-zA-Z]\w*)`?\b", sql))
        tables = {alias: table for table, alias in aliases.items()}
        # MySQL lists what an INSERT … SELECT writes to as well.
        target = next(iter(re.findall(r"^INSERT INTO `(\w+)`", sql)), None)
        for values in cursor.fetchall():
            row = dict(zip(names, values, strict=True))
            if row["table"] is None or row["table"] == target:
                continue
            yield Step(
                str(tables.get(row["table"], row["table"])),
                row["type"],
                row["key"],
                max(map(int, re.split(r"[,|]", str(row["key_len"] or 0)))),
                row["Extra"] or "",
            )

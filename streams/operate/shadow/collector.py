"""Collects what one call of a handler writes and sends, and refuses what could not be undone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.translation import gettext as _

from streams import body as bodies
from streams.database.retrying import DEADLOCK_OR_WAIT, error_number
from streams.database.sql.dialect import IMMEDIATE
from streams.errors import ShadowRefused
from streams.models import Partition
from streams.operate.shadow.statement import Written, written
from streams.operate.shadow.tokens import first_words
from streams.operate.shadow.values import Values, cut

SAVEPOINT = re.compile(r"\s*(SAVEPOINT|ROLLBACK\s+TO(?:\s+SAVEPOINT)?)\s+[`\"]?(\w+)", re.I)
CHANGES = re.compile(r"\b(?:INSERT|REPLACE|UPDATE|DELETE)\b", re.I)
SEND = "SEND"
MESSAGE = ("INSERT", "ems_msg")
# Headers that a tracer makes anew for each message.
OF_TRACERS = {"traceparent", "tracestate", "baggage"}
# What send() writes beside the message.
BOOKKEEPING = {"ems_dedup", "ems_topic", "ems_partition", "ems_cursor"}
READS = {"SELECT", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "SET", "PRAGMA", "USE", "VALUES"}
OF_TRANSACTIONS = {"SAVEPOINT", "RELEASE", "ROLLBACK"}
ENDS = {"COMMIT", "BEGIN", "START", "END", "XA"}
# After these the server commits by itself. SQLite takes the like into the transaction.
COMMITS = {
    *("ALTER", "ANALYZE", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL", "LOCK", "OPTIMIZE"),
    *("RENAME", "REPAIR", "RESET", "REVOKE", "TRUNCATE", "UNINSTALL", "UNLOCK"),
}


@dataclass
class Collector:
    """Collects what one call does; ``wrapper`` stands around the statements of a connection.

    ``unsafe`` are the tables of each alias whose rows a rollback does not take back. ``depth`` is
    the number of transaction blocks around the call, by alias.
    """

    using: str
    unsafe: Mapping[str, set[str]]
    atomic: bool
    depth: dict[str, int] = field(default_factory=dict)
    values: Values = field(default_factory=Values)
    contended: bool = False  # a deadlock or a lock wait: the call may end differently next time
    refused: ShadowRefused | None = None
    _done: list[tuple[str, Written]] = field(default_factory=list)
    _marks: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def wrote(self) -> list[Written]:
        return [one for _alias, one in self._done if one.verb != SEND]

    @property
    def sent(self) -> list[Written]:
        return [one for _alias, one in self._done if one.verb == SEND]

    def refuse(self, reason: str) -> ShadowRefused:
        """Note that the run cannot go on, even if the handler catches the error."""
        self.refused = self.refused or ShadowRefused(reason)
        return self.refused

    def wrapper(self, alias: str) -> Callable[..., Any]:
        def watch(execute: Any, sql: Any, parameters: Any, many: bool, context: Any) -> Any:
            connection = context["connection"]
            statement = str(sql)
            words = first_words(statement)
            verb = words[0] if words else ""
            self._refuse_commits(connection, statement, words)
            self._forgive(connection)
            before = len(self._done)
            if verb and not _reads(verb, statement):
                self._collect(alias, statement, parameters, many)
            try:
                result = execute(sql, parameters, many, context)
            except BaseException as error:
                del self._done[before:]
                if error_number(error) in DEADLOCK_OR_WAIT:
                    self.contended = True
                raise
            self._mark(alias, statement, verb)
            if len(self._done) > before:
                self._count(alias, verb, context["cursor"], before)
            return result

        return watch

    def _refuse_commits(
        self, connection: BaseDatabaseWrapper, statement: str, words: list[str]
    ) -> None:
        verb = words[0] if words else ""
        second = words[1] if len(words) > 1 else ""
        commits = verb in ENDS or (verb == "ROLLBACK" and second != "TO")
        if connection.vendor == "mysql":
            commits = commits or (verb in COMMITS and second != "TEMPORARY")
            commits = commits or (verb == "SET" and "autocommit" in statement.lower())
        if commits:
            raise self.refuse(
                _("The handler ends its transaction, which a shadow replay cannot undo: %.200s")
                % statement
            )

    def _forgive(self, connection: Any) -> None:
        """Let a handler without ``atomic`` go on after a statement that has failed.

        Outside a shadow replay it is in no transaction that such a statement could break.
        """
        depth = self.depth.get(connection.alias)
        if connection.needs_rollback and not self.atomic and depth is not None:
            blocks = len(connection.atomic_blocks) - depth
            if not blocks or not any(connection.savepoint_ids[-blocks:]):
                connection.needs_rollback = False

    def _collect(self, alias: str, statement: str, parameters: Any, many: bool) -> None:
        for values in parameters if many else [parameters]:
            for one in written(statement, values, self.values.text):
                if one.table in self.unsafe.get(alias, ()):
                    raise self.refuse(
                        _("The handler writes to %s, whose engine has no transactions.") % one.table
                    )
                if alias != self.using:
                    one = one._replace(table=f"{alias}.{one.table}")
                elif one.table in BOOKKEEPING or one[:2] == MESSAGE:
                    continue
                self._done.append((alias, _short(one)))
            if alias == self.using and "ems_msg" in statement:
                rows = [row for row in written(statement, values, _raw) if row[:2] == MESSAGE]
                self._done += [(alias, _short(self._sent(dict(row.values)))) for row in rows]

    def _sent(self, row: dict[str, str]) -> Written:
        """Return what was sent, from the row of the message: its fields, and those of its body."""
        partitions = Partition.objects.using(self.using).filter(pk=row["partition_id"])
        topic = partitions.values_list("topic__name", flat=True).get()
        parts = {name: row[name] for name in ("key", "tag") if row[name] not in ("NULL", "", "''")}
        if row["due_at"].strip("'") != IMMEDIATE:
            parts["due_at"] = row["due_at"]
        headers = json.loads(row["headers"]) if row["headers"] != "NULL" else {}
        for name in sorted(set(headers) - OF_TRACERS):
            parts[f"headers.{name}"] = self.values.text("", name, headers[name])
        kind = row["body_type"].strip("'")
        raw = bytes.fromhex(row["body"].removeprefix("x").strip("'"))
        body = bodies.decode(raw, kind)
        if isinstance(body, dict):
            parts |= {f"body.{name}": self.values.json(name, body[name]) for name in sorted(body)}
        else:
            is_json = kind == bodies.JSON
            text = self.values.json("body", body) if is_json else self.values.text("", "body", body)
            parts["body"] = text
        return Written(SEND, topic, tuple(parts.items()))

    def _mark(self, alias: str, statement: str, verb: str) -> None:
        """Drop what a rollback to a savepoint has undone."""
        if verb not in OF_TRANSACTIONS or not (match := SAVEPOINT.match(statement)):
            return
        if verb == "SAVEPOINT":
            self._marks[alias, match[2]] = len(self._done)
        else:
            mark = self._marks.get((alias, match[2]), 0)
            kept = [one for one in self._done[mark:] if one[0] != alias]
            self._done[mark:] = kept

    def _count(self, alias: str, verb: str, cursor: Any, before: int) -> None:
        """Note how many rows a statement has changed, and the ids of those that it has inserted."""
        _alias, last = self._done[-1]
        if verb in ("INSERT", "REPLACE"):
            if last.verb != SEND:
                rows = len(self._done) - before
                self.values.inserted(last.table, _new_ids(cursor, rows, connections[alias].vendor))
        elif verb in ("UPDATE", "DELETE") and not cursor.rowcount:
            del self._done[before:]  # a condition that no row has met has changed nothing
        elif cursor.rowcount > 0:
            counted = last._replace(values=(*last.values, ("rows", str(cursor.rowcount))))
            self._done[-1] = alias, counted


def _reads(verb: str, statement: str) -> bool:
    if verb == "WITH":
        return not CHANGES.search(statement)
    return verb in READS or verb in OF_TRANSACTIONS


def _new_ids(cursor: Any, rows: int, vendor: str) -> list[int]:
    if vendor == "mysql" and cursor.description:  # RETURNING, of MariaDB: the rows stay there
        columns = [column[0] for column in cursor.description]
        found = cursor.fetchall()
        cursor.scroll(0, "absolute")
        return [row[0] for row in found if columns and isinstance(row[0], int)]
    last = getattr(cursor, "lastrowid", None)
    if not isinstance(last, int) or not last:
        return []
    # One statement gets ids in a row: MySQL tells the first of them, SQLite the last.
    first = last if vendor == "mysql" else last - rows + 1
    return list(range(first, first + rows))


def _raw(table: str, column: str, value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return "NULL" if value is None else str(value)


def _short(one: Written) -> Written:
    return one._replace(values=tuple((name, cut(text)) for name, text in one.values))

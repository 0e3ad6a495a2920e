"""Splits a statement that changes rows into what it writes: a table, columns and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from streams.operate.shadow.tokens import (
    Token,
    after,
    bare,
    before,
    first_words,
    named,
    parenthesis,
    skipped,
    split,
    tokens_of,
)

# Words after which a value belongs to no column that was named before it.
NO_COLUMN = {"THEN", "ELSE"}
KEYWORDS = {
    *("AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN", "WHERE", "CASE", "WHEN", "END", "BINARY"),
    *("LIMIT", "ORDER", "BY", "COALESCE", "CAST", "AS", "ON", "USING", "EXISTS", "SELECT", "FROM"),
}
ENDS_OF_SET = {"WHERE", "ORDER", "LIMIT", "RETURNING"}

# Of a table, a column and a parameter, the text that stands for the value.
Show = Callable[[str, str, Any], str]


class Written(NamedTuple):
    """Holds what one row, or one condition, is given: the texts of values by column, sorted."""

    verb: str
    table: str
    values: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.verb} {self.table}: " + ", ".join(f"{c}={v}" for c, v in self.values)


def written(statement: str, parameters: Any, show: Show) -> list[Written]:
    """Return what the statement writes: for an INSERT of several rows one thing for each.

    A statement that is not understood is one thing with its whole text.
    """
    verb = next(iter(first_words(statement)), "")
    tokens = tokens_of(statement, parameters)
    if tokens is None:
        return [_whole(verb, statement, parameters, show)]
    try:
        if verb in ("INSERT", "REPLACE"):
            return _inserted(verb, tokens, show)
        if verb == "UPDATE":
            return [_updated(tokens, show)]
        if verb == "DELETE":
            return [_deleted(tokens, show)]
    except (ValueError, IndexError, StopIteration):
        pass
    return [_whole(verb, statement, parameters, show)]


def _whole(verb: str, statement: str, parameters: Any, show: Show) -> Written:
    named = parameters if isinstance(parameters, dict) else dict(enumerate(parameters or (), 1))
    found = re.search(r"(?:INTO|FROM|UPDATE|TABLE)\s+[`\"]?(\w+)", statement, re.IGNORECASE)
    table = found[1] if found else ""
    values = sorted((str(name), show(table, str(name), value)) for name, value in named.items())
    return Written(verb, table, (("statement", " ".join(statement.split())), *values))


def _inserted(verb: str, tokens: list[Token], show: Show) -> list[Written]:
    place = after(tokens, {"INTO"})
    table, place = named(tokens, place)
    names, place = parenthesis(tokens, place)
    columns = [bare(cell[-1]) for cell in split(names)]
    if tokens[place].text.upper() not in ("VALUES", "VALUE"):
        raise ValueError(tokens[place].text)
    place += 1
    rows = []
    while place < len(tokens) and tokens[place].text == "(":
        row, place = parenthesis(tokens, place)
        cells = zip(columns, split(row), strict=True)
        rows.append([(name, _text(cell, table, name, show)) for name, cell in cells])
        if place < len(tokens) and tokens[place].text == ",":
            place += 1
    if not rows:
        raise ValueError(verb)
    if clause := _text(before(tokens[place:], {"RETURNING"}), table, "", show):
        for values in rows:
            values.append(("on conflict", clause))
    return [Written(verb, table, tuple(sorted(values))) for values in rows]


def _updated(tokens: list[Token], show: Show) -> Written:
    table, place = named(tokens, skipped(tokens, 1))
    start = after(tokens, {"SET"}, place)
    assigned = before(tokens[start:], ENDS_OF_SET)
    values = []
    for cell in split(assigned):
        sign = next(i for i, token in enumerate(cell) if token.text == "=")
        column = bare(cell[sign - 1])
        values.append((column, _text(cell[sign + 1 :], table, column, show)))
    condition = [*tokens[place : start - 1], *tokens[start + len(assigned) :]]
    return Written("UPDATE", table, (*sorted(values), *_where(condition, table, show)))


def _deleted(tokens: list[Token], show: Show) -> Written:
    table, place = named(tokens, after(tokens, {"FROM"}))
    return Written("DELETE", table, _where(tokens[place:], table, show))


def _where(tokens: list[Token], table: str, show: Show) -> tuple[tuple[str, str], ...]:
    text = _text(tokens, table, "", show).removeprefix("WHERE ")
    return (("where", text),) if text else ()


def _text(tokens: Sequence[Token], table: str, column: str, show: Show) -> str:
    """Return the tokens as a text, each value as ``show`` gives it for the column before it."""
    parts: list[str] = []
    near = column
    for place, token in enumerate(tokens):
        shown = bare(token)
        if token.kind == "value":
            shown = show(table, near, token.value)
        elif _is_prefix(tokens, place, table):
            continue
        elif token.kind == "name":
            near = shown
        elif token.kind == "word" and shown.upper() in NO_COLUMN:
            near = column
        elif token.kind == "word" and shown.upper() not in KEYWORDS:
            near = shown
        if parts and not _touches(parts[-1], token):
            parts.append(" ")
        parts.append(shown)
    return "".join(parts)


def _is_prefix(tokens: Sequence[Token], place: int, table: str) -> bool:
    """Tell whether the token is the name of the table before a column, or the dot after it."""
    if tokens[place].text == ".":
        return place > 0 and bare(tokens[place - 1]) == table
    after = tokens[place + 1].text if place + 1 < len(tokens) else ""
    return after == "." and bare(tokens[place]) == table


def _touches(last: str, token: Token) -> bool:
    """Tell whether no blank stands between ``last`` and the token."""
    if token.text in (")", ",", ".") or last in ("(", "."):
        return True
    if token.text == "(":
        return last.isidentifier() and last.upper() not in KEYWORDS  # a function
    return (token.kind == "text" and last == "x") or (token.text in "<>=" and last in "<>!")

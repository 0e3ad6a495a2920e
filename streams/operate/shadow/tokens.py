"""Splits a statement into its tokens, and finds its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

TOKEN = re.compile(
    r"(?P<name>`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\")"
    r"|(?P<text>'(?:[^'\\]+|\\.|'')*')"
    r"|(?P<value>%s)"
    r"|(?P<word>[^\W\d][\w$]*)"
    r"|(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<other>%%|\d[\w.]*|.)",
    re.DOTALL,
)


class Token(NamedTuple):
    """Holds a part of a statement; ``kind`` is a group of TOKEN, ``value`` that of a parameter."""

    kind: str
    text: str
    value: Any = None


def first_words(statement: str) -> list[str]:
    """Return the first two words of the statement in upper case, without comments."""
    words: list[str] = []
    for match in TOKEN.finditer(statement):
        if match.lastgroup == "space" or match[0] in "(@":
            continue
        words.append(match[0].strip('`"').upper())
        if len(words) == 2:
            break
    return words


def tokens_of(statement: str, parameters: Any) -> list[Token] | None:
    """Return the tokens with their parameters; None if these are not a list of as many."""
    if parameters is not None and not isinstance(parameters, list | tuple):
        return None
    values = iter(parameters or ())
    tokens = []
    for match in TOKEN.finditer(statement):
        kind = str(match.lastgroup)
        if kind == "value":
            try:
                tokens.append(Token(kind, "%s", next(values)))
            except StopIteration:
                return None
        elif kind != "space":
            tokens.append(Token(kind, match[0]))
    return None if any(True for _left in values) else tokens


def bare(token: Token) -> str:
    return token.text[1:-1] if token.kind == "name" else token.text


def skipped(tokens: list[Token], place: int) -> int:
    """Skip words such as IGNORE between the verb and the name of the table."""
    while tokens[place].text.upper() in ("LOW_PRIORITY", "IGNORE", "OR", "REPLACE", "ONLY"):
        place += 1
    return place


def named(tokens: list[Token], place: int) -> tuple[str, int]:
    """Return the name of a table, without that of its database, and the place after it."""
    while place + 1 < len(tokens) and tokens[place + 1].text == ".":
        place += 2
    if place >= len(tokens) or tokens[place].kind not in ("name", "word"):
        raise ValueError("no table")
    return bare(tokens[place]), place + 1


def levels(tokens: Sequence[Token]) -> Iterator[tuple[int, Token, int]]:
    """Yield the place of each token, the token, and in how many parentheses it is."""
    depth = 0
    for place, token in enumerate(tokens):
        depth -= token.text == ")"
        yield place, token, depth
        depth += token.text == "("


def after(tokens: list[Token], words: set[str], start: int = 0) -> int:
    """Return the place after the first of ``words``; raises ValueError if there is none."""
    for place, token, depth in levels(tokens[start:]):
        if not depth and token.kind == "word" and token.text.upper() in words:
            return start + place + 1
    raise ValueError(words)


def before(tokens: list[Token], words: set[str]) -> list[Token]:
    """Return the tokens before the first of ``words``, or all."""
    for place, token, depth in levels(tokens):
        if not depth and token.kind == "word" and token.text.upper() in words:
            return tokens[:place]
    return tokens


def parenthesis(tokens: list[Token], start: int) -> tuple[list[Token], int]:
    """Return what is in the parentheses that begin at ``start``, and the place after them."""
    if start >= len(tokens) or tokens[start].text != "(":
        raise ValueError("no parenthesis")
    depth = 0
    for place in range(start, len(tokens)):  # no slice: a statement may have thousands of rows
        depth += {"(": 1, ")": -1}.get(tokens[place].text, 0)
        if not depth:
            return tokens[start + 1 : place], place + 1
    raise ValueError("no end")


def split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at the commas that are in no parentheses."""
    cells: list[list[Token]] = [[]]
    for _place, token, depth in levels(tokens):
        if token.text == "," and not depth:
            cells.append([])
        else:
            cells[-1].append(token)
    return cells

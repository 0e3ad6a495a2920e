"""Reads the documents of the project, and the parts of them that a test uses."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def blocks(document: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language, in order."""
    return [text for kind, text in FENCE.findall(document.read_text()) if kind == language]


def files(document: Path) -> dict[str, str]:
    """Return the Python blocks that begin with the name of a file, as {name: text}."""
    named = re.compile(r"# (\S+\.py)\n")
    found = [(named.match(text), text) for text in blocks(document, "python")]
    return {match[1]: text for match, text in found if match}


def section(document: Path, heading: str) -> str:
    """Return the text under a heading, up to the next heading of any level."""
    after = re.split(rf"^#+ {re.escape(heading)}$", document.read_text(), flags=re.MULTILINE)[1]
    return HEADING.split(after)[0]


def table(document: Path, heading: str) -> dict[str, str]:
    """Return the first two columns of the table under a heading, as {name: value}, unquoted."""
    lines = [line for line in section(document, heading).splitlines() if line.startswith("|")]
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {row[0]: row[1] for row in rows}


def anchors(document: Path) -> set[str]:
    """Return the anchors that links may name, as GitHub makes them of the headings."""
    text = FENCE.sub("", document.read_text())
    titles = [title.lower() for title in HEADING.findall(text)]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}

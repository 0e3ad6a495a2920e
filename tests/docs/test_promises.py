"""Each promise of the README names its tests, in docs/contributing/promises.md."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.documents import DOCS, README, ROOT, anchors, section

PAGE = DOCS / "contributing" / "promises.md"
HEADINGS = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
LINK = re.compile(r"\(docs/contributing/promises\.md#([\w-]+)\)")
PROMISES = "What it promises, and what breaks each promise"


def test_every_promise_of_the_readme_has_a_section_and_every_section_a_promise() -> None:
    promised = LINK.findall(section(README, PROMISES))
    assert sorted(promised) == sorted(anchors(PAGE) - {"promises-and-their-tests"})


def test_nothing_is_promised_without_a_link_to_its_tests() -> None:
    text = section(README, PROMISES)
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    points = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    assert rows
    assert points
    for promise in (*rows, *points):
        assert LINK.search(promise), promise


@pytest.mark.parametrize("heading", HEADINGS)
def test_every_promise_names_tests_that_exist(heading: str) -> None:
    named = NAMED.findall(section(PAGE, heading))
    assert named
    for path, name in named:
        assert name in functions(path), f"{path}::{name}"


def test_the_test_of_all_promises_together_exists() -> None:
    for path, name in NAMED.findall(PAGE.read_text()):
        assert name in functions(path), f"{path}::{name}"


def functions(path: str) -> set[str]:
    """The tests in a file, as pytest names them: ``test_x``, ``TestY::test_x``."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (one for one in node.body if isinstance(one, ast.FunctionDef))
            found |= {f"{node.name}::{one.name}" for one in inner}
    return found

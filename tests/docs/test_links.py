"""Links, commands and code in the documents lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.documents import DOCUMENTS, FENCE, ROOT, anchors, blocks

LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
NAMED = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS]


@pytest.mark.parametrize("document", NAMED)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(document: Path) -> None:
    for link in LINK.findall(FENCE.sub("", document.read_text())):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("document", NAMED)
def test_every_file_that_is_named_exists(document: Path) -> None:
    pattern = r"`((?:streams|monitoring|sparkjobs|emsproject|tests|docs|fixtures)/[\w/.-]+)`"
    for name in re.findall(pattern, document.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("document", NAMED)
def test_every_make_target_that_is_named_exists(document: Path) -> None:
    (targets,) = re.findall(r"^TARGETS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    text = document.read_text()
    named = re.findall(r"^make ([\w-]+)|`make ([\w-]+)", text, re.MULTILINE)
    assert {one or other for one, other in named} <= set(targets.split())


@pytest.mark.parametrize("document", NAMED)
def test_every_python_block_compiles(document: Path) -> None:
    for block in blocks(document, "python"):
        ast.parse(block)

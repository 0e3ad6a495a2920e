"""The pages make one site, which needs nothing but its own files: `make docs` builds it."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise

import pytest

from tests import llms
from tests.docs.documents import DOCS, FENCE, HEADING, ROOT

SITE = (ROOT / "mkdocs.yml").read_text()
PAGES = sorted(DOCS.rglob("*.md"))
NAMED = [pytest.param(page, id=str(page.relative_to(DOCS))) for page in PAGES]


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"- [^:\n]+: (\S+\.md)$", SITE, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


@pytest.mark.parametrize("page", NAMED)
def test_no_page_links_to_what_is_not_in_the_site(page) -> None:
    """On GitHub such a link works, in the site it does not."""
    text = FENCE.sub("", page.read_text())
    for link in re.findall(r"\]\(([^)\s#]+)", text):
        if not link.startswith("https://"):
            target = (page.parent / link).resolve()
            assert target.is_file(), link
            assert target.is_relative_to(DOCS), link


@pytest.mark.parametrize("page", NAMED)
def test_every_page_begins_with_its_one_title(page) -> None:
    text = FENCE.sub("", page.read_text())
    assert text.startswith("# ")
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    headings = HEADING.findall(text)
    assert len(headings) == len(set(headings)), "two headings of one name have one anchor"


def test_the_site_loads_nothing_from_other_hosts() -> None:
    assert "font: false" in SITE
    # The theme would fetch the program that draws these from a host of its makers.
    assert not [page for page in PAGES if "```mermaid" in page.read_text()]


def test_the_list_of_pages_for_programs_is_that_of_the_navigation() -> None:
    assert llms.FILE.read_text() == llms.written(), "write it anew: python -m tests.llms"


def test_the_site_says_of_which_version_it_is() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\ncopyright: EMS {version}, Apache-2.0\n" in SITE


def test_the_glossary_is_in_the_order_of_the_alphabet() -> None:
    words = re.findall(r"^\*\*(.+?)\*\*: ", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) > 50
    assert all(one.lower() < other.lower() for one, other in pairwise(words))


def test_every_decision_is_linked_from_the_overview() -> None:
    text = (DOCS / "about" / "decisions.md").read_text()
    for page in (DOCS / "decisions").glob("*.md"):
        assert f"](../decisions/{page.name})" in text

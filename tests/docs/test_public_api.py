"""docs/reference/public-api.md names what is public, and the guides import nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version

import pytest

import streams
from tests.docs.documents import DOCS, README, blocks, section, table

PAGE = DOCS / "reference" / "public-api.md"
ROW = re.compile(r"^\| `([\w.]+)` \| (.*?) \|", re.MULTILINE)
MODULES = {
    name: re.findall(r"`(\w+)`", text) for name, text in ROW.findall(section(PAGE, "Modules"))
}
# A reader of these pages does not write code for a project.
INSIDE = ("about", "contributing", "decisions")
# Modules of which all names are public, or those that another page lists.
WHOLE = {"streams.errors", "streams.signals", "streams.contrib.tasks.compat"}
# What an extra brings.
NEEDS = {
    **dict.fromkeys(
        ("sparkjobs.session", "sparkjobs.lake.reading", "sparkjobs.source.schemas"), "pyspark"
    ),
    "sparkjobs.archive.ledger": "pyarrow",
}


def imported() -> Iterator[tuple[str, str]]:
    """Yield the modules and names of ours that the pages for users import."""
    for page in (README, *sorted(DOCS.rglob("*.md"))):
        if page.parent.name in INSIDE or page.parent.parent.name in INSIDE:
            continue
        for block in blocks(page, "python"):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    yield from ((node.module, one.name) for one in node.names)


def test_the_names_of_streams_are_those_of_the_page() -> None:
    assert [*table(PAGE, "Names of streams")] == streams.__all__


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_has_its_public_names(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    if name == "streams.contrib.tasks.compat":
        pytest.importorskip(name)
    module = import_module(name)
    if name != "streams.chaos":  # a fixture, which only pytest calls
        assert [one for one in MODULES[name] if not hasattr(module, one)] in ([], ["__all__"])


def test_the_guides_import_only_what_is_public() -> None:
    public = {("streams", one) for one in streams.__all__}
    public |= {(module, one) for module, names in MODULES.items() for one in names}
    ours = {
        (m, n) for m, n in imported() if m.split(".")[0] in ("streams", "monitoring", "sparkjobs")
    }
    assert {(m, n) for m, n in ours - public if m not in WHOLE} == set()


def test_the_version_is_that_of_the_package() -> None:
    assert streams.__version__ == version("django-ems")

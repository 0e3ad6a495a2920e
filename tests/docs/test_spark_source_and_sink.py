"""docs/guides/spark-source-and-sink.md knows every option and every column, and no others."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

pytest.importorskip("pyspark")

from sparkjobs.sink import columns, options
from sparkjobs.source.request import SourceRequest
from sparkjobs.source.schemas import LOADED
from sparkjobs.source.selection import NAMES
from tests.docs.documents import DOCS, table

PAGE = DOCS / "guides" / "spark-source-and-sink.md"


def names(heading: str) -> set[str]:
    """The names in the first column of a table; a row may have several."""
    cells = table(PAGE, heading)
    return {name for cell in cells for name in re.findall(r"\w+", cell)}


def test_every_option_of_the_sink_is_documented() -> None:
    assert {name.lower() for name in names("Options of the sink")} == options.NAMES


def test_every_column_of_the_sink_is_documented_with_its_types() -> None:
    documented = table(PAGE, "Columns of the sink")
    assert documented == {name: columns.names_of(types) for name, types in columns.COLUMNS.items()}


def test_every_option_of_the_source_is_documented() -> None:
    own = {field.name for field in fields(SourceRequest)} - {"selection"}
    assert names("Options of the source") == own | set(NAMES)


def test_every_column_of_the_source_is_documented_with_its_type() -> None:
    types = {column.name: column.dataType.simpleString() for column in LOADED}
    assert table(PAGE, "Columns of the source") == types

"""docs/tutorial.md, done from its first block to its last, in a project of its own, on SQLite."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.reader import Reader, do_all

# It brings a database of its own: once is enough.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.every_django,
    pytest.mark.any_database,
    pytest.mark.timeout(300),
]


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    with closing(Reader(tmp_path)) as reader:
        assert do_all(reader) > 30

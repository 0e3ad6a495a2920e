"""Opens what the Spark jobs read and write, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from monitoring.options import option_file
from sparkjobs.config import Config
from sparkjobs.database import connected


@pytest.fixture
def connection() -> Iterator[Any]:
    """Return the connection that a job would have, to the database of the test."""
    with option_file("default") as path, connected(Config.load(str(path))) as opened:
        yield opened

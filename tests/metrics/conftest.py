"""Leaves these tests out where prometheus-client is not installed; ends what they begin."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("prometheus_client") else ["test_*.py"]


@pytest.fixture(autouse=True)
def stop_counting() -> Iterator[None]:
    yield
    from streams.metrics import exposition, process

    process.stop()
    exposition._of_a_web_process.cache_clear()

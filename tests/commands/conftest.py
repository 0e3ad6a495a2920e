from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

Run = Callable[..., str]


@pytest.fixture
def run() -> Run:
    """Run a command; returns what it prints: ``run("ems_topics", "list")``."""

    def call(*words: str) -> str:
        out = StringIO()
        call_command(*words, stdout=out, stderr=StringIO())
        return out.getvalue()

    return call


@pytest.fixture
def parsed(run: Run) -> Callable[..., Any]:
    """Run the same with ``--json``, and return Python values."""
    return lambda *words: json.loads(run(*words, "--json"))

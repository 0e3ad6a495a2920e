"""Provides one seeded database for all plan tests; each test's own changes are rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command

from tests.plans.seed import Seed, seed


@pytest.fixture(scope="package")
def seeded(django_db_setup: None, django_db_blocker: Any) -> Iterator[Seed]:
    with django_db_blocker.unblock():
        yield seed()
        call_command("flush", verbosity=0, interactive=False)

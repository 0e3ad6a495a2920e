"""Proves handlers of host projects: it runs them under faults, and asks whether all is right.

    # conftest.py of the project
    pytest_plugins = ["streams.chaos"]

    # a test
    def test_each_order_is_booked_once(chaos):
        send("orders", {"number": 7, "total": 10})
        chaos.run("ledger", lambda: Entry.objects.count() == 1)

It needs the extra ``chaos``. docs/guides/chaos.md is its guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streams.chaos.proof import Chaos


@pytest.fixture
def chaos(request: pytest.FixtureRequest, transactional_db: None) -> Chaos:
    """Prove handlers of the project: ``chaos.run(group, holds)``.

    The rows of the databases that the mark ``django_db`` names are put back before each case.
    """
    from django.db import connections

    from streams.chaos.proof import Chaos

    mark = request.node.get_closest_marker("django_db")
    databases = (mark.kwargs.get("databases") if mark else None) or ()
    return Chaos(request.node.nodeid, tuple(connections if databases == "__all__" else databases))

"""What a process remembers of the tables: for how long, and when it forgets it."""

from __future__ import annotations

import os
import time

import pytest

from streams.database import remembered
from streams.database.remembered import Forgettable, Fresh

SECONDS = 60.0


@pytest.fixture(autouse=True)
def of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "_all", [])


@pytest.mark.any_database
def test_what_is_too_old_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Fresh[str, int] = Fresh()
    now = time.monotonic()
    assert known.keep("a", 0, now + SECONDS, "default") == 0
    assert (known.fresh("a"), known.fresh("b")) == (0, None)
    monkeypatch.setattr(time, "monotonic", lambda: now + SECONDS)
    assert known.fresh("a") is None


@pytest.mark.django_db
def test_in_a_test_case_nothing_is_remembered() -> None:
    known: Fresh[str, int] = Fresh()
    assert known.keep("a", 1, time.monotonic() + SECONDS, "default") == 1
    assert not known


@pytest.mark.any_database
def test_a_forked_process_forgets_all_but_what_survives_forks() -> None:
    known, survives = Forgettable[str, int](), Forgettable[str, int](survives_forks=True)
    known["a"] = survives["a"] = 1
    pid = os.fork()
    if not pid:
        os._exit(10 * len(known) + len(survives))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    remembered.forget()
    assert (known, survives) == ({}, {})

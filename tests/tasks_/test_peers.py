"""The tests of Django and of django-tasks-db pass with this backend, but for named ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks_.peers import run
from tests.tasks_.peers_suites import SUITES


@pytest.mark.exhaustive
@pytest.mark.every_database
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SUITES)
def test_the_tests_of_others_pass_but_for_named_ones(name: str, tmp_path: Path) -> None:
    suite = SUITES[name]
    report = run(suite, tmp_path)
    assert not report.unexpected, report.unexpected
    assert not report.no_longer
    assert report.counts["passed"] >= suite.at_least


def test_each_deviation_has_a_reason() -> None:
    reasons = [reason for suite in SUITES.values() for reason in suite.deviations.values()]
    assert len(reasons) <= 30
    assert all(reasons)

"""The tests of Django itself pass with this backend, but for those that peers.py names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks_ import peers


@pytest.mark.exhaustive
@pytest.mark.every_database
@pytest.mark.timeout(600)
def test_djangos_own_tests_pass_but_for_named_ones(tmp_path: Path) -> None:
    report = peers.run(tmp_path)
    assert not report.unexpected, report.unexpected
    assert not report.no_longer
    assert report.passed >= 60


def test_each_deviation_has_a_reason() -> None:
    assert len(peers.DEVIATIONS) <= 30
    assert all(peers.DEVIATIONS.values())

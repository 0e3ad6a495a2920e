"""The example of docs/guides/testing.md is a test that passes."""

from __future__ import annotations

import unittest
from importlib import import_module
from pathlib import Path

import pytest


@pytest.mark.django_db
def test_the_example_passes_in_a_host_projects_testcase(shop: Path) -> None:
    tests = unittest.defaultTestLoader.loadTestsFromModule(import_module("shop.tests"))
    result = unittest.TestResult()
    tests.run(result)
    problems = [trace for _test, trace in (*result.failures, *result.errors)]
    assert problems == []
    assert result.testsRun == 2

"""Defines the fixtures of the tests of Django's tasks on topics."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from pytest_django import Settings

if not (find_spec("django.tasks") or find_spec("django_tasks")):
    collect_ignore_glob = ["test_*.py"]

BACKEND = "streams.contrib.tasks.EmsBackend"


@pytest.fixture
def use_tasks(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, clean_registry: None
) -> Callable[..., Any]:
    """Set TASKS, here and in children: ``use_tasks(OPTIONS={…})``; return the module of tasks."""

    def use(**more: Any) -> Any:
        from streams.consume import registry
        from streams.contrib.tasks import queues

        tasks = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "emails"], **more}}
        settings.TASKS = tasks
        monkeypatch.setenv("EMS_TEST_TASKS", json.dumps(tasks))
        monkeypatch.setattr(registry, "_registered", {})
        queues.register()
        return import_module("tests.tasks_.work")

    return use


@pytest.fixture
def work(use_tasks: Callable[..., Any]) -> Any:
    """Return the module of tasks, with two queues and the default options."""
    return use_tasks()

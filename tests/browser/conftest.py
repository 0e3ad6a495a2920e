"""Serves the admin to a real browser, and logs an operator in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from tests.browser.chromium import Chromium, Tab
from tests.browser.strict import content_security_policy

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    started = Chromium()
    yield started
    started.close()


@pytest.fixture
def server(transactional_db: None, settings: Any) -> Iterator[LiveServer]:
    """Serve the project in a thread, with the policy that the pages promise to keep to."""
    policy = f"{content_security_policy.__module__}.{content_security_policy.__name__}"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, policy]
    settings.ALLOWED_HOSTS = ["*"]
    started = LiveServer("127.0.0.1")
    yield started
    started.stop()


@pytest.fixture
def open_tab(chromium: Chromium, server: LiveServer) -> Iterator[Callable[..., Tab]]:
    """Open tabs of the operator ``root``: ``open_tab(viewport=PHONE)``.

    What the browser refuses, or says of an error, fails the test.
    """
    client = Client()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    tabs: list[Tab] = []

    def open_one(**look: Any) -> Tab:
        tab = chromium.open(server.url, **look)
        tab.log_in(client.cookies[configured.SESSION_COOKIE_NAME].value)
        tabs.append(tab)
        return tab

    yield open_one
    problems = [problem for tab in tabs for problem in tab.problems]
    for tab in tabs:
        tab.close()
    assert not problems


@pytest.fixture
def tab(open_tab: Callable[..., Tab]) -> Tab:
    return open_tab()

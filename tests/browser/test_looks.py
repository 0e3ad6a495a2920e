"""Every page in the worst case: on a phone, in the dark, under the policy, without an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.__main__ import LOOKS, pages
from tests.browser.chromium import Tab
from tests.browser.worst import make_worst

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.exhaustive,
    pytest.mark.timeout(600),  # thirty pages, of five thousand letters
]


def test_no_page_is_wider_than_a_phone_and_none_has_an_error(open_tab: Callable[..., Tab]) -> None:
    make_worst()
    wide = []
    for look in ("phone", "dark"):
        tab = open_tab(**LOOKS[look])
        for name, path in pages().items():
            tab.go(path)
            width, shown = tab.ask("() => [document.body.scrollWidth, window.innerWidth]")
            if width > shown:
                wide.append(f"{name}: {width} > {shown}")
    assert not wide
